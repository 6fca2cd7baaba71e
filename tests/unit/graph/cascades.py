"""Functions with cascaded reductions, as a program has them, and graphs of them."""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.driver.function_graphs import graph_program, plain_functions
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.pipeline import GRAPH
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.opt.graph.differentiate import gradient_of

SIZES = {"s": 70, "t": 90, "d": 16, "e": 24}
TEXT = """
def attention(q, k, v): return op.softmax(q @ k.T * 0.25, axis=1) @ v
def with_bias(q, k, v, b): return op.softmax(q @ k.T - b * 2.0, axis=1) @ v
def soft_capped(q, k, v): return op.softmax(3.0 * op.tanh(q @ k.T / 3.0), axis=1) @ v
def causal(q, k, v):
    z = q @ k.T
    seen = op.arange(z.shape[1])[None, :] <= op.arange(z.shape[0])[:, None] - 3
    return op.softmax(op.where(seen, z, -inf), axis=1) @ v
def distances(q, k, v):
    z = q @ k.T
    far = op.arange(z.shape[0])[:, None] - op.arange(z.shape[1])[None, :]
    return op.softmax(z - 0.1 * op.abs(far).to(z.dtype), axis=1) @ v
def of_sigmoids(q, k, v): return op.sigmoid(q @ k.T) @ v
def by_sum(q, k, v):
    p = op.exp(op.tanh(q @ k.T))
    return (p / op.sum(p, axis=1, keepdims=True)) @ v
def by_norm(q, k, v):
    p = op.tanh(q @ k.T)
    return (p * op.rsqrt(op.sum(p * p, axis=1, keepdims=True))) @ v
def by_greatest(q, k, v):
    p = q @ k.T
    return (p / op.max(op.abs(p), axis=1, keepdims=True)) @ v
def log_sum(q, k): return op.logsumexp(q @ k.T * 2.0, axis=1)
def entropy(q, k):
    p = op.softmax(q @ k.T, axis=1)
    return op.sum(p * (q @ k.T), axis=1)
def cross_entropy(q, k, t):
    z = q @ k.T
    own = op.arange(z.shape[1])[None, :] == t[:, None]
    return op.mean(op.logsumexp(z, axis=1) - op.sum(op.where(own, z, 0.0), axis=1))
def means(q, k, v):
    z = q @ k.T
    return (z * op.mean(z, axis=1, keepdims=True)) @ v
def centred(q, k, v):
    z = q @ k.T
    return (z - op.mean(z, axis=1, keepdims=True)) @ v
def twice(q, k, v):
    z = q @ k.T
    p = op.softmax(z, axis=1)
    return (p * op.exp(-op.sum(p * p, axis=1, keepdims=True))) @ v
def two_values(q, k, v):
    p = op.softmax(q @ k.T, axis=1)
    return p @ v, p @ op.tanh(v), op.max(q @ k.T, axis=1)
def of_columns(q, k, v): return op.softmax(q @ k.T, axis=0) @ v
def least(q, k, v):
    z = q @ k.T
    return op.exp(op.min(z, axis=1, keepdims=True) - z) @ v
def gated(q, k, v, w): return w * (op.softmax(q @ k.T, axis=1) @ v) + 1.0
"""
RANGES = """
def by_hand(q, k, v, b):
    z = q @ k.T + b
    e = op.exp(z - op.max(z, axis=1, keepdims=True))
    return (e @ v) / op.sum(e, axis=1, keepdims=True)
def mirrored(q, k, v, b):
    z = q @ k.T - b
    e = op.exp(op.min(z, axis=1, keepdims=True) - z)
    return (e @ v) / op.sum(e, axis=1, keepdims=True)
def alone(q, k):
    z = q @ k.T
    return op.sum(op.exp(2.0 * (z - op.max(z, axis=1, keepdims=True))), axis=1)
def of_weights(q, k, v, b):
    z = q @ k.T + b
    e = op.exp(z - op.max(z, axis=1, keepdims=True))
    return (e / op.sum(e, axis=1, keepdims=True)) @ v
def about_mean(q, k):
    z = q @ k.T
    return op.sum(op.exp(z - op.mean(z, axis=1, keepdims=True)), axis=1)
def about_other(q, k, w, v):
    z = q @ k.T
    return op.exp(z - op.max(w @ v.T, axis=1, keepdims=True)) @ v
def about_double(q, k):
    z = q @ k.T
    return op.sum(op.exp(z - 2.0 * op.max(z, axis=1, keepdims=True)), axis=1)
def about_both(q, k):
    z = q @ k.T
    d = op.max(z, axis=1, keepdims=True) + op.mean(z, axis=1, keepdims=True)
    return op.sum(op.exp(z - d), axis=1)
def replaced(q, k):
    z = q @ k.T
    top = op.max(z, axis=1, keepdims=True)
    return op.sum(op.exp(z - op.where(top == 2.0, 0.0, top)), axis=1)
def squared(q, k):
    z = op.exp(q @ k.T)
    return op.sum((z / op.sum(z, axis=1, keepdims=True)) ** 2, axis=1)
def scaled(q, k, v):
    z = q @ k.T
    return (z / op.max(op.abs(z), axis=1, keepdims=True)) @ v
def scaled_square(q, k):
    z = q @ k.T
    return op.sum((z / op.max(op.abs(z), axis=1, keepdims=True)) ** 2, axis=1)
def of_quotients(q, k, w, v):
    p = (q @ k.T) / (w @ v.T)
    return op.sum(p * p, axis=1)
def given(q, k, v, r): return ((q @ k.T) * r[:, None]) @ v
def counted(q, k, v):
    z = q @ k.T
    hit = op.where(z > 0.0, 1.0, 0.0)
    return op.sum(-hit * z, axis=1), hit @ v, op.sum(hit * op.exp(hit - z), axis=1)
def rms(q, k, v):
    z = q @ k.T
    return (z * op.rsqrt(op.mean(z * z, axis=1, keepdims=True))) @ v
def l_one(q, k, v):
    z = q @ k.T
    return (z / op.sum(op.abs(z), axis=1, keepdims=True)) @ v
def floored(q, k, v):
    z = q @ k.T
    return (z / op.maximum(op.max(op.abs(z), axis=1, keepdims=True), 1e-12)) @ v
def never_zero(q, k, v):
    z = 0.5 * (q @ k.T)
    top = op.max(op.abs(z), axis=1, keepdims=True) / 127.0
    return (z / op.where(top == 0.0, 1.0, top)) @ v
def near_zero(q, k, v):
    z = q @ k.T
    return (z * op.rsqrt(op.mean(z * z, axis=1, keepdims=True) + 1e-6)) @ v
def biased_scale(q, k, v, b):
    z = (q @ k.T) * b
    return (z / op.max(op.abs(z), axis=1, keepdims=True)) @ v
def unshifted(q, k, v):
    e = op.exp(q @ k.T)
    return (e / op.sum(e, axis=1, keepdims=True)) @ v
def beside(q, k, w, v):
    z = q @ k.T
    return (z * (w @ v.T) / op.max(op.abs(z), axis=1, keepdims=True)) @ v
def upside_down(q, k, v):
    z = q @ k.T
    return (z * op.max(op.abs(z), axis=1, keepdims=True)) @ v
def signed(q, k, v):
    z = q @ k.T
    return (z / op.max(z, axis=1, keepdims=True)) @ v
def rooted(q, k, v):
    z = q @ k.T
    return (z / op.sqrt(op.max(op.abs(z), axis=1, keepdims=True))) @ v
"""
STORED = """
def other_axis(q, k, v): return op.softmax(q @ k.T, axis=0) @ v
def several_axes(q, k, v):
    z = q @ k.T
    return (z / op.sqrt(op.sum(z * z))) @ v
def scan(q, k, v): return op.cumsum(q @ k.T, axis=1) @ v
def product(q, k): return op.prod(1.0 - op.sigmoid(q @ k.T), axis=1)
def nested(q, k):
    z = q @ k.T
    return op.sum(op.softmax(z, axis=1) * (op.tanh(z) @ (k @ k.T)), axis=1)
def of_projections(q, k, v):
    q, k, v = q @ (k.T @ k), k @ (k.T @ k), v @ (v.T @ v)
    return q @ (k.T @ v) + op.softmax(q @ k.T, axis=1) @ v
def of_averages(q, k):
    z = q @ k.T
    return op.sum((op.softmax(z, axis=1) @ k) * q, axis=1) + op.max((op.exp(z) @ k) @ k.T, axis=1)
def read_again(q, k):
    z = q @ k.T
    p = op.prod(1.0 - op.sigmoid(z), axis=1, keepdims=True)
    return op.sum(op.where(p > 0.5, z, op.abs(z)), axis=1)
def switched(q, k):
    z = q @ k.T
    hot = op.any(z > 1.0, axis=1, keepdims=True)
    return op.sum(op.where(hot, z, op.abs(z)), axis=1)
def normalised(q, k, v):
    o = op.softmax(q @ k.T, axis=1) @ v
    return o / op.sqrt(op.sum(o * o, axis=1, keepdims=True))
def cosine(q, k):
    o = op.softmax(q @ k.T, axis=1) @ k
    return op.sum(q * o, axis=1) / (op.norm(q, axis=1) * op.norm(o, axis=1))
"""
SHAPES = {"q": ("s", "d"), "k": ("t", "d"), "v": ("t", "e"), "b": ("s", "t"), "w": ("s", "e"),
          "t": ("s",), "r": ("s",)}  # fmt: skip
