"""Floor 0: the vocabulary everything else is written in. Imports nothing of the package outside `core`."""
