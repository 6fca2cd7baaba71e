"""What Python hosts see of an error: one message, below the line that they wrote.

Each code that loading or calling may raise has a case here, or a reason why it has none.
"""

from __future__ import annotations

import copy
import json
import multiprocessing
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tessera_backend
from tessera_backend.device import driver_errors
from tessera_backend.runtime import caller_errors, device_array
from tessera_backend.runtime.call_diagnostics import remember_source

import tessera_lang as tessera
from tests.cards import cards

PROGRAM = """\
import std.math

SCALE = 2.0

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def scale(x: f32[n], factor: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * factor

@kernel tile[(64,)]
def free(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i]

@kernel tile[(64,)] grid[(1,)]
def any_array(x, out: mut f32[4]):
    out[tile_linear_id()] = x[0, 0]

@kernel tile[(1,)] grid[(1,)]
def halves(x: f32[n], out: mut f32[n // 2]) where n % 2 == 0:
    out[0] = x[0]

@kernel tile[(1,)] grid[(1,)]
def counted[N: int](x: f32[n], out: mut f32[n]):
    out[0] = x[0] * N

@kernel tile[(1,)] grid[(1,)]
def outside(x: f32[n], at: i32, out: mut f32[n]):
    out[0] = x[at]

@kernel tile[(1,)] grid[(n // m,)]
def many(x: f32[n], y: f32[m]):
    assert x[0] == y[0]

@op.kernel
def rows(x: f32[n, m]) -> f32[n]:
    return op.sum(x, axis=1)

def mean(x):
    return op.sum(x) / x.shape[0]

def fails(x):
    assert x.shape[0] == 3, "three, please"
    return x

def longer(x, y):
    return x + y
"""


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("program") / "program.tessera"
    path.write_text(PROGRAM, encoding="utf-8")
    return tessera.load(path, target="cpu")


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def load_text(text: str) -> Callable[[Any, Path], Any]:
    def load(m: Any, folder: Path) -> Any:
        (folder / "broken.tessera").write_text(text, encoding="utf-8")
        return tessera.load(folder / "broken.tessera")

    return load


def built(change: Callable[[dict[str, Any]], None]) -> Callable[[Any, Path], Any]:
    def load(m: Any, folder: Path) -> Any:
        manifest = {"schema": 1, "kernels": [], "sha256": ""}
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return tessera.load_built(folder)

    return load


def moved(m: Any, _: Path) -> Any:
    x, out = f32(8), f32(8)
    call = m.scale.bind(x, 2.0, out)
    out.resize((1 << 20,), refcheck=False)
    return call()


def overlapping(m: Any, _: Path) -> Any:
    x = f32(9)
    return m.scale(x[1:], 2.0, x[:-1])


def fast_way(raw: Callable[[Any], Any]) -> Callable[[Any, Path], Any]:
    """A call behind one of the same kind that was right: the short way of a launch."""

    def call(m: Any, _: Path) -> Any:
        for _again in range(3):
            m.scale(f32(8), 2.0, f32(8))
            m.outside(f32(8), 0, f32(8))
        return raw(m)

    return call


READ_ONLY = f32(8)
READ_ONLY.flags.writeable = False
KERNEL = "@kernel tile[(1,)] grid[(1,)]\n"

