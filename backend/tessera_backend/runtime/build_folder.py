"""What ``tesserac build`` writes: code, a manifest with the launch plans, C headers.

Owns the names of files and symbols. Must not know how code is compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tessera_backend.cpu.elf import renamed
from tessera_backend.runtime.built_loader import MANIFEST, SCHEMA, digest_of, suffix_of
from tessera_backend.runtime.c_interface.calls import Variant
from tessera_backend.runtime.c_interface.header import INCLUDES, header, included
from tessera_backend.runtime.c_interface.names import RESERVED, Names, plain
from tessera_backend.runtime.portable_places import Portable
from tessera_lang import __version__
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import COPY_ALIGNMENT, LaunchPlan
from tessera_lang.types.dtype import DTYPES

PREFIX = "tessera"
_OURS = (".o", ".ptx", ".cubin", ".h")
_ENDS = ("call", "launch", "prepare", "accepts", "refuses", "cuda")


def write_build(
    directory: Path, artifacts: Sequence[Artifact], root: str = "", prefix: str = PREFIX
) -> tuple[Path, ...]:  # fmt: skip
    """Write a folder of artifacts; the files written, the manifest last. What an earlier build left
    there goes. ``root``: the folder of the source, to which its paths are relative; ``prefix``
    begins every name of C.

    Raises OSError where the folder cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    before = _files_of(directory)
    portable = Portable(root)
    artifacts = [portable.artifact(a) for a in artifacts]
    names, labels = _folder_names(prefix), dict[str, str]()
    for artifact in artifacts:
        kernel = artifact.plan.kernel
        if kernel not in labels:
            labels[kernel] = names.take(f"{prefix}_{plain(kernel)}")
    variants: dict[str, list[Variant]] = {}
    items: list[dict[str, object]] = []
    files: dict[str, bytes] = {}
    for artifact in artifacts:
        kernel = artifact.plan.kernel
        own = variants.setdefault(kernel, [])
        variant = _variant(artifact, f"{labels[kernel]}_{len(own) + 1}", names)
        own.append(variant)
        items.append(_manifest_item(variant))
        for file, launch in zip(variant.files, variant.launches, strict=True):
            files[file] = launch.code
    for kernel, own in variants.items():
        files[f"{labels[kernel]}.h"] = header(kernel, labels[kernel], own).encode()
    on_gpu = any(a.kind != "object" for a in artifacts)
    files.update({name: included(name) for name in INCLUDES[: 1 + on_gpu]})
    files.update(_copying(a.plan for whole in artifacts for a in (whole, *whole.then)))
    manifest = {
        "schema": SCHEMA, "tessera": __version__, "sha256": digest_of(items), "kernels": items,
        "files": sorted(files),
    }  # fmt: skip
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    written = [_write(directory / name, data) for name, data in files.items()]
    written.append(_write(directory / MANIFEST, text.encode()))
    for name in before - files.keys():
        (directory / name).unlink(missing_ok=True)
    return tuple(written)


def _copying(plans: Iterable[LaunchPlan]) -> dict[str, bytes]:
    """Kernels that make copies whose lines run along another axis than those of their arrays."""
    sizes: set[int] = set()
    for plan in plans:
        arrays = [x.dtype for x in (*plan.parameters, *plan.results)]
        reordered = (c for c in plan.copies if c.alignment < COPY_ALIGNMENT)
        sizes |= {DTYPES[arrays[c.parameter]].bytes for c in reordered}
    if not sizes:
        return {}
    from tessera_backend.device.permute_copy_kernel import ptx

    return {f"tessera_reorder_{n}.ptx": ptx(n).encode() for n in sorted(sizes)}


def _files_of(directory: Path) -> set[str]:
    """The files that the manifest of a folder names: those of the build before."""
    try:
        listed = json.loads((directory / MANIFEST).read_bytes())["files"]
        return {n for n in listed if Path(n).name == n and n.endswith(_OURS)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _folder_names(prefix: str) -> Names:
    """Names without those of the headers that every folder has."""
    texts = " ".join(included(name).decode() for name in INCLUDES)
    taken = set(re.findall(rf"\b{re.escape(prefix)}\w*", texts)) | {prefix, f"{prefix}_cuda"}
    stems = {word.rpartition("_")[0] for word in taken if word.rpartition("_")[2] in _ENDS}
    return Names(RESERVED | {word.lower() for word in taken | stems})


def _variant(artifact: Artifact, wanted: str, names: Names) -> Variant:
    """A variant with its files and symbols; the code of the CPU has them from here on."""
    label = names.take(wanted)
    launches = [artifact, *artifact.then]
    labels = [label, *(names.take(f"{label}_then_{n}") for n in range(1, len(launches)))]
    entries = [
        own if a.kind == "object" else a.entry for own, a in zip(labels, launches, strict=True)
    ]
    files = [
        f"{own}.{re.sub('[^A-Za-z0-9_-]', '_', a.options.arch)}{suffix_of(a.kind)}"
        for own, a in zip(labels, launches, strict=True)
    ]
    first, *then = (_with_entry(a, e) for a, e in zip(launches, entries, strict=True))
    return Variant(replace(first, then=tuple(then)), label, tuple(files), tuple(entries))


def _with_entry(artifact: Artifact, entry: str) -> Artifact:
    if artifact.kind != "object" or artifact.entry == entry:
        return artifact
    code = renamed(artifact.code, artifact.entry, entry)
    return replace(artifact, code=code, entry=entry)


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


def _manifest_item(variant: Variant) -> dict[str, object]:
    """A kernel, and in ``then`` the launches behind its first."""
    artifact, *then = variant.launches
    o = artifact.options
    return {
        **_launch_item(artifact, variant.files[0]),
        "kernel": artifact.plan.kernel, "label": variant.label,
        "options": {"target": o.target, "arch": o.arch, "bounds": o.bounds,
                    "optimize": o.optimize},
        "machine": _machine(o), "host": _host(o), "needs": list(artifact.needs),
        "premises": variant.texts(),
        "then": [_launch_item(a, f) for a, f in zip(then, variant.files[1:], strict=True)],
    }  # fmt: skip


def _launch_item(artifact: Artifact, file: str) -> dict[str, object]:
    r = artifact.resources
    return {
        "file": file, "kind": artifact.kind, "entry": artifact.entry,
        "sha256": hashlib.sha256(artifact.code).hexdigest(),
        "resources": [r.registers, r.spill_bytes, r.shared_bytes, r.local_bytes],
        "plan": artifact.plan.to_json(),
    }  # fmt: skip


def _machine(options: TargetOptions) -> str:
    """The kind of processor that code of the CPU is for."""
    from tessera_backend.cpu.host_cpu import host_machine

    return host_machine() if options.target == "cpu" else ""


def _host(options: TargetOptions) -> str:
    """The very processor that native code is for, where nobody says what processors have."""
    from tessera_backend.cpu.features import host_features
    from tessera_backend.runtime.built_loader import this_host

    native = options.target == "cpu" and options.arch == "native"
    return this_host() if native and host_features() is None else ""
