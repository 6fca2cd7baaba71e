"""What a Tile operation is: the record that the table, the verifier and the passes read.

Owns the vocabulary of ``ops.py``. Must not know any single operation.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass

Effect = Literal["none", "read", "write", "update", "sync", "warp", "fault", "nested", "exit"]
"""What an operation does beside giving its results.

``none``: nothing, it may be moved, merged and dropped. ``fault``: reports to the fault
record for some operands, else nothing. ``read``, ``write``, ``update`` (both): memory; a
guarded one reports too. ``sync``: orders memory. ``warp``: the lanes of a warp
meet; it stays where it is. ``nested``: what its regions do.
``exit``: ends its region.
"""

AttributeKind = Literal["bool", "int", "str", "ints", "strs", "scalar", "dtype"]

Trait = Literal[
    "loop",
    "leaves",
    "lane id",
    "group id",
    "allocation",
    "commutative",
    "barrier",
    "one lane",
    "all lanes",
    "element-wise",
    "loop exit",
    "block",
    "buffer",
    "shared memory",
    "element access",
    "atomic",
    "lane copy",
    "tile load",
    "box",
    "moves",
    "permutes",
    "in place",
    "generates",
    "contracts",
    "mixes",
    "bounded",
    "per lane",
]
"""What passes ask of an operation beside its effect.

``loop``: runs its regions again and again; the last operands are the values it carries.
``leaves``: an exit before the end of a construct. ``lane id``, ``group id``: numbers that differ
by lane, by group. ``allocation``: memory of the kernel. ``commutative``: operands may change
places. ``barrier``: begins with a barrier of the group. ``one lane``: stands in ``tile.once``;
``all lanes``: never does. ``element-wise``: of scalars, and of tiles element by element. ``loop
exit``: leaves the loop around or its iteration. ``block``: runs a region at most once and hands
its values over. ``buffer``: an allocation that holds elements; ``shared memory``: one in shared
memory. ``element access``: a plain load or store of one element; ``atomic``: one that is not
divided. ``lane copy``: an asynchronous copy that lanes issue. ``tile load``: elements of memory
into registers, and nothing else. ``box``: on a part of an array with fixed steps. ``moves``:
every element of the result is one of the operand; ``permutes``: and each of the operand is there
once. ``in place``: an element of the result is made of that at the same place. ``generates``: a
tile made of no other. ``contracts``: combines along an axis, which the result has not.
``mixes``: an element of the result may be made of any of the operand. ``bounded``: treats
elements beyond an extent apart. ``per lane``: a result of a warp that differs by lane.
"""

Classes = Literal["any", "number", "integer", "float", "bits"]
"""Dtypes an operand may have: ``number`` is all but bool, ``bits`` integers and bool."""


@dataclass(frozen=True, slots=True)
class AttributeDef:
    """An attribute an operation has; ``allowed`` values where the set is closed.

    One that is ``optional`` may be missing; docs/ir.md says what that means."""

    name: str
    kind: AttributeKind
    allowed: tuple[str | int, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operation.

    ``operands`` are the names of docs/ir.md; one that ends in ``...`` takes any number.
    ``rule`` names the type rule of ``verify.py`` and ``classes`` the dtypes it allows.
    ``results`` is the number of results, -1 where the operation decides. ``terminators``
    holds, per region, the names that may end it; with ``variadic`` the last entry holds for any
    number of further regions.
    """

    name: str
    operands: tuple[str, ...]
    rule: str
    results: int = 1
    classes: Classes = "any"
    attributes: tuple[AttributeDef, ...] = ()
    terminators: tuple[tuple[str, ...], ...] = ()
    effect: Effect = "none"
    variadic: bool = False
    traits: tuple[Trait, ...] = ()

    @property
    def regions(self) -> int:
        return len(self.terminators)

    @property
    def pure(self) -> bool:
        """Whether dropping an unused one, or merging equal ones, changes nothing."""
        return self.effect == "none"

    @property
    def is_terminator(self) -> bool:
        return self.effect == "exit"
