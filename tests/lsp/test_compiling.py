"""Lenses, IR and code beside the text, runs, and the processes that they take: by the protocol."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tests.lsp.raw import Raw

LANES = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], out: mut f32[n]):
    smem = tshared.alloc((128,), f32)
    smem[tile_linear_id()] = 1.0
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * 2.0
"""
TILES = """\
@op.kernel
def summed(x: f32[64, 4096]):
    return op.sum(x, axis=1)
"""
PROGRAM = LANES + '\n\n@test\ndef right():\n    assert 1 == 1\n\n\nprint("it runs")\n'


class Compiler(Raw):
    """A client of lenses. ``refreshes``: how often it was told to ask for them again."""

    def __init__(self, command: list[str] | None = None, **options: Any) -> None:
        super().__init__(command, workspace={"codeLens": {"refreshSupport": True}})
        self.options = options
        self.refreshes = 0

    def __enter__(self) -> Compiler:
        self.initialized = self.ask(
            "initialize", processId=None, rootUri=None, capabilities=self.capabilities,
            initializationOptions=self.options,
        )  # fmt: skip
        self.tell("initialized")
        return self

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def looked_at(message: dict[str, Any]) -> bool:
            self.refreshes += message.get("method") == "workspace/codeLens/refresh"
            return wanted(message)

        return super().until(looked_at)

    def command(self, name: str, **argument: Any) -> Any:
        return self.ask("workspace/executeCommand", command=f"tessera.{name}",
                        arguments=[argument])  # fmt: skip

    def refused(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.begin(method, **params)
        return self.until(lambda m: m.get("id") == number and "method" not in m)["error"]

    def begin(self, method: str, **params: Any) -> int:
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        return self.number

    def lenses(self, uri: str) -> list[str]:
        found = self.ask("textDocument/codeLens", textDocument={"uri": uri})
        return [f"{c['range']['start']['line']}: {c['command']['title']}" for c in found]


@pytest.fixture(scope="module")
def server() -> Iterator[Compiler]:
    with Compiler(run=True, archs=["sm_80", "sm_90", "sm_0"]) as raw:
        yield raw


def uri_of(tmp_path: Path, text: str, name: str = "compiled") -> str:
    path = tmp_path / f"{name}.tessera"
    path.write_text(text)
    return path.as_uri()


# --- lenses ----------------------------------------------------------------------------------


def test_lenses_before_and_after_the_assembler(server: Compiler, tmp_path: Path) -> None:
    uri = uri_of(tmp_path, PROGRAM)
    server.open(uri, PROGRAM)
    found = server.lenses(uri)
    memory = "512 bytes of shared memory (smem 512) · 16 groups at once on a multiprocessor, 100 %"
    assert (
        f"1: sm_80: {memory} of its warps, limited by lanes (estimate without registers)" in found
    )
    assert sum("sm_90" in lens for lens in found) == 1 and not any("sm_0:" in x for x in found)
    assert {"1: show the IR and the code", "10: run the test", "14: run"} <= set(found)
    before = server.refreshes
    told = server.command("resources", uri=uri)
    assert [(t["kernel"], t["arch"]) for t in told] == [("scale", "sm_80"), ("scale", "sm_90")]
    assert server.refreshes > before
    launch = told[0]["launches"][0]
    assert launch["shared"] == 512 and launch["lanes"] == 128
    (after,) = [lens for lens in server.lenses(uri) if "sm_80" in lens]
    if find_ptxas() is None:
        assert "there is no ptxas" in after
    else:
        assert f"{launch['registers']} registers, no spills" in after and launch["registers"] > 4
    server.change(uri, 2, {"text": PROGRAM + "\n"})
    assert any("estimate without registers" in lens for lens in server.lenses(uri))


@pytest.mark.slow
def test_lenses_of_tile_kernels(server: Compiler, tmp_path: Path) -> None:
    uri = uri_of(tmp_path, TILES)
    server.open(uri, TILES)
    assert "1: what it takes is not known yet" in server.lenses(uri)
    told = server.command("resources", uri=uri, kernel="summed", archs=["sm_90"])
    assert len(told) == 1 and told[0]["launches"]
    assert any(lens.startswith("1: sm_90: ") for lens in server.lenses(uri))


# --- IR and code -----------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["tile", "ptx", "sass"])
def test_ir_of_the_kernel_under_the_cursor(server: Compiler, tmp_path: Path, stage: str) -> None:
    """Of the text in the editor, in step with its lines; also in the words of a request."""
    if stage == "sass" and (find_ptxas() is None or find_tool("nvdisasm") is None):
        pytest.skip("there is no ptxas or no nvdisasm")
    text = TILES + "\n\n" + LANES.replace("x[i] * 2.0", "x[i] - 0.5")
    uri = uri_of(tmp_path, TILES, "ünï cödé")
    server.open(uri, text)
    at = {"line": 11, "character": 6}
    found = server.command("viewIr", uri=uri, position=at, stage=stage)
    assert found["kernel"] == "scale" and found["stage"] == stage
    shown = found["text"].split("\n")
    assert len(shown) == len(found["lines"])
    wanted = {"tile": "tile.sub", "ptx": "add.rn.f32", "sass": "FADD"}[stage]
    (line,) = {found["lines"][i] for i, s in enumerate(shown) if wanted in s}
    assert line == 11
    assert not any(".loc" in s or " loc(" in s or "//##" in s for s in shown)
    assert server.ask("tessera/viewIr", uri=uri, position=at, stage=stage) == found


@pytest.mark.slow
def test_schedules_and_what_has_none(server: Compiler, tmp_path: Path) -> None:
    text = TILES + "\n\n" + LANES
    uri = uri_of(tmp_path, text)
    server.open(uri, text)
    found = server.command("viewIr", uri=uri, kernel="summed", stage="schedule", arch="sm_90")
    assert 2 in found["lines"] and found["signatures"] == ["x: f32[64, 4096]"]
    for kernel, stage, said in (
        ("scale", "schedule", "a lane kernel"), ("nothing", "tile", "no kernel"),
        ("scale", "soup", "no stage"),
    ):  # fmt: skip
        argument = {"uri": uri, "kernel": kernel, "stage": stage}
        error = server.refused("workspace/executeCommand", command="tessera.viewIr",
                               arguments=[argument])  # fmt: skip
        assert error["code"] == -32803 and said in error["message"]
    server.change(uri, 2, {"text": text + "y = nothing\n"})
    error = server.refused("tessera/viewIr", uri=uri, kernel="scale", stage="tile")
    assert "the file has errors" in error["message"]


# --- running ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_programs_and_tests_are_run(server: Compiler, tmp_path: Path) -> None:
    text = PROGRAM.replace("1 == 1", "1 == 2").replace("def right", "def wrong") + (
        "\n\n@test\ndef right():\n    assert 1 == 1\n"
    )
    uri = uri_of(tmp_path, text)
    server.open(uri, text)
    ran = server.command("run", uri=uri)
    assert ran["code"] == 0 and "it runs" in ran["output"]
    assert server.command("test", uri=uri, test="right")["code"] == 0
    assert server.command("test", uri=uri)["code"] == 3


def test_nothing_is_run_where_the_editor_does_not_allow_it(tmp_path: Path) -> None:
    uri = uri_of(tmp_path, PROGRAM)
    with Compiler() as raw:
        raw.open(uri, PROGRAM)
        assert not any("run" in lens for lens in raw.lenses(uri))
        for name in ("run", "test"):
            error = raw.refused("workspace/executeCommand", command=f"tessera.{name}",
                                arguments=[{"uri": uri}])  # fmt: skip
            assert error["code"] == -32803 and "trusted" in error["message"]


def test_remarks_are_a_layer(server: Compiler, tmp_path: Path) -> None:
    text = LANES.replace("if i < n:", "if i < 100:")
    uri = uri_of(tmp_path, text)
    server.open(uri, text)
    assert server.command("toggleRemarks", on=True) is True
    while "P1004" not in {d["code"] for d in server.diagnostics(uri, 1)}:
        pass
    assert server.command("toggleRemarks") is False
    while "P1004" in {d["code"] for d in server.diagnostics(uri, 1)}:
        pass


# --- children --------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    """The processes that a process has started (Linux)."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def wait_for_children(pid: int, some: bool) -> list[int]:
    end = time.monotonic() + 20
    while bool(found := children(pid)) != some:
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return found


def hang(raw: Compiler) -> None:
    """Stop the child of a server once it is the compiler and the server knows it: between fork and
    exec a process that starts another waits for it."""
    (child,) = wait_for_children(raw.process.pid, True)
    while b"tessera_lsp.child" not in Path(f"/proc/{child}/cmdline").read_bytes():
        time.sleep(0.01)
    assert raw.at("hover", "untitled:none", 0, 0) is None  # the loop has come by
    os.kill(child, signal.SIGSTOP)


LONG = "".join(TILES.replace("summed", f"summed{i}").replace("64", str(64 + i)) for i in range(40))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("end", ["killed", "cancelled", "edited", "asked anew"])
@pytest.mark.slow
def test_a_child_that_ends_early_costs_its_answer(tmp_path: Path, end: str) -> None:
    """The server answers before and after, and no process is left."""
    uri = uri_of(tmp_path, LONG)
    with Compiler(archs=["sm_90"]) as raw:
        raw.open(uri, LONG)
        pid = raw.process.pid
        number = raw.begin("workspace/executeCommand", command="tessera.resources",
                           arguments=[{"uri": uri}])  # fmt: skip
        (child,) = wait_for_children(pid, True)
        assert raw.at("hover", uri, 1, 5) is not None
        if end == "killed":
            os.kill(child, signal.SIGKILL)
        elif end == "cancelled":
            raw.tell("$/cancelRequest", id=number)
        elif end == "edited":
            raw.change(uri, 2, {"text": LONG + "\n"})
        else:
            number, first = raw.begin("tessera/resources", uri=uri, kernel="summed1"), number
            assert raw.until(lambda m: m.get("id") == first)["error"]["code"] == -32801
            assert len(raw.until(lambda m: m.get("id") == number)["result"]) == 1
            return
        codes = {"killed": -32803, "cancelled": -32800, "edited": -32801}
        assert raw.until(lambda m: m.get("id") == number)["error"]["code"] == codes[end]
        wait_for_children(pid, False)
        assert raw.at("hover", uri, 1, 5) is not None


SHORT = """
from tessera_lsp.server import children, main
children.DEADLINE = 4.0
main.main()
"""
ENDLESS = "x = 0\nwhile x < 1:\n    y = x\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("what", ["the compiler", "a program"])
@pytest.mark.slow
def test_a_child_that_hangs_ends_at_its_deadline(tmp_path: Path, what: str) -> None:
    """It is killed then, also where it does not run at all; the server answers meanwhile."""
    text = LONG if what == "the compiler" else ENDLESS
    uri = uri_of(tmp_path, text)
    command = "resources" if what == "the compiler" else "run"
    with Compiler([sys.executable, "-c", SHORT], archs=["sm_90"], run=True) as raw:
        raw.open(uri, text)
        number = raw.begin("workspace/executeCommand", command=f"tessera.{command}",
                           arguments=[{"uri": uri}])  # fmt: skip
        if what == "the compiler":
            hang(raw)
        start = time.monotonic()
        line, column = (1, 5) if what == "the compiler" else (0, 0)
        assert raw.at("hover", uri, line, column) is not None
        assert time.monotonic() - start < 3.0
        error = raw.until(lambda m: m.get("id") == number)["error"]
        assert "longer than 4 seconds" in error["message"] and time.monotonic() - start < 20.0
        wait_for_children(raw.process.pid, False)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.slow
def test_a_child_that_hangs_ends_with_an_edit(tmp_path: Path) -> None:
    uri = uri_of(tmp_path, LONG)
    with Compiler(archs=["sm_90"]) as raw:
        raw.open(uri, LONG)
        number = raw.begin("workspace/executeCommand", command="tessera.resources",
                           arguments=[{"uri": uri}])  # fmt: skip
        hang(raw)
        raw.change(uri, 2, {"text": LONG + "\n"})
        assert raw.until(lambda m: m.get("id") == number)["error"]["code"] == -32801
        wait_for_children(raw.process.pid, False)
