"""The shortest way through a call with torch tensors or NumPy arrays: straight-line Python.

A call finds the prepared launch for its layout (class, shape, strides, dtype and device of
each array, type of each number), compares the address ranges of written arguments, writes
the addresses and launches. The layout of the call before is asked about first: torch's own
guard answers for all tensors in one call. Otherwise a key of all these facts is looked up.
Whatever is not as expected goes to the general way, which checks everything and says what is
wrong.

The text is put together from fixed pieces and small integers only, never from names or
texts of a program, and compiled once per pattern of arguments. Straight-line code takes
half the time of a loop over the arguments, and the launch of a small kernel is as long as
this code. Must not know how a layout is checked.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera_backend.runtime.arrays import HOST, ArrayView, is_numpy, is_torch, torch_stream
from tessera_backend.runtime.caller_errors import show_to_caller
from tessera_backend.runtime.launch import Prepared
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.results import maker_beside
from tessera_backend.runtime.torch_memory import tensor_maker
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass

ARRAYS = "tn"
OFTEN = 8
"""Calls of a layout after which machine code is asked for: it has to be loaded once."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Kind of each argument (``t`` torch, ``n`` NumPy, ``s`` a number), which are written,
    whether layouts come with a guard, and how many slots of the block each argument fills, then
    each of the results, which are of kind ``made``."""

    kinds: str
    written: tuple[int, ...]
    guarded: bool
    slots: tuple[int, ...]
    made: str = ""


class Missing:
    """Stands for an argument that was not given."""


MISSING = Missing()


def pattern_of(raw: Sequence[Any], values: Sequence[Any], prepared: Prepared) -> Pattern | None:
    """The pattern of a call; None where it has no short way."""
    kinds = ""
    for a, value in zip(raw, values, strict=True):
        if not isinstance(value, ArrayView):
            kinds += "s"
        elif is_torch(a.__class__):
            kinds += "t"
        elif is_numpy(a.__class__):
            kinds += "n"
        else:
            return None
    arrays = [kind for kind in kinds if kind in ARRAYS]
    slots = tuple(len(s) for s in _slots(prepared, len(kinds)))
    if not arrays or not all(slots[: len(kinds)]):
        return None
    written = tuple(i for i, p in enumerate(prepared.plan.parameters) if p.mut)
    guarded = "n" not in kinds and guards_work()
    return Pattern(kinds, written, guarded, slots, arrays[0] if prepared.results else "")


def _slots(prepared: Prepared, count: int) -> list[list[int]]:
    """The slots that each argument fills, then each result."""
    slots: list[list[int]] = [[] for _ in range(count + len(prepared.results))]
    for i, at in prepared.slots:
        slots[i].append(at)
    for at, i, _ in prepared.encoders:
        slots[i].append(at)
    return slots


# --- the text ------------------------------------------------------------------------------


def _pointer(i: int, kind: str) -> str:
    if kind == "t":
        return f"p{i} = a{i}.data_ptr()"
    # The flag first: what is no array has none, and its memory must not be read.
    return f"r{i} = a{i}.flags.writeable; p{i} = data_of(a{i})"


def _key(kinds: str) -> str:
    parts: list[str] = []
    for i, kind in enumerate(kinds):
        parts.append(f"a{i}.__class__")
        if kind == "t":
            parts += [f"a{i}.shape", f"a{i}.stride()", f"a{i}.dtype", f"a{i}.get_device()",
                      f"a{i}.is_neg()"]  # fmt: skip
        elif kind == "n":
            parts += [f"a{i}.shape", f"a{i}.strides", f"a{i}.dtype", f"r{i}"]
    return f"({', '.join(parts)}, not ({_all_pointers(kinds)}) & 15)"


def key_of(kinds: str, arguments: Sequence[Any]) -> tuple[object, ...]:
    """The key that the made function looks up."""
    parts: list[object] = []
    pointers = 0
    for kind, a in zip(kinds, arguments, strict=True):
        parts.append(a.__class__)
        if kind == "t":
            parts += [a.shape, a.stride(), a.dtype, a.get_device(), a.is_neg()]
            pointers |= a.data_ptr()
        elif kind == "n":
            parts += [a.shape, a.strides, a.dtype, a.flags.writeable]
            pointers |= a.__array_interface__["data"][0]
    return (*parts, not pointers & 15)


def _all_pointers(kinds: str) -> str:
    return " | ".join(f"p{i}" for i, kind in enumerate(kinds) if kind in ARRAYS)


def _pairs(pattern: Pattern) -> list[tuple[int, int]]:
    """(written array, other array), each pair once."""
    kinds, written = pattern.kinds, pattern.written
    return [
        (i, j)
        for i in written
        for j, kind in enumerate(kinds)
        if kind in ARRAYS and j != i and not (j in written and j < i)
    ]


def _crossed(pattern: Pattern) -> str:
    """Whether the address range of a written array meets another's, by the distance of the
    two addresses."""
    return " or ".join(f"n{n} < p{j} - p{i} < m{n}" for n, (i, j) in enumerate(_pairs(pattern)))


def _misplaced(kinds: str) -> str:
    """Whether an address is no multiple of its elements' size."""
    return " or ".join(f"p{i} & w{i}" for i, kind in enumerate(kinds) if kind in ARRAYS)


