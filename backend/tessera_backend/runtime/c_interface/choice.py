"""Functions of C that take the variant of a kernel that fits a call: the most special one.

The CPU and GPUs have functions of their own: what runs a call on one is not what runs it on the
other. Must not know what a variant does.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.runtime.c_interface.calls import Variant
from tessera_backend.runtime.c_interface.names import RESERVED, Names, text_of
from tessera_backend.runtime.c_interface.sizes import C_TYPES, dtype_code
from tessera_lang.target.arch import capability_of, find_architecture, runs_on
from tessera_lang.target.backend import Artifact
from tessera_lang.types.dtype import DTYPES


def specialty(artifact: Artifact) -> tuple[int, tuple[int, int], int]:
    """How special code is: facts it builds on, then the newer architecture."""
    facts = sum(
        p.contiguous + p.aligned + p.small + p.pitches
        + sum(n is not None for n in (*p.sizes, *p.buckets))
        + sum(d.bit_length() for d in p.divisors)
        for p in artifact.plan.parameters
    )  # fmt: skip
    return facts, _capability(artifact), len(artifact.needs)


def choice(label: str, variants: Sequence[Variant]) -> list[str]:
    """The functions of a kernel, for the CPU and for GPUs."""
    lines: list[str] = []
    for on_cpu in (True, False):
        own = [v for v in variants if v.on_cpu == on_cpu]
        if own:
            both = any(v.on_cpu != on_cpu for v in variants) and not on_cpu
            lines += _Choice(f"{label}_cuda" if both else label, own).text()
    return lines


class _Choice:
    def __init__(self, label: str, variants: Sequence[Variant]) -> None:
        self.label = label
        self.variants = sorted(variants, key=lambda v: specialty(v.artifact), reverse=True)
        self.on_cpu = variants[0].on_cpu

    def text(self) -> list[str]:
        kinds = {tuple(_kind(d) for d in v.declared()) for v in self.variants}
        if len(kinds) > 1:
            return [
                "/* Numbers of the variants have different types: call one of them. */",
                "",
            ]
        constants = self._constants()
        taken = self.variants[0]
        own = [*([] if self.on_cpu else ["int capability"]), *constants.values(), *taken.declared()]
        # The first variant's names; those of compile-time values must be others.
        tests = [self._test(v, constants) for v in self.variants]
        return [*self._chooser(own, tests), *(self._run(own, constants) if self.on_cpu
                                              else self._prepare(own, constants))]  # fmt: skip

    def _constants(self) -> dict[int, str]:
        """Compile-time parameters whose values differ, as C declares them."""
        found: dict[int, str] = {}
        taken = Names(RESERVED | {name.lower() for name in self.variants[0].passed()})
        for at, p in enumerate(self.variants[0].constants()):
            values = {repr(v.constants()[at].value) for v in self.variants}
            if len(values) > 1 and not (p.dtype == "dtype" and self._arrays_say(at)):
                found[at] = f"{_constant_type(p.value)}{taken.take(p.name)}"
        return found

    def _arrays_say(self, at: int) -> bool:
        """Whether the element types of a call decide a type."""
        said = {
            (tuple((p.dtype, p.rank) for p in v.plan.parameters), v.constants()[at].value)
            for v in self.variants
        }
        return len(said) == len({arrays for arrays, _ in said})

    def _passed(self) -> list[str]:
        return self.variants[0].passed()

    def _test(self, v: Variant, constants: dict[int, str]) -> str:
        tests = [] if self.on_cpu else [_device_test(v.artifact)]
        for at, declared in constants.items():
            tests.append(_constant_test(declared.replace("*", "* ").split()[-1],
                                        v.constants()[at].value))  # fmt: skip
        tests.append(f"{v.label}_accepts({', '.join(self._passed())})")
        return " && ".join(tests)

    def _number(self, v: Variant) -> str:
        return v.label.rpartition("_")[2]

    def _chooser(self, own: list[str], tests: list[str]) -> list[str]:
        lines = [
            "/* The number of the variant that a call takes, or 0"
            + ("" if self.on_cpu else "; `capability`: see tessera_cuda_capability") + ". */",
            f"static inline int {self.label}_accepts({', '.join(own) or 'void'})", "{",
        ]  # fmt: skip
        for v, test in zip(self.variants, tests, strict=True):
            lines += [f"    if ({test})", f"        return {self._number(v)};"]
        return [*lines, "    return 0;", "}", ""]

    def _given(self, constants: dict[int, str]) -> list[str]:
        extra = [d.replace("*", "* ").split()[-1] for d in constants.values()]
        return [*([] if self.on_cpu else ["capability"]), *extra, *self._passed()]

    def _run(self, own: list[str], constants: dict[int, str]) -> list[str]:
        declared = ", ".join((*own, "const tessera_options *options"))
        lines = [f"static inline int {self.label}_launch({declared})", "{"]
        if len(self.variants) == 1:
            only = ", ".join((*self._passed(), "options"))
            return [*lines, f"    return {self.variants[0].label}_launch({only});", "}", ""]
        lines = [
            "/* Runs the variant that accepts the call: checks choose, so they are always made. */",
            *lines, "    tessera_options own;", "    memset(&own, 0, sizeof own);",
            "    if (options)", "        own = *options;", "    own.unchecked = 1;",
            f"    switch ({self.label}_accepts({', '.join(self._given(constants))})) {{",
        ]  # fmt: skip
        for v in self.variants:
            call = ", ".join((*self._passed(), "&own"))
            lines += [f"    case {self._number(v)}:", f"        return {v.label}_launch({call});"]
        return [*lines, "    default:", "        return TESSERA_REFUSED;", "    }", "}", ""]

    def _prepare(self, own: list[str], constants: dict[int, str]) -> list[str]:
        lines = [f"typedef union {self.label}_call {{", "    tessera_call all;"]
        lines += [f"    {v.label}_call of_{self._number(v)};" for v in self.variants]
        declared = ", ".join((*own, f"{self.label}_call *call"))
        lines += [
            f"}} {self.label}_call;", "",
            "/* Makes the call of the variant that accepts it ready: see tessera_cuda_launch. */",
            f"static inline int {self.label}_prepare({declared})", "{",
            f"    switch ({self.label}_accepts({', '.join(self._given(constants))})) {{",
        ]  # fmt: skip
        for v in self.variants:
            number = self._number(v)
            passed = ", ".join((*self._passed(), f"&call->of_{number}"))
            lines += [f"    case {number}:", f"        return {v.label}_prepare({passed});"]
        return [*lines, "    default:", "        return TESSERA_REFUSED;", "    }", "}", ""]


def _kind(declared: str) -> str:
    return declared.rpartition("*")[0] or declared.rpartition(" ")[0]


def _constant_type(value: object) -> str:
    if isinstance(value, (bool, int)):
        return "int64_t "
    if isinstance(value, float):
        return "double "
    return "int32_t " if str(value) in DTYPES else "const char *"


def _constant_test(name: str, value: object) -> str:
    if isinstance(value, (bool, int)):
        return f"{name} == INT64_C({int(value)})"
    if isinstance(value, float):
        return f"{name} == {value!r}"
    if str(value) in C_TYPES:
        return f"{name} == {dtype_code(str(value))}"
    return f"strcmp({name}, {text_of(str(value))}) == 0"


def _device_test(artifact: Artifact) -> str:
    """Whether a device runs code, by its capability: every one that a table knows is asked."""
    arch, cubin = artifact.options.arch, artifact.kind == "cubin"
    major, minor = _capability(artifact)
    own = 10 * major + minor
    if not runs_on(arch, (major, minor + 1), cubin):
        return f"capability == {own}"
    if not runs_on(arch, (major + 1, 0), cubin):
        return f"capability / 10 == {major} && capability >= {own}"
    return f"capability >= {own}"


def _capability(artifact: Artifact) -> tuple[int, int]:
    """The compute capability that code is for, also where a model is named; (0, 0) of a CPU."""
    if artifact.options.target != "cuda":
        return 0, 0
    found = find_architecture(artifact.options.arch)
    return capability_of(artifact.options.arch if found is None else found.name)
