"""What is known of the names in extents: values, equalities, ranges, divisors.

Owns the proofs: equal, not negative, a multiple of. Facts only grow while a kernel is checked,
so that each walk over its body knows at least what the one before it knew. Must not know
syntax.
"""

from __future__ import annotations

from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.tile.size_normal_form import (
    Form,
    add,
    common_factor,
    dim_of_form,
    extreme,
    factors_of,
    form_of,
    items_of,
    multiply,
    normal,
    number,
    scale,
    substitute,
)
from tessera_lang.types.shape import Dim, DimOp, Sym, symbols_of

FUEL = 48


@dataclass(frozen=True, slots=True)
class Range:
    """``lower <= v <= last`` and ``v = origin + a multiple of step``; None: not known."""

    lower: Dim | None
    last: Dim | None
    step: int = 1
    origin: Dim | None = None


@dataclass(slots=True, eq=False)
class Facts:
    """``equal`` maps a name to what it is; names of open extents begin with ``?``."""

    equal: dict[str, Dim] = field(default_factory=dict[str, Dim])
    ranges: dict[str, Range] = field(default_factory=dict[str, Range])
    divisors: dict[str, int] = field(default_factory=dict[str, int])
    least: dict[str, int] = field(default_factory=dict[str, int])
    bound: dict[str, int] = field(default_factory=dict[str, int])
    fits: dict[Dim, None] = field(default_factory=dict[Dim, None])  # what is left from a start on
    told: tuple[Dim, ...] = ()  # at least 0 while `equals_where` looks
    changed: bool = False

    # --- values ------------------------------------------------------------------------

    def learn(self, name: str, dim: Dim) -> None:
        """From now on ``name`` is ``dim``."""
        if name not in symbols_of(self.resolve(dim)) and name not in self.equal:
            self.equal[name] = dim
            self.changed = True

    def resolve(self, dim: Dim) -> Dim:
        """A size with what is known put in, in normal form."""
        if isinstance(dim, int):
            return dim
        for _ in range(16):
            if not symbols_of(dim) & self.equal.keys():
                break
            dim = substitute(dim, self.equal.get)
        return normal(dim)

    def value(self, dim: Dim) -> int | None:
        found = self.resolve(dim)
        return found if isinstance(found, int) else None

    def divides(self, name: str, by: int) -> None:
        old = self.divisors.get(name, 1)
        if old % by:
            self.divisors[name] = old * by // common_factor([old, by])
            self.changed = True

    def must_fit(self, left: Dim) -> bool:
        """From now on slices from a start, of which ``left`` is left of the array, are in it as a
        whole: the run looks. Whether that is new."""
        if self.is_to_fit(left):
            return False
        self.fits[left] = None
        self.changed = True
        return True

    def is_to_fit(self, left: Dim) -> bool:
        return any(self.equals(left, kept) for kept in self.fits)

    # --- proofs ------------------------------------------------------------------------

    def equals(self, a: Dim, b: Dim) -> bool:
        x, y = self.resolve(a), self.resolve(b)
        return x == y or self.simplify(x) == self.simplify(y)

    def not_negative(self, dim: Dim) -> bool:
        return self._holds(form_of(self.resolve(dim)), FUEL)

    def follows(self, dim: Dim, told: Dim) -> bool:
        """Whether a number is never negative where another one is not."""
        return self._follows(form_of(self.resolve(dim)), told)

    def _follows(self, form: Form, told: Dim) -> bool:
        """The form is a multiple of what is told, and more. Of that all multiples of what divides
        its parts are at least 0, and it is one of them plus less than that."""
        known = form_of(self.resolve(told))
        by = self._divisor(replace(known, constant=0))
        if by > 1:
            known = replace(known, constant=known.constant // by * by)
        factors = dict(known.terms)
        both = [(k, factors[atom]) for atom, k in form.terms if atom in factors]
        times = {k // factor for k, factor in both if k % factor == 0}
        tries = sorted({1, *(n for n in times if n > 0)})
        return any(self._holds(add(form, known, -n), FUEL) for n in tries)

    def equals_where(self, a: Dim, b: Dim, told: tuple[Dim, ...]) -> bool:
        """Whether two are equal where some numbers are not negative."""
        self.told = told
        found = bool(told) and self.equals(a, b)
        self.told = ()
        return found

    def less(self, a: Dim, b: Dim) -> bool:
        """``a < b``."""
        return self.not_negative(DimOp("-", DimOp("-", b, a), 1))

    def differ(self, a: Dim, b: Dim) -> bool:
        """Whether two sizes are never equal, except where an array is empty."""
        kept = self.least
        self.least = {n: max(1, least) for n, least in kept.items()}
        found = self.less(a, b) or self.less(b, a)
        self.least = kept
        return found

    def divisor(self, dim: Dim) -> int:
        """A number that divides it; 0 for 0."""
        return self._divisor(form_of(self.resolve(dim)))

    def _divisor(self, form: Form) -> int:
        return common_factor([form.constant, *(k * self._of_atom(a) for a, k in form.terms)])

    def _of_atom(self, atom: Dim) -> int:
        if isinstance(atom, Sym):
            found = self.ranges.get(atom.name)
            if found is not None and found.origin is not None:
                return common_factor([found.step, self.divisor(found.origin)])
            return self.divisors.get(atom.name, 1)
        if isinstance(atom, DimOp) and atom.operator == "*":
            product = 1
            for f in factors_of(atom):
                product *= self._of_atom(f) if not isinstance(f, int) else f
            return product
        if isinstance(atom, DimOp) and atom.operator in ("min", "max"):
            return common_factor([self._divisor(i) for i in items_of(atom)])
        return 1

    def _holds(self, form: Form, fuel: int) -> bool:
        """Whether a form is never negative, by putting bounds in for its parts."""
        if fuel <= 0:
            return False
        for atom, k in form.terms:
            if isinstance(atom, DimOp) and atom.operator in ("min", "max"):
                rest = add(form, Form(((atom, 1),)), -k)
                tests = (self._holds(add(rest, scale(i, k)), fuel // 2 - 1) for i in items_of(atom))
                return all(tests) if (atom.operator == "min") == (k > 0) else any(tests)
        chosen = self._innermost(form)
        if chosen is not None:
            atom, k, bounds = chosen
            rest = add(form, Form(((atom, 1),)), -k)
            fuel = fuel - 1 if len(bounds) == 1 else fuel // 2
            return any(self._holds(add(rest, b), fuel) for b in bounds)
        return self._plain(form)

    def _innermost(self, form: Form) -> tuple[Dim, int, list[Form]] | None:
        """The part whose bounds to put in first, for it times its factor: names with ranges, the
        latest first."""
        order = list(self.ranges)
        best: tuple[int, Dim, int, list[Form]] | None = None
        for atom, k in form.terms:
            bounds, rank = self._bounds(atom, k)
            if isinstance(atom, Sym) and atom.name in self.ranges:
                rank = order.index(atom.name)
            if bounds and (best is None or rank > best[0]):
                best = rank, atom, k, bounds
        return None if best is None else best[1:]

    def _bounds(self, atom: Dim, k: int) -> tuple[list[Form], int]:
        """What ``k`` times ``atom`` is never less than."""
        if isinstance(atom, DimOp) and atom.operator in ("//", "ceil_div"):
            by = atom.right
            if isinstance(by, int) and by > 0:
                return self._of_quotient(atom, by, k), -1
        if isinstance(atom, DimOp) and atom.operator == "*":
            return self._of_product(atom, k), -1
        bound, rank = self._bound(atom, k)
        return ([] if bound is None else [scale(form_of(self.resolve(bound)), k)]), rank

    def _of_quotient(self, atom: DimOp, by: int, k: int) -> list[Form]:
        """``by`` times a quotient is its dividend, but for less than ``by``; a quotient of what is
        at least 0 is between 0 and that."""
        whole, left = divmod(abs(k), by)
        below = atom.operator == "//"
        inner = form_of(self.resolve(atom.left))
        positive = self.not_negative(atom.left)
        found: list[Form] = []
        if whole and (positive or not left):
            gap = 0 if below == (k < 0) else by - 1
            near = add(scale(inner, whole if k > 0 else -whole), number(-gap * whole))
            found.append(near if k > 0 else add(near, inner, -left))
        if positive and k > 0:
            found.append(number(0))
        elif positive and not whole:
            found.append(scale(inner, k))
        return found

    def _of_product(self, atom: DimOp, k: int) -> list[Form]:
        """A variable of a loop times what is at least 0."""
        factors = factors_of(atom)
        found: list[Form] = []
        for i, factor in enumerate(factors):
            known = self.ranges.get(factor.name) if isinstance(factor, Sym) else None
            bound = None if known is None else known.lower if k > 0 else known.last
            others = factors[:i] + factors[i + 1 :]
            if bound is not None and all(self._is_factor(f, alone=False) for f in others):
                form = scale(form_of(self.resolve(bound)), k)
                for other in others:
                    form = multiply(form, form_of(other))
                found.append(form)
        return found

    def _bound(self, atom: Dim, k: int) -> tuple[Dim | None, int]:
        if isinstance(atom, Sym):
            found = self.ranges.get(atom.name)
            if found is None:
                return (self.bound.get(atom.name) if k < 0 else None), -2
            return (found.lower if k > 0 else found.last), 0
        if isinstance(atom, DimOp):
            by = atom.right
            if atom.operator == "%" and isinstance(by, int) and by > 0:
                return (0 if k > 0 else by - 1), -1
            if isinstance(by, int) or k < 0 or not self.not_negative(by):
                return None, -1
            # Of what is at least 0; by 0 all of them are 0.
            if atom.operator == "%" or (
                atom.operator in ("//", "ceil_div") and self.not_negative(atom.left)
            ):
                return 0, -1
        return None, -1

    def _plain(self, form: Form) -> bool:
        """Every part is at least 0, and what is known to be more counts."""
        least = form.constant
        for atom, k in form.terms:
            if k < 0:
                return False
            factors = factors_of(atom)
            if not all(self._is_factor(f, alone=len(factors) == 1) for f in factors):
                return False
            if len(factors) == 1 and isinstance(atom, Sym):
                least += k * self.least.get(atom.name, 0)
        return least >= 0

    def _is_factor(self, part: Dim, *, alone: bool) -> bool:
        """Whether a part of a product is surely at least 0: a size, or in a product of several
        what is shown by itself."""
        if isinstance(part, Sym) and self._is_size(part.name):
            return True
        return not alone and self.not_negative(part)

    def _is_size(self, name: str) -> bool:
        return name in self.least

    # --- extents -----------------------------------------------------------------------

    def simplify(self, dim: Dim) -> Dim:
        """A ``min`` or ``max`` without what other parts of it bound."""
        if isinstance(dim, int):
            return dim
        form = form_of(self.resolve(dim))
        atom = form.alone
        if not isinstance(atom, DimOp) or atom.operator not in ("min", "max"):
            return dim_of_form(form)
        sign = 1 if atom.operator == "min" else -1
        items = [form_of(self.simplify(dim_of_form(i))) for i in items_of(atom)]
        kept: list[Form] = []
        for i, item in enumerate(items):
            others = [*kept, *items[i + 1 :]]
            if not any(self._makes_needless(o, item, sign) for o in others):
                kept.append(item)
        return dim_of_form(extreme("min" if sign > 0 else "max", kept))

    def _makes_needless(self, other: Form, item: Form, sign: int) -> bool:
        """Whether ``item`` is never less (in a ``max``: greater) than ``other``."""
        form = add(scale(item, sign), scale(other, sign), -1)
        if self._holds(form, FUEL) or any(self._follows(form, d) for d in self.told):
            return True
        by = other.known
        if sign < 0 or by is None or by <= 0:
            return False
        # A positive multiple of a number is no less than the number.
        return self._divisor(item) % by == 0 and self._holds(add(item, number(-1)), FUEL)

    def clipped(self, start: Dim, stop: Dim, size: Dim, step: int = 1) -> Dim:
        """How many elements ``start:stop:step`` of an axis has."""
        last = form_of(self.resolve(DimOp("min", stop, size)))
        width = dim_of_form(add(last, form_of(self.resolve(start)), -1))
        width = self.simplify(width)
        if not self.not_negative(width):
            width = self.simplify(DimOp("max", 0, width))
        return width if step == 1 else self._rounded(normal(DimOp("ceil_div", width, step)))

    def _rounded(self, dim: Dim) -> Dim:
        """Quotients rounded up without what makes no difference: ``ceil_div(8 * n - e, 8)`` is
        ``n`` where ``e`` is less than 8."""
        atom = form_of(dim).alone
        if isinstance(atom, DimOp) and atom.operator in ("min", "max"):
            items = [form_of(self._rounded(dim_of_form(i))) for i in items_of(atom)]
            return dim_of_form(extreme("min" if atom.operator == "min" else "max", items))
        by = atom.right if isinstance(atom, DimOp) and atom.operator == "ceil_div" else None
        if not isinstance(atom, DimOp) or not isinstance(by, int) or by <= 0:
            return dim
        form = form_of(atom.left)
        most = -(-form.constant // by)
        whole = Form(tuple((x, k // by) for x, k in form.terms if k % by == 0), most)
        rest = add(form, scale(whole, by), -1)
        above = self._holds(add(rest, number(by - 1)), FUEL)
        return dim_of_form(whole) if above and self._holds(scale(rest, -1), FUEL) else dim

    def most(self, dim: Dim) -> int | None:
        """A number it never passes, where its form shows one."""
        form = form_of(self.resolve(dim))
        if form.known is not None:
            return form.known
        atom = form.alone
        if isinstance(atom, DimOp):
            if atom.operator in ("min", "max"):
                found = [self.most(dim_of_form(i)) for i in items_of(atom)]
                known = [f for f in found if f is not None]
                if atom.operator == "max" and len(known) < len(found):
                    return None
                return (min if atom.operator == "min" else max)(known, default=None)
            if atom.operator == "ceil_div" and isinstance(atom.right, int) and atom.right > 0:
                inner = self.most(atom.left)
                return None if inner is None else -(-inner // atom.right)
        if isinstance(atom, Sym):
            return self.bound.get(atom.name)
        return None