def _counting(pattern: Pattern) -> list[str]:
    """Statements that have a layout which comes again and again answered by machine code."""
    if "t" in pattern.kinds:
        return []
    given = ", ".join(f"a{i}" for i in range(len(pattern.kinds)))
    return [
        "hits[0] += 1",
        "if not hits[0] & hits[0] - 1 and hits[0] >= OFTEN:",
        f" self._answer_natively(({given},), hits[1])",
    ]


def _fields(pattern: Pattern) -> list[str]:
    """Names of what an entry holds behind its guard, in the order of ``entry_of``."""
    kinds, pairs = pattern.kinds, range(len(_pairs(pattern)))
    return [
        "aligned", "device", "stream_of", "flags", "quiet", "pool", "new", "hits",
        *(f"w{i}" for i, kind in enumerate(kinds) if kind in ARRAYS),
        *(name for i in range(len(pattern.slots)) for name in _places(pattern, i)),
        *(f"{c}{n}" for n in pairs for c in "nm"),
        *(f"e{i}" for i, kind in enumerate(kinds) if kind == "s"),
        *(f"make{i}" for i in _results(pattern)),
    ]  # fmt: skip


def _places(pattern: Pattern, i: int) -> list[str]:
    """Names of the slots of an argument or result."""
    return [f"s{i}_{n}" for n in range(pattern.slots[i])]


def _results(pattern: Pattern) -> range:
    return range(len(pattern.kinds), len(pattern.slots))


def _filling(pattern: Pattern) -> list[str]:
    """Statements that write the block."""
    words: list[str] = []
    values = ["p" if kind in ARRAYS else "e" for kind in pattern.kinds]
    for i, letter in enumerate(values):
        value = f"p{i}" if letter == "p" else f"e{i}(a{i})"
        words += [f"block[{place}] = {value}" for place in _places(pattern, i)]
    for i in _results(pattern):
        value = f"a{i}.data_ptr()" if pattern.made == "t" else f"data_of(a{i})"
        words += [f"block[{place}] = {value}" for place in _places(pattern, i)]
    return words


def _handed_back(pattern: Pattern) -> str:
    results = _results(pattern)
    if not results:
        return "return"
    names = ", ".join(f"a{i}" for i in results)
    return f"return {names}"


def _lookup(pattern: Pattern) -> list[str]:
    """Statements that give ``entry``."""
    if not pattern.guarded:
        return [f"entry = memo[{_key(pattern.kinds)}]"]
    tensors = ", ".join(f"a{i}" for i, kind in enumerate(pattern.kinds) if kind == "t")
    numbers = [i for i, kind in enumerate(pattern.kinds) if kind == "s"]
    same = "".join(f" and a{i}.__class__ is entry[0][{1 + n}]" for n, i in enumerate(numbers))
    return [
        "entry = recent[0]",
        f"if not (entry[0][0]({tensors}){same} "
        f"and entry[1] is (not ({_all_pointers(pattern.kinds)}) & 15)):",
        f" recent[0] = entry = memo[{_key(pattern.kinds)}]",
    ]


def _source(pattern: Pattern) -> str:
    """The text of the function for a pattern."""
    kinds = pattern.kinds
    given = ", ".join(f"a{i}" for i in range(len(kinds)))
    parameters = "".join(f"a{i}=MISSING, " for i in range(len(kinds)))
    crossed = _crossed(pattern)
    lines = [
        "def make(memo, recent, general, MISSING):",
        f" def call(self, {parameters}*rest, **named):",
        "  try:",
        "   if rest or named:",
        f"    return general({given}, *rest, **named)",
        "   try:",
        *(f"    {_pointer(i, k)}" for i, k in enumerate(kinds) if k in ARRAYS),
        *(f"    {line}" for line in _lookup(pattern)),
        "   except Exception:",
        "    pass",  # what general() raises must not carry this one along
        "   else:",
        f"    _, {', '.join(_fields(pattern))} = entry",
        f"    if not ({crossed + ' or ' if crossed else ''}flags != quiet or {_misplaced(kinds)}):",
        *(f"     {line}" for line in _counting(pattern)),
        *(f"     a{i} = make{i}()" for i in _results(pattern)),
        "     frame = pool.pop() if pool else new()",
        "     block, fire = frame",
        *(f"     {line}" for line in _filling(pattern)),
        "     fire(stream_of(device))",
        "     pool.append(frame)",
        f"     {_handed_back(pattern)}",
        f"   return general({given})",
        "  except TesseraError as failure:",
        "   show_to_caller(failure)",
        "   raise",
        " return call",
    ]
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=256)
def _maker(pattern: Pattern) -> Callable[..., Callable[..., Any]]:
    names: dict[str, Any] = {
        "data_of": address_function(),
        "TesseraError": TesseraError,
        "show_to_caller": show_to_caller,
        "OFTEN": OFTEN,
    }
    exec(compile(_source(pattern), "<tessera launch>", "exec"), names)
    maker: Callable[..., Callable[..., Any]] = names["make"]
    return maker


