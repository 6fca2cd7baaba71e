"""What ``tesserac build`` writes: code, a manifest with the launch plans, C headers.

Must not know how code is compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tessera_backend.runtime.built import MANIFEST, SCHEMA, digest_of, suffix_of
from tessera_lang import __version__
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.plan import COPY_ALIGNMENT, PRINT_WORDS, LaunchPlan, ParameterPlan, Slot


def write_build(directory: Path, artifacts: Sequence[Artifact]) -> tuple[Path, ...]:
    """Write a folder of artifacts; the files written, the manifest last.

    Raises OSError where the folder cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    items: list[dict[str, object]] = []
    taken: set[str] = set()
    for artifact in artifacts:
        files = [_file_name(a, taken) for a in (artifact, *artifact.then)]
        for launch, name in zip((artifact, *artifact.then), files, strict=True):
            written.append(_write(directory / name, launch.code))
        items.append(_manifest_item(artifact, files))
    kernels: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        kernels.setdefault(artifact.plan.kernel, []).append(artifact)
    for kernel, variants in kernels.items():
        header = directory / f"tessera_{kernel}.h"
        written.append(_write(header, _header(kernel, variants, items).encode()))
    manifest = {
        "schema": SCHEMA, "tessera": __version__, "sha256": digest_of(items), "kernels": items,
    }  # fmt: skip
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    written.append(_write(directory / MANIFEST, text.encode()))
    return tuple(written)


def _write(path: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return path


def _file_name(artifact: Artifact, taken: set[str]) -> str:
    words = [_word(p) for p in artifact.plan.parameters]
    stem = ".".join([artifact.plan.kernel, "_".join(words) or "0", artifact.options.arch])
    stem = re.sub(r"[^A-Za-z0-9_.]", "_", stem)
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}.{count}"
    taken.add(name)
    return name + suffix_of(artifact.kind)


def _word(p: ParameterPlan) -> str:
    if p.kind == "tensor":
        facts = ("" if p.contiguous else "s") + ("a" if p.aligned else "")
        return f"{p.dtype}x{p.rank}{facts}{'n' if p.small else ''}"
    return p.dtype if p.value is None else str(p.value)


def _manifest_item(artifact: Artifact, files: Sequence[str]) -> dict[str, object]:
    """A kernel, and in ``then`` the launches behind its first."""
    o, r = artifact.options, artifact.resources
    return {
        "kernel": artifact.plan.kernel, "file": files[0], "kind": artifact.kind,
        "entry": artifact.entry, "sha256": hashlib.sha256(artifact.code).hexdigest(),
        "options": {"target": o.target, "arch": o.arch, "bounds": o.bounds,
                    "optimize": o.optimize},
        "host": _host(artifact.options),
        "resources": [r.registers, r.spill_bytes, r.shared_bytes, r.local_bytes],
        "plan": artifact.plan.to_json(),
        "then": [_manifest_item(a, [f]) for a, f in zip(artifact.then, files[1:], strict=True)],
    }  # fmt: skip


def _host(options: TargetOptions) -> str:
    """The processor that native code is for; "" where a name says it or it is not a CPU."""
    if options.target != "cpu" or options.arch != "native":
        return ""
    from tessera_backend.runtime.built import this_host

    return this_host()


# --- the C header --------------------------------------------------------------------------

_SCALARS = {
    "bool": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "index": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t",
    "u64": "uint64_t", "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t",
    "f8e4m3": "uint8_t", "f8e5m2": "uint8_t",
}  # fmt: skip

_CUDA_USE = """\
 * Load the file with cuModuleLoad, get the entry with cuModuleGetFunction and launch it with
 * cuLaunchKernel: {block} threads a block, {shared} bytes of dynamic shared memory, and the
 * arguments below in that order, each of 8 bytes (a CUtensorMap of 128, by value).
"""
_CPU_USE = """\
 * An ELF object, position independent: link it. Every thread of a launch calls the function
 * below; together they run all groups.
"""


