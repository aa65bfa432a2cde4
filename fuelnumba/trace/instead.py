"""What to write in place of a NumPy function that is not covered: by meaning where it is known, else what is spelled alike."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["by_meaning", "nearest"]

_GROUPS = {
    "sort argsort lexsort partition argpartition sort_complex searchsorted digitize median nanmedian percentile nanpercentile "
    "quantile nanquantile":
        "sorting is not covered; np.max, np.min, np.argmax and np.argmin are. Sort outside the jitted function",
    "nonzero flatnonzero argwhere unique unique_all unique_counts unique_inverse unique_values extract compress trim_zeros "
    "setdiff1d intersect1d union1d setxor1d":
        "the length of its result depends on the values; np.where(mask, x, other) keeps the shape",
    "isin": "compare with each and ask for any: np.any(x[:, None] == values, axis=-1)",
    "bincount histogram histogram2d histogramdd histogram_bin_edges":
        "compare with each bin and sum: np.sum(x[:, None] == np.arange(n), axis=0)",
    "inv pinv solve tensorsolve tensorinv lstsq cholesky qr svd svdvals eig eigh eigvals eigvalsh det slogdet cond matrix_rank":
        "factorisations are not covered; np.matmul, np.einsum and np.linalg.norm are. Compute it outside the jitted function",
    "matrix_power multi_dot": "write the products out: a @ b @ c",
    "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftshift ifftshift":
        "transforms are not covered; a product with a matrix of np.cos and np.sin is one. Or compute it outside",
    "isclose allclose": "write np.abs(x - y) <= tolerance, and np.all of it",
    "choose select piecewise": "use np.where, once for each case",
    "nan_to_num": "use np.where(np.isnan(x), 0, x)",
    "nansum nanprod nanmean nanvar nanstd nanmin nanmax nanargmin nanargmax nancumsum nancumprod":
        "replace NaN first, e.g. np.sum(np.where(np.isnan(x), 0, x))",
    "heaviside": "use np.where(x < 0, 0.0, np.where(x > 0, 1.0, h))",
    "cbrt": "write np.sign(x) * np.abs(x) ** (1 / 3)",
    "sinh cosh": "write it with np.exp(x) and np.exp(-x)",
    "average": "write np.sum(weights * x) / np.sum(weights), or np.mean(x)",
    "cov corrcoef": "subtract np.mean and multiply: d.T @ d / (n - 1)",
    "kron": "use np.multiply of x[:, None, :, None] and y[None, :, None, :], and reshape",
    "cross": "use products of columns and np.stack",
    "gradient ediff1d": "use np.diff",
    "interp": "use np.take for the neighbours and weigh them",
    "trapezoid": "write np.sum((y[1:] + y[:-1]) / 2 * np.diff(x))",
    "convolve correlate": "use the sum of shifted products, x[k:k + n] * w[k]",
    "trace diagonal": "use np.sum(x * np.eye(n), axis=-1)",
    "diag diagflat": "multiply by np.eye(n)",
    "meshgrid ix_": "insert axes, x[:, None] and y[None, :], or np.broadcast_arrays",
    "rot90": "use np.flip and np.swapaxes",
    "append insert delete block": "use np.concatenate of the parts",
    "resize": "use np.tile or np.reshape",
    "rollaxis": "use np.moveaxis",
    "polyval": "write Horner's rule: (c0 * x + c1) * x + c2",
    "apply_along_axis apply_over_axes": "use functions with axis=, which work on whole arrays",
    "angle imag real_if_close": "values are real",
    "isreal iscomplex": "values are real: np.ones_like(x, dtype=bool) or np.zeros_like(x, dtype=bool)",
    "packbits unpackbits": "use >> and & with np.arange(8)",
    "logaddexp2": "write np.logaddexp(x * np.log(2), y * np.log(2)) / np.log(2)",
    "fmax fmin": "use np.maximum or np.minimum, and np.where(np.isnan(x), y, x)",
    "fmod": "use x - y * np.trunc(x / y)",
    "ldexp": "write x * 2.0**n",
    "modf": "use np.trunc(x) and x - np.trunc(x)",
}
_BY_MEANING = {name: cure for names, cure in _GROUPS.items() for name in names.split()}


def by_meaning(name: str) -> str | None:
    """What does the same as a function of this name; None where that is not known."""
    return _BY_MEANING.get(name)


def nearest(name: str, covered: Iterable[str]) -> str:
    """A cure for the use of a function that is not covered: `numpy.linalg.inv`."""
    short = name.rpartition(".")[2]
    if short in _BY_MEANING:
        return _BY_MEANING[short]
    near = difflib.get_close_matches(short, [c.rpartition(".")[2] for c in covered], n=3, cutoff=0.6)
    start = f"near to it are covered: {', '.join(f'np.{n}' for n in near)}" if near else "write it with covered functions"
    return start + "; docs/numpy.md lists all"
