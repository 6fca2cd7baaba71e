"""Programs around attention: latent, windowed, paged, grouped heads, linear, chunked scans."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Numbers, Program, of, rows_softmax

LATENT = Program(
    "latent attention", 3, """
@op.kernel
def kernel(qc: bf16[m, 128], qr: bf16[m, 64], c: bf16[t, 128], kr: bf16[t, 64],
           o: mut bf16[m, 128]):
    for i in op.tile_range(m, step=64):
        content = qc[i:i+64, :]
        place = qr[i:i+64, :]
        best = op.full((64,), -inf, f32)
        norm = op.zeros((64,), f32)
        out = op.zeros((64, 128), f32)
        for j in op.tile_range(t, step=64):
            latent = c[j:j+64, :]
            s = (content @ latent.T + place @ kr[j:j+64, :].T).to(f32) * 0.0721687836
            now = max(best, op.max(s, axis=1))
            w = exp(s - now[:, None])
            old = exp(best - now)
            norm = norm * old + op.sum(w, axis=1)
            out = out * old[:, None] + w.to(bf16) @ latent
            best = now
        o[i:i+64, :] = (out / norm[:, None]).to(bf16)
""",
    of(qc=("bf16", "m 128"), qr=("bf16", "m 64"), c=("bf16", "t 128"), kr=("bf16", "t 64"),
         o=("bf16", "m 128")),
    lambda a: of(o=rows_softmax((a["qc"] @ a["c"].T + a["qr"] @ a["kr"].T) * 0.0721687836)
                   @ a["c"]),
    of(m=100, t=130), of(m=2048, t=2048),
)  # fmt: skip


def _windowed(a: Numbers) -> Numbers:
    m = len(a["q"])
    rows, columns = np.arange(m)[:, None], np.arange(m)[None, :]
    s = a["q"] @ a["k"].T * 0.125
    s = np.where((columns <= rows) & (columns > rows - 100), s, -np.inf)
    return of(o=rows_softmax(s) @ a["v"])


WINDOWED = Program(
    "sliding window attention", 2, """
@op.kernel
def kernel(q: f16[m, 64], k: f16[m, 64], v: f16[m, 64], o: mut f16[m, 64]):
    for i in op.tile_range(m, step=128):
        mine = q[i:i+128, :]
        top = op.full((128,), -1e30, f32)
        total = op.zeros((128,), f32)
        acc = op.zeros((128, 64), f32)
        first = max(i - 128, 0) // 64 * 64
        for j in range(first, min(i + 128, m), 64):
            raw = mine @ k[j:j+64, :].T * 0.125
            row = i + op.iota((128, 64), axis=0)
            column = j + op.iota((128, 64), axis=1)
            s = op.where((column <= row) & (column > row - 100), raw.to(f32), -1e30)
            peak = max(top, op.max(s, axis=1))
            e = exp(s - peak[:, None])
            shrink = exp(top - peak)
            total = total * shrink + op.sum(e, axis=1)
            acc = acc * shrink[:, None] + e @ v[j:j+64, :]
            top = peak
        o[i:i+128, :] = (acc / total[:, None]).to(f16)
""",
    of(q=("f16", "m 64"), k=("f16", "m 64"), v=("f16", "m 64"), o=("f16", "m 64")),
    _windowed, of(m=300), of(m=4096),
)  # fmt: skip


def _paged(a: Numbers) -> Numbers:
    out = np.zeros(a["q"].shape)
    for b in range(len(a["q"])):
        n = int(a["lengths"][b])
        pages = a["table"][b, : -(-n // 64)].astype(int)
        k = a["cache_k"][pages].reshape(-1, 128)[:n]
        v = a["cache_v"][pages].reshape(-1, 128)[:n]
        s = a["q"][b] @ k.T * 0.088388
        out[b] = rows_softmax(s) @ v if n else 0
    return of(o=out)


def _paged_arguments(r: np.random.Generator, sizes: dict[str, int]) -> Numbers:
    b, p, pages = sizes["b"], sizes["p"], sizes["pages"]
    lengths = r.integers(0, p * 64 + 1, b)
    lengths[0] = p * 64
    return of(lengths=lengths, table=r.integers(0, pages, (b, p)))


PAGED = Program(
    "paged decoding", 2, """
def scores(q, page, left):
    s = q @ page.T
    wide = s.to(f32) * 0.088388
    return op.where(op.iota((64, 64), axis=1) < left, wide, -inf)

@op.kernel
def kernel(q: bf16[b, 64, 128], cache_k: bf16[pages, 64, 128], cache_v: bf16[pages, 64, 128],
           table: i32[b, p], lengths: i32[b], o: mut f32[b, 64, 128]):
    for z in op.tile_range(b, step=1):
        count = lengths[z]
        heads = q[z, :, :]
        best = op.full((64,), -1e30, f32)
        norm = op.zeros((64,), f32)
        out = op.zeros((64, 128), f32)
        for s in range(p):
            left = count - i32(s) * 64
            if left <= 0:
                break
            page = max(table[z, s], 0)
            x = scores(heads, cache_k[page, :, :], left)
            now = max(best, op.max(x, axis=1))
            w = exp(x - now[:, None])
            old = exp(best - now)
            norm = norm * old + op.sum(w, axis=1)
            out = out * old[:, None] + w @ cache_v[page, :, :]
            best = now
        o[z, :, :] = op.where(norm[:, None] > 0.0, out / norm[:, None], 0.0)
