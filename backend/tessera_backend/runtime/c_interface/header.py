"""The C header of a kernel: its variants, and functions that take the one that fits a call.

Owns the order of the parts and the words of the comments. Must not know how folders are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tessera_backend.cpu.features import feature_row
from tessera_backend.device.tensor_map import map_numbers
from tessera_backend.runtime.c_interface.calls import Variant
from tessera_backend.runtime.c_interface.choice import choice
from tessera_backend.runtime.c_interface.names import Names, comment_of, plain, text_of
from tessera_backend.runtime.c_interface.prepare_call import Preparation, dynamic_shared
from tessera_backend.runtime.c_interface.sizes import C_TYPES
from tessera_backend.runtime.faults import DONE
from tessera_lang import __version__
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import PRINT_WORDS, LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES

INCLUDES = ("tessera.h", "tessera_cuda.h")
"""Headers that are the same for all kernels, in the folder of this package's files."""


def included(name: str) -> bytes:
    """The text of one of ``INCLUDES``."""
    return (Path(__file__).parent / "include" / name).read_bytes()


def header(kernel: str, label: str, variants: Sequence[Variant]) -> str:
    """The header of a kernel; ``label`` begins the names of what takes any variant."""
    guard = f"{label.upper()}_H"
    on_gpu = any(not v.on_cpu for v in variants)
    lines = [
        f"/* Kernel {comment_of(kernel)}, compiled by tessera {__version__}. Made by "
        "`tesserac build`. */",
        f"#ifndef {guard}", f"#define {guard}",
        f'#include "{INCLUDES[1] if on_gpu else INCLUDES[0]}"', "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
    ]  # fmt: skip
    for variant in variants:
        lines += _variant(variant)
    lines += choice(label, variants)
    lines += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _variant(v: Variant) -> list[str]:
    lines = list(_comment(v))
    for number, a in enumerate(v.launches):
        lines += _slots(v, number, a)
    if v.on_cpu:
        lines += [f"void {e}(const int64_t *slots, int64_t *counter, int64_t total, int64_t gx,\n"
                  f"    int64_t gy, int64_t gz, int64_t chunk, void *scratch);"
                  for e in v.entries]  # fmt: skip
    v.checks = _cpu_check(v)
    ready = Preparation(v)
    lines += ready.structure() + v.refuses()
    declared, passed = ", ".join(v.declared()) or "void", ", ".join(v.passed())
    lines += [f"static inline int {v.label}_accepts({declared})", "{",
              f"    return {v.label}_refuses({passed}) == NULL;", "}", ""]  # fmt: skip
    lines += ready.prepare()
    return [*lines, *(_launch(v) if v.on_cpu else [])]


def _cpu_check(v: Variant) -> tuple[str, ...]:
    """Lines that look at the processor, where the code needs more than every one has."""
    needs = v.artifact.needs
    rows = [feature_row(name) for name in needs]
    if not needs or None in rows:
        return ()
    table = [_feature(name, row) for name, row in zip(needs, rows, strict=True) if row is not None]
    return (
        "static const tessera_feature needs[] = {", *(f"    {row}," for row in table), "};",
        "static int known = 0;", f"if (tessera_cpu_lacks(needs, {len(needs)}, &known) != NULL)",
        f"    return {text_of(needs_text(v.artifact))};",
    )  # fmt: skip


def _feature(name: str, row: tuple[int, int, int, int, int]) -> str:
    leaf, subleaf, register, bit, saved = row
    return f"{{{text_of(name)}, {leaf}u, {subleaf}u, {register}, {bit}, {saved}u}}"


def needs_text(artifact: Artifact) -> str:
    """What a processor must have, in words."""
    return f"the processor has {', '.join(artifact.needs)}"


def _launch(v: Variant) -> list[str]:
    declared = ", ".join((*v.declared(), "const tessera_options *options"))
    passed = ", ".join(v.passed())
    prepared = ", ".join((*v.passed(), "&call"))
    return [
        "/* Checks, prepares and runs; `options` may be NULL. */",
        f"static inline int {v.label}_launch({declared})", "{", f"    {v.label}_call call;",
        "    int status;",
        f"    if (!(options && options->unchecked) && {v.label}_refuses({passed}) != NULL)",
        "        return TESSERA_REFUSED;",
        f"    status = {v.label}_prepare({prepared});",
        "    return status == TESSERA_OK ? tessera_run_call(&call.all, options) : status;", "}", "",
    ]  # fmt: skip


# --- comments ------------------------------------------------------------------------------