HEADS = """
def heads(q, k, v): return op.softmax(q @ k.mT, axis=-1) @ v
def shared(q, k, v):
    q, k, v = op.reshape(q, (2, 3, 70, 16)), k[:, None, :, :], v[:, None, :, :]
    return op.softmax(q @ k.mT, axis=-1) @ v
def moved(q, k, v):
    q, k, v = [op.reshape(x, (1, x.shape[1], 2, x.shape[2] // 2)) for x in (q, k, v)]
    q, k, v = [op.transpose(x, (0, 2, 1, 3)) for x in (q, k, v)]
    return op.transpose(op.softmax(q @ k.mT, axis=-1) @ v, (0, 2, 1, 3))
"""


def signature(
    parameters: list[str], dtype: str, front: tuple[int, ...], of: Mapping[str, int] = SIZES
) -> str:  # fmt: skip
    parts: list[str] = []
    for name in parameters:
        sizes = ", ".join(map(str, (*front, *(of[n] for n in SHAPES[name]))))
        parts.append(f"{name}: {'i64' if name == 't' else dtype}[{sizes}]")
    return ", ".join(parts)


def graph_of(
    name: str, dtype: str, with_gradient: bool, sizes: Mapping[str, int] = SIZES
) -> Operation:  # fmt: skip
    """The graph of a function above, as it is before kernels are made of it."""
    session = Session(overlay={"cascades.tessera": TEXT + RANGES + HEADS + STORED})
    (function,) = (f for f in plain_functions(session, "cascades.tessera") if f.name == name)
    front = {"heads": (2,), "shared": (2,), "moved": (1,)}.get(name, ())
    given = signature([p.name for p in function.parameters], dtype, front, sizes)
    if name == "shared":
        given = given.replace("q: f64[2, 70", "q: f64[2, 210")
    program = graph_program(session, "cascades.tessera", function, given)
    (made,) = program.operations
    arguments = made.regions[0].arguments
    wrt = [i for i, v in enumerate(arguments) if v.tensor_type.dtype.is_float]
    if with_gradient:
        made = gradient_of(made, wrt, seeded=True)
    return prepared(made)


def prepared(function: Operation) -> Operation:
    program = Program("graph", (decompose(function),))
    return PassRunner(verify_each=True).run(program, GRAPH).operations[0]
