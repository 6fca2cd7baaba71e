"""Generated tile programs against float64 in NumPy, and the code they become.

``python -m tests.fuzz.tile_programs --seconds 60 --seed 1 [--target cuda] [--count N]`` runs until
the time is over (or N programs are done), prints what differs from the smallest program that
shows it, and ends with what became of the products: wgmma in a ring, or the remark why not.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.products import Products
from tests.fuzz.tile_programs_generate import TileProgram, sizes_of
from tests.fuzz.tile_programs_many import generate
from tests.fuzz.tile_programs_reference import DTYPES, evaluated, is_float, wrong
from tests.on_device import call

Array = np.ndarray[Any, np.dtype[Any]]
LAYOUTS = ("plain", "plain", "plain", "turned", "stepped", "reversed", "repeated")


@dataclass
class Fault:
    """What a program did otherwise than it should."""

    program: TileProgram
    sizes: dict[str, int]
    where: str
    text: str
    layout: int = 0

    def __str__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        head = f"seed {self.program.seed}, {self.where}, {sizes}, layout {self.layout}"
        return f"{head}: {self.text}\n\n{self.program.text()}"

    def kind(self) -> str:
        """What sort of fault it is, so that a reduction keeps to it."""
        if "is right" in self.text:
            return f"{self.where}: wrong"
        text = re.sub(r"%?\d+|`[^`]*`", "_", self.text.splitlines()[0])
        return f"{self.where}: {text[:90]}"


# --- arguments -------------------------------------------------------------------------------


def values_of(program: TileProgram, sizes: dict[str, int], seed: int) -> dict[str, Array]:
    """An array for each parameter."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for p in program.parameters:
        shape = tuple(sizes[d] for d in p.dims)
        if p.kind == "rows":
            value = rng.integers(0, max(sizes[p.of], 1), shape)
        elif p.kind == "count":
            value = rng.integers(0, sizes[p.of] + 1, shape)
        elif p.kind == "blocks":
            size, tile = p.of.split("/")
            value = rng.integers(0, max(-(-sizes[size] // int(tile)), 1), shape)
        elif p.kind == "flag":
            value = rng.integers(0, 2, shape)
        elif p.kind == "scale":
            value = rng.uniform(0.01, 0.02, shape)
        elif is_float(p.dtype):
            value = rng.uniform(-1, 1, shape)
        else:
            value = rng.integers(-100, 100, shape)
        found[p.name] = value.astype(DTYPES[p.dtype])
    return found


def laid_out(value: Array, how: str, mut: bool) -> Array:
    """The same elements in another layout."""
    if how == "turned":
        return np.ascontiguousarray(value.T).T
    if how == "stepped" and value.ndim:
        base = np.zeros([n * 2 for n in value.shape], value.dtype)
        view = base[tuple(slice(None, None, 2) for _ in value.shape)]
        view[...] = value
        return view
    if how == "reversed" and value.ndim:
        return value[..., ::-1].copy()[..., ::-1]
    if how == "repeated" and value.ndim > 1 and not mut and value.shape[0]:
        return np.broadcast_to(value[:1].copy(), value.shape)
    return np.ascontiguousarray(value)


def arguments(program: TileProgram, sizes: dict[str, int], layout: int) -> dict[str, Array]:
    """The arguments of a call; ``layout`` 0: all of them without gaps."""
    r = random.Random(layout)
    values = values_of(program, sizes, program.seed + 7)
    hows = {p.name: r.choice(LAYOUTS) if layout else "plain" for p in program.parameters}
    return {p.name: laid_out(values[p.name], hows[p.name], p.mut) for p in program.parameters}


# --- running ---------------------------------------------------------------------------------


def compiled(program: TileProgram, target: str) -> Any:
    """The module of a program. ``sm_80`` and ``sm_90a`` as target: Tile IR for that machine, run
    on the CPU, where races, missing waits and what reads poison are seen too."""
    arch_as, target = (target, "cpu") if target.startswith("sm_") else ("", target)
    options = replace(options_from_environment(), target=target, arch_as=arch_as)
    provider = SessionProvider("<source>", options, text=program.text())
    return Module("<source>", provider, target)  # type: ignore[arg-type]


def ran(
    program: TileProgram, sizes: dict[str, int], layout: int, target: str, module: Any = None
) -> Fault | None:
    """What a call of a program does wrong."""
    given = arguments(program, sizes, layout)
    dtypes = {p.name: p.dtype for p in program.parameters}
    arrays = {name: (array, dtypes[name]) for name, array in given.items()}
    with np.errstate(all="ignore"):
        tensors, results = evaluated(program.body, arrays, sizes)
    try:
        module = module or compiled(program, target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = call(module.kernel, list(given.values()), target)
    except Exception as error:
        said = error if isinstance(error, tessera.TesseraError) else repr(error)
        return Fault(program, sizes, target, f"{said}".strip(), layout)
    listed = [] if found is None else list(found) if isinstance(found, tuple) else [found]
    pairs = [(p.name, tensors[p.name], given[p.name]) for p in program.parameters if p.mut]
    pairs += [("the result", r, np.asarray(f)) for r, f in zip(results, listed, strict=True)]
    for name, right, got in pairs:
        difference = wrong(right, got)
        if difference:
            return Fault(program, sizes, target, f"{name}: {difference}", layout)
    return None


# --- code for GPUs ---------------------------------------------------------------------------


def large(program: TileProgram, unit: int = 64) -> dict[str, int]:
    """Sizes as they are in use. ``unit`` 64: multiples of every tile; 8: of no tile, but rows
    that TMA can bring; 1: odd numbers."""
    r = random.Random(program.seed)
    found = {"g": 512, "nb": 4}
    for name, axis in program.axes.items():
        if name != "nb":
            found[name] = 1024 if axis.tile or axis.var == name else 64
            if found[name] == 1024 and unit < 64:
                found[name] += unit * r.choice((-7, -3, 1, 3, 5))
    return found


def signature_text(program: TileProgram, sizes: dict[str, int]) -> str:
    return ", ".join(
        f"{p.name}: {p.dtype}[{', '.join(str(sizes[d]) for d in p.dims)}]"
        for p in program.parameters
    )


def built(
    program: TileProgram, arch: str, sizes: dict[str, int], stats: Products | None = None
) -> Fault | None:
    """Compile for an architecture, through ptxas."""
    path = "kernel.tessera"
    session = Session(overlay={path: program.text()})
    where = f"code for {arch}"
    try:
        wanted = session.signature(path, "kernel", signature_text(program, sizes))
        machine = session.machine("cuda", arch)
        made = session.for_machine(path, "kernel", wanted, machine)
        if made.lowered is None:
            raise tessera.TesseraError([d for d in made.remarks if d.severity == "error"])
        options = TargetOptions("cuda", machine.arch)
        artifact = session.compile_kernel(path, "kernel", wanted, options, ("ptx",))
    except Exception as error:
        said = error if isinstance(error, tessera.TesseraError) else repr(error)
        return Fault(program, sizes, where, f"{said}".strip())
    if stats is not None:
        stats.add(program.seed, program.dtype, made, artifact)
    for d in artifact.diagnostics:
        if re.search(r"C75\d\d", f"{d.code} {d.message} {' '.join(d.notes)}"):
            return Fault(program, sizes, where, f"ptxas notes: {d.message}")
    return None


# --- smaller programs ------------------------------------------------------------------------


def again(fault: Fault, program: TileProgram, sizes: dict[str, int], layout: int) -> Fault | None:
    """The fault of the same kind of a smaller program."""
    try:
        if fault.where.startswith("code"):
            found = built(program, fault.where.split()[-1], sizes)
        else:
            found = ran(program, sizes, layout, fault.where)
    except Exception:  # the smaller program means nothing
        return None
    return found if found and found.kind() == fault.kind() else None


def reduced(fault: Fault, seconds: float = 25) -> Fault:
    """The same fault from a program with less in it."""
    until = time.monotonic() + seconds
    best = fault
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        tries = [(best.program, best.sizes, 0)] if best.layout else []
        tries += [(p, best.sizes, best.layout) for p in _smaller(best.program)]
        tries += [(best.program, s, best.layout) for s in _smaller_sizes(best)]
        for program, sizes, layout in tries:
            if time.monotonic() > until:
                break
            found = again(best, program, sizes, layout)
            if found:
                best, changed = found, True
                break
    return best


def _smaller_sizes(fault: Fault) -> Iterator[dict[str, int]]:
    if fault.where.startswith("code"):
        return
    for name, size in fault.sizes.items():
        axis = fault.program.axes.get(name)
        for less in (1, axis.tile if axis else 1, 16):
            if less and less < size:
                yield {**fault.sizes, name: less}


def _smaller(program: TileProgram) -> Iterator[TileProgram]:
    tree = ast.parse("def f():\n" + "\n".join("    " + x for x in program.body))
    total = sum(1 for _ in _edits(tree))
    for at in range(total):
        other = copy.deepcopy(tree)
        for number, edit in enumerate(_edits(other)):
            if number == at:
                edit()
                break
        body = ast.unparse(other).splitlines()[1:]
        made = _with(program, [line[4:] for line in body])
        if made is not None:
            yield made


def _with(program: TileProgram, body: Sequence[str]) -> TileProgram | None:
    """The program with another body; None where a slice is no tile any more."""
    if any(re.search(r"\b(\w+):(?!\1 \+)[^\],]", line.replace("else:", "")) for line in body):
        return None
    words = set(re.findall(r"\w+", "\n".join(body)))
    parameters = [p for p in program.parameters if p.name in words]
    return replace(program, body=list(body), parameters=parameters)


def _edits(tree: ast.AST) -> Iterator[Any]:
    for node in ast.walk(tree):
        for block in ("body", "orelse"):
            statements = getattr(node, block, None)
            if not isinstance(statements, list):
                continue
            for at, statement in enumerate(statements):
                yield lambda s=statements, i=at: s.__delitem__(i)
                inner = getattr(statement, "body", None)
                if isinstance(inner, list):
                    yield lambda s=statements, i=at, b=inner: s.__setitem__(slice(i, i + 1), b)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.BinOp):
                yield lambda n=node, f=name, v=value: setattr(n, f, v.left)
                yield lambda n=node, f=name, v=value: setattr(n, f, v.right)
            elif isinstance(value, ast.Call) and value.args:
                yield lambda n=node, f=name, v=value: setattr(n, f, v.args[0])
            elif isinstance(value, ast.Attribute) and value.attr in ("T",):
                yield lambda n=node, f=name, v=value: setattr(n, f, v.value)


# --- the command -----------------------------------------------------------------------------


def tried(
    seed: int, target: str, archs: Sequence[str], stats: Products, calls: int = 2
) -> list[Fault]:
    """Everything that is wrong with the program of a seed."""
    program = generate(seed)
    r = random.Random(seed)
    found: list[Fault | None] = []
    if target:
        try:
            module = compiled(program, target)
        except Exception as error:
            return [Fault(program, large(program), target, repr(error))]
        for call in range(calls):
            sizes = sizes_of(program, r)
            layout = 0 if call % 2 == 0 else r.randrange(1, 1000)
            found.append(ran(program, sizes, layout, target, module))
    for arch in archs:
        counted = stats if arch.startswith("sm_90") else None
        found.append(built(program, arch, large(program), counted))
    return [f for f in found if f]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=("cpu", "cuda", "sm_80", "sm_90a", ""), default="cpu")
    parser.add_argument("--count", type=int, default=0, help="programs, whatever the time")
    parser.add_argument("--arch", default="sm_80,sm_90a", help="architectures to compile for")
    parser.add_argument("--calls", type=int, default=2, help="calls of each program")
    parser.add_argument("--reduce", type=float, default=25, help="seconds for each new fault")
    parser.add_argument("--json", default="", help="a file for seeds and counts")
    chosen = parser.parse_args()
    os.environ.setdefault("TESSERA_CACHE", "off")
    until, seed, done = time.monotonic() + chosen.seconds, chosen.seed, 0
    archs = [a for a in chosen.arch.split(",") if a]
    stats, kinds = Products(), Counter[str]()
    wrong_seeds: list[int] = []
    while (done < chosen.count) if chosen.count else (time.monotonic() < until):
        for fault in tried(seed, chosen.target, archs, stats, chosen.calls):
            wrong_seeds.append(seed)
            kinds[fault.kind()] += 1
            if kinds[fault.kind()] == 1:
                print(reduced(fault, chosen.reduce), "-" * 80, sep="\n", flush=True)
        seed, done = seed + 1, done + 1
    for kind, number in kinds.most_common():
        print(f"{number:4} {kind}")
    print(stats)
    print(f"{done} programs from seed {chosen.seed}, {sum(kinds.values())} faults", file=sys.stderr)
    if chosen.json:
        report = {"seed": chosen.seed, "programs": done, "faults": dict(kinds),
                  "seeds": wrong_seeds, "ring": stats.ring, "legal": stats.legal}  # fmt: skip
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
