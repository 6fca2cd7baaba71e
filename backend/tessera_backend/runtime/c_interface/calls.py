"""One variant of a kernel in C: its arguments, its check, and what makes a call of it ready.

Names are given out once per variant, so that a parameter may be called anything. Must not know how
files are named or what else is in a folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from tessera_backend.runtime.c_interface.names import Names, text_of
from tessera_backend.runtime.c_interface.sizes import C_TYPES, dtype_code, size_text
from tessera_lang.record import dataclass, field
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import Condition, LaunchPlan, ParameterPlan
from tessera_lang.target.premises import premises, written_pairs
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import Dim, Sym, symbols_of

GRID = "grid_groups"


@dataclass
class Variant:
    """A call of a kernel for one signature and architecture. ``label`` begins every name of it;
    ``files`` and ``entries`` are of its launches, in order; ``checks`` are C lines in front of all
    others of the check. ``arguments`` maps parameters and results to names of C."""

    artifact: Artifact
    label: str
    files: tuple[str, ...]
    entries: tuple[str, ...]
    checks: tuple[str, ...] = ()
    names: Names = field(default_factory=Names)
    arguments: dict[int, str] = field(default_factory=dict[int, str])
    symbols: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        plan = self.plan
        for at, p in enumerate(plan.parameters):
            if p.kind != "constant":
                self.arguments[at] = self.names.take(p.name)
        for at, result in enumerate(plan.results):
            if not result.kept:
                number = len(plan.parameters) + at
                self.arguments[number] = self.names.take(f"result{at}")

    @property
    def plan(self) -> LaunchPlan:
        return self.artifact.plan

    @property
    def launches(self) -> tuple[Artifact, ...]:
        return self.artifact, *self.artifact.then

    @property
    def on_cpu(self) -> bool:
        return self.artifact.kind == "object"

    def constants(self) -> tuple[ParameterPlan, ...]:
        """Compile-time parameters, with the values compiled for."""
        plan = self.plan
        return (*plan.brackets, *(p for p in plan.parameters if p.kind == "constant"))

    # --- arguments ----------------------------------------------------------------------------

    def declared(self) -> list[str]:
        """The parameters of its functions, as C declares them."""
        plan, out = self.plan, list[str]()
        for at, name in self.arguments.items():
            p = plan.parameters[at] if at < len(plan.parameters) else None
            scalar = p is not None and p.kind == "scalar"
            kind = f"{C_TYPES[p.dtype]} " if p is not None and scalar else "const tessera_array *"
            out.append(f"{kind}{name}")
        if plan.grid is None:
            out.append("const int64_t *groups")
        return out

    def passed(self) -> list[str]:
        return [*self.arguments.values(), *(["groups"] if self.plan.grid is None else [])]

    # --- sizes --------------------------------------------------------------------------------

    def bindings(self) -> Iterator[str]:
        """C lines that read every named size from the arguments."""
        plan, written = self.plan, set[str]()
        for p in self.constants():
            if isinstance(p.value, int):
                yield self._symbol(p.name, f"INT64_C({int(p.value)})")
                written.add(p.name)
        for at, p in enumerate(plan.parameters):
            if p.kind == "scalar" and not DTYPES[p.dtype].is_float:
                yield self._symbol(p.name, f"(int64_t){self.arguments[at]}")
                written.add(p.name)
        for at, p in enumerate(plan.parameters):
            for axis, dim in enumerate(p.dims if p.kind == "tensor" else ()):
                if isinstance(dim, Sym) and dim.name not in written:
                    yield self._symbol(dim.name, f"{self.arguments[at]}->shape[{axis}]")
                    written.add(dim.name)

    def _symbol(self, name: str, value: str) -> str:
        if name not in self.symbols:
            self.symbols[name] = self.names.take(name)
        return f"const int64_t {self.symbols[name]} = {value};"

    def size(self, dim: Dim) -> str:
        """A size as an expression of C; one that nothing says makes the call be refused."""
        return size_text(dim, self._known(dim))

    def _known(self, dim: Dim) -> Mapping[str, str]:
        """C expressions of the numbers that a call has names for."""
        found = {**self._numbers, **self.symbols}
        if GRID in symbols_of(dim) and GRID not in found and GRID not in _symbols(self.plan.grid):
            found[GRID] = self.total(self.plan)
        return found

    @cached_property
    def _numbers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        first = len(self.plan.parameters)
        for at, array in self.arguments.items():
            if at < first and self.plan.parameters[at].kind != "tensor":
                continue
            name = self.plan.parameters[at].name if at < first else f"result{at - first}"
            for axis in range(self.rank(at)):
                found[f"{name}.shape[{axis}]"] = f"{array}->shape[{axis}]"
                found[f"{name}.strides[{axis}]"] = f"tessera_stride({array}, {axis})"
            found[f"{name}.address"] = f"(int64_t)(uintptr_t){array}->data"
        return found

    def rank(self, number: int) -> int:
        """The axes of a parameter or a result."""
        first = len(self.plan.parameters)
        if number < first:
            return self.plan.parameters[number].rank
        return len(self.plan.results[number - first].dims)

    def total(self, launch: LaunchPlan) -> str:
        """The number of groups of a launch, as an expression of C."""
        first, *rest = self.grid(launch)
        for axis in rest:
            first = f"tessera_multiply(&bad, {first}, {axis})"
        return first

    # --- the check ----------------------------------------------------------------------------

    def texts(self) -> list[str]:
        """What the code relies on, in words, in the order in which it is looked at."""
        said = [f"`{p.name}` is {p.value}" for p in self.constants() if p.value is not None]
        said += [text for text, _ in (*self._arrays(), *self._memory())]
        for launch in self.launches:
            said += [_text(c) for c in premises(launch.plan, self._target)]
        return list(dict.fromkeys(said))

    @property
    def _target(self) -> Literal["cpu", "cuda"]:
        return "cpu" if self.on_cpu else "cuda"

    def refuses(self) -> list[str]:
        """``LABEL_refuses``: the text of the first premise that does not hold, or NULL."""
        declared = ", ".join(self.declared()) or "void"
        lines = [
            f"static inline const char *{self.label}_refuses({declared})", "{", "    int bad = 0;",
            *(f"    {line}" for line in self.checks),
        ]  # fmt: skip
        for text, test in self._arrays():
            lines += _refusal(text, test)
        lines += [f"    {line}" for line in self.bindings()]
        lines += [f"    (void){name};" for name in (*self.passed(), *self.symbols.values())]
        lines += self._shapes()
        for text, test in self._memory():
            lines += _refusal(text, test)
        seen = set[Condition]()
        for launch in self.launches:
            lines += self._launch_checks(launch.plan, seen)
        return [*lines, "    (void)bad;", "    return NULL;", "}", ""]

    def _arrays(self) -> list[tuple[str, str]]:
        """Arrays are of their element types and ranks: what must be so before any is read."""
        found: list[tuple[str, str]] = []
        first = len(self.plan.parameters)
        for at, a in self.arguments.items():
            if at < first and self.plan.parameters[at].kind != "tensor":
                continue
            rank = self.rank(at)
            if at < first:
                p = self.plan.parameters[at]
                text = f"`{p.name}` is an array of {p.dtype} with {_axes(rank)}"
                dtype = p.dtype
            else:
                result = self.plan.results[at - first]
                shape = ", ".join(map(str, result.dims))
                text, dtype = f"`result{at - first}` is a {result.dtype}[{shape}]", result.dtype
            found.append((text, f"{a} != NULL && tessera_is_a({a}, {dtype_code(dtype)}, {rank})"))
        return found

    def _shapes(self) -> list[str]:
        """Results have the sizes that the call gives them, row by row."""
        lines: list[str] = []
        for at, result in enumerate(self.plan.results):
            a = self.arguments.get(len(self.plan.parameters) + at)
            if a is not None:
                shape = ", ".join(map(str, result.dims))
                tests = [f"{a}->shape[{i}] == {self.size(d)}" for i, d in enumerate(result.dims)]
                test = " && ".join((*tests, f"tessera_is_contiguous({a})"))
                lines += _refusal(f"`result{at}` is a {result.dtype}[{shape}]", test)
        return lines

    def _memory(self) -> list[tuple[str, str]]:
        """What is written shares no memory with anything."""
        plan, first = self.plan, len(self.plan.parameters)
        names = [p.name for p in plan.parameters] + [f"result{i}" for i in range(len(plan.results))]
        found = [
            (f"no two elements of `{p.name}` share memory",
             f"tessera_is_injective({self.arguments[at]})")
            for at, p in enumerate(plan.parameters) if p.kind == "tensor" and p.mut
        ]  # fmt: skip
        arrays = [at for at, p in enumerate(plan.parameters) if p.kind == "tensor"]
        given = [at for at in self.arguments if at >= first]
        pairs = [*written_pairs(plan), *((r, at) for r in given for at in arrays),
                 *((r, q) for r in given for q in given if r < q)]  # fmt: skip
        return found + [
            (f"`{names[i]}` shares no memory with `{names[j]}`",
             f"tessera_are_apart({self.arguments[i]}, {self.arguments[j]})")
            for i, j in pairs
        ]  # fmt: skip

    def _launch_checks(self, plan: LaunchPlan, seen: set[Condition]) -> list[str]:
        """The premises of a launch that were not looked at for one before it."""
        lines: list[str] = []
        local = dict[str, str]()
        for axis, groups in enumerate(self.grid(plan)):
            name = local[f"grid[{axis}]"] = self.names.take(f"grid{axis}")
            lines.append(f"    const int64_t {name} = {groups};")
        tests = [f"{name} >= 0" for name in local.values()]
        lines += _refusal("the grid has no negative number of groups", " && ".join(tests) or "1")
        for premise in premises(plan, self._target):
            of_grid = any(name.startswith("grid") for name in premise.symbols)
            if premise in seen and not of_grid:
                continue
            seen.add(premise)
            lines += self._condition(premise, local)
        return lines

    def _condition(self, premise: Condition, local: Mapping[str, str]) -> list[str]:
        """One comparison or another; what cannot be computed does not hold."""
        known: dict[str, str] = {"grid.axes": f"INT64_C({self.plan.grid_axes})", **local}
        for left, _, right in premise.alternatives:
            for dim in (left, right):
                known.update(self._known(dim))
        kept = [f"result{at}." for at, r in enumerate(self.plan.results) if r.kept]
        if any(name.startswith(tuple(kept)) for name in premise.symbols if kept):
            return []  # memory that the launch makes itself
        if "grid.axes" in premise.symbols:
            return []  # a type says it
        tests = [
            f"{size_text(left, known)} {comparison} {size_text(right, known)}"
            for left, comparison, right in premise.alternatives
        ]
        if len(tests) == 1:
            return _refusal(_text(premise), tests[0])
        holds = self.names.take("holds")
        lines = [f"    int {holds} = 0;"]
        for test in tests:
            lines += [f"    {holds} = {holds} || (({test}) && !bad);", "    bad = 0;"]
        return [*lines, *_refusal(_text(premise), holds)]

    def grid(self, launch: LaunchPlan) -> list[str]:
        """The groups along each axis of the grid."""
        if launch.grid is None:
            return [f"groups[{i}]" for i in range(launch.grid_axes)]
        return [self.size(dim) for dim in launch.grid]


def _symbols(dims: Sequence[Dim] | None) -> frozenset[str]:
    return frozenset[str]().union(*map(symbols_of, dims or ()))


def _refusal(text: str, test: str) -> list[str]:
    return [f"    if (!({test}) || bad)", f"        return {text_of(text)};"]


def _text(premise: Condition) -> str:
    return premise.text or " or ".join(f"{a} {o} {b}" for a, o, b in premise.alternatives)


def _axes(rank: int) -> str:
    return "1 axis" if rank == 1 else f"{rank} axes"
