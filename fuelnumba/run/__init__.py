"""Floor 4: plans made concrete and run."""
