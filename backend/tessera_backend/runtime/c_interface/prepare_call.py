"""What makes a call ready in C: ``LABEL_prepare`` fills the slots, maps and sizes of each launch.

Mirrors ``runtime/call_binding.py`` and ``device/launch.py``, which do it for Python. Must not know
checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_backend.device.module import STATIC_SHARED_LIMIT
from tessera_backend.device.tensor_map import map_numbers
from tessera_backend.runtime.c_interface.calls import Variant
from tessera_backend.runtime.c_interface.names import text_of
from tessera_backend.runtime.c_interface.sizes import dtype_code
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import COPY_ALIGNMENT, LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import Sym


def dynamic_shared(artifact: Artifact) -> int:
    """Bytes of shared memory that a launch asks for."""
    size = max(artifact.plan.shared_bytes, artifact.resources.shared_bytes)
    return size if artifact.kind != "object" and size > STATIC_SHARED_LIMIT else 0


class Preparation:
    """Writes ``LABEL_call`` and ``LABEL_prepare`` of a variant whose names were bound."""

    def __init__(self, variant: Variant) -> None:
        self.v = variant
        self.plan = variant.plan
        self.lines: list[str] = []
        # C expressions of pointers to arrays, by number: parameters, results, copies.
        self.arrays: dict[int, str] = dict(variant.arguments)

    # --- the structure ------------------------------------------------------------------------

    def structure(self) -> list[str]:
        v, out = self.v, list[str]()
        out += [f"typedef struct {v.label}_call {{", "    tessera_call all;",
                f"    tessera_launch launches[{len(v.launches)}];"]  # fmt: skip
        for number, a in enumerate(v.launches):
            p = a.plan
            counts = {
                "int64_t slots": len(p.slots), "tessera_map maps": len(_maps(p)),
                "tessera_copy copies": len(p.copies), "tessera_place kept": len(_kept_slots(p)),
                "tessera_place zeros": len(_zeroed(p)),
            }  # fmt: skip
            out += [f"    {kind}_{number}[{count}];" for kind, count in counts.items() if count]
        return [*out, f"}} {v.label}_call;", ""]

    # --- the function -------------------------------------------------------------------------

    def prepare(self) -> list[str]:
        v = self.v
        declared = ", ".join((*v.declared(), f"{v.label}_call *call"))
        passed = (*v.passed(), *v.symbols.values())
        self.lines = [
            f"static inline int {v.label}_prepare({declared})", "{", "    int bad = 0;",
            "    tessera_launch *launch;", *(f"    {line}" for line in v.bindings()),
            *(f"    (void){name};" for name in passed), "    memset(call, 0, sizeof *call);",
            f"    call->all.count = {len(v.launches)};", "    call->all.launches = call->launches;",
        ]  # fmt: skip
        self._kept_arrays()
        for number, artifact in enumerate(v.launches):
            self._launch(number, artifact)
        self.lines += ["    return bad ? TESSERA_REFUSED : TESSERA_OK;", "}", ""]
        return self.lines

    def _put(self, line: str) -> None:
        self.lines.append(f"    {line}")

    def _set(self, name: str, value: object) -> None:
        self._put(f"launch->{name} = {value};")

    def _kept_arrays(self) -> None:
        """What launches leave for each other, as arrays without an address."""
        for at, result in enumerate(self.plan.results):
            if not result.kept:
                continue
            shape, name = self.v.names.take(f"shape{at}"), self.v.names.take(f"kept{at}")
            sizes = ", ".join(self.v.size(d) for d in result.dims) or "1"
            rank = len(result.dims)
            self._put(f"const int64_t {shape}[{max(rank, 1)}] = {{{sizes}}};")
            self._put(f"const tessera_array {name} = tessera_of({dtype_code(result.dtype)}, NULL, "
                      f"{rank}, {shape}, NULL);")  # fmt: skip
            self._put(f"(void){name};")
            self.arrays[len(self.plan.parameters) + at] = f"&{name}"

    def _launch(self, number: int, artifact: Artifact) -> None:
        v, plan = self.v, artifact.plan
        self._put(f"launch = &call->launches[{number}];")
        self._set("file", text_of(v.files[number]))
        self._set("entry", text_of(v.entries[number]))
        if v.on_cpu:
            self._set("run", v.entries[number])
            self._set("thread_bytes", max(0, artifact.resources.local_bytes))
        self._grid(plan)
        self._set("shared_bytes", dynamic_shared(artifact))
        self._set("persistent", int(plan.persistent))
        for kind in ("workspace", "scratch", "fault", "print"):
            at = next((i for i, s in enumerate(plan.slots) if s.kind == kind), -1)
            self._set(f"{kind}_slot", at)
        self._set("workspace_bytes", v.size(plan.workspace))
        self._set("scratch_bytes", v.size(plan.scratch))
        self._slots(number, plan)
        self._copies(number, plan)
        self._kept(number, plan)
        self._zeros(number, plan)
        self._maps(number, plan)
        self._values(number, plan)

    def _grid(self, plan: LaunchPlan) -> None:
        axes = self.v.grid(plan)
        self._set("group_axes", len(axes))
        for at in range(3):
            self._set(f"groups[{at}]", axes[at] if at < len(axes) else 1)
        for at in range(3):
            back = len(axes) - 1 - at
            self._set(f"grid[{at}]", f"(uint32_t)launch->groups[{back}]" if back >= 0 else 1)
        for name, sizes in (("block", plan.group), ("cluster", plan.cluster)):
            xyz = (*reversed(sizes), 1, 1, 1)[:3]
            for at, n in enumerate(xyz):
                self._set(f"{name}[{at}]", n)

    # --- slots --------------------------------------------------------------------------------

    def _slots(self, number: int, plan: LaunchPlan) -> None:
        if not plan.slots:
            return
        self._set("slot_count", len(plan.slots))
        self._set("slots", f"call->slots_{number}")
        self._copied_arrays(number, plan)
        for at, slot in enumerate(plan.slots):
            if slot.kind == "scalar":
                p = plan.parameters[slot.parameter]
                name = self.arrays[slot.parameter]
                if DTYPES[p.dtype].is_float:
                    self._put(f"memcpy(&launch->slots[{at}], &{name}, sizeof {name});")
                else:
                    self._set(f"slots[{at}]", f"(int64_t){name}")
                continue
            value = self._slot(plan, slot)
            if value:
                self._set(f"slots[{at}]", value)

    def _slot(self, plan: LaunchPlan, slot: Slot) -> str:
        array = self.arrays.get(slot.parameter, "")
        match slot.kind:
            case "data" | "bytes" | "tensor_map":
                given = plan.is_given(slot.parameter)
                return f"(int64_t)(uintptr_t){array}->data" if given else ""
            case "size":
                return f"({array})->shape[{slot.axis}]"
            case "stride":
                return f"tessera_stride({array}, {slot.axis})"
            case "symbol":
                return self.v.size(Sym(slot.symbol))
            case "groups":
                return "launch->groups[0] * launch->groups[1] * launch->groups[2]"
            case _:
                return ""

    def _copied_arrays(self, number: int, plan: LaunchPlan) -> None:
        for at, copy in enumerate(plan.copies):
            rank = len(copy.axes)
            strides = self.v.names.take(f"strides{number}_{at}")
            name = self.v.names.take(f"copy{number}_{at}")
            axes = self.v.names.take(f"axes{number}_{at}")
            self._put(f"int64_t {strides}[{rank}];")
            self._put(f"const int {axes}[{rank}] = {{{', '.join(map(str, copy.axes))}}};")
            source = self.arrays[copy.parameter]
            self._put(
                f"const tessera_array {name} = tessera_copied(&bad, {source}, {axes}, "
                f"{copy.alignment}, {strides});"
            )
            self._put(f"(void){name};")
            self.arrays[plan.first_copy + at] = f"&{name}"

    def _copies(self, number: int, plan: LaunchPlan) -> None:
        if not plan.copies:
            return
        self._set("copy_count", len(plan.copies))
        self._set("copies", f"call->copies_{number}")
        for at, copy in enumerate(plan.copies):
            own = plan.first_copy + at
            slot = next((i for i, s in enumerate(plan.slots)
                         if s.kind == "data" and s.parameter == own), -1)  # fmt: skip
            for place, axis in enumerate(copy.axes):
                self._set(f"copies[{at}].axes[{place}]", axis)
            source = self.arrays[copy.parameter]
            given = f"{source}, {copy.alignment}, {slot}"
            self._put(f"tessera_place_copy(&bad, launch, {at}, {given});")

    def _kept(self, number: int, plan: LaunchPlan) -> None:
        listed = _kept_slots(plan)
        kept = [n for n, r in enumerate(plan.results, len(plan.parameters)) if r.kept]
        if not kept:
            return
        if listed:
            self._set("kept_count", len(listed))
            self._set("kept", f"call->kept_{number}")
        for array in kept:
            for place, (slot, its) in enumerate(listed):
                if its == array:
                    self._set(f"kept[{place}].slot", slot)
                    self._set(f"kept[{place}].offset", "launch->kept_bytes")
            size = f"tessera_bytes(&bad, {self.arrays[array]})"
            rounded = f"tessera_ceil_divide(&bad, {size}, {COPY_ALIGNMENT}) * {COPY_ALIGNMENT}"
            self._put(f"launch->kept_bytes += {rounded};")

    def _zeros(self, number: int, plan: LaunchPlan) -> None:
        listed = _zeroed(plan)
        if not listed:
            return
        self._set("zero_count", len(listed))
        self._set("zeros", f"call->zeros_{number}")
        for place, (slot, array) in enumerate(listed):
            self._set(f"zeros[{place}].slot", slot)
            size = f"tessera_bytes(&bad, {self.arrays[array]})"
            self._set(f"zeros[{place}].offset", size)

    def _maps(self, number: int, plan: LaunchPlan) -> None:
        listed = _maps(plan)
        if not listed:
            return
        self._set("map_count", len(listed))
        self._set("maps", f"call->maps_{number}")
        for place, (at, slot) in enumerate(listed):
            array, dtype, rank = self._mapped(plan, slot)
            numbers = map_numbers(slot, DTYPES[dtype])
            axes = slot.axes or tuple(range(rank))
            copy = slot.parameter - plan.first_copy if plan.copy_of(slot.parameter) else -1
            m = f"maps[{place}]"
            for name, value in (("slot", at), ("copy", copy), *numbers.items()):
                self._set(f"{m}.{name}", value)
            axes_name = self.v.names.take(f"order{number}_{place}")
            box_name = self.v.names.take(f"box{number}_{place}")
            self._put(f"const int {axes_name}[] = {{{_listed(reversed(axes))}}};")
            self._put(f"const uint32_t {box_name}[] = {{{_listed(reversed(slot.box))}}};")
            self._put(
                f"tessera_fill_map(&bad, &launch->{m}, {array}, {len(axes)}, {axes_name}, "
                f"{box_name});"
            )

    def _mapped(self, plan: LaunchPlan, slot: Slot) -> tuple[str, str, int]:
        copy = plan.copy_of(slot.parameter)
        number = copy.parameter if copy is not None else slot.parameter
        first = len(plan.parameters)
        if number < first:
            p = plan.parameters[number]
            return self.arrays[slot.parameter], p.dtype, p.rank
        result = plan.results[number - first]
        return self.arrays[slot.parameter], result.dtype, len(result.dims)

    def _values(self, number: int, plan: LaunchPlan) -> None:
        slots = [i for i, s in enumerate(plan.slots) if s.kind == "bytes"]
        if slots:
            name = self.v.names.take(f"values{number}")
            self._put(f"static const int {name}[] = {{{_listed(slots)}}};")
            self._set("value_count", len(slots))
            self._set("values", name)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _maps(plan: LaunchPlan) -> list[tuple[int, Slot]]:
    return [(at, s) for at, s in enumerate(plan.slots) if s.kind == "tensor_map"]


def _kept_slots(plan: LaunchPlan) -> list[tuple[int, int]]:
    """Slots of what launches leave for each other, with the number of the array."""
    first = len(plan.parameters)
    kept = {n for n, r in enumerate(plan.results, first) if r.kept}
    return [(at, s.parameter) for at, s in enumerate(plan.slots)
            if s.parameter in kept and s.kind in ("data", "tensor_map")]  # fmt: skip


def _zeroed(plan: LaunchPlan) -> list[tuple[int, int]]:
    if plan.launches_before:
        return []
    return [
        (next(i for i, s in enumerate(plan.slots) if s.kind == "data" and s.parameter == n), n)
        for n, r in enumerate(plan.results, len(plan.parameters)) if r.zeroed
    ]  # fmt: skip
