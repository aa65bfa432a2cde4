"""Language models on top of the tracer: files, tokenizers, sampling and the traced step."""
