"""The functions and kernels of the tests of operators of PyTorch and JAX."""

from __future__ import annotations

TEXT = """
def attend(q, k, v):
    return op.softmax(q @ k.T * 0.125, axis=1) @ v


def loss(p, x, y):
    h = op.relu(x @ p["w"][0] + p["b"])
    return op.mean((h @ p["w"][1] - y) ** 2)


def several(p, s):
    return {"a": p[0] * s, "b": (p[1], p[0].T), "c": None, "d": op.max(p[0])}


def scaled(x, s):
    return x * s


def shifted(x, by=None):
    if by is None:
        return x
    return x + by


def uneven(x):
    if x.shape[0] > 4:
        return x, x
    return x


def scaled_tf(x, s):
    return x * s * 10.0


def ident(x):
    return x


def rows(x, places):
    return op.take(x, places, axis=0), places + 1


def picked(p):
    return op.take(p["x"], p["i"], axis=0) * p["s"]


def flat(x):
    return op.reshape(x, (x.shape[0] * x.shape[1],))


def large(x):
    if x.shape[0] > 4:
        return x * 2.0
    return x * 3.0


def shown(x):
    print(x)
    return x


@op.kernel
def product(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:
    return A @ B


@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale[TIMES: int = 1](x: f32[n], factor: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        y = x[i]
        for k in range(TIMES):
            y = y * factor
        out[i] = y


@kernel tile[(64,)]
def untyped(x, out):
    for i in range(grid_tile_linear_id(), 4, grid_tile_count()):
        out[i] = x[i]


@op.kernel
def odd(x: f32[n]) -> f32[n]:
    return x * x


@gradient(odd)
def threes(x, result, cotangent):
    return 3.0 * cotangent


@op.kernel
def checked(x: f32[n], places: i32[n]) -> f32[n]:
    out = op.empty((n,), f32)
    for i in op.tile_range(n, step=1):
        assert places[i] < n, "no such place"
        out[i] = x[places[i]]
    return out
"""
