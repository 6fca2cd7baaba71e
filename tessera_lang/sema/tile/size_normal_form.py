"""A normal form of sizes: two equal ones are mostly written the same.

Owns sums of products with integer factors, in which a lone ``min`` or ``max`` takes the rest
inside. Must not know what the names stand for (``facts.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd
from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.types.shape import Dim, DimOp, DimOperator, Sym, apply_operator, dim_op

Extreme = Literal["min", "max"]
Lookup = Callable[[str], Dim | None]
MOST_TERMS = 24


@dataclass(frozen=True, slots=True)
class Form:
    """``constant`` + the sum of factor * atom; atoms are no sums, in order of their text."""

    terms: tuple[tuple[Dim, int], ...]
    constant: int = 0

    @property
    def known(self) -> int | None:
        return self.constant if not self.terms else None

    @property
    def alone(self) -> Dim | None:
        """The atom, where there is nothing else."""
        if self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None


def number(value: int) -> Form:
    return Form((), value)


def _of_terms(terms: dict[Dim, int], constant: int) -> Form:
    kept = [term for term in terms.items() if term[1]]
    if len(kept) > 1:
        kept.sort(key=lambda t: str(t[0]))
    return _inside(Form(tuple(kept), constant))


def _inside(form: Form) -> Form:
    """A lone ``min`` or ``max`` in a sum takes the rest of the sum inside."""
    found = [(a, k) for a, k in form.terms if isinstance(a, DimOp) and a.operator in ("min", "max")]
    if len(found) != 1 or abs(found[0][1]) != 1 or form.alone is not None:
        return form
    atom, factor = found[0]
    assert isinstance(atom, DimOp)
    rest = Form(tuple(t for t in form.terms if t[0] is not atom), form.constant)
    items = [add(scale(i, factor), rest) for i in items_of(atom)]
    return extreme(_flipped(atom.operator) if factor < 0 else _extreme(atom.operator), items)


def _extreme(operator: DimOperator) -> Extreme:
    return "min" if operator == "min" else "max"


def _flipped(operator: DimOperator) -> Extreme:
    return "max" if operator == "min" else "min"


def add(a: Form, b: Form, factor: int = 1) -> Form:
    """``a + factor * b``."""
    if not (a.terms or b.terms):
        return number(a.constant + factor * b.constant)
    terms = dict(a.terms)
    for atom, k in b.terms:
        terms[atom] = terms.get(atom, 0) + factor * k
    return _of_terms(terms, a.constant + factor * b.constant)


def scale(a: Form, factor: int) -> Form:
    return add(number(0), a, factor)


def items_of(atom: Dim) -> list[Form]:
    """What a ``min`` or ``max`` chooses from."""
    assert isinstance(atom, DimOp)
    found: list[Form] = []
    for side in (atom.left, atom.right):
        if isinstance(side, DimOp) and side.operator == atom.operator:
            found.extend(items_of(side))
        else:
            found.append(form_of(side))
    return found


def extreme(operator: Extreme, items: list[Form]) -> Form:
    """The least or greatest of some forms; of two that differ by a number one is dropped."""
    flat: list[Form] = []
    for item in items:
        atom = item.alone
        if isinstance(atom, DimOp) and atom.operator == operator:
            flat.extend(items_of(atom))
        else:
            flat.append(item)
    kept: list[Form] = []
    for item in flat:
        for i, other in enumerate(kept):
            difference = add(item, other, -1).known
            if difference is not None:
                if (difference < 0) == (operator == "min"):
                    kept[i] = item
                break
        else:
            kept.append(item)
    kept.sort(key=lambda f: (bool(f.terms), str(dim_of_form(f))))
    if len(kept) == 1:
        return kept[0]
    dim = dim_of_form(kept[-1])
    for item in reversed(kept[:-1]):
        dim = DimOp(operator, dim_of_form(item), dim)
    return Form(((dim, 1),))


def multiply(a: Form, b: Form) -> Form:
    if a.known is not None:
        return scale(b, a.known)
    if b.known is not None:
        return scale(a, b.known)
    terms: dict[Dim, int] = {}
    constant = a.constant * b.constant
    for x, i in (*a.terms, (1, a.constant)):
        for y, j in (*b.terms, (1, b.constant)):
            if isinstance(x, int) and isinstance(y, int) or i * j == 0:
                continue
            atom = y if isinstance(x, int) else x if isinstance(y, int) else _product(x, y)
            terms[atom] = terms.get(atom, 0) + i * j
    return _of_terms(terms, constant)


def factors_of(atom: Dim) -> list[Dim]:
    if isinstance(atom, DimOp) and atom.operator == "*":
        return [*factors_of(atom.left), *factors_of(atom.right)]
    return [atom]


def _product(x: Dim, y: Dim) -> Dim:
    factors = sorted((*factors_of(x), *factors_of(y)), key=str)
    dim = factors[0]
    for f in factors[1:]:
        dim = DimOp("*", dim, f)
    return dim


def _divide(operator: DimOperator, a: Form, b: Form) -> Form:
    """``//``, ``%`` and ``ceil_div``: what divides without rest comes out of the quotient."""
    by = b.known
    if by is not None and by > 0:
        if a.known is not None:
            return number(apply_operator(operator, a.known, by))
        if all(k % by == 0 for _, k in a.terms):
            if operator == "%":
                return number(a.constant % by)
            rest = apply_operator(operator, a.constant, by)
            return Form(tuple((x, k // by) for x, k in a.terms), rest)
        atom = a.alone
        extremes = isinstance(atom, DimOp) and atom.operator in ("min", "max")
        if operator != "%" and extremes and isinstance(atom, DimOp):  # quotients keep the order
            return extreme(
                _extreme(atom.operator), [_divide(operator, i, b) for i in items_of(atom)]
            )
    return Form(((DimOp(operator, dim_of_form(a), dim_of_form(b)), 1),))


@lru_cache(8192)
def form_of(dim: Dim) -> Form:
    """The normal form of a size."""
    if isinstance(dim, int):
        return number(dim)
    if isinstance(dim, Sym):
        return Form(((dim, 1),))
    a, b = form_of(dim.left), form_of(dim.right)
    match dim.operator:
        case "+":
            return add(a, b)
        case "-":
            return add(a, b, -1)
        case "*":
            return multiply(a, b)
        case "min" | "max" as operator:
            return extreme(operator, [a, b])
        case "//" | "%" | "ceil_div" as operator:
            return _divide(operator, a, b)


def dim_of_form(form: Form) -> Dim:
    """The size that a form stands for, its positive parts first."""
    dim: Dim | None = None
    for atom, k in sorted(form.terms, key=lambda t: t[1] < 0):
        part: Dim = atom if abs(k) == 1 else DimOp("*", abs(k), atom)
        if dim is None:
            dim = part if k > 0 else dim_op("*", -1, part)
        else:
            dim = DimOp("+" if k > 0 else "-", dim, part)
    if dim is None:
        return form.constant
    if form.constant:
        return DimOp("+" if form.constant > 0 else "-", dim, abs(form.constant))
    return dim


@lru_cache(8192)
def normal(dim: Dim) -> Dim:
    return dim_of_form(form_of(dim))


def too_long(dim: Dim) -> bool:
    """Whether arithmetic has made more of a size than is worth to look through."""
    form = form_of(dim)
    return len(form.terms) > MOST_TERMS or any(len(str(a)) > 400 for a, _ in form.terms)


def substitute(dim: Dim, lookup: Lookup) -> Dim:
    """A size with names replaced, in normal form."""
    return normal(_replaced(dim, lookup))


def _replaced(dim: Dim, lookup: Lookup) -> Dim:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        found = lookup(dim.name)
        return dim if found is None else found
    left, right = _replaced(dim.left, lookup), _replaced(dim.right, lookup)
    if right == 0 and dim.operator in ("//", "%", "ceil_div"):
        return DimOp(dim.operator, left, right)
    return dim_op(dim.operator, left, right)


def common_factor(numbers: list[int]) -> int:
    """The greatest common divisor; 0 where all are 0."""
    return gcd(*numbers)


def described(dim: Dim) -> str:
    """A size as one would write it: what is added first, then what is taken away, with no more
    brackets than it needs."""
    form = form_of(dim)
    parts = [(k, _times(abs(k), atom)) for atom, k in form.terms]
    if form.constant or not parts:
        parts.append((form.constant, str(abs(form.constant))))
    parts.sort(key=lambda part: part[0] < 0)
    first, *rest = parts
    text = f"-{first[1]}" if first[0] < 0 else first[1]
    return text + "".join(f" {'-' if k < 0 else '+'} {part}" for k, part in rest)


def _times(factor: int, atom: Dim) -> str:
    """``factor * atom``; an atom is no sum."""
    text = _atom(atom)
    if factor == 1:
        return text
    quotient = isinstance(atom, DimOp) and atom.operator in ("//", "%")
    return f"{factor} * ({text})" if quotient else f"{factor} * {text}"


def _atom(atom: Dim) -> str:
    if not isinstance(atom, DimOp):
        return str(atom)
    if atom.operator in ("min", "max", "ceil_div"):
        return f"{atom.operator}({described(atom.left)}, {described(atom.right)})"
    left, right = (_operand(x) for x in (atom.left, atom.right))
    if isinstance(atom.left, DimOp) and atom.left.operator == atom.operator:
        left = _atom(atom.left)
    return f"{left} {atom.operator} {right}"


def _operand(dim: Dim) -> str:
    """A part of a product or a quotient."""
    calls = not isinstance(dim, DimOp) or dim.operator in ("min", "max", "ceil_div")
    return described(dim) if calls else f"({described(dim)})"
