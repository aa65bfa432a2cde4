"""What looks at the house from outside: the op table as text, the generated parts of the docs, the doctor."""
