"""What tensor compilers have been seen to get wrong, each kind with values worked by hand or computed in float64.

A docstring says what the fault would look like. Values go through fused code as well as through single ops, and at lengths
that leave a rest after whole vectors.
"""