def _header(kernel: str, variants: Sequence[Artifact], items: Sequence[dict[str, object]]) -> str:
    guard = f"TESSERA_{re.sub(r'[^A-Za-z0-9]', '_', kernel).upper()}_H"
    lines = [
        f"/* Kernel {kernel}, compiled by tessera {__version__}. Made by `tesserac build`. */",
        f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
    ]  # fmt: skip
    for item in items:
        if item["kernel"] == kernel:
            artifact = next(
                a for a in variants
                if hashlib.sha256(a.code).hexdigest() == item["sha256"]
                and a.plan.to_json() == item["plan"]
            )  # fmt: skip
            lines += _variant(artifact, str(item["file"]))
            before = artifact
            for launch, then in zip(artifact.then, cast("list[Any]", item["then"]), strict=True):
                lines += _variant(launch, str(then["file"]), before)
                before = launch
    lines += ["#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _variant(artifact: Artifact, file: str, before: Artifact | None = None) -> list[str]:
    """``before``: the launch that each call makes in front of this one."""
    plan = artifact.plan
    x, y, z = (*reversed(plan.group), 1, 1)[:3]
    use = _CPU_USE if artifact.kind == "object" else _CUDA_USE.format(
        block=f"({x}, {y}, {z})", shared=_dynamic_shared(artifact))  # fmt: skip
    prefix = re.sub(r"[^A-Za-z0-9]", "_", Path(file).stem).upper()
    lines = [f"/* {file}: entry {artifact.entry}, {artifact.options.arch}.", " *"]
    lines += use.rstrip("\n").split("\n")
    if before is not None:
        lines.append(f" * Each call launches it behind {before.entry}, when that has ended.")
    lines.append(f" * The grid has {_grid_text(plan)} groups (last axis = x).")
    if plan.persistent:
        lines.append(" * They walk over that many tiles: launch at most as many as run at once.")
    if plan.cluster:
        lines.append(f" * Clusters have {' x '.join(map(str, plan.cluster))} groups.")
    lines.append(" */")
    lines.append(f'#define {prefix}_ENTRY "{artifact.entry}"')
    lines.append(f"enum {prefix}_SLOTS {{")
    lines += [
        f"    {prefix}_{_slot_name(plan, s, i)} = {i}, /* {_slot_text(plan, s)} */"
        for i, s in enumerate(plan.slots)
    ]
    lines += [f"    {prefix}_SLOT_COUNT = {len(plan.slots)}", "};"]
    if artifact.kind == "object":
        lines.append(_prototype(artifact))
    return [*lines, ""]


def _prototype(artifact: Artifact) -> str:
    from tessera_backend.runtime.host_code import C_PROTOTYPE

    return C_PROTOTYPE.format(entry=artifact.entry, scratch=max(0, artifact.resources.local_bytes))


def _dynamic_shared(artifact: Artifact) -> int:
    from tessera_backend.device.module import STATIC_SHARED_LIMIT

    size = artifact.plan.shared_bytes
    return size if size > STATIC_SHARED_LIMIT else 0


def _grid_text(plan: LaunchPlan) -> str:
    return "as many as the caller wants" if plan.grid is None else " x ".join(map(str, plan.grid))


def _slot_name(plan: LaunchPlan, slot: Slot, at: int) -> str:
    name = _array_name(plan, slot) if slot.parameter >= 0 else slot.symbol
    words = [slot.kind, name, str(slot.axis) if slot.axis >= 0 else ""]
    text = "_".join(w for w in words if w) or str(at)
    return re.sub(r"[^A-Za-z0-9]", "_", text).upper()


def _array_name(plan: LaunchPlan, slot: Slot) -> str:
    """A parameter, or a result, which the caller of a C interface passes behind them."""
    copy = plan.copy_of(slot.parameter)
    if copy is not None:
        return f"{plan.parameters[copy.parameter].name}_copy"
    result = slot.parameter - len(plan.parameters)
    if result < 0:
        return plan.parameters[slot.parameter].name
    return f"{'kept' if plan.results[result].kept else 'result'}{result}"


def _slot_text(plan: LaunchPlan, slot: Slot) -> str:
    name = _array_name(plan, slot) if slot.parameter >= 0 else ""
    copy = plan.copy_of(slot.parameter)
    match slot.kind:
        case "data" if copy is not None:
            p = plan.parameters[copy.parameter]
            order = ", ".join(map(str, copy.axes))
            return (
                f"const {_SCALARS[p.dtype]} *: first element of a copy of {p.name} that the caller "
                f"makes: its axes {order}, outermost first, lines at multiples of "
                f"{COPY_ALIGNMENT} bytes"
            )
        case "data" if slot.parameter >= len(plan.parameters):
            result = plan.results[slot.parameter - len(plan.parameters)]
            shape = " x ".join(map(str, result.dims))
            zeros = ", all 0 when the kernel begins" if result.zeroed else ""
            if result.kept:
                zeros = ", which the launches of a call share"
            return f"{_SCALARS[result.dtype]} *: first element of {name}, {shape}, row-major{zeros}"
        case "data":
            p = plan.parameters[slot.parameter]
            return f"{'' if p.mut else 'const '}{_SCALARS[p.dtype]} *: first element of {name}"
        case "bytes":
            return f"{_SCALARS[slot.dtype]}[]: all elements of {name}, by value"
        case "tensor_map":
            box = " x ".join(map(str, slot.box))
            axes = ", ".join(map(str, slot.axes))
            return (
                f"CUtensorMap: of {name}, axes {axes}, a box of {box} elements, outermost first, "
                f"swizzle of {slot.swizzle} bytes"
            )
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
            return f"{_SCALARS[slot.dtype]}: {name}, in the low bits"
        case "groups":
            return "int64_t: number of groups"
        case "print":
            return (
                f"uint64_t *: {PRINT_WORDS} words, the first two zeroed: words taken, lines lost, "
                "then the lines: text + 1, group, lane, values"
            )
        case "fault":
            return "uint64_t *: 8 words, zeroed; the first is not 0 once a fault was reported"