CASES: dict[str, tuple[str, Callable[[Any, Path], Any]]] = {
    # loading
    "no file": ("T0810", lambda m, p: tessera.load(p / "none.tessera")),
    "a folder": ("T0810", lambda m, p: tessera.load(p)),
    "a cache": ("T0859", lambda m, p: tessera.bench(m.mean, f32(4), cache="hot")),
    "no library": ("T0130", lambda m, p: tessera.load("std.nothing")),
    "no target": ("T0814", lambda m, p: tessera.load("std.reduce", target="tpu")),
    "no architecture": ("T0880", lambda m, p: tessera.load("std.reduce", arch_as="sm_1")),
    "syntax": ("T0031", load_text("def f(:\n    return 1\n")),
    "names": ("T0101", load_text("def f(x):\n    return y\n")),
    "import": ("T0130", load_text("import nothing_there\n")),
    "types": ("T0111", load_text(KERNEL + "def k(x: f32[4]):\n    x[0] = 1.0\n")),
    "an uncalled function": ("T0101", load_text("def f(x):\n    return g(x)\n\nprint(1)\n")),
    "a text": ("T0101", lambda m, p: tessera.compile("def f(x):\n    return y\n")),
    "not built": ("T0849", lambda m, p: tessera.load_built(p)),
    "built by another": ("T0849", built(lambda manifest: None)),
    "damaged": ("T0849", built(lambda manifest: manifest.update(schema="x"))),
    "a gradient of no function": ("T0761", lambda m, p: tessera.grad(3)),
    # members
    "no member": ("T0819", lambda m, p: m.nothing),
    # calls of kernels
    "too few": ("T0830", lambda m, p: m.scale(f32(4), 2.0)),
    "too many": ("T0830", lambda m, p: m.scale(f32(4), 2.0, f32(4), 1)),
    "no parameter": ("T0830", lambda m, p: m.scale(f32(4), 2.0, f32(4), what=1)),
    "a list": ("T0831", lambda m, p: m.scale([1.0], 2.0, f32(1))),
    "dtype": ("T0832", lambda m, p: m.scale(np.ones(4), 2.0, f32(4))),
    "complex": ("T0832", lambda m, p: m.any_array(np.ones((1, 1), complex), f32(4))),
    "rank": ("T0833", lambda m, p: m.scale(f32(2, 2), 2.0, f32(4))),
    "size": ("T0834", lambda m, p: m.scale(f32(4), 2.0, f32(5))),
    "groups": ("T0834", lambda m, p: m.scale[(3,)](f32(4), 2.0, f32(4))),
    "read-only": ("T0835", lambda m, p: m.scale(f32(8), 2.0, READ_ONLY)),
    "overlap": ("T0836", overlapping),
    "own overlap": ("T0837", lambda m, p: m.scale(
        f32(4), 2.0, np.lib.stride_tricks.as_strided(f32(1), (4,), (0,), writeable=True))),
    "condition": ("T0838", lambda m, p: m.halves(f32(3), f32(1))),
    "no grid": ("T0839", lambda m, p: m.free(f32(4), f32(4))),
    "a grid of words": ("T0839", lambda m, p: m.free["four"]),
    "a grid for tiles": ("T0839", lambda m, p: m.rows[(4,)]),
    "too many groups": ("T0840", lambda m, p: m.free[(1 << 31,)](f32(4), f32(4))),
    "stride": ("T0841", lambda m, p: m.scale(
        np.zeros(4, [("a", "f4"), ("b", "u1")])["a"], 2.0, f32(4))),
    "byte order": ("T0842", lambda m, p: m.scale(np.ones(4, ">f4"), 2.0, f32(4))),
    "number": ("T0843", lambda m, p: m.scale(f32(4), 1e60, f32(4))),
    "number, again": ("T0843", fast_way(lambda m: m.scale(f32(8), 1e60, f32(8)))),
    "keyword, again": ("T0830", fast_way(lambda m: m.scale(f32(8), 2.0, what=f32(8)))),
    "fault": ("T0845", lambda m, p: m.outside(f32(4), 4, f32(4))),
    "fault, again": ("T0845", fast_way(lambda m: m.outside(f32(8), 8, f32(8)))),
    "bound fault": ("T0845", lambda m, p: m.outside.bind(f32(4), 4, f32(4))()),
    "size by zero": ("T0846", lambda m, p: m.many(f32(4), f32(0))),
    "compile-time value": ("T0850", lambda m, p: m.counted(f32(4), f32(4))),
    "compile-time kind": ("T0850", lambda m, p: m.counted(f32(4), f32(4), N="x")),
    "moved": ("T0851", moved),
    "stream": ("T0852", lambda m, p: m.scale.on("stream")),
    "stream of a call": ("T0852", lambda m, p: m.scale(f32(4), 2.0, f32(4), stream=2.5)),
    "bind": ("T0834", lambda m, p: m.scale.bind(f32(4), 2.0, f32(5))),
    # what only this signature makes wrong: found when it is compiled
    "signature": ("T0301", lambda m, p: m.any_array(f32(4), f32(4))),
    # plain functions
    "count of a function": ("T0804", lambda m, p: m.mean()),
    "assertion": ("T0805", lambda m, p: m.fails(f32(4))),
    "shapes of a function": ("T0834", lambda m, p: m.longer(f32(3), f32(4))),
    "type in a function": ("T0818", lambda m, p: m.longer(f32(3), "text")),
    "library": ("T0804", lambda m, p: tessera.load("std.reduce", target="cpu").sum(1, 2, 3, 4)),
    # arrays
    "a ragged list to a device": ("T0831", lambda m, p: tessera.to_device([[1], [2, 3]])),
    "a text to a device": ("T0832", lambda m, p: tessera.to_device("text")),
}  # fmt: skip


def caught(action: Callable[[], Any]) -> tessera.TesseraError:
    with pytest.raises(tessera.TesseraError) as info:
        action()
    return info.value


