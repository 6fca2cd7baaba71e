"""Which name was meant: the nearest of some, where the one written is plainly a slip.

Owns when two names are one word misspelt. A word that means something of its own in the field is
no slip of another (``sort`` is not ``sqrt``). Must not know where names come from.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_CANDIDATES = 2000
"""Among more names each look for a near one would take long."""

WORDS = frozenset(
    """
    acos acosh add addmm all allclose amax amin any append arange arccos arcsin arctan argmax argmin
    argsort argwhere array asin asinh atan atan2 atanh average bincount bmm broadcast cat cbrt ceil
    cholesky chunk clamp clip column concat concatenate conj conv conv1d conv2d copy copysign cos
    cosh count cross cummax cummin cumprod cumsum deg det diag diagonal diff digamma dist div divide
    dot dropout eig einsum elu embedding empty equal erf erfc erfinv exp exp2 expand expm1 eye fabs
    fft fill flatten flip float floor fmax fmin fmod full gather gelu gradient hamming hardswish
    histogram hstack hypot identity ifft imag index inner interp inv isfinite isinf isnan item join
    kron kthvalue layernorm ldexp len lerp lgamma linspace load log log10 log1p log2 logaddexp
    logsumexp map mask matmul max maximum mean median meshgrid min minimum mish mod mul multiply
    nanmax nanmean nanmin nansum neg negative norm not numel one ones outer pad permute polyval pop
    pow power prod product quantile rand randint randn random range ravel real reciprocal reduce
    relu repeat reshape resize reverse rms rmsnorm roll round rsqrt save scan scatter searchsorted
    select selu shape sigmoid sign silu sin sinc sinh size slice softmax softplus solve sort split
    sqrt square squeeze stack std sub subtract sum svd swapaxes swish take tan tanh tensordot tile
    topk trace transpose trapz trigamma tril triu true trunc unique unsqueeze upsample var vdot view
    vstack where window zero zeros zip
    """.split()
)
"""Names of functions that array libraries have."""


_VOWELS = frozenset("aeiou")


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The one of some names that ``name`` is a slip of, if there is one."""
    plain = _plain(name)
    best: tuple[int, str] | None = None
    own, letters = name.lower() in WORDS, set(plain)
    for i, candidate in enumerate(candidates):
        if i >= MOST_CANDIDATES:
            return None
        other = _plain(candidate)
        if other == plain and plain:
            return candidate
        most = max(1, max(len(plain), len(other)) // 4)
        if own or abs(len(other) - len(plain)) > most or len(letters ^ set(other)) > 2 * most:
            continue
        slips = _slips(plain, other)
        if slips and (best is None or slips < best[0]) and _is_slip(plain, other, slips):
            best = slips, candidate
    return best[1] if best else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _is_slip(a: str, b: str, slips: int) -> bool:
    """Whether so many slips are few for words of this length. Of a short word one letter may be
    missing, doubled or swapped, or one vowel stand for another; any other letter makes another
    word."""
    shorter, longer = sorted((len(a), len(b)))
    if shorter <= 4 and longer == shorter:
        changed = {letter for x, y in zip(a, b, strict=True) if x != y for letter in (x, y)}
        vowel = shorter > 2 and changed <= _VOWELS
        return slips == 1 and (sorted(a) == sorted(b) or vowel)
    if shorter == 1:
        return len(set(a + b)) == 1
    if shorter == 2:
        return slips == 1 and a[:2] == b[:2]
    return slips <= max(1, longer // 4)


def _slips(a: str, b: str) -> int:
    """Letters to change, leave out, put in or swap with a neighbour that make one of the other."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        new = [i]
        for j, y in enumerate(b, 1):
            cost = min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            new.append(cost)
        before, row = row, new
    return row[-1]
