"""The exact remainder of two floats as a function of the module.

``frem`` becomes a library call on one target and a product that rounds on another, so the
long division is written out: integers of the significands, as many bits a step as fit.
"""

from __future__ import annotations

from string import Template

from tessera_backend.llvm.text import ModuleText

_TEXT = Template("""define internal $k @tessera.fmod.$s($k %a, $k %b) nounwind memory(none) {
entry:
  %ab = bitcast $k %a to $i
  %bb = bitcast $k %b to $i
  %am = and $i %ab, $mask
  %bm = and $i %bb, $mask
  %sign = and $i %ab, $top
  %a.bad = icmp uge $i %am, $inf
  %b.nan = icmp ugt $i %bm, $inf
  %b.zero = icmp eq $i %bm, 0
  %bad.1 = or i1 %a.bad, %b.nan
  %bad = or i1 %bad.1, %b.zero
  %small = icmp ult $i %am, %bm
  %keep = or i1 %bad, %small
  br i1 %keep, label %simple, label %divide
simple:
  %product = fmul $k %a, %b
  %invalid = fdiv $k %product, %product
  %short = select i1 %bad, $k %invalid, $k %a
  ret $k %short
divide:
  %ae.raw = lshr $i %am, $stored
  %be.raw = lshr $i %bm, $stored
  %a.sub = icmp eq $i %ae.raw, 0
  %b.sub = icmp eq $i %be.raw, 0
  %ae = select i1 %a.sub, $i 1, $i %ae.raw
  %be = select i1 %b.sub, $i 1, $i %be.raw
  %af = and $i %am, $fraction
  %bf = and $i %bm, $fraction
  %ah = or $i %af, $hidden
  %bh = or $i %bf, $hidden
  %an = select i1 %a.sub, $i %af, $i %ah
  %bn = select i1 %b.sub, $i %bf, $i %bh
  %aw = $widen_a
  %bw = $widen_b
  %first = urem i64 %aw, %bw
  %gap = sub $i %ae, %be
  br label %head
head:
  %rest = phi i64 [ %first, %divide ], [ %next, %step ]
  %left = phi $i [ %gap, %divide ], [ %left.next, %step ]
  %more = icmp ne $i %left, 0
  br i1 %more, label %step, label %done
step:
  %many = icmp ugt $i %left, $room
  %count = select i1 %many, $i $room, $i %left
  %count.wide = $widen_count
  %shifted = shl i64 %rest, %count.wide
  %next = urem i64 %shifted, %bw
  %left.next = sub $i %left, %count
  br label %head
done:
  %zeros = call i64 @llvm.ctlz.i64(i64 %rest, i1 false)
  %free = sub i64 %zeros, $lead
  %be.wide = $widen_exponent
  %room = sub i64 %be.wide, 1
  %fits = icmp ult i64 %free, %room
  %shift = select i1 %fits, i64 %free, i64 %room
  %mantissa = shl i64 %rest, %shift
  %exponent = sub i64 %room, %shift
  %placed = shl i64 %exponent, $stored
  %bits.wide = add i64 %placed, %mantissa
  %none = icmp eq i64 %rest, 0
  %bits.some = select i1 %none, i64 0, i64 %bits.wide
  %bits = $narrow
  %signed = or $i %bits, %sign
  %result = bitcast $i %signed to $k
  ret $k %result
}""")


def add_fmod(module: ModuleText, kind: str) -> str:
    """Puts the function for ``float`` or ``double`` into the module; returns its name.

    As C's ``fmod``: the sign of the dividend, exact; NaN for a zero divisor, an infinite
    dividend or a NaN.
    """
    width, stored = (32, 23) if kind == "float" else (64, 52)
    suffix = "f32" if kind == "float" else "f64"
    hidden = 1 << stored

    def wide(name: str) -> str:
        return f"zext i32 {name} to i64" if width == 32 else f"or i64 {name}, 0"

    text = _TEXT.substitute(
        k=kind, s=suffix, i=f"i{width}", mask=(1 << (width - 1)) - 1, top=-(1 << (width - 1)),
        inf=((1 << (width - 1 - stored)) - 1) << stored, stored=stored, fraction=hidden - 1,
        hidden=hidden, room=63 - stored, lead=63 - stored, widen_a=wide("%an"),
        widen_b=wide("%bn"), widen_count=wide("%count"), widen_exponent=wide("%be"),
        narrow="trunc i64 %bits.some to i32" if width == 32 else "or i64 %bits.some, 0",
    )  # fmt: skip
    module.declare("i64 @llvm.ctlz.i64(i64, i1)")
    module.add_helper(f"tessera.fmod.{suffix}", text)
    return f"@tessera.fmod.{suffix}"
