"""The language server: time from a message read to the answer written, in the server.

Processor time of the server's process, since a wall clock measures who else runs. Wall-clock
times stand beside it; those of lints and tests are without the rest that they wait for.

Files of 60 to 5000 lines and modules of the library; an edit in one function, then what an editor
asks after it.

Run: python -m benchmarks.lsp
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera_lsp.server.features import make_server
from tessera_lsp.server.main import collect_rarely
from tessera_lsp.server.server import REST, TesseraServer

from benchmarks.harness import RESULTS, machine

# Milliseconds for 60, 500, 2000 and 5000 lines: what is asked of the 95th percentile.
GOALS: dict[str, tuple[float, float, float, float]] = {
    "diagnostics after an edit": (15, 25, 50, 120),
    "diagnostics after opening": (40, 150, 500, 1200),
    "completion": (30, 30, 30, 50),
    "signature help": (30, 30, 30, 50),
    "hover": (30, 30, 30, 50),
    "definition": (30, 30, 30, 50),
    "semantic tokens": (15, 30, 60, 150),
    "document symbols": (15, 30, 60, 150),
    "lints and tests after rest": (250, 250, 500, 1000),
}
SIZES = {"S": 60, "M": 500, "L": 2000, "XL": 5000}
MODULES = ("scan", "sort", "sparse", "reduce_kernels")
LIBRARY = Path(__file__).resolve().parents[1] / "stdlib" / "tessera_stdlib"
EDITS = 120
PAUSE = 0.0002  # seconds between two looks at what has been answered
KERNELS = '''
@kernel tile[(128,)] shared(16_KiB)
def reduce_{k}(x: f32[n], out: mut f32[grid_groups]):
    """Sums x by groups."""
    smem = tshared.alloc((128,), f32)
    i = tile_linear_id()
    acc = 0.0
    for j in range(i, n, group_tile_count()):
        acc += x[j] * {k}.5
    smem[i] = acc
    tbarrier()
    s = 64
    while s > 0:
        if i < s:
            smem[i] += smem[i + s]
        tbarrier()
        s //= 2
    if i == 0:
        atomic_add(out[group_linear_id()], smem[0])


def clamp_{k}(v, low, high):
    return min(max(v, low), high)


@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale_{k}(x: f32[n], factor: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = clamp_{k}(x[i] * factor, 0.0, {k}.0)

'''


def source(lines: int) -> str:
    """Kernels and plain functions, about so many lines."""
    text, k = '"""A file of kernels."""\n\nimport std.reduce\n\nLANES = 128\n', 0
    while not k or text.count("\n") + KERNELS.count("\n") // 2 < lines:
        text, k = text + KERNELS.replace("{k}", str(k)), k + 1
    return text


Times = tuple[float, float]  # of the processor, of the wall clock


def now() -> Times:
    return time.process_time(), time.perf_counter()


def since(start: Times) -> Times:
    cpu, wall = now()
    return cpu - start[0], wall - start[1]


class Wire:
    """The server's output, and its input as bytes."""

    def __init__(self, server: TesseraServer) -> None:
        self.server = server
        self.answers: list[dict[str, Any]] = []
        self.number = 0
        server.protocol.set_writer(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self.answers.append(json.loads(data.split(b"\r\n\r\n", 1)[1]))

    def close(self) -> None:
        pass

    def send(self, method: str, params: dict[str, Any], request: bool = False) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request:
            self.number += 1
            message["id"] = self.number
        body = json.dumps(message).encode()
        structure = self.server.protocol.structure_message
        self.server.protocol.handle_message(json.loads(body, object_hook=structure))

    async def ask(self, method: str, params: dict[str, Any]) -> Times:
        start = now()
        self.send(method, params, request=True)
        while True:
            for answer in reversed(self.answers):
                if answer.get("id") == self.number:
                    assert "error" not in answer, method
                    return since(start)
            await asyncio.sleep(PAUSE)

    async def published(self, version: int) -> list[Any]:
        while True:
            for answer in reversed(self.answers):
                params = answer.get("params") or {}
                if params.get("version") == version and "diagnostics" in params:
                    return params["diagnostics"]
            await asyncio.sleep(PAUSE)


@dataclass(frozen=True)
class Sample:
    """A file to edit: what stands at an offset is written anew with each edit."""

    name: str
    uri: str
    text: str
    at: int
    old: str
    new: str
    goals: dict[str, float]


def generated(name: str, lines: int) -> Sample:
    """Kernels and plain functions; a number in the middle one is edited."""
    text = source(lines)
    at = text.rindex("acc = 0.0", 0, text.index("acc = 0.0", len(text) // 2) + 9)
    goals = {what: each[list(SIZES).index(name)] for what, each in GOALS.items()}
    return Sample(name, "untitled:bench", text, at, "acc = 0.0", "acc = {}.0", goals)


def of_library(name: str) -> Sample:
    """A module of the standard library; the end of a line in the middle is edited."""
    path = LIBRARY / f"{name}.tessera"
    text = path.read_text(encoding="utf-8")
    found = [m.end() for m in re.finditer(r"^    \w+ = .*$", text, re.M)]
    at = next(end for end in found if end >= len(text) // 2)
    goals = {**dict.fromkeys(GOALS, 50.0), "diagnostics after an edit": 100.0,
             "diagnostics after opening": 1000.0, "lints and tests after rest": 1000.0}  # fmt: skip
    if name == "scan":
        goals["diagnostics after an edit"] = 300.0
    return Sample(name, path.as_uri(), text, at, "", "  # {}", goals)


async def measure(sample: Sample, edits: int, rests: int) -> dict[str, list[Times]]:
    """Times of edits and of what an editor asks then; ``rests``: after how many of them it is
    waited for lints and tests."""
    found: dict[str, list[Times]] = defaultdict(list)
    text, uri = sample.text, sample.uri
    server = make_server()
    wire = Wire(server)
    collect_rarely()
    await wire.ask("initialize", {"processId": None, "capabilities": {}})
    item = {"uri": uri, "languageId": "tessera", "version": 1, "text": text}
    start = now()
    wire.send("textDocument/didOpen", {"textDocument": item})
    await wire.published(1)
    found["diagnostics after opening"].append(since(start))
    (known,) = server.open.values()

    async def rested() -> None:
        while known.late_at is not None:
            await asyncio.sleep(PAUSE)

    await rested()
    line = text.count("\n", 0, sample.at)
    column = sample.at - text.rfind("\n", 0, sample.at) - 1
    at = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
    if sample.old:
        at["position"]["character"] += 2
    whole = {"textDocument": {"uri": uri}}
    end = column + len(sample.old)
    for version in range(2, 2 + edits):
        new = sample.new.format(version)
        here = {
            "start": {"line": line, "character": column},
            "end": {"line": line, "character": end},
        }
        change = {"textDocument": {"uri": uri, "version": version},
                  "contentChanges": [{"range": here, "text": new}]}  # fmt: skip
        end = column + len(new)
        start = now()
        wire.send("textDocument/didChange", change)
        if version % 2:  # an editor asks before the check, or after it
            found["completion"].append(await wire.ask("textDocument/completion", at))
            await wire.published(version)
        else:
            await wire.published(version)
            found["diagnostics after an edit"].append(since(start))
        found["hover"].append(await wire.ask("textDocument/hover", at))
        found["signature help"].append(await wire.ask("textDocument/signatureHelp", at))
        found["definition"].append(await wire.ask("textDocument/definition", at))
        found["semantic tokens"].append(await wire.ask("textDocument/semanticTokens/full", whole))
        found["document symbols"].append(await wire.ask("textDocument/documentSymbol", whole))
        if version < 2 + rests:
            start = now()
            await rested()
            cpu, wall = since(start)
            found["lints and tests after rest"].append((cpu, max(0.0, wall - REST)))
        wire.answers.clear()
    return found


def start_up() -> tuple[float, float]:
    """Seconds from starting the process to the first diagnostic of a small file, and the
    most memory it took in MB."""
    from tests.lsp.raw import Raw

    best = memory = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        with Raw() as raw:
            raw.open("untitled:start", source(60))
            best = min(best, time.perf_counter() - start)
            memory = memory_of(raw.process.pid)
    return best, memory


FILES = 1000
KEYS = 20


def workspace() -> dict[str, float]:
    """Files that are opened at once: milliseconds of the wall clock from a key in one of them to
    its diagnostics while the others wait, and the most memory in MB when all were checked."""
    from tests.lsp.raw import Raw

    found: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Raw() as raw:
        texts = {
            (Path(folder) / f"m{i}.tessera").as_uri(): source(60).replace("128", str(128 + i))
            for i in range(FILES)
        }
        for uri, text in texts.items():
            item = {"uri": uri, "languageId": "tessera", "version": 1, "text": text}
            raw.tell("textDocument/didOpen", textDocument=item)
        uri = list(texts)[FILES // 2]
        raw.change(uri, 2, {"text": texts[uri] + "\n"})
        raw.diagnostics(uri, 2)  # all were read by now
        for version in range(3, 3 + KEYS):
            start = time.perf_counter()
            raw.change(uri, version, {"text": texts[uri] + "\n" * version})
            raw.diagnostics(uri, version)
            found.append(1e3 * (time.perf_counter() - start))
        while len({p["uri"] for p in raw.published}) < FILES:
            raw.until(lambda m: m.get("method") == "textDocument/publishDiagnostics")
        memory = memory_of(raw.process.pid)
    return {"files": FILES, "key_median_ms": round(statistics.median(found), 1),
            "key_p95_ms": round(percentile(found, 0.95), 1), "goal_ms": 100,
            "memory_mb": round(memory)}  # fmt: skip


def cancelled() -> dict[str, float]:
    """Milliseconds of the wall clock from a cancelling to its answer, while a file of the library
    is checked after an edit."""
    from tests.lsp.raw import Raw

    found: list[float] = []
    path = LIBRARY / "scan.tessera"
    text, uri = path.read_text(encoding="utf-8"), path.as_uri()
    with Raw() as raw:
        raw.open(uri, text)
        for version in range(2, 2 + KEYS):
            raw.change(uri, version, {"text": text + "\n" * version})
            raw.number += 1
            number = raw.number
            document = {"textDocument": {"uri": uri}}
            raw.send({"id": number, "method": "textDocument/semanticTokens/full",
                      "params": document})  # fmt: skip
            start = time.perf_counter()
            raw.tell("$/cancelRequest", id=number)
            raw.until(lambda m, number=number: m.get("id") == number)
            found.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": round(statistics.median(found), 2),
            "p95_ms": round(percentile(found, 0.95), 2), "goal_ms": 20}  # fmt: skip


def memory_of(pid: int) -> float:
    """The most memory that a process took, in MB; infinite where nothing says it."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return float("inf")
    peak = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
    return int(peak.split()[1]) / 1000


def percentile(samples: list[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * (len(samples) - 1) + 0.5))]


def rows_of(sample: Sample, found: dict[str, list[Times]]) -> list[dict[str, Any]]:
    """The table's lines of one file, which are printed too."""
    rows: list[dict[str, Any]] = []
    for what, samples in found.items():
        cpu, wall = ([1e3 * t for t in times] for times in zip(*samples, strict=True))
        row = {
            "what": what, "size": sample.name, "lines": sample.text.count("\n"),
            "median_ms": round(statistics.median(cpu), 2),
            "p95_ms": round(percentile(cpu, 0.95), 2), "goal_ms": sample.goals[what],
            "wall_median_ms": round(statistics.median(wall), 2),
            "wall_p95_ms": round(percentile(wall, 0.95), 2), "samples": len(samples),
        }  # fmt: skip
        rows.append(row)
        late = "" if row["p95_ms"] <= row["goal_ms"] else "   OVER"
        print(
            f"{sample.name:<14} {what:<26} median {row['median_ms']:>7} ms  p95 {row['p95_ms']:>7}"
            f" ms  goal {row['goal_ms']:>6}  wall {row['wall_median_ms']:>7}{late}",
            flush=True,
        )
    return rows


def main() -> None:
    rows: list[dict[str, Any]] = []
    for name, lines in SIZES.items():
        sample = generated(name, lines)
        found = asyncio.run(measure(sample, EDITS, 10))
        for _ in range(4):
            found["diagnostics after opening"] += cold(name, lines)
        rows += rows_of(sample, found)
    for name in MODULES:
        sample = of_library(name)
        rows += rows_of(sample, asyncio.run(measure(sample, EDITS // 4, 3)))
    seconds, memory = start_up()
    print(f"start to first diagnostic {1e3 * seconds:.0f} ms (goal 1000), memory {memory:.0f} MB")
    many, stopped = workspace(), cancelled()
    print(f"{FILES} files: {many}\ncancelled requests: {stopped}")
    record = {
        "title": "language server, message read to message written", "machine": machine(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "rows": rows, "start_ms": round(1e3 * seconds), "memory_mb": round(memory),
        "workspace": many, "cancelled": stopped,
    }  # fmt: skip
    (RESULTS / "lsp.json").write_text(json.dumps(record, indent=1) + "\n")


def cold(name: str, lines: int) -> list[Times]:
    """A first check in a process of its own."""
    code = (
        "import asyncio; from benchmarks import lsp; "
        f"sample = lsp.generated({name!r}, {lines}); "
        "print(*asyncio.run(lsp.measure(sample, 0, 0))['diagnostics after opening'][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    cpu, wall = map(float, done.stdout.split())
    return [(cpu, wall)]


if __name__ == "__main__":
    main()