@pytest.mark.parametrize("case", CASES)
def test_one_message_below_the_callers_line(case: str, m: Any, tmp_path: Path) -> None:
    code, action = CASES[case]
    for _ in range(2):  # an error does not go away by being seen
        found = caught(lambda: action(m, tmp_path))
        assert [d.code for d in found.diagnostics][:1] == [code], str(found)
        ends_here(found)


def ends_here(found: tessera.TesseraError) -> None:
    frames = traceback.extract_tb(found.__traceback__)
    assert frames and {f.filename for f in frames} == {__file__}
    text = "".join(traceback.format_exception(found))
    assert text.count("Traceback (most recent call last)") == 1
    assert "tessera_backend/" not in text and "tessera_lang/" not in text
    first = found.diagnostics[0]
    assert str(found).count(first.message) == 1 and f"error[{first.code}]" in str(found)
    for more in (*first.helps, *first.notes):
        assert more.splitlines()[0] in str(found)


# --- completeness --------------------------------------------------------------------------

ELSEWHERE = {
    "T0209": "powers of arrays of integers in a host program; the same way as T0834",
    "T0807": "shapes of arrays in a host program; the same way as T0834",
    "T0624": "a warning, in tests/unit/sema/tile/test_places_below_0.py",
    "T0763": "runs that look for NaN, in tests/unit/graph/test_nan_origins.py",
    "T0809": "plain functions on a device",
    "T0813": "reading data files in a host program",
    "T0844": "arguments on several devices",
    "T0847": "staging of host arrays for a device",
    "T0848": "a warning",
    "T0853": "TESSERA_CHECKED, in test_settings_of_the_environment",
    "T0854": "a warning",
    "T0855": "arrays larger than the memory of most GPUs",
    "T0857": "a warning, in tests/spec/test_call_helps.py",
    "T0901": "a fault of ours, in test_faults_of_ours_keep_their_traceback",
    "T0902": "a fault of ours",
    "T0903": "an installation without the library",
    "T0904": "a fault of the asynchronous model, of ours",
}


def test_every_code_has_a_case() -> None:
    root = Path(tessera_backend.__path__[0]) / "runtime"
    used = {
        code
        for path in root.glob("*.py")
        for code in re.findall(r"\"(T0\d{3})\"", path.read_text(encoding="utf-8"))
    }
    known = {code for code, _ in CASES.values()} | {*ELSEWHERE}
    assert used - known == set()
    assert {*ELSEWHERE} <= used


@pytest.mark.parametrize("name", [*driver_errors._REMEDIES, "CUDA_ERROR_OF_ANOTHER_KIND"])
def test_errors_of_the_driver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise driver_errors.DriverError(name, "copying to the device", "of 5 bytes")

    monkeypatch.setattr(device_array, "to_device", refuse)
    found = caught(lambda: tessera.to_device(f32(4)))
    ends_here(found)
    again = copy.deepcopy(found)
    assert type(again) is driver_errors.DriverError and again.name == name


