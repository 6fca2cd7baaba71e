"""Arrays that a tile kernel makes and does not return: memory of one call, on all ways of calling.

NumPy is what is compared with. All run on both targets, as code of a GPU on the CPU, and in
checked mode.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests import on_device
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
TARGETS = ["cpu", "sm_90a", "checked", GPU]
Array = np.ndarray[Any, np.dtype[Any]]
PATH = "private.tessera"

SOURCE = """
def fill(t: mut f32[n], x: f32[n]):
    for i in op.tile_range(n, step=64):
        t[i:i+64] = x[i:i+64] * 3.0

def shifted(x: f32[n]):
    h = op.zeros((n,), f32)
    h[1:] = x[:-1] * 2.0
    return h

@op.kernel
def two_loops(x: f32[n]) -> f32[n]:
    y = op.max(x)
    t = op.empty((n,), f32)
    r = op.empty((n,), f32)
    for i in op.tile_range(n, step=64):
        t[i:i+64] = x[i:i+64] + y
    for j in op.tile_range(n, step=32):
        r[j:j+32] = t[j:j+32] * 2.0 + t[0]
    return r

@op.kernel
def border(x: f32[m, n]) -> f32[m, n]:
    h = op.zeros((m, n), f32)
    h[1:-1, :] = x[:-2, :] + x[2:, :]
    return h - op.mean(h)

@op.kernel
def fills(x: f32[m, n]) -> f32[m, n + 1]:
    b = 2.0
    ones = op.ones((m, n + 1), f32)
    full = op.full((m, n + 1), 0.5, dtype=f32)
    like = op.zeros_like(x)
    ones[:, 1:] += x
    full[0, :] = 3.0
    like[:] = x * b
    full[:, :-1] -= like
    return ones * full

@op.kernel
def histogram(x: i32[n]) -> f32[16]:
    counts = op.zeros((16,), i32)
    for i in range(n):
        counts[x[i]] += 1
    return counts.to(f32) / f32(n)

