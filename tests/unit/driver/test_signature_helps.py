"""A signature that a message shows is the one that is missing: with it the kernel is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Folder = Callable[[Mapping[str, str]], Path]
Tesserac = Callable[..., Any]


LANES = """
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def k({parameters}):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i]{rest}
"""
OPEN = {
    "x: f32[n], stride: int, out: mut f32[n]": " * f32(stride)",
    "x: f32[n], stride: int, deep: bool, out: mut f32[n]": " * f32(stride if deep else 1)",
    "x, factor: float, out: mut f32[n]": " * factor",
    "x, out: mut f32[n]": "",
    "out: mut f32[n], x, a: int, b: int = 4": " + f32(a * b)",
}
SIZED = {
    "top": """
@op.kernel
def k(scores: f32[rows, cols]) -> (f32[rows, 3], index[rows, 3]):
    v, p = op.topk(scores, 3, axis=1)
    return v, p
""",
    "sums": """
@op.kernel
def k[K: int, T: dtype](x: T[m, d], y: mut T[d]):
    acc = op.zeros((d,), f32)
    for i in op.tile_range(m, step=1):
        acc += x[i, :].to(f32) * f32(K)
    y[:] = acc.to(T)
""",
    "steps with defaults": """
@op.kernel
def k[STEP: int = 2, T: dtype](x: T[m, d], y: mut T[d]):
    acc = op.zeros((d,), f32)
    for i in op.tile_range(m, step=STEP):
        acc += op.sum(x[i : i + STEP, :].to(f32), axis=0)
    y[:] = acc.to(T)
""",
    "square": """
@op.kernel
def k(image: f16[size, size], y: mut f32[size]):
    acc = op.zeros((size,), f32)
    for i in op.tile_range(size, step=1):
        acc += image[i, :].to(f32)
    y[:] = acc
""",
    "without annotations": """
@op.kernel
def k(data):
    v, p = op.topk(data, 3)
    return v
""",
}


def shown(text: str) -> str:
    """The signature that a help shows."""
    (signature,) = set(re.findall(r"`--signature '([^']*)'`", text))
    return signature


def built(tesserac: Tesserac, *arguments: str) -> str:
    """Builds with each signature that is asked for; gives the last one. At most three."""
    signature = ""
    for _ in range(3):
        given = (f"--signature={signature}",) if signature else ()
        done = tesserac("build", "k.tessera", "-o", "o", "--target=cpu", *given, *arguments)
        if done.returncode == 0:
            return signature
        code = "T0815" if "T0815" in done.stderr else "T0650"
        checked = tesserac("check", "k.tessera", "--target=cpu", *given)
        assert code == "T0815" or code in checked.stderr, checked.stderr
        signature = shown(done.stderr)
    pytest.fail(f"not built with `{signature}`: {done.stderr}")


@pytest.mark.parametrize("parameters", OPEN)
def test_what_annotations_leave_open(tesserac: Tesserac, folder: Folder, parameters: str) -> None:
    folder({"k.tessera": LANES.format(parameters=parameters, rest=OPEN[parameters])})
    done = tesserac("build", "k.tessera", "-o", "o", "--target=cpu")
    assert "k.tessera:3:" in done.stderr
    assert built(tesserac)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", SIZED)
def test_sizes_that_are_needed(tesserac: Tesserac, folder: Folder, name: str) -> None:
    folder({"k.tessera": SIZED[name]})
    signature = built(tesserac)
    assert "64" in signature
    checked = tesserac("check", "k.tessera", "--target=cpu", f"--signature={signature}")
    assert checked.returncode == 0
    assert "T0650" not in checked.stderr


def test_a_plain_check_leaves_sizes_to_calls(tesserac: Tesserac, folder: Folder) -> None:
    folder({"k.tessera": SIZED["top"]})
    assert tesserac("check", "k.tessera").stderr == ""
    warned = tesserac("check", "k.tessera", "--arch=sm_90")
    assert warned.returncode == 0
    assert "warning[T0650]" in warned.stderr
    assert "scores: f32[rows, 64]" in warned.stderr


@pytest.mark.parametrize("stage", ["typed", "tile", "schedule", "llvm", "asm", "ptx"])
def test_a_file_of_host_functions(tesserac: Tesserac, folder: Folder, stage: str) -> None:
    folder({"h.tessera": "def f(x):\n    return op.max(x, axis=0)\n"})
    done = tesserac("emit", "h.tessera", f"--stage={stage}")
    assert done.returncode == 1
    assert "T0819" in done.stderr
    (command,) = re.findall(r"`tesserac (emit [^`]*)`", done.stderr)
    assert tesserac(*command.split()).returncode == 0
    assert "T0819" in tesserac("build", "h.tessera", "-o", "o", "--target=cpu").stderr


ELSEWHERE = {
    "y: mut f32[d]": "x: f32[n, d], y: f32[64]",
    "y: mut f32[2 * d]": "x: f32[n, d], y: f32[64]",
    "y: mut f32[d * 2]": "y: f32[64]",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("y", ELSEWHERE)
def test_a_size_is_that_of_every_axis_of_its_name(
    tesserac: Tesserac, folder: Folder, y: str
) -> None:
    """`check` and `build` agree about what a signature says."""
    text = SIZED["square"].replace("image: f16[size, size], y: mut f32[size]", f"x: f32[n, d], {y}")
    text = text.replace("size", "d").replace("tile_range(d", "tile_range(n").replace("image", "x")
    folder({"k.tessera": text.replace("y[:] =", "y[0:d] =")})
    given = ("k.tessera", "--target=cpu", f"--signature={ELSEWHERE[y]}")
    for command in (("check",), ("build", "-o", "o")):
        done = tesserac(*command, *given)
        assert done.returncode == 0, done.stderr
        assert "T0650" not in done.stderr
    short = given[-1].replace("64", "s")
    for command, code in (("check", 1), ("build", 1)):
        done = tesserac(command, *given[:2], short, *(("-o", "o") if command == "build" else ()))
        assert (done.returncode, "T0650" in done.stderr) == (code, True), done.stderr


def test_what_build_has_no_form_for_is_warned_of(tesserac: Tesserac, folder: Folder) -> None:
    folder(
        {
            "k.tessera": """
@op.kernel
def k(x: f32[n, d], y: mut f32[n, d]):
    for i in op.tile_range(n, step=1):
        r = x[i, :]
        for t in range(3):
            r = r * 0.5 + op.roll(r, 1, axis=0)
        y[i, :] = r
"""
        }
    )
    checked = tesserac("check", "k.tessera", "--target=cpu")
    assert checked.returncode == 0
    assert "warning[T0700]" in checked.stderr
    assert "calls compile it for theirs" in checked.stderr
    assert "error[T0700]" in tesserac("build", "k.tessera", "-o", "o", "--target=cpu").stderr
    sized = "--signature=x: f32[n, 64], y: f32[n, 64]"
    assert tesserac("build", "k.tessera", "-o", "o", "--target=cpu", sized).returncode == 0
    assert tesserac("check", "k.tessera").stderr == ""
