"""The runtime with the real compiler on the CPU: recompilation, folders, processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime import cache, import_closure
from tessera_backend.runtime.built_loader import SCHEMA, digest_of

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.launch_plan import (
    Condition,
    CopyPlan,
    LaunchPlan,
    ParameterPlan,
    ResultPlan,
    Slot,
)

HELPER = "def twice(v):\n    return v * 2.0\n"
KERNEL = """\
import helper

FACTOR = 3.0

def plus(v):
    return v + 1.0

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = helper.twice(plus(x[i])) * FACTOR
"""
COPY = """\
@kernel tile[(32,)]
def copy(x, out: mut f32[m]):
    for i in range(grid_tile_linear_id(), m, grid_tile_count()):
        out[i] = x[i]

@kernel tile[(32,)]
def copy2(x, out: mut f32[m, n]):
    for i in range(grid_tile_linear_id(), m, grid_tile_count()):
        for j in range(n):
            out[i, j] = x[i, j]

@kernel tile[(32,)]
def add2(a, b, out: mut f32[m, n]):
    for i in range(grid_tile_linear_id(), m, grid_tile_count()):
        for j in range(n):
            out[i, j] = a[i, j] + b[i, j]

@kernel tile[(32,)]
def search(edges: f32[b], x: f32[n], out: mut i32[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        low: i32 = 0
        for j in range(b):
            if edges[j] <= x[i]:
                low += 1
        out[i] = low

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def gather(x: f32[n], at: i32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[at[i]]
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_CACHE", raising=False)
    cache.forget_shared_cache()
    yield
    cache.forget_shared_cache()


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.tessera").write_text(text)


def run(folder: Path) -> tuple[list[float], int]:
    """What the kernel gives for 1 and 2, and how many entries the cache has."""
    x, out = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    tessera.load(folder / "main.tessera", target="cpu").k(x, out)
    return out.tolist(), cache.shared_cache().stats().entries


def test_what_changes_is_compiled_again_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, main=KERNEL, helper=HELPER)
    first = run(tmp_path)
    assert first == ([12.0, 18.0], 3)
    assert run(tmp_path) == first
    write(tmp_path, helper=HELPER.replace("2.0", "4.0"))
    assert run(tmp_path) == ([24.0, 36.0], 6)
    write(tmp_path, main=KERNEL.replace("FACTOR = 3.0", "FACTOR = 1.0"))
    assert run(tmp_path) == ([8.0, 12.0], 9)
    write(tmp_path, main=KERNEL.replace("v + 1.0", "v + 0.0"))
    assert run(tmp_path) == ([12.0, 24.0], 12)
    write(tmp_path, main=KERNEL, helper=HELPER)
    assert run(tmp_path) == ([12.0, 18.0], 12)


def test_a_module_keeps_the_texts_it_was_loaded_with(tmp_path: Path) -> None:
    write(tmp_path, main=KERNEL, helper=HELPER)
    module = tessera.load(tmp_path / "main.tessera", target="cpu")
    write(tmp_path, helper=HELPER.replace("2.0", "100.0"))
    x, out = np.array([1], np.float32), np.zeros(1, np.float32)
    module.k(x, out)
    assert out.tolist() == [12.0]
    assert run(tmp_path)[0] == [600.0, 900.0]


HIT = """
import sys, numpy as np, tessera_lang as tessera
x, out = np.array([1, 2], np.float32), np.zeros(2, np.float32)
tessera.load(sys.argv[1], target="cpu").k(x, out)
assert out.tolist() == [12.0, 18.0], out
print([m for m in ("lark", "llvmlite", "tessera_lang.syntax", "tessera_lang.sema",
                   "tessera_lang.driver.session") if m in sys.modules])
"""


def test_a_hit_loads_neither_the_front_end_nor_llvm(tmp_path: Path) -> None:
    write(tmp_path, main=KERNEL, helper=HELPER)
    run(tmp_path)
    command = [sys.executable, "-c", HIT, str(tmp_path / "main.tessera")]
    # The compiler's own sources are in the key: run again where they were just edited.
    outputs = [subprocess.run(command, capture_output=True, text=True, timeout=60) for _ in "ab"]
    assert outputs[1].stdout.strip() == "[]", outputs[1].stderr


def test_garbled_entries_are_made_anew(tmp_path: Path) -> None:
    write(tmp_path, main=KERNEL, helper=HELPER)
    run(tmp_path)
    for file in (tmp_path / "cache").glob("*/*.entry"):
        file.write_bytes(file.read_bytes()[:-7])
    cache.forget_shared_cache()
    assert run(tmp_path) == ([12.0, 18.0], 3)


def test_closure_scan() -> None:
    names = import_closure.imported_names(
        "import a.b as c, d  # e\nfrom f.g import (h)\n  import i\n"
        "if x: import j\r\nimport k\rimport l"
    )
    assert names == ["a.b", "d", "f.g", "i", "j", "k", "l"]


# --- strides: every view gives what NumPy gives ------------------------------------------------


@pytest.fixture
def copies(tmp_path: Path) -> Any:
    write(tmp_path, copies=COPY)
    return tessera.load(tmp_path / "copies.tessera", target="cpu")


@pytest.mark.parametrize("view", ["[::-1]", "[::-2]", "[5:1:-1]", "[::3]", "[3:3]", "[7:]"])
def test_one_axis_views(copies: Any, view: str) -> None:
    x = eval(f"x{view}", {"x": np.arange(11, dtype=np.float32)})
    out = np.full(len(x), -1, np.float32)
    copies.copy[2](x, out)
    assert out.tolist() == x.tolist()


def test_two_axis_views(copies: Any) -> None:
    base = np.arange(2 * 16 * 9, dtype=np.float32).reshape(2, 16, 9)
    views = [
        base[0], base[0].T, base[0, ::-1, ::2], base[:, 3], base[0, :, :3], base[0, :, 3:6],
        np.broadcast_to(np.float32(1), (64, 2)), base.reshape(2, 8, 18)[1], base[0, :0],
        base[0, :1],
    ]  # fmt: skip
    for x in views:
        out = np.full(x.shape, -1, np.float32)
        copies.copy2[3](x, out)
        assert out.tolist() == x.tolist()
        target = np.full((x.shape[0] * 2, x.shape[1] * 3), -1, np.float32)
        copies.copy2[1](x, target[::-2, ::3])
        assert target[::-2, ::3].tolist() == x.tolist()
        assert (target == -1).sum() >= target.size - x.size


def test_halves_of_one_array(copies: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    out = np.zeros((4, 3), np.float32)
    copies.add2[1](x[:, 0:3], x[:, 3:6], out)
    assert out.tolist() == (x[:, :3] + x[:, 3:]).tolist()


def test_every_second_boundary(copies: Any) -> None:
    edges = np.linspace(0, 1, 33, dtype=np.float32)
    x = np.random.default_rng(1).random(50, np.float32)
    out = np.zeros(50, np.int32)
    copies.search[1](edges[::2], x, out)
    assert out.tolist() == np.searchsorted(edges[::2], x, side="right").tolist()


def test_a_fault_names_array_index_and_lane(copies: Any) -> None:
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    at = np.arange(100, dtype=np.int32)
    at[70] = 1000
    with pytest.raises(TesseraError) as caught:
        copies.gather(x, at, out)
    d = caught.value.diagnostics[0]
    assert d.code == "T0845" and "`x[at[i]]`" in d.message
    assert "index 1000 along axis 0, where 0 to 99 are inside" in d.notes
    assert "in group 1, lane 6" in d.notes
    assert d.span is not None and "at[i]" in str(caught.value)
    assert out[69] == 69 and out[70] == 0 and out[71] == 71
    at[70] = 70
    copies.gather(x, at, out)
    assert out.tolist() == x.tolist()


# --- folders of built kernels ------------------------------------------------------------------


@pytest.fixture
def built(tmp_path: Path) -> Path:
    from tessera_backend.runtime import api

    from tessera_lang.driver.session import Session
    from tessera_lang.target.backend import TargetOptions

    write(tmp_path, main=KERNEL, helper=HELPER)
    session, path = Session(), str(tmp_path / "main.tessera")
    signature = session.signature(path, "k")
    artifact = session.compile_kernel(path, "k", signature, TargetOptions("cpu"))
    written = api.write_build(tmp_path / "out", [artifact])
    names = ["manifest.json", "tessera.h", "tessera_k.h", "tessera_k_1.native.o"]
    assert sorted(p.name for p in written) == names
    return tmp_path / "out"


RUN_BUILT = """
import sys, numpy as np, tessera_lang as tessera
m = tessera.load_built(sys.argv[1])
x, out = np.array([1, 2], np.float32), np.zeros(2, np.float32)
m.k(x, out)
assert out.tolist() == [12.0, 18.0], out
print([n for n in ("lark", "llvmlite", "tessera_lang.syntax", "tessera_lang.sema",
                   "tessera_lang.driver") if n in sys.modules])
"""


def test_built_kernels_run_without_the_compiler(built: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN_BUILT, str(built)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


def damage(folder: Path, change: Any) -> str:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    if "kernels" in manifest:  # what is behind the digest is looked at too
        manifest["sha256"] = digest_of(manifest["kernels"])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(TesseraError) as caught:
        tessera.load_built(folder).k(np.zeros(2, np.float32), np.zeros(2, np.float32))
    return caught.value.diagnostics[0].code


def test_damaged_folders(built: Path) -> None:
    def escape(m: Any) -> None:
        m["kernels"][0]["file"] = "../../secret.o"

    def newer(m: Any) -> None:
        m["schema"] = 99

    def elsewhere(m: Any) -> None:
        m["kernels"][0]["machine"] = "riscv64"

    original = (built / "manifest.json").read_text()
    for change in (escape, newer, elsewhere, lambda m: m.clear(), lambda m: m["kernels"].append(3)):
        assert damage(built, change) == "T0849"
        (built / "manifest.json").write_text(original)
    code = built / "tessera_k_1.native.o"
    code.write_bytes(code.read_bytes() + b"x")
    assert damage(built, lambda m: None) == "T0849"
    code.unlink()
    assert damage(built, lambda m: None) == "T0849"
    (built / "manifest.json").write_bytes(b"\xff\x00")
    with pytest.raises(TesseraError):
        tessera.load_built(built)
    with pytest.raises(TesseraError):
        tessera.load_built(built / "nothing")


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value of JSON."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*at, key)
        if isinstance(item, dict | list):
            yield from places(item, (*at, key))


def test_a_plan_that_was_edited_is_not_run(built: Path) -> None:
    """It would give the code wrong sizes, or end in an exception: each field counts."""
    original = (built / "manifest.json").read_text()
    others: list[Any] = [None, -1, 1 << 40, "f64", [], {}, [[]], "../x"]
    for k, place in enumerate(places(json.loads(original)["kernels"])):
        manifest = json.loads(original)
        *way, last = ("kernels", *place)
        holder = manifest
        for key in way:
            holder = holder[key]
        old, holder[last] = holder[last], others[k % len(others)]
        if old == holder[last]:
            continue
        (built / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(TesseraError, match="T0849"):
            tessera.load_built(built)


@pytest.mark.parametrize(("schema", "words"), [
    (1, ("an older runtime", "version 1", "build it again")),
    (SCHEMA + 1, ("a newer runtime", f"version {SCHEMA + 1}", "update")),
])  # fmt: skip
def test_a_folder_of_another_version_says_so(
    built: Path, schema: int, words: tuple[str, ...]
) -> None:
    """Whatever else is in it: fields of other versions are not looked at."""
    manifest = built / "manifest.json"
    value = json.loads(manifest.read_text())
    value["schema"] = schema
    for kernel in value["kernels"]:
        kernel["plan"] = {"from": "another time"}
    manifest.write_text(json.dumps(value))
    with pytest.raises(TesseraError) as caught:
        tessera.load_built(built)
    said = str(caught.value)
    assert caught.value.diagnostics[0].code == "T0849"
    assert all(word in said for word in (*words, str(SCHEMA), tessera.__version__)), said


FIELDS = {
    LaunchPlan: "kernel parameters slots group grid shared_bytes sites conditions results cluster"
    " workspace scratch persistent copies prints launches_before grid_rank brackets",
    ParameterPlan: "name kind dtype rank dims mut contiguous aligned span value sizes divisors unit"
    " pitches buckets small",
    Slot: "kind parameter axis symbol dtype box axes swizzle",
    ResultPlan: "dtype dims zeroed kept",
    CopyPlan: "parameter axes alignment",
    Condition: "left comparison right text span others",
}


def test_the_version_stands_for_the_fields() -> None:
    """Another set of fields is another version: raise ``built.SCHEMA`` with what stands here."""
    assert SCHEMA == 7
    for record, names in FIELDS.items():
        assert [f.name for f in fields(record)] == names.split(), record.__name__


def test_a_built_kernel_says_what_it_lacks(built: Path) -> None:
    m = tessera.load_built(built)
    with pytest.raises(TesseraError) as caught:
        m.k(np.zeros(2, np.float32)[::-1], np.zeros(2, np.float32))
    assert caught.value.diagnostics[0].code == "T0849"
    assert "`x` is contiguous, row by row" in str(caught.value)
    assert "`x.copy()`" in str(caught.value)


# --- the face ----------------------------------------------------------------------------------


def test_faults_of_loading(tmp_path: Path) -> None:
    cases: dict[str, Any] = {
        "T0810": lambda: tessera.load(tmp_path / "none.tessera"),
        "T0130": lambda: tessera.load("std.nothing_like_it"),
        "T0814": lambda: tessera.load(tmp_path / "none.tessera", target="tpu"),
    }
    for code, call in cases.items():
        with pytest.raises(TesseraError) as caught:
            call()
        assert caught.value.diagnostics[0].code == code
    write(tmp_path, main=KERNEL, helper=HELPER)
    m = tessera.load(tmp_path / "main.tessera")
    assert not hasattr(m, "nothing") and hasattr(m, "k") and "k" in dir(m)


def test_source_texts() -> None:
    m = tessera.compile(COPY, target="cpu")
    x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    m.copy[1](x, out)
    assert out.tolist() == x.tolist()
    with pytest.raises(TesseraError) as caught:
        tessera.compile("@kernel tile[(32,)]\ndef k(x: f32[n]):\n    y = nowhere\n")
    assert "nowhere" in str(caught.value)


def test_the_face_imports_nothing_heavy() -> None:
    script = (
        "import sys, tessera_lang; tessera_lang.__version__; "
        "print([m for m in ('numpy', 'lark', 'llvmlite', 'tessera_backend') if m in sys.modules])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"
