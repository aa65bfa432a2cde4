"""Floor 1: the ops, one file per family, with their kernels next to them. Importing this declares them all."""

from ..core.ops import OPS
from . import (  # noqa: F401
    attention,
    elementwise,
    gpu_attention,
    gpu_matmul,
    gpu_norm,
    gpu_reduce,
    index,
    matmul,
    memory,
    movement,
    norm,
    reduce,
    special,
)

BUILT_IN = frozenset(OPS)  # what users declare comes later
