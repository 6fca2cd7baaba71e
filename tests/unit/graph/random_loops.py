"""Random programs with loops, as text that both Tessera and Python with NumPy read, by a seed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

STEPS, SIZE = 18, 3
PARAMETERS: dict[str, tuple[int, ...]] = {
    "x": (STEPS + 2, SIZE), "q": (SIZE, STEPS), "c": (STEPS,), "z": (17, SIZE), "w": (SIZE, SIZE),
}  # fmt: skip
SIGNATURE = ", ".join(f"{n}: f64[{', '.join(map(str, s))}]" for n, s in PARAMETERS.items())
_BODY = (
    "a = op.tanh(a @ w + x[t])",
    "a = op.sin(a + x[t + 1]) * 0.5",
    f"a = a * 0.9 + x[{STEPS - 1} - t]",
    "a = a + q[:, t] * 0.3",
    "a = op.tanh(a + q[1, t])",
    "m = m * 0.5 + a[:, None] * x[t, :][None, :]",
    "m = op.tanh(m @ w)",
    "s = s + op.sum(a * a) * 0.1",
    "s = s * 0.5 + c[t]",
    "s = s * 0.5 + x[-1 - t][1]",
    "b = op.cos(a)\na = a + b * 0.1",
    "out.append(a)",
    "out.append(a * s)",
    "others.append((a, m))",
    "if op.sum(a) > 0.3:\n    a = a * 0.7\nelse:\n    a = a + 0.1",
    "for row in z:\n    a = op.tanh(a + row)",
    "for j in range(17):\n    a = op.sin(a + z[j] * x[t])\n    s = s * 0.9 + q[0, t] * z[j, 1]",
    "for j in range(3):\n    a = a + x[t] * 0.1 * j",
    "a, s = op.tanh(a + s), s * 0.5 + op.max(a)",
    "a = a * (1.0 + 0.01 * t)",
    "p = (p[1], a + p[0] * 0.5)\na = a + p[0] * 0.1",
    "a = a * 0.5 + m[2]",
    "m = op.sin(m + a[None, :])\ns = s + m[0, 1]",
)
STEP_BY_STEP = (
    "a = a + w[t % 3]",
    "a = a * 2.0 if t == 2 else a",
    "k = k + 1\na = a + x[k]",
    "if t == 4:\n    a = a * 0.5",
    "for j in range(t):\n    a = op.sin(a + j)",
    "out.append(a)\na = out[-1] * 0.5",
)
_STARTS = ("a = x[0]", "a = op.zeros((3,))", "a = op.zeros_like(x[0])")
_HEADS = (f"for t in range({STEPS}):", f"for t in range({STEPS - 1}, -1, -1):",
          f"for t in range(0, {STEPS - 1}):", f"for t in range(1, {STEPS}):")  # fmt: skip


def random_loop(seed: int) -> str:
    """A function ``f`` of ``PARAMETERS`` that gives a number."""
    rng = np.random.default_rng(seed)

    def some(items: tuple[str, ...], count: int) -> list[str]:
        return [items[int(i)] for i in rng.integers(0, len(items), count)]

    body = some(_BODY, int(rng.integers(2, 6)))
    if rng.random() < 0.15:
        body += some(STEP_BY_STEP, 1)
    rng.shuffle(body)
    indented = "\n".join(f"        {line}" for text in body for line in text.split("\n"))
    lines = [f"def f({', '.join(PARAMETERS)}):", *(f"    {s}" for s in some(_STARTS, 1)),
             "    m = op.zeros_like(w) + w", f"    s = {('0.0', '0', 'op.sum(w)')[seed % 3]}",
             "    p = (x[0], x[1])", "    out = []", "    others = []", "    k = 0",
             f"    {some(_HEADS, 1)[0]}", indented]  # fmt: skip
    if "b = " in indented:
        lines.append("    a = a + b")
    for name, stacked in (("out", "op.stack(out)"),
                          ("others", "op.stack([u for u, _ in others], axis=1)")):  # fmt: skip
        if f"{name}.append" in indented:
            lines.append(f"    y = op.sin({stacked})\n    s = s + op.sum(y * y)")
    tail = " + t * op.sum(w)" if rng.random() < 0.3 else ""
    lines.append(f"    return op.sum(a * a) + op.sum(m) * 0.5 + s + op.sum(p[0] * a){tail}")
    return "\n".join(lines) + "\n"


OP = SimpleNamespace(
    **{n: getattr(np, n) for n in ("tanh", "sin", "cos", "sum", "max", "zeros", "zeros_like",
                                   "stack")}
)  # fmt: skip


def as_python(text: str) -> Callable[..., Any]:
    """The function of a text, by NumPy."""
    names: dict[str, Any] = {"op": OP}
    exec(compile(text, "<loop>", "exec"), names)
    return names["f"]


def random_inputs(seed: int) -> list[Any]:
    rng = np.random.default_rng([seed, 1])
    return [rng.uniform(-1.0, 1.0, shape) for shape in PARAMETERS.values()]
