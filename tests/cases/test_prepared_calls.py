"""Calls that headers make ready: grids, arguments, tensor maps, copies and memory are Python's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tessera_backend.device.launch import axes_to_xyz
from tessera_backend.device.module import STATIC_SHARED_LIMIT
from tessera_backend.device.tensor_map import layout, map_numbers
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.built_loader import BuiltKernel, read_manifest
from tessera_backend.runtime.c_interface.choice import specialty
from tessera_backend.runtime.call_binding import bind
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.variant_match import unmet

from tessera_lang.target.arch import runs_on
from tessera_lang.target.array_facts import array_facts
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES

DUMP = r"""
#include <inttypes.h>
static void dump(const tessera_call *call)
{
    int i, j, k;
    for (i = 0; i < call->count; i++) {
        const tessera_launch *l = &call->launches[i];
        printf("launch %s %s grid %u %u %u block %u %u %u cluster %u %u %u shared %u walks %d\n",
               l->file, l->entry, l->grid[0], l->grid[1], l->grid[2],
               l->block[0], l->block[1], l->block[2],
               l->cluster[0], l->cluster[1], l->cluster[2], l->shared_bytes, l->persistent);
        printf("slots");
        for (j = 0; j < l->slot_count; j++) printf(" %" PRId64, l->slots[j]);
        printf("\nspaces %d %" PRId64 " %d %" PRId64 " %d %d\n", l->workspace_slot,
               l->workspace_bytes, l->scratch_slot, l->scratch_bytes, l->fault_slot, l->print_slot);
        for (j = 0; j < l->map_count; j++) {
            const tessera_map *m = &l->maps[j];
            printf("map %d %d %d %d %d %d %u", m->slot, m->data_type, m->interleave, m->swizzle,
                   m->promotion, m->fill, m->rank);
            for (k = 0; k < (int)m->rank; k++) printf(" %" PRIu64 " %u", m->sizes[k], m->box[k]);
            for (k = 0; k + 1 < (int)m->rank; k++) printf(" %" PRIu64, m->strides[k]);
            printf("\n");
        }
        for (j = 0; j < l->copy_count; j++)
            printf("copy %d %" PRId64 " %" PRId64 "\n", l->copies[j].slot, l->copies[j].pitch,
                   l->copies[j].offset);
        for (j = 0; j < l->kept_count; j++)
            printf("kept %d %" PRId64 "\n", l->kept[j].slot, l->kept[j].offset);
        for (j = 0; j < l->zero_count; j++)
            printf("zero %d %" PRId64 "\n", l->zeros[j].slot, l->zeros[j].offset);
        printf("kept bytes %" PRId64 "\n", l->kept_bytes);
    }
}
"""
CALLS: dict[str, list[list[tuple[int, ...]]]] = {
    "product": [[(90, 99), (99, 70)], [(128, 128), (128, 128)], [(1, 1), (1, 1)], [(256, 384),
                (384, 128)], [(5, 0), (0, 7)], [(1000, 3), (3, 1)]],
    "half": [[(300, 200), (200, 100)], [(512, 512), (512, 512)], [(4096, 64), (64, 4096)],
             [(1, 8), (8, 1)], [(7, 7), (7, 7)]],
    "soft": [[(4096, 256)]],
    "gather": [[(1000,), (1000,), (1000,)], [(0,), (0,), (0,)], [(1,), (1,), (1,)]],
    "show": [[(77,)]],
}  # fmt: skip


def spoken(plan: LaunchPlan, a: Artifact, file: str, bound: Bound) -> list[str]:
    """A launch as Python makes it, in the words of ``DUMP``."""
    x, y, z = axes_to_xyz(bound.axes)
    block, cluster = axes_to_xyz(plan.group), axes_to_xyz(plan.cluster or (1,))
    shared = max(plan.shared_bytes, a.resources.shared_bytes)
    shared = shared if shared > STATIC_SHARED_LIMIT else 0
    values = list(bound.slots.values)
    for slot, parameter in bound.slots.data:
        values[slot] = 4096 * (parameter + 1)
    m = bound.memory
    lines = [
        f"launch {file} {a.entry} grid {x} {y} {z} block {block[0]} {block[1]} {block[2]} cluster "
        f"{cluster[0]} {cluster[1]} {cluster[2]} shared {shared} walks {int(plan.persistent)}",
        " ".join(["slots", *map(str, values)]),
        "spaces {} {} {} {} {} {}".format(
            *(m.workspace or (-1, 0)), *(m.scratch or (-1, 0)), bound.slots.fault, bound.slots.print
        ),
    ]
    for at, array in bound.slots.maps.items():
        slot = plan.slots[at]
        rank, sizes, strides, box, _ = layout(slot, array)
        n = map_numbers(slot, array.dtype)
        head = [at, n["data_type"], n["interleave"], n["swizzle"], n["promotion"], n["fill"], rank]
        pairs = [number for k in range(rank) for number in (sizes[k], box[k])]
        lines.append(" ".join(map(str, ["map", *head, *pairs, *strides[: rank - 1]])))
    for copy in m.copies:
        data = [t for t in copy.targets if plan.slots[t].kind == "data"]
        lines.append(f"copy {data[0] if data else -1} {copy.pitch} {copy.at}")
    lines += [f"kept {slot} {at}" for slot, at in m.kept]
    lines += [f"zero {slot} {size}" for slot, size in m.zeroed]
    return [*lines, f"kept bytes {m.kept_bytes}"]


def test_a_prepared_call_is_that_of_python(library: Path, tmp_path: Path) -> None:
    """Grids, arguments, tensor maps, copies and memory: the same numbers for the same call."""
    kernels = {k.file: k for k in read_manifest(library)}
    body, wanted = [], list[str]()
    for kernel, shapes in CALLS.items():
        for sizes in shapes:
            for capability in (80, 90):
                body += one_call(kernel, sizes, capability, kernels, wanted)
    text = "".join(f'#include "tessera_{name}.h"\n' for name in CALLS) + DUMP
    text += "int main(void)\n{\n" + "\n".join(body) + "\nreturn 0;\n}\n"
    (tmp_path / "dump.c").write_text(text)
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    flags = [
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{library}",
        "-o",
        str(tmp_path / "dump"),
    ]
    subprocess.run([compiler, *flags, str(tmp_path / "dump.c")], check=True)
    done = subprocess.run([str(tmp_path / "dump")], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == wanted
    kinds = {line.split()[0] for line in wanted}
    assert kinds >= {"launch", "slots", "spaces", "map", "copy", "kept"}


def one_call(
    kernel: str, sizes: list[tuple[int, ...]], capability: int, kernels: dict[str, BuiltKernel],
    wanted: list[str],
) -> list[str]:  # fmt: skip
    """C lines that prepare a call and show it; what they must show is put to ``wanted``."""
    own = [k for k in kernels.values() if k.artifact.plan.kernel == kernel]
    plan = own[0].artifact.plan
    dtypes = [p.dtype for p in plan.parameters]
    shapes = list(sizes)
    views = [
        ArrayView(DTYPES[d], s, row_major(s), 4096 * (i + 1), 0, False, None)
        for i, (d, s) in enumerate(zip(dtypes, shapes, strict=True))
    ]
    groups = (3,) if plan.grid is None else None
    fitting: list[tuple[BuiltKernel, Bound]] = []
    for k in own:
        a = k.artifact
        then = [t.artifact.plan for t in k.then]
        if not runs_on(a.options.arch, (capability // 10, capability % 10), a.kind == "cubin"):
            continue
        signature = tuple(
            ("t", v.dtype.name, len(v.shape), v.contiguous, True, False, facts(v)) for v in views
        )
        if not unmet(a.plan, signature):
            fitting.append((k, bind(a.plan, views, groups, then, 0)))
    k, bound = max(fitting, key=lambda pair: specialty(pair[0].artifact))
    for launch, its in zip((k, *k.then), (bound, *bound.then), strict=True):
        wanted += spoken(launch.artifact.plan, launch.artifact, launch.file, its)
    results = bound.memory.results
    dtypes += [d.name for d, _ in results]
    shapes += [s for _, s in results]
    lines = ["{"]
    for i, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True)):
        lines.append(f"const int64_t s{i}[] = {{{', '.join(map(str, shape)) or 1}}};")
        lines.append(
            f"const tessera_array a{i} = tessera_of(TESSERA_{dtype.upper()}, (void *)(uintptr_t)"
            f"{4096 * (i + 1)}, {len(shape)}, s{i}, NULL);"
        )
    lines += ["const int64_t groups[] = {3};", f"tessera_{kernel}_call call;", "(void)groups;"]
    arrays = [f"&a{i}" for i in range(len(shapes))] + (["groups"] if groups else [])
    # Results overlap with nothing, but lie 4096 bytes apart here: the check is not what is tried.
    number = k.file.split(".")[0].rpartition("_")[2]
    lines.append(f"if (tessera_{kernel}_{number}_prepare({', '.join(arrays)}, &call.of_{number}))")
    lines += ['    puts("refused");', "else", "    dump(&call.all);", "}"]
    return lines


def facts(view: ArrayView) -> tuple[Any, ...]:
    """All that a call of these sizes may be asked for."""
    every = range(len(view.shape))
    f = array_facts(view.shape, view.strides, view.dtype.bytes, every, every)
    return f.sizes, f.hints, f.divisors, f.unit, f.pitches, f.buckets
