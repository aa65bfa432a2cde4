"""For tests of ops and kernels: parity with float64 references, in every dtype and layout.

`assert_parity(op, *arrays)` compares one call; `cases(op)` gives an op's cases out of the op table; the pytest plugin
(`@pytest.mark.parity`) makes a test of them. See docs/testing.md.
"""

from .cases import MIXED, ParityCase, cases
from .parity import assert_parity, ulp
from .values import LAYOUTS, SAME_VALUES, edge_values, layout_of, sample_values, tolerance, with_layout

__all__ = ["LAYOUTS", "MIXED", "SAME_VALUES", "ParityCase", "assert_parity", "cases", "edge_values", "layout_of", "sample_values",
           "tolerance", "ulp", "with_layout"]
