"""Einstein sums as expressions: ``"ij,jk->ik"`` of ``a`` and ``b`` is ``a @ b``.

Owns how a sum over letters is put together of products, sums, transposes and new axes. Must not
know types, sizes or syntax: what it writes is text over the names of the operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tessera_lang.record import dataclass

NAMES = ("a", "b", "c")
"""What the operands are called in the text."""
MOST_AXES = 8


class BadSubscripts(ValueError):
    """What is wrong with the letters."""


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the sum: its text, and a letter for each of its axes."""

    text: str
    letters: str


def parsed(subscripts: str, count: int) -> tuple[tuple[str, ...], str]:
    """The letters of each of ``count`` operands, and of the result: where no arrow says them,
    those that stand once, in the order of the alphabet."""
    text = subscripts.replace(" ", "")
    if "." in text:
        raise BadSubscripts("`...` stands for no axes here: give each axis a letter")
    left, arrow, right = text.partition("->")
    operands = tuple(left.split(","))
    counts = Counter(left.replace(",", ""))
    result = right if arrow else "".join(sorted(x for x, n in counts.items() if n == 1))
    for letter in (*counts, *result):
        if not (letter.isascii() and letter.isalpha()):
            raise BadSubscripts(f"`{letter}` is no letter")
    if len(operands) != count:
        groups = f"{len(operands)} group{'s' * (len(operands) != 1)} of letters"
        raise BadSubscripts(f"{groups} for {count} operand{'s' * (count != 1)}")
    if any(not letters for letters in operands) and count:
        raise BadSubscripts("each operand has a letter for each of its axes")
    for letter, n in Counter(result).items():
        if n > 1 or letter not in counts:
            why = "stands there twice" if n > 1 else "is of no operand"
            raise BadSubscripts(f"the letter `{letter}` of the result {why}")
    if len(counts) > MOST_AXES:
        raise BadSubscripts(f"at most {MOST_AXES} letters")
    return operands, result


@dataclass(frozen=True, slots=True)
class Rules:
    """``multiplies``: there is a product of matrices of the dtype, else products are summed.
    ``first``: of what is no sum and no product yet, as that of i8, which gives i32.
    ``factor``: what elements are converted to before they are multiplied one by one ("": as they
    are). ``precision``: of products of matrices, as an argument ("": none)."""

    multiplies: bool = True
    first: bool = False
    factor: str = ""
    precision: str = ""


def expression(operands: Sequence[str], result: str, rules: Rules) -> str:
    """The sum as text over ``NAMES``."""
    terms = [_diagonals(Term(n, x)) for n, x in zip(NAMES, operands, strict=False)]
    while len(terms) > 1:
        i, j = _next_pair(terms, result)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        kept = set(result).union(*(t.letters for t in rest))
        alone_a = kept.union(terms[j].letters)
        alone_b = kept.union(terms[i].letters)
        joined = _joined(_summed(terms[i], alone_a), _summed(terms[j], alone_b), kept, rules)
        terms = [joined, *rest]
    (found,) = terms
    return _ordered(_summed(found, set(result)), result).text


def _next_pair(terms: Sequence[Term], result: str) -> tuple[int, int]:
    """The two whose product has the fewest axes when its sums are taken."""

    def left(pair: tuple[int, int]) -> int:
        kept = set(result).union(*(t.letters for k, t in enumerate(terms) if k not in pair))
        return len(kept.intersection(terms[pair[0]].letters + terms[pair[1]].letters))

    pairs = [(i, j) for i in range(len(terms)) for j in range(i + 1, len(terms))]
    return min(pairs, key=left)


def _diagonals(term: Term) -> Term:
    """A letter that stands twice: what stands where both axes have the same place, as the sum of
    a line of which nothing else is left."""
    for letter, n in Counter(term.letters).items():
        for _ in range(n - 1):
            first = term.letters.index(letter)
            second = term.letters.index(letter, first + 1)
            rest = [i for i in range(len(term.letters)) if i not in (first, second)]
            moved = _transposed(term, [*rest, first, second])
            text = f"op.sum(op.tril(op.triu({moved.text})), axis=-1)"
            term = Term(text, moved.letters[:-1])
    return term


