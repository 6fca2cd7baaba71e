"""The shortest way through a recorded call with torch tensors: straight-line Python for one layout.

A shortcut asks torch's guard whether its arguments have the layout, makes the results, writes the
addresses into argument blocks and launches. Its text is put together from fixed pieces and
integers only. Whatever is not as expected is ``MISSED``, and the general way does it. Must not
know the evaluator, or how a layout is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera_backend.runtime.arrays import is_torch
from tessera_backend.runtime.launch_fast_path import direct_stream, guards_work, tensor_guard
from tessera_backend.runtime.recorded_calls import Handle, Tape, to_array
from tessera_backend.runtime.torch_memory import tensor_maker
from tessera_lang.record import dataclass


class Missed:
    """Says that a call is another one than a shortcut is for."""


MISSED = Missed()


@dataclass(frozen=True, slots=True)
class Shortcut:
    """``plain`` is for calls of which the layout is known, ``guarded`` asks first; None where this
    torch has no guard."""

    plain: Callable[..., Any]
    guarded: Callable[..., Any] | None


def shortcut(
    tape: Tape, arguments: Sequence[Any], ordinal: int, stream_of: Callable[[int], Any]
) -> Shortcut:
    """For calls like this one, whose arrays are all torch's. Addresses that are multiples of 16
    here have to be, since code may use it."""
    tensors = [a for a in arguments if is_torch(a.__class__)]
    guard = tensor_guard(tensors) if guards_work() else None
    names: dict[str, Any] = {}
    exec(compile(_source(tape, arguments), "<tessera recorded call>", "exec"), names)  # noqa: S102
    makers = [tensor_maker(wanted.dtype.name, wanted.shape, ordinal) for wanted in tape.made]
    constants = [constant_key(a) for a in arguments if not is_torch(a.__class__)]
    pool: list[Any] = []
    values = (MISSED, constant_key, makers, constants, tape, ordinal, direct_stream() or stream_of,
              pool, handed_back)  # fmt: skip
    plain = names["make"](None, *values)
    return Shortcut(plain, names["make"](guard, *values) if guard is not None else None)


def _source(tape: Tape, arguments: Sequence[Any]) -> str:
    """The text of the function that makes a shortcut."""
    kinds = ["t" if is_torch(a.__class__) else "c" for a in arguments]
    tensors = [i for i, kind in enumerate(kinds) if kind == "t"]
    others = [i for i, kind in enumerate(kinds) if kind == "c"]
    aligned = [root for root, i in enumerate(tensors) if not arguments[i].data_ptr() & 15]
    pointers = " | ".join(f"p{root}" for root in aligned) or "0"
    given = ", ".join(f"a{i}" for i in tensors)
    watched = range(len(tape.watched))
    launches = sum(not isinstance(part, tuple) for part in tape.sequence)
    frame = "".join(f"b{n}, f{n}, " for n in range(launches))
    lines = [
        "def make(check, MISSED, constant_key, makers, constants, tape, ordinal, stream_of,"
        " pool, handed_back):",
        *(f" make{n} = makers[{n}]" for n in range(len(tape.made))),
        *(f" k{n} = constants[{n}]" for n in range(len(others))),
        *(f" flags{n}, quiet{n} = tape.watched[{n}].flags, tape.watched[{n}].quiet"
          for n in watched),
        " zero, space, new, result = tape.zero, tape.space, tape.frames, tape.result",
        f" def call({''.join(f'a{i}=MISSED, ' for i in range(len(kinds)))}*rest):",
        "  if rest: return MISSED",
        "  try:",
        f"   if check is not None and not check({given}): return MISSED",
        *(f"   p{root} = a{i}.data_ptr()" for root, i in enumerate(tensors)),
        "  except (TypeError, AttributeError): return MISSED",  # of what is no tensor
        f"  if ({pointers}) & 15: return MISSED",
        *(f"  if a{i}.__class__ is not k{n}[0] or constant_key(a{i}) != k{n}: return MISSED"
          for n, i in enumerate(others)),
        *(f"  if {low} < p{q} - p{p} < {high}: return MISSED" for p, q, low, high in tape.apart),
        *(f"  if flags{n} != quiet{n}: tape.report_faults()" for n in watched),
        *_memory(tape),
        "  stream = stream_of(ordinal)",
        *([f"  p{tape.roots - 1} = space(stream, {tape.shared})"] if tape.shared else []),
        "  frame = pool.pop() if pool else new()",
        *([f"  {frame} = frame".replace(",  =", ", =")] if frame else []),
        *_steps(tape),
        "  pool.append(frame)",
        f"  return {_result(tape, tensors)}",
        " return call",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _memory(tape: Tape) -> list[str]:
    """Statements that make the arrays of a call; the last may be the call's own."""
    lines: list[str] = []
    for n in range(len(tape.made)):
        root = tape.inputs + n
        lines += [f"  m{n} = make{n}()", f"  p{root} = m{n}.data_ptr()"]
    return lines


def _steps(tape: Tape) -> list[str]:
    """Statements that fill, write addresses and launch, in order."""
    lines: list[str] = []
    launch = 0
    for part in tape.sequence:
        if isinstance(part, tuple):
            root, offset, size = part
            lines.append(f"  zero(p{root} + {offset}, {size}, stream)")
            continue
        for slot, root, offset in tape.places_of(part):
            lines.append(f"  b{launch}[{slot}] = p{root}" + (f" + {offset}" if offset else ""))
        lines.append(f"  f{launch}(stream)")
        launch += 1
    return lines


def _result(tape: Tape, tensors: Sequence[int]) -> str:
    """What the call gives."""
    if tape.whole:
        return f"m{tape.whole - tape.inputs}"
    owners = [*(f"a{i}" for i in tensors), *(f"m{n}" for n in range(len(tape.made)))]
    return f"handed_back(result, ({', '.join(owners)},))" if owners else "result"


def handed_back(result: Any, owners: Sequence[Any]) -> Any:
    """A result whose handles are arrays of the caller's library."""
    if isinstance(result, Handle):
        return to_array(result, owners[result.base])
    if isinstance(result, (tuple, list)):
        items = cast("Sequence[Any]", result)
        return tuple([handed_back(item, owners) for item in items])
    if isinstance(result, dict):
        pairs = cast("dict[Any, Any]", result).items()
        return {key: handed_back(item, owners) for key, item in pairs}
    return result


def constant_key(value: Any) -> tuple[Any, ...]:
    """What tells an argument that is no array from others: 1, 1.0 and True are not the same,
    and the two zeros are not."""
    return (value.__class__, value) if value else (value.__class__, value, repr(value))
