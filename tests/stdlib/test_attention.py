"""std.attention against float64: every argument, sizes around tiles, heads of every size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter.launch import launch

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.house.places import PACKAGES
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, numbers, wide
from tests.stdlib.assembled import assembles, needs_ptxas

Array = np.ndarray[Any, np.dtype[Any]]
E = 2.0**-24
FILE = str(PACKAGES["tessera_stdlib"] / "attention.tessera")


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.attention", str(request.param))


@dataclass(frozen=True)
class Case:
    """``q[b, h, s, d]`` with ``k[b, g, t, d]``."""

    b: int
    h: int
    g: int
    s: int
    t: int
    d: int
    dtype: str = "bf16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    scale: float | None = None

    @property
    def names(self) -> dict[str, Any]:
        return {"causal": self.causal, "window": self.window, "softcap": self.softcap,
                "scale": self.scale}  # fmt: skip

    def arrays(self, seed: int = 0) -> tuple[Array, Array, Array]:
        keys = (self.b, self.g, self.t, self.d)
        shapes = ((self.b, self.h, self.s, self.d), keys, keys)
        q, k, v = (numbers(self.dtype, shape, seed=seed + i) for i, shape in enumerate(shapes))
        return q, k, v


@dataclass
class Exact:
    """In float64: the result, the logarithm, weights, scores, and what they are made of."""

    o: Array
    lse: Array
    weights: Array
    scores: Array
    size: Array
    """The greatest sum of absolute products that is a score, of each row."""


def exact(case: Case, q: Array, k: Array, v: Array) -> Exact:
    share = case.h // case.g
    q, k, v = wide(q), *(np.repeat(wide(x), share, axis=1) for x in (k, v))
    scale = 1 / math.sqrt(case.d) if case.scale is None else case.scale
    scores = q @ k.swapaxes(2, 3) * scale
    sizes = np.abs(q) @ np.abs(k).swapaxes(2, 3) * abs(scale)
    if case.softcap:
        scores = case.softcap * np.tanh(scores / case.softcap)
    seen = visible(case)
    shown = np.where(seen, scores, -np.inf)
    top = np.where(seen.any(-1), shown.max(-1, initial=-1e300), 0.0)[..., None]
    p = np.exp(shown - top)
    total = p.sum(-1, keepdims=True)
    weights = np.divide(p, total, out=np.zeros_like(p), where=total > 0)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return Exact(weights @ v, lse, weights, scores, np.where(seen, sizes, 0).max(-1, initial=0))


def visible(case: Case) -> Array:
    at = np.arange(case.s)[:, None] + case.t - case.s
    key = np.arange(case.t)[None, :]
    left, right = case.window
    found = np.ones((case.s, case.t), np.bool_)
    if case.causal or right >= 0:
        found &= key <= at + (0 if case.causal else right)
    if left >= 0:
        found &= key >= at - left
    return found


def allowed(case: Case, right: Exact, v: Array) -> tuple[Array, Array]:
    """The errors that the page states, of the result and of the logarithm."""
    u = 0.0 if case.dtype == "f32" else EPSILON[case.dtype]
    c = terms(case, right)
    values = np.repeat(np.abs(wide(v)), case.h // case.g, axis=1)
    error = (u + 2 * c)[..., None] * (right.weights @ values) + 1.01 * u * np.abs(right.o)
    if case.dtype == "f16":
        error = error + 2.0**-25 * (values.sum(2, keepdims=True) + 1)
    return error + 1e-9, c + 1e-6


def terms(case: Case, right: Exact) -> Array:
    """What the page calls c, of each row."""
    return ((case.d + 8) * right.size + case.t + 8) * E + case.softcap * 2.0**-20


def check(std: Any, case: Case, seed: int = 0) -> None:
    q, k, v = case.arrays(seed)
    o, lse = (np.asarray(x) for x in std.attention_lse(q, k, v, **case.names))
    assert o.dtype == DTYPES[case.dtype] and lse.dtype == np.float32
    right = exact(case, q, k, v)
    error, of_lse = allowed(case, right, v)
    near(o, right.o, error)
    near(lse, right.lse, of_lse)


def gradients(case: Case, right: Exact, q: Array, k: Array, v: Array, go: Array) -> list[Array]:
    """By q, k and v in float64, each followed by the error that the page states."""
    share, u = case.h // case.g, 0.0 if case.dtype == "f32" else EPSILON[case.dtype]
    scale = 1 / math.sqrt(case.d) if case.scale is None else case.scale
    q, go, k, v = wide(q), wide(go), *(np.repeat(wide(x), share, axis=1) for x in (k, v))
    p, c = right.weights, terms(case, right)[..., None]
    slope = 1 - (right.scores / case.softcap) ** 2 if case.softcap else np.ones_like(p)
    delta = (go * right.o).sum(-1, keepdims=True)
    dz = p * (go @ v.swapaxes(2, 3) - delta) * slope
    mean = (np.abs(go) * (p @ np.abs(v))).sum(-1, keepdims=True)
    size = p * (np.abs(go) @ np.abs(v).swapaxes(2, 3) + mean) * (3 * u + 5 * c) * abs(scale)
    of_v = p * (u + 3 * c)

    def shared(x: Array) -> Array:
        return x.reshape(case.b, case.g, share, *x.shape[2:]).sum(2)

    found = [scale * dz @ k, size @ np.abs(k),
             shared(scale * dz.swapaxes(2, 3) @ q), shared(size.swapaxes(2, 3) @ np.abs(q)),
             shared(p.swapaxes(2, 3) @ go), shared(of_v.swapaxes(2, 3) @ np.abs(go))]  # fmt: skip
    tiny = 1e-3 if case.dtype == "f16" else 1e-6  # what is below the least f16
    return [x if i % 2 == 0 else x + 1.01 * u * np.abs(found[i - 1]) + tiny
            for i, x in enumerate(found)]  # fmt: skip


def check_gradients(std: Any, case: Case, seed: int = 0) -> None:
    q, k, v = case.arrays(seed)
    go = numbers(case.dtype, q.shape, seed=seed + 9)
    o, lse = std.attention_lse(q, k, v, **case.names)
    found = std.attention_backward(go, q, k, v, o, lse, **case.names)
    right = gradients(case, exact(case, q, k, v), q, k, v, go)
    for x, wanted, error in zip(found, right[::2], right[1::2], strict=True):
        assert np.asarray(x).dtype == DTYPES[case.dtype]
        near(x, wanted, error)


@dataclass
class Paged:
    """Keys of several lengths, in pages in any order, among them some that are not used."""

    arrays: tuple[Array, Array, Array]
    pages: list[Array]
    table: Array
    lengths: Array

    def check(self, case: Case, found: Array) -> None:
        q, k, v = self.arrays
        for i, t in enumerate(self.lengths):
            one = replace(case, b=1, t=int(t))
            part = q[i : i + 1], k[i : i + 1, :, :t], v[i : i + 1, :, :t]
            right = exact(one, *part)
            near(found[i : i + 1], right.o, allowed(one, right, part[2])[0])


def in_pages(case: Case, page: int, seed: int = 0) -> Paged:
    r = np.random.default_rng(seed)
    lengths = r.integers(max(1, case.t // 2), case.t + 1, case.b).astype(np.int32)
    many = -(-case.t // page)
    table = r.permutation(case.b * many + 3)[: case.b * many].reshape(case.b, many)
    q, k, v = case.arrays(seed)
    pages = [numbers(case.dtype, (case.b * many + 3, page, case.g, case.d), seed=7)
             for _ in range(2)]  # fmt: skip
    for of_pages, x in zip(pages, (k, v), strict=True):
        for i, j in np.ndindex(case.b, case.t):
            of_pages[table[i, j // page], j % page] = x[i, :, j]
    table = np.where(np.arange(many) * page < lengths[:, None], table, 1 << 20).astype(np.int32)
    return Paged((q, k, v), pages, table, lengths)


def check_paged(std: Any, case: Case, page: int, seed: int = 0) -> None:
    given = in_pages(case, page, seed)
    q = given.arrays[0]
    found = std.paged_attention(q, *given.pages, given.table, given.lengths, **case.names)
    given.check(case, np.asarray(found))


CASES = (
    Case(1, 2, 1, 70, 70, 64),
    Case(2, 4, 2, 130, 200, 64, causal=True),
    Case(1, 2, 2, 200, 130, 80, "f16", causal=True),
    Case(1, 2, 1, 150, 170, 96, "f32", window=(40, 10)),
    Case(1, 2, 1, 300, 300, 128, causal=True, window=(100, -1), softcap=20.0),
    Case(1, 1, 1, 1, 257, 256, "f16"),
    Case(1, 2, 1, 5, 300, 33, "f32", causal=True, scale=0.3),
    Case(1, 1, 1, 129, 127, 40, softcap=2.0, scale=-1.0),
    Case(1, 1, 1, 64, 90, 72, "f32", causal=True, scale=-0.2),
    Case(1, 1, 1, 10, 90, 16, "f32", causal=True, scale=0.0),
    Case(3, 3, 1, 2, 65, 8, window=(0, 3)),
    Case(2, 1, 1, 0, 3, 8), Case(1, 1, 1, 3, 0, 8), Case(0, 1, 1, 3, 3, 8),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sample(1)
def test_cases(std: Any, case: Case) -> None:
    check(std, case)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sample(1)
def test_gradients(std: Any, case: Case) -> None:
    check_gradients(std, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [
    Case(1, 2, 1, 1400, 1500, 128, causal=True), Case(2, 1, 1, 2048, 2100, 64, "f16"),
    Case(1, 1, 1, 2000, 2100, 96, window=(900, 300), softcap=9.0),
], ids=str)  # fmt: skip
def test_gradients_that_are_kept_in_the_cache(std: Any, case: Case) -> None:
    check_gradients(std, case)


PAGED = (
    (Case(2, 4, 2, 1, 200, 64), 64), (Case(3, 2, 1, 70, 260, 80, "f16", causal=True), 16),
    (Case(2, 2, 2, 5, 90, 33, "f32", window=(30, 4)), 128),
    (Case(2, 8, 1, 1, 300, 128, causal=True, window=(100, -1), softcap=9.0), 48),
    (Case(2, 2, 1, 3, 600, 64, causal=True), 256),
)  # fmt: skip


@pytest.mark.parametrize(("case", "page"), PAGED, ids=str)
@pytest.mark.sample(1)
def test_pages(std: Any, case: Case, page: int) -> None:
    check_paged(std, case, page)


def drawn(r: np.random.Generator) -> Case:
    """Arguments at random, sizes on both sides of those of tiles."""
    d = int(r.choice([1, 8, 33, 64, 72, 80, 96, 128, 192, 256]))
    share, g = int(r.choice([1, 1, 2, 3])), int(r.choice([1, 2]))
    sizes = [int(r.choice([1, 63, 64, 65, 127, 128, 200, 257])) for _ in range(2)]
    window = tuple(int(r.choice([-1, 0, 5, 64, 100])) for _ in range(2))
    return Case(
        int(r.choice([1, 2])), share * g, g, sizes[0], sizes[1], d,
        str(r.choice(["bf16", "f16", "f32"])), bool(r.random() < 0.4),
        (window[0], window[1]) if r.random() < 0.5 else (-1, -1),
        float(r.choice([0.0, 0.0, 5.0])), [None, None, 0.2, -0.2][int(r.integers(0, 4))],
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_cases_at_random(std: Any, seed: int) -> None:
    case = drawn(np.random.default_rng(seed))
    check(std, case, seed)
    check_gradients(std, case, seed)
    check_paged(std, case, 1 << seed % 8, seed)


# --- code for a GPU ---------------------------------------------------------------------------


@cache
def _session() -> Session:
    return Session()


def as_for_a_gpu(
    kernel: str, given: dict[str, Array], made: dict[str, Array], flags: str, *numbers: float | int
) -> None:
    """A kernel as code for a GPU, on the CPU: what is asynchronous comes as late as it may."""
    session = _session()
    names = {np.dtype(v): n for n, v in DTYPES.items()}
    sizes = [f"{n}: {'mut ' if n in made else ''}{names[x.dtype]}{[*x.shape]}"
             for n, x in (given | made).items()]  # fmt: skip
    wanted = session.signature(FILE, kernel, ", ".join([*sizes, flags]))
    program, plan = session.tile(FILE, kernel, wanted, session.machine("cuda", "sm_90a"))
    launch(program, plan, *given.values(), *made.values(), *numbers)


def form(case: Case) -> tuple[str, float, float]:
    """Flags, and the factors behind and before the limit."""
    scale = math.log2(math.e) * (1 / math.sqrt(case.d) if case.scale is None else case.scale)
    cap = case.softcap
    how = "capped" if cap else "negative" if scale < 0 else "plain"
    left, right = case.window
    flags = f"LEFT={left}, RIGHT={0 if case.causal else right}, how='{how}'"
    return flags, cap * math.log2(math.e) if cap else abs(scale), 2 * scale / cap if cap else 0.0


ON_A_GPU = (
    Case(1, 2, 1, 136, 200, 64),
    Case(1, 1, 1, 202, 330, 64, causal=True),
    Case(1, 2, 2, 190, 260, 80, "f16", window=(100, 0), softcap=5.0),
    Case(1, 1, 1, 70, 150, 128, "f16", window=(-1, 20)),
    Case(1, 1, 1, 132, 136, 128),
    Case(1, 1, 1, 264, 200, 128, "f16", window=(60, 20)),
    Case(1, 1, 1, 136, 130, 256, causal=True),
    Case(1, 2, 1, 200, 392, 96, causal=True, window=(70, -1)),
    Case(1, 1, 1, 40, 70, 33, "f32", causal=True, scale=-0.3),
)  # fmt: skip


@pytest.mark.parametrize("case", ON_A_GPU, ids=str)
@pytest.mark.sample(1)
def test_code_for_a_gpu_gives_the_same(case: Case) -> None:
    q, k, v = case.arrays()
    q = q.reshape(case.g, case.h // case.g, case.s, case.d)
    o, lse = np.zeros_like(q), np.zeros(q.shape[:-1], np.float32)
    flags, factor, inner = form(case)
    rows, keys = (64, 64) if case.dtype == "f32" else (128, 128 if case.d <= 128 else 64)
    as_for_a_gpu(
        "_forward", {"q": q, "k": k[0], "v": v[0]}, {"o": o, "lse": lse},
        f"BM={rows}, BN={keys}, STEP=1, {flags}", factor, inner,
    )  # fmt: skip
    right = exact(case, q.reshape(1, case.h, case.s, case.d), k, v)
    error, of_lse = allowed(case, right, v)
    near(o.reshape(right.o.shape), right.o, error)
    near(lse.reshape(right.lse.shape), right.lse, of_lse)


def tiles(case: Case) -> tuple[tuple[int, int], tuple[int, int]]:
    """What a loop takes at a time, and what its sums are of: by queries, and by keys."""
    if case.dtype == "f32":
        return (32, 64), (32, 64)
    if case.d > 128:
        return (64, 64), (64, 64)
    seen = visible(case).all()
    by_queries = 64 if seen or case.d > 64 else 128
    return (by_queries, 128), (32 if seen and case.d > 64 else 64, 128)


def computed_again(case: Case, given: dict[str, Array], made: dict[str, Array]) -> None:
    """The scores are computed for each gradient."""
    flags, factor, inner = form(case)
    by = 1 / math.sqrt(case.d) if case.scale is None else case.scale
    (few, many), keys = tiles(case)
    as_for_a_gpu("_of_queries", given, {"dq": made["dq"]}, f"BM={many}, BN={few}, {flags}",
                 factor, inner, by)  # fmt: skip
    of_keys = {x: made[x] for x in ("dk", "dv")}
    for K, V in ((True, True),) if case.d <= 128 else ((True, False), (False, True)):
        sizes = f"BM={keys[0]}, BN={keys[1]}, K={K}, V={V}"
        as_for_a_gpu("_of_keys", given, of_keys, f"{sizes}, {flags}", factor, inner, by)


def kept(case: Case, given: dict[str, Array], made: dict[str, Array]) -> None:
    """The gradient by scores is kept: what nobody sees of it is never read."""
    flags, factor, inner = form(case)
    by = 1 / math.sqrt(case.d) if case.scale is None else case.scale
    keys = 128 if case.d <= 128 else 64
    ds = np.full((*given["q"].shape[:2], case.t, case.s), np.nan, given["q"].dtype)
    as_for_a_gpu("_of_values", given, {"dv": made["dv"], "ds": ds},
                 f"BM=64, BN={keys}, BLOCK=128, {flags}", factor, inner)  # fmt: skip
    seen = flags.split(", how")[0]
    as_for_a_gpu("_by_keys", {"ds": ds, "q": given["q"]}, {"dk": made["dk"]},
                 f"BM=64, BN={keys}, BLOCK=128, {seen}", by)  # fmt: skip
    as_for_a_gpu("_by_queries", {"ds": ds, "k": given["k"]}, {"dq": made["dq"]},
                 f"BM=128, BN=64, {seen}", by)  # fmt: skip


@pytest.mark.parametrize("case", ON_A_GPU, ids=str)
@pytest.mark.sample(1)
def test_gradients_by_code_for_a_gpu(case: Case) -> None:
    q, k, v = case.arrays()
    go = numbers(case.dtype, q.shape, seed=9)
    right = exact(case, q, k, v)
    shape = (case.g, case.h // case.g, case.s)
    high = np.where(np.isinf(right.lse), np.inf, right.lse * math.log2(math.e))
    given = {
        "q": q.reshape(*shape, case.d), "k": k[0], "v": v[0], "go": go.reshape(*shape, case.d),
        "high": high.astype(np.float32).reshape(shape),
        "delta": (wide(go) * right.o).sum(-1).astype(np.float32).reshape(shape),
    }  # fmt: skip
    dq, dk, dv = np.zeros_like(given["q"]), np.zeros_like(k[0]), np.zeros_like(v[0])
    made = {"dq": dq, "dk": dk, "dv": dv}
    (kept if case.s % 8 == 0 and case.d >= 64 else computed_again)(case, given, made)
    wanted = gradients(case, right, q, k, v, go)
    for x, exactly, error in zip((dq, dk, dv), wanted[::2], wanted[1::2], strict=True):
        near(x.reshape(exactly.shape), exactly, error)


@pytest.mark.parametrize(("case", "page", "parts"), [
    (Case(2, 4, 2, 1, 200, 64), 64, 1),
    (Case(2, 2, 1, 70, 300, 64, "f16", causal=True, window=(90, -1), softcap=7.0), 128, 2),
], ids=str)  # fmt: skip
@pytest.mark.sample(1)
def test_pages_by_code_for_a_gpu(case: Case, page: int, parts: int) -> None:
    given = in_pages(case, page)
    share = case.h // case.g
    shape = (case.b, case.g, 1, share) if case.s == 1 else (case.b, case.g, share, case.s)
    k, v = (x.reshape(-1, page // parts, case.g, case.d) for x in given.pages)
    q = given.arrays[0].reshape(*shape, case.d)
    o, lse = np.zeros_like(q), np.zeros(shape, np.float32)
    flags, factor, inner = form(case)
    named = {"q": q, "k": k, "v": v, "table": given.table, "lengths": given.lengths}
    as_for_a_gpu(
        "_paged", named, {"o": o, "lse": lse}, f"BM=128, BN={page // parts}, PARTS={parts}, "
        f"STEP={int(case.s > 1)}, {flags}", factor, inner,
    )  # fmt: skip
    given.check(case, o.reshape(given.arrays[0].shape))


FORMS = ("LEFT=-1, RIGHT=-1, how='plain'", "LEFT=-1, RIGHT=0, how='plain'",
         "LEFT=1000, RIGHT=0, how='capped'")  # fmt: skip


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("flags", FORMS)
@pytest.mark.parametrize(("dtype", "d", "tile"), [
    ("bf16", 64, (128, 128)), ("f16", 80, (128, 128)), ("bf16", 128, (128, 128)),
    ("bf16", 256, (128, 64)), ("f32", 64, (64, 64)),
])  # fmt: skip
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ptxas_takes_it(arch: str, dtype: str, d: int, tile: Any, flags: str) -> None:
    kv = f"{dtype}[16, 4096, {d}]"
    assembles(
        "attention", "_forward", f"q: {dtype}[16, 2, 4096, {d}], k: {kv}, v: {kv}, "
        f"o: mut {dtype}[16, 2, 4096, {d}], lse: mut f32[16, 2, 4096], BM={tile[0]}, "
        f"BN={tile[1]}, STEP=1, {flags}", arch, spills=True,
    )  # fmt: skip


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "said"), [
    ("attention(x[0], x, x)", "have a batch, heads, a length and a head size, not shapes"),
    ("attention(x, x, x[:, :, :3])", "k and v have one shape"),
    ("attention(x, x[:1], x[:1])", "2 batches of q and 1 of k"),
    ("attention(x, x[..., :4], x[..., :4])", "head sizes are equal"),
    ("attention(x[:, :3], x[:, :2], x[:, :2])", "3 heads of q are not shared equally by 2"),
    ("attention(x.astype('f8'), x, x)", "attention takes f16, bf16 and f32, not f64"),
    ("attention(x, x.astype('f2'), x)", "q, k and v of f32, f16 and f32"),
    ("attention(x, x, x, window=(1,))", "a window is (left, right), not"),
    ("attention(x, x, x, window=(1, -2))", "a side of a window is -1 or more"),
    ("attention(x, x, x, softcap=-1.0)", "softcap is 0 (none) or more"),
    ("attention(w, w, w)", "a head has 1 to 256 elements, not 300"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    names = {"x": np.ones((2, 4, 5, 8), np.float32), "w": np.ones((1, 1, 2, 300), np.float32)}
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