""",
    of(q=("bf16", "b 64 128"), cache_k=("bf16", "pages 64 128"), cache_v=("bf16", "pages 64 128"),
         table=("i32", "b p"), lengths=("i32", "b"), o=("f32", "b 64 128")),
    _paged, of(b=3, p=4, pages=7), of(b=256, p=32, pages=512), arguments=_paged_arguments,
)  # fmt: skip


def _grouped(a: Numbers) -> Numbers:
    heads, kv = a["q"].shape[0], a["k"].shape[0]
    out = np.zeros(a["q"].shape)
    for h in range(heads):
        g = h // (heads // kv)
        s = a["q"][h] @ a["k"][g].T * 0.125
        m, t = s.shape
        s = np.where(np.arange(t)[None, :] <= np.arange(m)[:, None] + (t - m), s, -np.inf)
        out[h] = rows_softmax(s) @ a["v"][g]
    return of(o=out)


GROUPED = Program(
    "grouped query attention", 2, """
@op.kernel
def kernel(q: bf16[h, m, 64], k: bf16[g, t, 64], v: bf16[g, t, 64], o: mut bf16[h, m, 64]):
    share = h // g
    for head, i in op.tile_range(h, m, step=(1, 128)):
        group = head // share
        mine = q[head, i:i+128, :]
        peak = op.full((128,), -1e30, f32)
        total = op.zeros((128,), f32)
        acc = op.zeros((128, 64), f32)
        last = min(t, i + 128 + (t - m))
        for j in range(0, last, 64):
            s = (mine @ k[group, j:j+64, :].T).to(f32) * 0.125
            s = op.causal(s, row=i, column=j, offset=t - m)
            above = max(peak, op.max(s, axis=1))
            e = exp(s - above[:, None])
            shrink = exp(peak - above)
            total = total * shrink + op.sum(e, axis=1)
            acc = acc * shrink[:, None] + e @ v[group, j:j+64, :]
            peak = above
        o[head, i:i+128, :] = (acc / total[:, None]).to(bf16)
""",
    of(q=("bf16", "h m 64"), k=("bf16", "g t 64"), v=("bf16", "g t 64"), o=("bf16", "h m 64")),
    _grouped, of(h=4, g=2, m=100, t=150), of(h=32, g=8, m=1024, t=1024),
)  # fmt: skip


def _linear(a: Numbers) -> Numbers:
    s = np.tril(a["q"] @ a["k"].T)
    return of(o=s @ a["v"])


LINEAR = Program(
    "causal linear attention", 4, """
@op.kernel
def kernel(q: bf16[h, m, 64], k: bf16[h, m, 64], v: bf16[h, m, 64], o: mut f32[h, m, 64]):
    for z in op.tile_range(h, step=1):
        state = op.zeros((64, 64), f32)
        for i in op.tile_range(m, step=64):
            qi = q[z, i:i+64, :]
            ki = k[z, i:i+64, :]
            vi = v[z, i:i+64, :]
            inside = qi @ ki.T
            keep = op.iota((64, 64), axis=0) >= op.iota((64, 64), axis=1)
            masked = op.where(keep, inside.to(f32), 0.0)
            o[z, i:i+64, :] = qi @ state.to(bf16) + masked.to(bf16) @ vi
            state += ki.T @ vi
""",
    of(q=("bf16", "h m 64"), k=("bf16", "h m 64"), v=("bf16", "h m 64"), o=("f32", "h m 64")),
    lambda a: of(o=np.stack([_linear(of(q=x, k=y, v=z))["o"]
                               for x, y, z in zip(a["q"], a["k"], a["v"], strict=True)])),
    of(h=2, m=200), of(h=256, m=2048), tolerance=2e-2,
)  # fmt: skip


def _scan(a: Numbers) -> Numbers:
    """y_t = sum over s <= t of (c_t . b_s) * decay(s..t) * x_s."""
    out = np.zeros(a["x"].shape)
    for z in range(len(out)):
        logs = np.cumsum(a["decay"][z])
        weights = np.tril(a["c"][z] @ a["b"][z].T * np.exp(logs[:, None] - logs[None, :]))
        out[z] = weights @ a["x"][z]
    return of(y=out)


def _scan_arguments(r: np.random.Generator, sizes: dict[str, int]) -> Numbers:
    return of(decay=-r.uniform(0, 0.1, (sizes["h"], sizes["m"])))


SCAN = Program(
    "chunked state space scan", 4, """
@op.kernel
def kernel(x: bf16[h, m, 64], b: bf16[h, m, 64], c: bf16[h, m, 64], decay: f32[h, m],
           y: mut f32[h, m, 64]):
    for z in op.tile_range(h, step=1):
        hidden = op.zeros((64, 64), f32)
        for i in op.tile_range(m, step=64):
            steps = decay[z, i:i+64]
            along = op.cumsum(steps)
            whole = op.sum(steps)
            ci, bi, xi = c[z, i:i+64, :], b[z, i:i+64, :], x[z, i:i+64, :]
            gap = along[:, None] - along[None, :]
            lower = op.iota((64, 64), axis=0) >= op.iota((64, 64), axis=1)
            mask = op.where(lower, exp(gap), 0.0)
            inner = (ci @ bi.T).to(f32) * mask
            outer = (ci.to(f32) * exp(along)[:, None]).to(bf16)
            y[z, i:i+64, :] = inner.to(bf16) @ xi + outer @ hidden.to(bf16)
            later = (bi.to(f32) * exp(whole - along)[:, None]).to(bf16)
            hidden = hidden * exp(whole) + later.T @ xi
""",
    of(x=("bf16", "h m 64"), b=("bf16", "h m 64"), c=("bf16", "h m 64"), decay=("f32", "h m"),
         y=("f32", "h m 64")),
    _scan, of(h=2, m=150), of(h=128, m=2048), arguments=_scan_arguments, tolerance=2e-2,
)  # fmt: skip

PROGRAMS = (LATENT, WINDOWED, PAGED, GROUPED, LINEAR, SCAN)