@pytest.mark.skipif(bool(cards()), reason="a device is there")
def test_no_device() -> None:
    for action in (lambda: tessera.to_device(f32(4)), lambda: tessera.load("std.reduce", "cuda")):
        ends_here(caught(action))


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("TESSERA_BOUNDS", "perhaps", "T0814"), ("TESSERA_OPTIMIZE", "7", "T0814")],
)
def test_settings_of_the_environment(
    name: str, value: str, code: str, m: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    found = caught(lambda: tessera.load("std.reduce"))
    assert found.diagnostics[0].code == code
    ends_here(found)


def test_checked_mode(m: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CHECKED", "1")
    path = tmp_path / "race.tessera"
    path.write_text("@kernel tile[(64,)] grid[(1,)]\ndef race(out: mut i32[4]):\n"
                    "    out[out[3]] = i32(tile_linear_id())\n", encoding="utf-8")  # fmt: skip
    found = caught(lambda: tessera.load(path, target="cpu").race(np.zeros(4, np.int32)))
    assert found.diagnostics[0].code == "T0853"
    ends_here(found)


# --- what is around an error ---------------------------------------------------------------


def test_what_the_caller_was_handling_stays(m: Any) -> None:
    try:
        try:
            raise KeyError("the caller's own")
        except KeyError:
            m.scale(1, 2, 3)
    except tessera.TesseraError as found:
        assert isinstance(found.__context__, KeyError)
        text = "".join(traceback.format_exception(found))
        assert text.count("Traceback (most recent call last)") == 2
        assert "tessera_backend/" not in text


def test_all_frames_on_request(m: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_BACKTRACE", "1")
    found = caught(lambda: m.scale(1, 2, 3))
    assert len(traceback.extract_tb(found.__traceback__)) > 3


def test_faults_of_ours_keep_their_traceback(m: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tessera_lang.driver.internal_fault import InternalFault
    from tessera_lang.driver.session import Session

    def fail(*_: object, **__: object) -> None:
        raise InternalFault("T0901", "a pass failed", stage="pass")

    monkeypatch.setattr(Session, "compile_kernel", fail)
    monkeypatch.setenv("TESSERA_CACHE", "off")
    found = caught(lambda: tessera.compile(PROGRAM, target="cpu").scale(f32(3), 1.0, f32(3)))
    assert isinstance(found.__cause__, InternalFault)


def test_a_module_is_wrong_once(tmp_path: Path) -> None:
    """All faults of a file in one error, and the next load of a mended one is right."""
    path = tmp_path / "two.tessera"
    path.write_text("def f(x):\n    return y\n\ndef g(x):\n    return z\n", encoding="utf-8")
    found = caught(lambda: tessera.load(path))
    assert [d.code for d in found.diagnostics] == ["T0101", "T0101"]
    assert str(found).count("error[") == 2
    path.write_text("def f(x):\n    return x\n", encoding="utf-8")
    assert tessera.load(path, target="cpu").f(3) == 3


def test_imported_faults_are_faults(tmp_path: Path) -> None:
    (tmp_path / "below.tessera").write_text("def f(x:\n    return x\n", encoding="utf-8")
    path = tmp_path / "above.tessera"
    path.write_text("import below\n\ndef g(x):\n    return below.f(x)\n", encoding="utf-8")
    found = caught(lambda: tessera.load(path))
    assert found.diagnostics[0].span is not None
    assert "below.tessera" in str(found)


MISUSES: dict[str, Callable[[Any], Any]] = {
    "`path` is 3": lambda m: tessera.load(3),
    "`path` is None": lambda m: tessera.load(None),
    "`paths` is 'folder'": lambda m: tessera.load("std.reduce", paths="folder"),
    "`paths` is 3": lambda m: tessera.load("std.reduce", paths=3),
    "`paths` is [5]": lambda m: tessera.load("std.reduce", paths=[5]),
    "`arch_as` is 90": lambda m: tessera.load("std.reduce", arch_as=90),
    "`source` is 3": lambda m: tessera.compile(3),
    "`arch` is None": lambda m: tessera.compile("N = 3\n", arch=None),
    "`directory` is None": lambda m: tessera.load_built(None),
    "`device` is 'cuda:0'": lambda m: tessera.to_device(f32(4), "cuda:0"),
    "`device` is True": lambda m: tessera.to_device(f32(4), True),
    "`device` is 1.0": lambda m: tessera.synchronize(1.0),
    "`array` is of type ndarray": lambda m: tessera.from_device(f32(50)),
}


@pytest.mark.parametrize("said", MISUSES)
def test_what_is_no_argument_at_all(said: str, m: Any) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(said)}") as info:
        MISUSES[said](m)
    frames = traceback.extract_tb(info.value.__traceback__)
    assert {f.filename for f in frames} == {__file__}
    text = "".join(traceback.format_exception(info.value))
    assert text.count("Traceback") == 1 and "\nTypeError: " in text
    assert type(copy.copy(info.value)) is TypeError


# --- from process to process ---------------------------------------------------------------


def test_errors_are_taken_apart_and_made_again(m: Any) -> None:
    for action in (lambda: m.scale(f32(4), 2.0, f32(5)), lambda: m.nothing):
        found = caught(action)
        again = copy.deepcopy(found)
        assert type(again) is type(found) and str(again) == str(found)
        assert [(d.code, d.message, d.notes) for d in again.diagnostics] == [
            (d.code, d.message, d.notes) for d in found.diagnostics
        ]


def work(path: str) -> None:
    tessera.load(path, target="cpu").scale(f32(4), 2.0, f32(5))


def test_errors_come_out_of_a_worker(m: Any) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = caught(lambda: pool.apply(work, (m.__file__,)))
    assert found.diagnostics[0].code == "T0834"


def test_texts_of_bare_errors() -> None:
    """Those that some module raises without a text get one on their way out."""
    from tessera_lang.diagnostics.diagnostic import Diagnostic
    from tessera_lang.source import Anchor, Span

    remember_source("bare.tessera", "a line\n")
    span = Span(Anchor("bare.tessera"), 2, 6)
    bare = tessera.TesseraError((Diagnostic("T0101", "said", span, helps=("do this",)),))
    assert str(bare) == "T0101: said"

    @caller_errors.ends_at_the_caller
    def fail() -> None:
        raise bare

    with pytest.raises(tessera.TesseraError, match="do this"):
        fail()
    assert "a line" in str(bare) and not bare.is_bare
