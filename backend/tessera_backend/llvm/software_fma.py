"""A fused multiply-add of f64 in integers, for processors that have none.

The product of two mantissas and the addend are aligned in 128 bits, with all that is shifted out
gathered in the lowest bit, and rounded once: to nearest, ties to even. Must not know a target.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter

NAME = "@tessera.fma.f64"

# Mantissas are in [2^52, 2^53), also those of subnormals; the product is moved up by 20 bits, so
# that it and the addend have their highest bit at 124 or 125 wherever both count.
_TEXT = f"""\
define internal double {NAME}(double %x, double %y, double %z) noinline {{
entry:
  %xb = bitcast double %x to i64
  %yb = bitcast double %y to i64
  %zb = bitcast double %z to i64
  %xs = lshr i64 %xb, 52
  %ys = lshr i64 %yb, 52
  %zs = lshr i64 %zb, 52
  %xe = and i64 %xs, 2047
  %ye = and i64 %ys, 2047
  %ze = and i64 %zs, 2047
  %xm = and i64 %xb, 4503599627370495
  %ym = and i64 %yb, 4503599627370495
  %zm = and i64 %zb, 4503599627370495
  %x.odd = icmp eq i64 %xe, 2047
  %y.odd = icmp eq i64 %ye, 2047
  %x.nil = fcmp oeq double %x, 0.0
  %y.nil = fcmp oeq double %y, 0.0
  %odd = or i1 %x.odd, %y.odd
  %nil = or i1 %x.nil, %y.nil
  %plain = or i1 %odd, %nil
  br i1 %plain, label %simple, label %finite
simple:
  %p = fmul double %x, %y
  %s = fadd double %p, %z
  ret double %s
finite:
  %z.odd = icmp eq i64 %ze, 2047
  br i1 %z.odd, label %addend, label %factors
addend:
  %quiet = fadd double %z, %z
  ret double %quiet
factors:
  %z.nil = fcmp oeq double %z, 0.0
  br i1 %z.nil, label %product, label %both
product:
  %only = fmul double %x, %y
  ret double %only
both:
  %x.sub = icmp eq i64 %xe, 0
  %y.sub = icmp eq i64 %ye, 0
  %z.sub = icmp eq i64 %ze, 0
  %x.full = or i64 %xm, 4503599627370496
  %y.full = or i64 %ym, 4503599627370496
  %z.full = or i64 %zm, 4503599627370496
  %xm1 = select i1 %x.sub, i64 %xm, i64 %x.full
  %ym1 = select i1 %y.sub, i64 %ym, i64 %y.full
  %zm1 = select i1 %z.sub, i64 %zm, i64 %z.full
  %xe1 = select i1 %x.sub, i64 1, i64 %xe
  %ye1 = select i1 %y.sub, i64 1, i64 %ye
  %ze1 = select i1 %z.sub, i64 1, i64 %ze
  %xz = call i64 @llvm.ctlz.i64(i64 %xm1, i1 false)
  %yz = call i64 @llvm.ctlz.i64(i64 %ym1, i1 false)
  %zz = call i64 @llvm.ctlz.i64(i64 %zm1, i1 false)
  %xn = sub i64 %xz, 11
  %yn = sub i64 %yz, 11
  %zn = sub i64 %zz, 11
  %mx = shl i64 %xm1, %xn
  %my = shl i64 %ym1, %yn
  %mz = shl i64 %zm1, %zn
  %xe2 = sub i64 %xe1, %xn
  %ye2 = sub i64 %ye1, %yn
  %ze2 = sub i64 %ze1, %zn
  %xw = zext i64 %mx to i128
  %yw = zext i64 %my to i128
  %zw = zext i64 %mz to i128
  %pw = mul i128 %xw, %yw
  %up = shl i128 %pw, 20
  %pe0 = add i64 %xe2, %ye2
  %pe = sub i64 %pe0, 2170
  %zx = sub i64 %ze2, 1075
  %d = sub i64 %zx, %pe
  %far = icmp sgt i64 %d, 72
  %less = icmp slt i64 %d, 0
  %left0 = select i1 %less, i64 0, i64 %d
  %left = select i1 %far, i64 72, i64 %left0
  %down0 = sub i64 0, %d
  %down1 = select i1 %less, i64 %down0, i64 0
  %down.more = icmp sgt i64 %down1, 127
  %down = select i1 %down.more, i64 127, i64 %down1
  %over0 = sub i64 %d, 72
  %over1 = select i1 %far, i64 %over0, i64 0
  %over.more = icmp sgt i64 %over1, 127
  %over = select i1 %over.more, i64 127, i64 %over1
  %left.w = zext i64 %left to i128
  %down.w = zext i64 %down to i128
  %over.w = zext i64 %over to i128
  %z.up = shl i128 %zw, %left.w
  %z.at = lshr i128 %z.up, %down.w
  %z.back = shl i128 %z.at, %down.w
  %z.lost = icmp ne i128 %z.back, %z.up
  %z.bit = zext i1 %z.lost to i128
  %za = or i128 %z.at, %z.bit
  %p.at = lshr i128 %up, %over.w
  %p.back = shl i128 %p.at, %over.w
  %p.lost = icmp ne i128 %p.back, %up
  %p.bit = zext i1 %p.lost to i128
  %pa = or i128 %p.at, %p.bit
  %e = add i64 %pe, %over1
  %sp0 = xor i64 %xb, %yb
  %sp = and i64 %sp0, -9223372036854775808
  %sz = and i64 %zb, -9223372036854775808
  %same = icmp eq i64 %sp, %sz
  %sum = add i128 %pa, %za
  %bigger = icmp uge i128 %pa, %za
  %d1 = sub i128 %pa, %za
  %d2 = sub i128 %za, %pa
  %diff = select i1 %bigger, i128 %d1, i128 %d2
  %m = select i1 %same, i128 %sum, i128 %diff
  %sd = select i1 %bigger, i64 %sp, i64 %sz
  %sign = select i1 %same, i64 %sp, i64 %sd
  %none = icmp eq i128 %m, 0
  br i1 %none, label %zero, label %round
zero:
  ret double 0.0
round:
  %lz = call i128 @llvm.ctlz.i128(i128 %m, i1 false)
  %lz64 = trunc i128 %lz to i64
  %r0 = sub i64 75, %lz64
  %least = sub i64 -1074, %e
  %deep = icmp sgt i64 %least, %r0
  %r1 = select i1 %deep, i64 %least, i64 %r0
  %lift = icmp slt i64 %r1, 0
  %r.neg = sub i64 0, %r1
  %raise = select i1 %lift, i64 %r.neg, i64 0
  %r2 = select i1 %lift, i64 0, i64 %r1
  %r.more = icmp sgt i64 %r2, 127
  %r = select i1 %r.more, i64 127, i64 %r2
  %raise.w = zext i64 %raise to i128
  %r.w = zext i64 %r to i128
  %m.up = shl i128 %m, %raise.w
  %q = lshr i128 %m.up, %r.w
  %q.back = shl i128 %q, %r.w
  %rest = sub i128 %m.up, %q.back
  %twice = shl i128 %rest, 1
  %one = shl i128 1, %r.w
  %above = icmp ugt i128 %twice, %one
  %tie = icmp eq i128 %twice, %one
  %q.odd0 = trunc i128 %q to i1
  %tie.up = and i1 %tie, %q.odd0
  %up.one = or i1 %above, %tie.up
  %some = icmp ne i64 %r, 0
  %tiny = xor i1 %r.more, true
  %some.near = and i1 %some, %tiny
  %up.now = and i1 %up.one, %some.near
  %add = zext i1 %up.now to i128
  %q1 = add i128 %q, %add
  %q64 = trunc i128 %q1 to i64
  %at = add i64 %e, %r1
  %field = add i64 %at, 1074
  %high = shl i64 %field, 52
  %bits = add i64 %high, %q64
  %full0 = icmp sgt i64 %field, 2045
  %full1 = icmp uge i64 %bits, 9218868437227405312
  %full = or i1 %full0, %full1
  %kept = select i1 %full, i64 9218868437227405312, i64 %bits
  %signed = or i64 %kept, %sign
  %result = bitcast i64 %signed to double
  ret double %result
}}"""


def fma(e: LaneEmitter, x: str, y: str, z: str) -> str:
    """``x * y + z`` of f64, rounded once."""
    e.module.declare("i64 @llvm.ctlz.i64(i64, i1)")
    e.module.declare("i128 @llvm.ctlz.i128(i128, i1)")
    e.module.add_helper(NAME, _TEXT)
    return e.f.value(f"call double {NAME}(double {x}, double {y}, double {z})")