def _comment(v: Variant) -> Iterator[str]:
    a = v.artifact
    yield f"/* {v.label}: {_shown(v)}."
    yield f" * {a.options.target}, {a.options.arch}, bounds {a.options.bounds}."
    yield " *"
    yield " * It relies on:"
    if a.needs:
        yield f" * - {needs_text(a)}"
    for text in v.texts():
        yield f" * - {comment_of(text)}"
    for number, launch in enumerate(v.launches):
        yield " *"
        yield from _launch_comment(v, number, launch)
    yield from _faults(v.plan)
    yield from _prints(v.plan)
    yield " */"


def _shown(v: Variant) -> str:
    words: list[str] = []
    for p in v.plan.parameters:
        if p.kind == "tensor":
            dims = ", ".join(map(str, p.dims)) if p.dims else ", ".join("?" * p.rank)
            words.append(f"{p.name}: {'mut ' if p.mut else ''}{p.dtype}[{dims}]")
        elif p.kind == "scalar":
            words.append(f"{p.name}: {p.dtype}")
    words += [f"{p.name} = {p.value}" for p in v.constants()]
    results = [
        f"result{at}: {r.dtype}[{', '.join(map(str, r.dims))}]"
        for at, r in enumerate(v.plan.results) if not r.kept
    ]  # fmt: skip
    made = f" -> {', '.join(results)}" if results else ""
    return comment_of(f"{v.plan.kernel}({', '.join(words)}){made}")


def _launch_comment(v: Variant, number: int, a: Artifact) -> Iterator[str]:
    plan, axes = a.plan, a.plan.grid
    ended = ", when the one before has ended" if number else ""
    order = f"launch {number + 1} of {len(v.launches)}{ended}: " if len(v.launches) > 1 else ""
    yield f" * {order}{v.files[number]}, entry {v.entries[number]}:"
    grid = "as many groups as the caller wants" if axes is None else " x ".join(map(str, axes))
    yield f" *   grid {comment_of(grid)} (the last axis is x)"
    if v.on_cpu:
        yield f" *   {max(0, a.resources.local_bytes)} bytes of scratch a thread"
        return
    x, y, z = (*reversed(plan.group), 1, 1)[:3]
    yield f" *   {x} x {y} x {z} threads a block"
    shared = dynamic_shared(a)
    if shared:
        yield f" *   {shared} bytes of dynamic shared memory, which cuFuncSetAttribute must allow"
        yield " *   (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)"
    else:
        yield " *   no dynamic shared memory"
    if plan.cluster:
        x, y, z = (*reversed(plan.cluster), 1, 1)[:3]
        yield f" *   clusters of {x} x {y} x {z} blocks, which the code itself asks for: the grid"
        yield " *   is a multiple of them along each axis"
    if plan.persistent:
        yield " *   the groups walk over all tiles: launch the grid, or as many as run at once if"
        yield f" *   that is fewer{' (whole clusters)' if plan.cluster else ''}"
    if plan.workspace != 0:
        yield f" *   a workspace of {comment_of(str(plan.workspace))} bytes, zeros, left zero"
    if plan.scratch != 0:
        yield f" *   scratch memory of {comment_of(str(plan.scratch))} bytes that hold anything"


def _faults(plan: LaunchPlan) -> Iterator[str]:
    if not any(s.kind == "fault" for s in plan.slots):
        return
    yield " *"
    yield " * A record of a fault is 8 words of 64 bits, zeros before: number of the fault (below;"
    yield " * 0: none), axis, index, elements along the axis, group, lane, two unused."
    for number, site in enumerate(plan.sites, 1):
        what = DONE[site.kind].format(what=site.what)
        yield f" * {number}. {comment_of(what)} ({comment_of(site.file)}:{site.line}:{site.column})"


def _prints(plan: LaunchPlan) -> Iterator[str]:
    if not plan.prints:
        return
    yield " *"
    yield f" * What lanes print: {PRINT_WORDS} words of 64 bits, zeros before: words taken (beside"
    yield " * the first two), lines that found no room, and the lines one behind the other, each"
    yield " * the number of its text (below), group, lane and its values, a word each."
    for number, text in enumerate(plan.prints, 1):
        shown = text.pieces[0]
        for piece, dtype, form in zip(text.pieces[1:], text.dtypes, text.formats, strict=True):
            shown += "{" + dtype + (f":{form}" if form else "") + "}" + piece
        yield f" * {number}. {comment_of(text_of(shown))}"


# --- slots ---------------------------------------------------------------------------------


