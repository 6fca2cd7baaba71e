"""What lanes print: the buffer they write to, and its lines as text.

Lines are shown when the launch has ended, by group, then lane, and those of one lane in the order
in which it printed them: the same on every target. A launch that prints more than the buffer holds
loses lines; how many is said. Must not know how lanes write (``llvm/printing.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_lang.target.launch_plan import PRINT_WORDS, LaunchPlan, PrintText

_HEAD = 2  # words in front of the lines
_LINE = 3  # words of a line in front of its values

Line = tuple[int, int, str]
"""Group, lane and text."""


def show(plan: LaunchPlan, words: memoryview) -> None:
    """Write the lines of a launch that has ended to the standard output and empty the buffer."""
    taken, lost = words[0], words[1]
    if not taken:
        return
    lines = list(_lines(plan, words))
    used = min(_HEAD + taken, PRINT_WORDS)
    words[:used] = memoryview(bytes(8 * used)).cast("q")
    show_lines(lines)
    if lost:
        sys.stdout.write(
            f"[{lost} more lines of `{plan.kernel}` found no room: it printed too much]\n"
        )


def show_lines(lines: Iterable[Line]) -> None:
    """By group and lane, those of one lane in their order."""
    ordered = sorted(lines, key=lambda line: line[:2])
    sys.stdout.write("".join(text for _, _, text in ordered))


def _lines(plan: LaunchPlan, words: memoryview) -> Iterator[Line]:
    at, end = _HEAD, min(_HEAD + words[0], PRINT_WORDS)
    while at < end and (number := words[at]):
        line = plan.prints[number - 1]
        values = words[at + _LINE : at + _LINE + len(line.dtypes)].tolist()
        yield words[at + 1], words[at + 2], line_text(line, values)
        at += _LINE + len(values)


def line_text(line: PrintText, values: list[int]) -> str:
    """A line with its values, as the words that hold their bits."""
    shown = [
        _shown(value, dtype, form)
        for value, dtype, form in zip(values, line.dtypes, line.formats, strict=True)
    ]
    return line.pieces[0] + "".join(
        value + piece for value, piece in zip(shown, line.pieces[1:], strict=True)
    )


def _shown(word: int, dtype: str, form: str) -> str:
    """A number as Python shows one: a short text that gives it back, and a float looks like one."""
    kind = TO_NUMPY[dtype]
    raw = (word & ((1 << 64) - 1)).to_bytes(8, "little")
    value = np.frombuffer(raw[: kind.itemsize], kind)[0]
    if form:
        return format(float(value) if kind.kind == "V" else value.item(), form)
    text = str(value)
    return f"{text}.0" if dtype.startswith(("f", "bf")) and text.lstrip("-").isdigit() else text


def printing(
    plan: LaunchPlan, words: memoryview, fire: Callable[[int], None], wait: Callable[[], None]
) -> Callable[[int], None]:
    """``fire``, then the wait for its end, then the lines; also where the launch fails."""

    def fire_and_show(stream: int) -> None:
        try:
            fire(stream)
            wait()
        finally:
            show(plan, words)

    return fire_and_show