@op.kernel
def split_k(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    parts = op.empty((4, m, n), f32)
    for s, i, j in op.tile_range(4, m, n, step=(1, 32, 32)):
        acc = op.zeros((32, 32), f32)
        for p in op.tile_range(ceil_div(k, 128), step=1):
            at = p * 128 + s * 32
            acc += a[i:i+32, at:at+32] @ b[at:at+32, j:j+32]
        parts[s, i:i+32, j:j+32] = acc
    return op.sum(parts, axis=0)

@op.kernel
def by_functions(x: f32[n]) -> f32[n]:
    t = op.empty((n,), f32)
    again = t
    fill(again, x)
    return t + shifted(x) + shifted(t)

@op.kernel
def one_launch(x: f32[n], y: mut f32[n]):
    t = op.empty((2,), f32)
    t[0] = 0.0
    for i in range(n):
        t[0] = t[0] * 0.5 + x[i]
        t[1] = t[0]
        y[i] = t[1]

@op.kernel
def chosen(x: f32[n], k: i32):
    t = op.zeros((n,), f32)
    if k > 0:
        t[:] = x
        return t
    t[:] = x * 2.0
    return t + 1.0

@op.kernel
def norm_then_product(x: f32[m, k], w: f32[k, n]) -> f32[m, n]:
    h = op.empty((m, k), f32)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        h[i, :] = row / (1.0 + op.sum(row * row))
    return h @ w
"""


def two_loops(x: Array) -> Array:
    t = x + x.max()
    return np.asarray(t * 2 + t[0])


def border(x: Array) -> Array:
    h = np.zeros_like(x)
    h[1:-1] = x[:-2] + x[2:]
    return np.asarray(h - h.mean())


def fills(x: Array) -> Array:
    m, n = x.shape
    ones, full = np.ones((m, n + 1)), np.full((m, n + 1), 0.5)
    ones[:, 1:] += x
    full[0] = 3
    full[:, :-1] -= x * 2
    return ones * full


def shifted(x: Array) -> Array:
    return np.concatenate(([0.0], x[:-1] * 2))


def one_launch(x: Array) -> Array:
    found, s = [], 0.0
    for v in x:
        s = s * 0.5 + v
        found.append(s)
    return np.asarray(found)


def module_for(target: str, text: str = SOURCE) -> Any:
    if target != "checked":
        return loaded(text, target)
    from tessera_backend.runtime.api import Module
    from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

    options = replace(options_from_environment(), target="cpu", checked=True)
    return Module(PATH, SessionProvider(PATH, options, text=text), "cpu")


@pytest.fixture(scope="module", params=TARGETS)
def m(request: pytest.FixtureRequest) -> Callable[..., Any]:
    target, module = str(request.param), module_for(str(request.param))

    def call(name: str, *arguments: Any) -> Any:
        return on_device.call(getattr(module, name), arguments, target)

    return call


def uniform(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).uniform(0.5, 1, shape).astype(np.float32)


def close(found: Any, right: Array) -> bool:
    return bool(np.allclose(found, right, 1e-4, 1e-5))


SIZES: Sequence[int] = (1, 2, 63, 64, 300)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.sample(1)
def test_arrays_of_one_axis(m: Callable[..., Any], n: int) -> None:
    x = uniform(n)
    wide = x.astype(np.float64)
    assert close(m("two_loops", x), two_loops(wide))
    assert close(m("by_functions", x), 3 * wide + shifted(wide) + shifted(3 * wide))
    assert close(m("chosen", x, 1), x) and close(m("chosen", x, 0), 2 * x + 1)
    y = np.zeros_like(x)
    m("one_launch", x, y)
    assert close(y, one_launch(wide))
    numbers = np.random.default_rng(n).integers(0, 16, n).astype(np.int32)
    assert close(m("histogram", numbers), np.bincount(numbers, minlength=16) / n)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (64, 100), (130, 7)])
@pytest.mark.sample(1)
def test_arrays_of_several_axes(m: Callable[..., Any], shape: tuple[int, int]) -> None:
    x, w = uniform(*shape), uniform(shape[1], 50)
    wide = x.astype(np.float64)
    assert close(m("border", x), border(wide))
    assert close(m("fills", x), fills(wide))
    assert close(m("split_k", x, w), wide @ w)
    h = wide / (1 + (wide * wide).sum(1, keepdims=True))
    assert close(m("norm_then_product", x, w), h @ w)


def test_nothing_at_all(m: Callable[..., Any]) -> None:
    assert m("border", np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert m("chosen", np.zeros(0, np.float32), 1).shape == (0,)


@pytest.mark.sample(1)
def test_calls_do_not_see_each_other(m: Callable[..., Any]) -> None:
    """What a call has stored is nothing to the next one, of another size too."""
    for shape in ((30, 40), (2, 3), (30, 40), (50, 2)):
        x = uniform(*shape)
        assert close(m("fills", x), fills(x.astype(np.float64)))
        assert close(m("border", -x), border(-x.astype(np.float64)))


# --- who stores, and when ------------------------------------------------------------------------

_STEPS = {
    "all": ("t[:] = {v}", lambda t, v: np.copyto(t, v)),
    "part": ("t[1:] = ({v})[1:]", lambda t, v: np.copyto(t[1:], v[1:])),
    "sum": ("t[:] += {v}", lambda t, v: np.add(t, v, out=t)),
    "itself": ("t[:] = t * 2.0 + {v}", lambda t, v: np.copyto(t, t * 2 + v)),
    "tiles": (
        "for i in op.tile_range(n, step=16):\n        t[i:i+16] = t[i:i+16] + x[i:i+16]",
        lambda t, v: np.copyto(t, t + X),
    ),
    "turned": ("u[:] = t[::-1]\n    t[:] = u + {v}", lambda t, v: np.copyto(t, t[::-1] + v)),
    "element": ("t[0] = t[n - 1] + op.sum(t)", lambda t, v: t.put(0, t[-1] + t.sum())),
}
X = uniform(70).astype(np.float64)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(1)
def test_statements_run_in_their_order(target: str, whole: bool) -> None:
    """All pairs of statements that store into one array: what is read is what was stored last."""
    pairs = list(itertools.product(_STEPS, _STEPS))
    step = 5 if target == "sm_90a" else 3 if target == "checked" else 1
    pairs = pairs[:: step if whole else max(step, 4)]
    text = "\n".join(
        f"@op.kernel\ndef {a}_{b}(x: f32[n]) -> f32[n]:\n    t = op.zeros((n,), f32)\n"
        f"    u = op.zeros((n,), f32)\n    u[:] = x\n    {_STEPS[a][0].format(v='x')}\n"
        f"    {_STEPS[b][0].format(v='(x + 1.0)')}\n    return t * 0.5 + u * 0.0\n"
        for a, b in pairs
    )
    module = module_for(target, text)
    x = X.astype(np.float32)
    for a, b in pairs:
        t = np.zeros(70)
        _STEPS[a][1](t, X)
        _STEPS[b][1](t, X + 1)
        found = on_device.call(getattr(module, f"{a}_{b}"), (x,), target)
        assert close(found, t / 2), (a, b)


# --- ways of calling -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", GPU])
@pytest.mark.parametrize("shape", [(20, 30), (400, 300)])
def test_threads_do_not_share_an_array(target: str, shape: tuple[int, int]) -> None:
    """Small arrays belong to what a thread calls with, large ones are lent to one call at a
    time."""
    module = loaded(SOURCE, target)
    bad: list[int] = []

    def work(number: int) -> None:
        x = uniform(*shape) * np.float32(number + 1)
        want = border(x.astype(np.float64))
        bound = module.border.bind(x) if target == "cpu" else lambda: module.border(x)
        if not all(close(f(), want) for _ in range(10) for f in (bound, lambda: module.border(x))):
            bad.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


@pytest.mark.slow
def test_large_arrays_are_not_kept_for_each_layout() -> None:
    from tessera_backend.runtime import launch_sequence

    module = loaded(SOURCE)
    for n in range(20):
        module.border(uniform(300 + n, 300))
    free = launch_sequence._lent._free  # pyright: ignore[reportPrivateUsage]
    assert 1 <= len(free) <= 4


@pytest.mark.gpu
def test_a_graph_has_its_own() -> None:
    torch = pytest.importorskip("torch")
    module: Any = loaded(SOURCE, "cuda")
    x = torch.rand(300, 200, device="cuda")
    module.border(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module.border(x)
    module.border(x * 5.0)
    x.copy_(torch.rand(300, 200, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert close(y.cpu().numpy(), border(x.cpu().numpy().astype(np.float64)))


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_a_built_folder_says_what_it_needs(target: str, tmp_path: Path) -> None:
    from tessera_backend.runtime.build_folder import write_build

    from tessera_lang.target.backend import TargetOptions, backend_named

    session = Session(overlay={PATH: SOURCE})
    arch = "native" if target == "cpu" else backend_named("cuda").default_arch()
    options = TargetOptions(target, arch)
    names = ("border", "one_launch", "by_functions")
    artifacts = [
        session.compile_kernel(PATH, n, session.signature(PATH, n), options) for n in names
    ]
    write_build(tmp_path, artifacts)
    header = (tmp_path / "tessera_border.h").read_text()
    assert "m x n, row-major, which the launches of a call share" in header
    module = on_device.with_layouts(tessera.load_built(tmp_path), target)
    for shape in ((40, 30), (3, 5)):
        x = uniform(*shape)
        assert close(module.border(x), border(x.astype(np.float64)))
    x, y = uniform(100), np.zeros(100, np.float32)
    module.one_launch(x, y)
    assert close(y, one_launch(x.astype(np.float64)))


@pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")
def test_a_c_caller_gives_nothing_for_it(tmp_path: Path) -> None:
    """The header makes the memory of such an array itself."""
    from tessera_backend.runtime.build_folder import write_build

    from tessera_lang.target.backend import TargetOptions

    session = Session(overlay={PATH: SOURCE})
    options = TargetOptions("cpu", "native")
    write_build(tmp_path, [
        session.compile_kernel(PATH, "one_launch", session.signature(PATH, "one_launch"), options)
    ])  # fmt: skip
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "tessera_one_launch.h"\nint main(void) {\n'
        "  __attribute__((aligned(16))) float x[3] = {1, 2, 3}, y[3];\n  int64_t n[1] = {3};\n"
        "  tessera_array ax = tessera_of(TESSERA_F32, x, 1, n, NULL);\n"
        "  tessera_array ay = tessera_of(TESSERA_F32, y, 1, n, NULL);\n"
        "  if (tessera_one_launch_launch(&ax, &ay, NULL) != TESSERA_OK) return 1;\n"
        '  printf("%g %g %g", y[0], y[1], y[2]);\n  return 0;\n}\n'
    )
    objects = [str(p) for p in tmp_path.glob("*.o")]
    subprocess.run(["cc", "main.c", *objects, "-o", "main", "-lm", "-lpthread"], cwd=tmp_path,
                   check=True)  # fmt: skip
    said = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
    assert said.stdout == "1 2.5 4.25"


# --- what is refused, and said -------------------------------------------------------------------


def said(body: str, parameters: str = "x: f32[n], t: i32") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(f"@op.kernel\ndef k({parameters}):\n{lines}", target="cpu")
    return str(caught.value)


def test_the_size_is_known_before_the_kernel_runs() -> None:
    text = said("a = op.empty((t,), f32)\na[:] = 0.0\nreturn op.sum(a)")
    assert "the size of an array that a kernel makes is made of sizes of arguments" in text


@pytest.mark.parametrize(
    "body",
    [
        "for i in op.tile_range(n, step=8):\n    a = op.empty((8,), f32)\n    a[0:4] = x[i:i+4]",
    ],
)
def test_it_is_made_once_outside_of_loops(body: str) -> None:
    assert "make `a` once, outside of loops and conditions" in said(body)


@pytest.mark.parametrize(("made", "fill"), [
    ("op.zeros((n,), f32)", "0"), ("op.zeros_like(x)", "0"), ("op.ones((n,), f32)", "1"),
    ("op.full((n,), 2.5, f32)", "2.5"), ("op.full_like(x, t)", "t"), ("op.empty((n,), f32)", ""),
])  # fmt: skip
@pytest.mark.sample(3)
def test_what_is_made_anew_in_a_loop_is_filled_there(made: str, fill: str) -> None:
    """In a loop over `range` each round fills it; in one over tiles the help says what would."""
    x = np.arange(5, dtype=np.float32)
    head = "@op.kernel\ndef k(x: mut f32[n], t: f32):\n    for i in range(3):\n"
    body = f"        a = {made}\n        a[1:] = x[1:]\n        x[:] = a\n"
    if fill:
        tessera.compile(head + body, target="cpu").k(x, 7.0)
        np.testing.assert_array_equal(x, [7.0 if fill == "t" else float(fill), 1, 2, 3, 4])
    in_tiles = head.replace("range(3)", "op.tile_range(3, step=1)") + body
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(in_tiles, target="cpu").k(x, 7.0)
    text = str(caught.value)
    assert ("where it is made now" in text) == bool(fill)
    assert not fill or f"`a[:] = {fill}`" in text


def test_like_another_array_has_its_dtype() -> None:
    text = "@op.kernel\ndef k(x: f32[n], t: i32):\n    a = op.full_like(x, {})\n    return a\n"
    x = np.ones(3, np.float32)
    with pytest.raises(tessera.TesseraError, match=r"T0208.*\n(.*\n)*.*`f32\(t\)`"):
        tessera.compile(text.format("t"), target="cpu").k(x, 7)
    found = tessera.compile(text.format("f32(t)"), target="cpu").k(x, 7)
    assert found.dtype == np.float32 and found.tolist() == [7.0] * 3


def test_the_form_that_is_advised_works() -> None:
    """Of each refusal above, with what its help says."""
    text = """
@op.kernel
def k(x: f32[n]) -> f32[n]:
    a = op.empty((n,), f32)
    for i in op.tile_range(n, step=8):
        a[i:i+8] = x[i:i+8]
    b = a + 1.0
    return b * 2.0
"""
    assert close(tessera.compile(text, target="cpu").k(uniform(20)), (uniform(20) + 1) * 2)


def test_what_nobody_reads_is_said() -> None:
    text = ("@op.kernel\ndef k(x: f32[n]) -> f32[n]:\n    a = op.empty((n,), f32)\n"
            "    a[:] = x\n    return x * 2.0\n")  # fmt: skip
    session = Session(overlay={PATH: text})
    (found,) = session.check(PATH)
    assert found.code == "T0615" and "'a' is written and never read" in found.message


def test_reading_what_was_not_stored_is_found_in_checked_mode() -> None:
    text = """
@op.kernel
def k(x: f32[n], y: mut f32[n]):
    a = op.empty((2,), f32)
    a[0] = 1.0
    for i in range(n):
        a[0] = a[0] * 0.5 + x[i] + a[1]
        y[i] = a[0]
"""
    module = module_for("checked", text)
    with pytest.raises(tessera.TesseraError, match=r"reads a\[1\], which nobody has written"):
        module.k(uniform(4), np.zeros(4, np.float32))


def test_a_negative_size_is_refused() -> None:
    text = ("@op.kernel\ndef k(x: f32[n]):\n    a = op.zeros((n - 5,), f32)\n"
            "    a[:] = op.sum(x)\n    return op.sum(a)\n")  # fmt: skip
    k = tessera.compile(text, target="cpu").k
    assert close(k(np.ones(7, np.float32)), np.float32(14))
    with pytest.raises(tessera.TesseraError, match=r"makes an array of shape \(-2,\)"):
        k(np.ones(3, np.float32))


def test_a_view_that_is_returned_is_no_array_that_is_made() -> None:
    text = (
        "@op.kernel\ndef k(x: f32[m, n]):\n    a = op.reshape(x, (-1,))\n    return a, a\n"
        "@op.kernel\ndef one(x: f32[m, n]):\n    a = op.reshape(x, (-1,))\n    return a\n"
    )
    module, x = tessera.compile(text, target="cpu"), uniform(3, 4)
    for found in (*module.k(x), module.one(x)):
        assert np.array_equal(found, x.ravel())
