"""Floor 1: the ops, one file per family, with their kernels next to them. Importing this declares them all."""

from ..core.ops import OPS
from . import attention, elementwise, index, matmul, memory, movement, norm, reduce, special  # noqa: F401

BUILT_IN = frozenset(OPS)  # what users declare comes later
