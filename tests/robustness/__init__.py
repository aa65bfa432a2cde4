"""What must not happen whatever the caller does: crashes, raw errors, hangs. Each module is a script that makes a full figure,
and `test_robustness.py` runs a small part of the same code."""