def make_call(
    pattern: Pattern, memo: dict[Any, Any], first: object, general: Callable[..., Any]
) -> Callable[..., Any]:
    """The function for a pattern: ``call(self, *arguments)``, with ``general`` behind it.

    ``memo`` holds entries by key; ``first`` is the entry to begin with.
    """
    return _maker(pattern)(memo, [first], general, MISSING)


# --- entries -------------------------------------------------------------------------------


def direct_stream() -> Callable[[int], int] | None:
    """torch's own function, with no step of ours in between, where it has CUDA."""
    raw = getattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_getCurrentRawStream", None)
    return cast("Callable[[int], int]", raw) if callable(raw) else None


def stream_function(device: int, stream: int | None) -> Callable[[int], int | None]:
    """What gives the stream of each launch. ``stream`` None takes torch's current one."""
    if device == HOST:
        return lambda _: 0
    if stream is not None:
        return lambda _: stream
    return direct_stream() or torch_stream


def entry_of(
    pattern: Pattern, prepared: Prepared, raw: Sequence[Any], values: Sequence[Any],
    stream: int | None,
) -> tuple[object, ...]:  # fmt: skip
    """What the made function unpacks."""
    kinds = pattern.kinds
    slots = _slots(prepared, len(kinds))
    encoders = {i: encode for _, i, encode in prepared.encoders}
    pointers = 0
    for v in values:
        pointers |= v.pointer if isinstance(v, ArrayView) else 0
    classes = [a.__class__ for a, kind in zip(raw, kinds, strict=True) if kind == "s"]
    guard = tensor_guard([a for a, k in zip(raw, kinds, strict=True) if k == "t"])
    if pattern.guarded and guard is None:
        guard = _never
    device = prepared.code.device
    return (
        (guard, *classes), not pointers & 15, device, stream_function(device, stream),
        prepared.flags, prepared.quiet, prepared.pool, prepared.frame, [0, prepared],
        *(v.dtype.bytes - 1 for v in values if isinstance(v, ArrayView)),
        *(at for places in slots for at in places),
        *_distances(pattern, values),
        *(encoders[i] for i, kind in enumerate(kinds) if kind == "s"),
        *_makers(prepared, next(v for v in values if isinstance(v, ArrayView))),
    )  # fmt: skip


def _makers(prepared: Prepared, beside: ArrayView) -> list[Callable[[], Any]]:
    """What allocates each result."""
    device = prepared.code.device
    if is_torch(beside.owner.__class__):
        return [tensor_maker(dtype.name, shape, device) for dtype, shape in prepared.results]
    return [
        functools.partial(maker_beside(beside.owner, dtype, device, 0), shape)
        for dtype, shape in prepared.results
    ]


def _distances(pattern: Pattern, values: Sequence[Any]) -> list[int]:
    """For each pair the distances of the addresses between which the ranges meet."""
    found: list[int] = []
    for i, j in _pairs(pattern):
        (i_low, i_high), (j_low, j_high) = values[i].extent(), values[j].extent()
        found += [i_low - j_high, i_high - j_low]
    return found


# --- torch's guards ------------------------------------------------------------------------


def _never(*_: object) -> bool:
    return False


def tensor_guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """A function that says whether tensors have the layout of these: class, dtype, device,
    shape, strides, lazy views. None where this torch has none that we know."""
    kind = _guard_class()
    if kind is None or not tensors:
        return None
    try:
        check: Callable[..., bool] = kind(
            *tensors,
            dynamic_dims_sizes=[list(t.shape) for t in tensors],
            dynamic_dims_strides=[list(t.stride()) for t in tensors],
        ).check
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return check


def _guard_class() -> Callable[..., Any] | None:
    found: Any = sys.modules.get("torch")
    for name in ("_C", "_dynamo", "guards", "TensorGuards"):
        found = getattr(found, name, None)
    return cast("Callable[..., Any] | None", found)


def guards_work() -> bool:
    """Whether this torch has a guard that tells layouts apart."""
    return _tried_guards(id(sys.modules.get("torch")))


@functools.lru_cache(maxsize=4)
def _tried_guards(torch_identity: int) -> bool:
    """The guard is no public interface: use it only where it tells layouts apart."""
    torch: Any = sys.modules.get("torch")
    try:
        x = torch.empty((2, 3))
        check = tensor_guard([x])
        if check is None:
            return False
        resized = torch.empty((2, 3))
        before = check(resized)
        resized.resize_((3, 2))
        others = [
            resized, torch.empty((2, 4)), torch.empty((3, 2)).t(), torch.empty((2, 3, 1)),
            torch.empty((2, 3), dtype=torch.float64), torch.empty((2, 3), dtype=torch.int32),
            torch.empty((2, 3), device="meta"),
            torch.empty((2, 3), dtype=torch.complex64).conj().imag,
        ]  # fmt: skip
        return before is True and check(x) is True and not any(check(other) for other in others)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return False