def _slots(v: Variant, number: int, a: Artifact) -> list[str]:
    """The arguments of the code as an enumeration."""
    names, plan = Names(frozenset()), a.plan
    prefix = f"{v.label}{f'_{number + 1}' if number else ''}".upper()
    lines = ["enum {"]
    for at, slot in enumerate(plan.slots):
        name = names.take(_slot_name(plan, slot, at)).upper()
        lines.append(f"    {prefix}_{name} = {at}, /* {comment_of(_slot_text(plan, slot))} */")
    return [*lines, f"    {prefix}_SLOT_COUNT = {len(plan.slots)}", "};"]


def _slot_name(plan: LaunchPlan, slot: Slot, at: int) -> str:
    name = _array_name(plan, slot) if slot.parameter >= 0 else slot.symbol
    words = [slot.kind, name, str(slot.axis) if slot.axis >= 0 else ""]
    return plain("_".join(w for w in words if w) or str(at))


def _array_name(plan: LaunchPlan, slot: Slot) -> str:
    """A parameter, or a result, which the caller of a C interface passes behind them."""
    copy = plan.copy_of(slot.parameter)
    if copy is not None:  # of a kept array too
        return f"{_name_of(plan, copy.parameter)}_copy"
    return _name_of(plan, slot.parameter)


def _name_of(plan: LaunchPlan, number: int) -> str:
    result = number - len(plan.parameters)
    if result < 0:
        return plan.parameters[number].name
    return f"{'kept' if plan.results[result].kept else 'result'}{result}"


def _slot_text(plan: LaunchPlan, slot: Slot) -> str:
    name = _array_name(plan, slot) if slot.parameter >= 0 else ""
    copy = plan.copy_of(slot.parameter)
    match slot.kind:
        case "data" if copy is not None:
            own = copy.parameter - len(plan.parameters)
            dtype = (plan.parameters[copy.parameter] if own < 0 else plan.results[own]).dtype
            order = ", ".join(map(str, copy.axes))
            return (
                f"const {C_TYPES[dtype]} *: first element of a copy of"
                f" {_name_of(plan, copy.parameter)} that the caller "
                f"makes: its axes {order}, outermost first, lines at multiples of "
                f"{copy.alignment} bytes"
            )
        case "data" if slot.parameter >= len(plan.parameters):
            result = plan.results[slot.parameter - len(plan.parameters)]
            shape = " x ".join(map(str, result.dims))
            zeros = ", all 0 when the kernel begins" if result.zeroed else ""
            if result.kept:
                zeros = ", which the launches of a call share"
            return f"{C_TYPES[result.dtype]} *: first element of {name}, {shape}, row-major{zeros}"
        case "data":
            p = plan.parameters[slot.parameter]
            return f"{'' if p.mut else 'const '}{C_TYPES[p.dtype]} *: first element of {name}"
        case "bytes":
            return f"{C_TYPES[slot.dtype]}[]: all elements of {name}, by value"
        case "tensor_map":
            return f"CUtensorMap: {_map_text(plan, slot, name)}"
        case "workspace":
            return f"void *: {plan.workspace} bytes of zeros, left zero"
        case "scratch":
            return f"void *: {plan.scratch} bytes that hold anything"
        case "size":
            return f"int64_t: size of axis {slot.axis} of {name}"
        case "stride":
            return f"int64_t: stride of axis {slot.axis} of {name}, in elements"
        case "symbol":
            return f"int64_t: the size {slot.symbol}"
        case "scalar":
            return f"{C_TYPES[slot.dtype]}: {name}, in the low bits"
        case "groups":
            return "int64_t: number of groups"
        case "print":
            return "uint64_t *: what lanes print, see above"
        case "fault":
            return "uint64_t *: 8 words, zeroed; the first is not 0 once a fault was reported"


def _map_text(plan: LaunchPlan, slot: Slot, name: str) -> str:
    copy = plan.copy_of(slot.parameter)
    number = copy.parameter if copy is not None else slot.parameter
    first = len(plan.parameters)
    dtype = (plan.parameters[number] if number < first else plan.results[number - first]).dtype
    box = " x ".join(map(str, slot.box))
    axes = f"axes {', '.join(map(str, slot.axes))}" if slot.axes else "its axes in order"
    numbers = map_numbers(slot, DTYPES[dtype])
    made = ", ".join(f"{what.replace('_', ' ')} {n}" for what, n in numbers.items())
    return (
        f"of {name}, {axes}, a box of {box} elements, outermost first, swizzle of {slot.swizzle} "
        f"bytes; in numbers of the driver: {made}"
    )
