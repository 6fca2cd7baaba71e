"""What to write for functions of NumPy that are not there and that few programs use.

Owns the texts. Must not know who says them (``foreign_names.py`` has the usual ones).
"""

from __future__ import annotations

_NO_COMPLEX = "there are no complex numbers: keep the real and the imaginary part in two arrays"
_PLACES = "compare places: `op.arange(n)[:, None] >= op.arange(n)`, and choose with `op.where`"
_ROWS = "write the parts: `x[0:n]`, `x[n:]`"
_COLUMNS = "write the parts: `x[:, 0:n]`, `x[:, n:]`"
_OTHERS = "of the others, in the host program: `op.{}`"
_SETS = ("in the host program write `op.unique`, with `return_index=`, `return_inverse=` and"
         " `return_counts=`")  # fmt: skip
_STORES = "store them: `x[mask] = 0.0`, or `x[places] = values`"
_SIZES = "arrays keep their sizes: join parts by `op.concat((x[0:k], v, x[k:]))`"
_FILES = 'the host program reads and writes files: `op.load("x.csv")`, `op.save("x.npy", x)`'
_COPY = "arrays are row-major unless a view is passed; for one of its own write `x.copy()`"
_WINDOW = "2.0 * op.pi * op.arange(n) / (n - 1)"


def _each(names: str, text: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), text)


NUMPY_FORMS: dict[str, str] = {
    **_each("angle conjugate iscomplex iscomplexobj isreal isrealobj real_if_close sort_complex",
            _NO_COMPLEX),
    **_each("tril_indices tril_indices_from triu_indices triu_indices_from diag_indices"
            " diag_indices_from mask_indices", _PLACES),
    **_each("vsplit array_split", _ROWS),
    "hsplit": _COLUMNS,
    "dsplit": "write the parts: `x[:, :, 0:n]`, `x[:, :, n:]`",
    **_each("unique_all unique_counts unique_inverse unique_values", _SETS),
    **_each("place put putmask copyto put_along_axis", _STORES),
    **_each("insert resize trim_zeros", _SIZES),
    **_each("loadtxt genfromtxt fromfile savetxt savez savez_compressed load save", _FILES),
    **_each("ascontiguousarray asfortranarray asanyarray asarray_chkfinite asmatrix require",
            _COPY),
    **_each("polyadd polysub", "write `a + b` or `a - b`, of coefficients of equal number"),
    **_each("roots poly", "find a root in a loop: `x = x - p / dp`, with `p` and `dp` at `x`"),
    **_each("block bmat", "join rows, then those: `op.concat((op.concat((a, b), axis=1),"
            " op.concat((c, d), axis=1)), axis=0)`"),
    "polyfit": "the host program solves the normal equations: with `V = op.stack([x ** k for k in"
    " range(2, -1, -1)], axis=1)` it writes `op.solve(V.T @ V, V.T @ y)`",
    "polyder": "write `c[:n - 1] * op.arange(n - 1, 0, -1)`, of `n` coefficients",
    "polyint": "write `op.concat((c / op.arange(n, 0, -1), [0.0]))`, of `n` coefficients",
    "polymul": "add up the shifted parts, `y[k:k+n] += a[k] * b`, in a loop over `k`",
    "nancumsum": "write `op.cumsum(op.where(op.isnan(x), 0.0, x))`",
    "nancumprod": "write `op.cumprod(op.where(op.isnan(x), 1.0, x))`",
    "nanargmax": "write `op.argmax(op.where(op.isnan(x), -op.inf, x))`",
    "nanargmin": "write `op.argmin(op.where(op.isnan(x), op.inf, x))`",
    "nanmedian": _OTHERS.format("median(x[~op.isnan(x)])"),
    "nanquantile": _OTHERS.format("quantile(x[~op.isnan(x)], 0.5)"),
    "nanpercentile": _OTHERS.format("percentile(x[~op.isnan(x)], 50)"),
    "nanvar": "with `m = op.nanmean(x)` write `op.nanmean((x - m) ** 2)`",
    "nanstd": "with `m = op.nanmean(x)` write `op.sqrt(op.nanmean((x - m) ** 2))`",
    "hanning": f"write `0.5 - 0.5 * op.cos({_WINDOW})`",
    "hamming": f"write `0.54 - 0.46 * op.cos({_WINDOW})`",
    "blackman": f"write `0.42 - 0.5 * op.cos({_WINDOW}) + 0.08 * op.cos(2.0 * {_WINDOW})`",
    "bartlett": "write `1.0 - op.abs(2.0 * op.arange(n) / (n - 1) - 1.0)`",
    "geomspace": "write `a * (b / a) ** op.linspace(0.0, 1.0, 50)`",
    "logspace": "write `10.0 ** op.linspace(0.0, 2.0, 50)`",
    "indices": "write `op.arange(m)[:, None]` and `op.arange(n)[None, :]`",
    "histogram2d": "number the bins of both, and count the pairs:"
    " `op.sum((i[:, None, None] == op.arange(8)[None, :, None])"
    " & (j[:, None, None] == op.arange(8)[None, None, :]), axis=0)`",
    "matvec": "write `a @ v`",
    "vecmat": "write `v @ a`",
    "unravel_index": "write `k // n` and `k % n`, with `n` columns",
    "ravel_multi_index": "write `i * n + j`, with `n` columns",
    "ldexp": "write `x * op.exp2(k.to(x.dtype))`",
    "rollaxis": "write `op.moveaxis(x, 2, 0)`",
    "size": "write `x.size`",
    "shape": "write `x.shape`",
    "ndim": "write `x.ndim`",
    "unwrap": "with `d = op.diff(x)` and `r = d - 2.0 * op.pi * op.round(d / (2.0 * op.pi))` write"
    " `op.concat((x[:1], x[0] + op.cumsum(r)))`",
    "unpackbits": "write `op.ravel((x[:, None] >> op.arange(7, -1, -1)) & 1)`",
    "bitwise_count": "of 8 bits write `op.sum((x[:, None] >> op.arange(8)) & 1, axis=1)`",
    "packbits": "write `op.sum(op.reshape(bits.to(i32), (-1, 8)) << op.arange(7, -1, -1), axis=1)`",
    "atleast_1d": "write `x[None]` of a number's array, and an array as it is",
    "atleast_3d": "write `x[:, :, None]`",
    "diagflat": "write `op.diag(v)`",
    "ix_": "write `x[rows, :][:, columns]`",
    "apply_over_axes": "give several axes: `op.sum(x, axis=(0, 2))`",
    "convolve": "write `op.sum(x[k:k+n] * w[::-1])` for each shift `k`, or in the host program"
    " `std.stencil.convolve1d(x, w)`",
}  # fmt: skip
"""By name; the names that these texts use in code are there."""