def _summed(term: Term, kept: set[str]) -> Term:
    """Without the axes that nothing else needs."""
    axes = [i for i, x in enumerate(term.letters) if x not in kept]
    if not axes:
        return term
    if len(axes) == len(term.letters):
        return Term(f"op.sum({term.text})", "")
    shown = str(axes[0]) if len(axes) == 1 else str(tuple(axes))
    left = "".join(x for x in term.letters if x in kept)
    return Term(f"op.sum({term.text}, axis={shown})", left)


def _transposed(term: Term, order: Sequence[int]) -> Term:
    letters = "".join(term.letters[i] for i in order)
    rank = len(order)
    if list(order) == list(range(rank)):
        return term
    if list(order) == [*range(rank - 2), rank - 1, rank - 2]:
        return Term(f"{_grouped(term.text)}.mT", letters)
    return Term(f"op.transpose({term.text}, {tuple(order)})", letters)


def _ordered(term: Term, letters: str) -> Term:
    return _transposed(term, [term.letters.index(x) for x in letters])


def _grouped(text: str) -> str:
    """Safe in front of a dot or a bracket."""
    return text if text in NAMES else f"({text})"


def _with_ones(term: Term, letters: str) -> Term:
    """The axes in the order of ``letters``, with axes of one element for those that it lacks."""
    own = _ordered(term, "".join(x for x in letters if x in term.letters))
    if own.letters == letters or not own.letters:
        return own
    shown = ", ".join(":" if x in own.letters else "None" for x in letters)
    return Term(f"{_grouped(own.text)}[{shown}]", letters)


def _joined(a: Term, b: Term, kept: set[str], rules: Rules) -> Term:
    """The product of two terms, summed over the letters that both have and nothing else needs."""
    both = [x for x in a.letters if x in b.letters]
    sums = [x for x in both if x not in kept]
    batch = "".join(x for x in both if x in kept)
    of_a = "".join(x for x in a.letters if x not in b.letters)
    of_b = "".join(x for x in b.letters if x not in a.letters)
    vectors = not batch and len(sums) == 1 and (len(a.letters) == 1 or len(b.letters) == 1)
    fresh = not rules.first or not any(x in t.text for t in (a, b) for x in ("sum", "@", "*"))
    if sums and rules.multiplies and fresh and (vectors or (of_a and of_b)):
        return _product(a, b, batch, sums, of_a, of_b, rules)
    letters = batch + of_a + of_b + "".join(sums)
    if not letters:
        return Term(f"{_factor(a, rules)} * {_factor(b, rules)}", "")
    x, y = _with_ones(a, letters), _with_ones(b, letters)
    made = Term(f"{_factor(x, rules)} * {_factor(y, rules)}", letters)
    return _summed(made, set(letters) - set(sums))


def _factor(term: Term, rules: Rules) -> str:
    return f"op.cast({term.text}, {rules.factor})" if rules.factor else _grouped(term.text)


def _product(
    a: Term, b: Term, batch: str, sums: Sequence[str], of_a: str, of_b: str, rules: Rules
) -> Term:  # fmt: skip
    """A product of matrices along the last of the sums; the other sums, and all but the last of
    the free axes, are stacks of them."""
    k, more = sums[-1], "".join(sums[:-1])
    if not of_a and not of_b:
        return Term(_times(a.text, b.text, rules), "")
    if not of_a or not of_b:  # a vector, with one or more matrices
        if len(a.letters) == 1:
            matrix = _ordered(b, of_b[:-1] + k + of_b[-1])
            return Term(_times(a.text, matrix.text, rules), of_b)
        matrix = _ordered(a, of_a + k)
        return Term(_times(matrix.text, b.text, rules), of_a)
    stack = batch + more + of_a[:-1] + of_b[:-1]
    if stack == of_a[:-1]:  # of one matrix on the right the stacks of the left
        x, y = _ordered(a, of_a + k), _ordered(b, k + of_b)
    else:
        x, y = _with_ones(a, stack + of_a[-1] + k), _with_ones(b, stack + k + of_b[-1])
    made = Term(_times(x.text, y.text, rules), stack + of_a[-1] + of_b[-1])
    return _summed(made, set(made.letters) - set(more))


def _times(a: str, b: str, rules: Rules) -> str:
    if rules.precision:
        return f"op.matmul({a}, {b}, precision={rules.precision})"
    return f"({a}) @ ({b})"
