"""Lines that lanes print: each lane writes its values to the launch's buffer.

``PRINT_WORDS`` in ``target/launch_plan.py`` says how the buffer lies; its address is the value of
the ``print`` slot. A lane takes the words of its line by one atomic addition, so the lines of one
lane lie in the order in which it printed them. What finds no room is counted.
"""

from __future__ import annotations

from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.types import bits_type
from tessera_lang.ir.core import Operation, Value
from tessera_lang.target.launch_plan import PRINT_WORDS

HEAD = 2


def _print(e: LaneEmitter, op: Operation) -> None:
    f = e.f
    pointer = e.dialect.pointer_type("global")
    scope = e.dialect.syncscope("device")
    buffer = f.value(f"inttoptr i64 {e.prints} to {pointer}")
    values = [_word(e, v) for v in op.operands]
    fields = [str(_number(op) + 1), e.dialect.group_linear(e), e.dialect.lane_linear(e), *values]
    taken = f.value(
        f"atomicrmw add {pointer} {buffer}, i64 {len(fields)} {scope}monotonic, align 8"
    )
    last = PRINT_WORDS - HEAD - len(fields)
    fits = f.value(f"icmp ule i64 {taken}, {last}")
    write, full, done = f.label("print"), f.label("print.full"), f.label("print.done")
    f.branch_if(fits, write, full)
    f.place(full)
    lost = f.value(f"getelementptr inbounds i64, {pointer} {buffer}, i64 1")
    f.line(f"atomicrmw add {pointer} {lost}, i64 1 {scope}monotonic, align 8")
    f.branch(done)
    f.place(write)
    first = f.value(f"getelementptr inbounds i64, {pointer} {buffer}, i64 {taken}")
    for number, field in enumerate(fields, HEAD):
        address = f.value(f"getelementptr inbounds i64, {pointer} {first}, i64 {number}")
        f.line(f"store i64 {field}, {pointer} {address}, align 8")
    f.branch(done)
    f.place(done)


def _number(op: Operation) -> int:
    text = op.attributes["text"]
    if not isinstance(text, int):
        raise TypeError("the number of a line is an integer")
    return text


def _word(e: LaneEmitter, value: Value) -> str:
    """The bits of a number in a word."""
    dtype = scalar_type(value)
    bits, kind = small_floats.as_bits(e, e.operand(value), dtype), bits_type(dtype)
    return bits if kind == "i64" else e.f.value(f"zext {kind} {bits} to i64")


RULES: dict[str, Rule] = {"tile.print": _print}
