"""Which row a name or a device means, and on which devices code for a name runs.

A name is ``sm_`` with a compute capability, and ``a`` (code for this very architecture) or ``f``
(for its family). A member of a known family that has no row is compiled by the row of its family,
with the least room that the family has. Must not know who asks.
"""

from __future__ import annotations

import re

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.record import replace
from tessera_lang.target.arch.architecture import Architecture, Limits, Model
from tessera_lang.target.arch.rows import MEMBERS, OLDEST, ROWS

_NAME = re.compile(r"sm_(\d{1,2})(\d)([af]?)")


def is_gpu_name(name: str) -> bool:
    """Whether a name has the form of an architecture of a GPU, known or not, or is that of a model
    of one."""
    return name.startswith("sm_") or model_named(name) is not None


def name_of(capability: tuple[int, int]) -> str:
    """The name of the architecture of a compute capability, known or not."""
    return f"sm_{capability[0]}{capability[1]}"


def capability_of(name: str) -> tuple[int, int]:
    """The compute capability that a name says; (0, 0) for another text."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def model_named(name: str) -> tuple[Architecture, Model] | None:
    """A model by its name (``H200``, whatever the case) with its architecture; None if there is
    none."""
    found = ((row, row.model(name)) for row in ROWS.values() if row.models)
    return next(((row, model) for row, model in found if model is not None), None)


def find_architecture(name: str) -> Architecture | None:
    """The architecture of that name, or of a model of it (``H200``); of a member of a known family
    that has no row, what its family has. Its name is that of the PTX target: the one asked for
    where PTX has it, else the row's. None where no row is of its family."""
    if name in ROWS:
        return ROWS[name]
    model = model_named(name)
    if model is not None:
        return model[0]
    match = _NAME.fullmatch(name)
    if match is None or (match[3] and name not in MEMBERS):
        return None  # what an architecture has alone is not known
    capability = capability_of(name)
    family = [a for a in _generic() if a.capability[0] == capability[0]]
    older = [a for a in family if a.capability <= capability]
    if not older:
        return None
    row = max(older, key=lambda a: a.capability)
    limits = row.limits
    if capability != row.capability:
        limits = _least([a.limits for a in family])
    made = replace(row, limits=limits, specific="", models=())
    if name in MEMBERS:
        return replace(made, name=name, capability=capability, ptx=max(row.ptx, MEMBERS[name]))
    return made


def architecture_named(name: str) -> Architecture:
    """As ``find_architecture``. Raises TesseraError with the names there are."""
    found = find_architecture(name)
    if found is None:
        raise TesseraError((unknown_architecture(name),))
    return found


def architecture_of(capability: tuple[int, int]) -> Architecture:
    """The architecture whose code a device of that compute capability runs. Raises TesseraError."""
    found = find_architecture(name_of(capability))
    if found is not None:
        return found
    major, minor = capability
    newest = max(a.capability for a in ROWS.values())
    remedy = f"the oldest that is served is {OLDEST.name}"
    raise TesseraError(
        (
            Diagnostic(
                "T0880",
                f"a device of compute capability {major}.{minor} is not served",
                notes=(f"code is made for {listed()}",),
                helps=("update Tessera" if capability > newest else remedy,
                       "run with `--target cpu`"),
            ),
        )
    )  # fmt: skip


def specific_to(arch: Architecture) -> Architecture:
    """The architecture for code that need only run on devices of this very one: with more features
    where there is such a one, else itself."""
    return ROWS.get(arch.specific, arch)


def unknown_architecture(name: str, what: str = "no architecture of the CUDA target") -> Diagnostic:
    """T0880 for a name of no known family: what it is not, and what there is."""
    return Diagnostic(
        "T0880", f"`{name}` is {what}",
        notes=(f"code is made for {listed()}",
               "another member of one of these families is compiled as the next older one of it, "
               "such as " + ", ".join(n for n in MEMBERS if n.endswith(("3a", "0f", "88")))),
        helps=("`tesserac devices` shows the architecture of each device",),
    )  # fmt: skip


def listed() -> str:
    """The names that have a row, and those of models."""
    models = [f"{m.name} ({row.name})" for row in _generic() for m in row.models]
    return ", ".join((*ROWS, *models))


def runs_on(name: str, capability: tuple[int, int], machine_code: bool) -> bool:
    """Whether code for a name runs on a device: PTX on later ones too, machine code on later ones
    of the same major number; of one architecture (``a``) on that alone, of a family (``f``) on
    later ones of the same major number."""
    model = model_named(name)
    name = model[0].name if model is not None else name
    match, own = _NAME.fullmatch(name), capability_of(name)
    if match is None:
        return False
    if match[3] == "a":
        return own == capability
    same = own[0] == capability[0]
    return own <= capability and (same or not (machine_code or match[3]))


def _generic() -> list[Architecture]:
    """The rows whose code also runs on later devices: one for each compute capability."""
    return [a for a in ROWS.values() if a.name == name_of(a.capability)]


def _least(limits: list[Limits]) -> Limits:
    return Limits(
        min(x.warps for x in limits), min(x.groups for x in limits), min(x.shared for x in limits),
        min(x.group_shared for x in limits), max(x.reserved for x in limits),
        min(x.registers for x in limits),
    )  # fmt: skip
