"""Programs of any length, of many kinds: ``KINDS[name](n)`` is a text with one kernel `f`.

What a kind repeats n times stands in its name. Tile kernels are those in ``TILE``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Maker = Callable[[int], str]


def lane(body: Sequence[str], before: str = "", parameters: str = "", clauses: str = "") -> str:
    parameters = parameters or "x: f32[n], p: i64[n], out: mut f32[n]"
    head = f"{before}@kernel tile[(64,)] shared(200_KiB)\ndef f({parameters}){clauses}:\n"
    ids = "    i = grid_tile_linear_id()\n    t = tile_linear_id()\n"
    return head + ids + "".join(f"    {line}\n" for line in body)


def tile(body: Sequence[str], parameters: str = "") -> str:
    parameters = parameters or "x: f32[m, 64], y: f32[m, 64], out: mut f32[m, 64]"
    return f"@op.kernel\ndef f({parameters}):\n" + "".join(f"    {line}\n" for line in body)


def over_rows(body: Sequence[str]) -> str:
    inside = [f"    {line}" for line in body]
    return tile(["for i in op.tile_range(m, step=64):", "    r = x[i:i+64, :]", *inside])


def times(n: int, *lines: str) -> list[str]:
    """The lines n times, with the number in the place of ``#``."""
    return [line.replace("#", str(j)) for j in range(n) for line in lines]


def nest(n: int, head: str) -> list[str]:
    return ["    " * j + head.replace("#", str(j)) for j in range(n)]


def joined(n: int, term: str, by: str = " + ") -> str:
    return by.join(times(n, term))


def _shared_arrays(n: int) -> str:
    made = times(n, "s# = tshared.alloc((64,), f32)", "s#[t] = x[i+#]")
    return lane([*made, "tbarrier()", f"out[i] = {joined(n, 's#[63-t]')}"])


def _swaps(n: int) -> str:
    lines = times(n, "a# = i + #")
    swapped = [f"    a{j}, a{(j + 1) % n} = a{(j + 1) % n}, a{j}" for j in range(n)]
    return lane([*lines, "for k in range(n):", *swapped, "out[i] = f32(a0)"])


def _calls_in_turn(n: int) -> str:
    made = [f"def g{j}(v):\n    return g{j - 1}(v) * 1.5\n" for j in range(1, n)]
    return lane([f"out[i] = g{n - 1}(x[i])"], "".join(["def g0(v):\n    return v\n", *made]))


LANE: dict[str, Maker] = {
    "statements": lambda n: lane(["a = x[i]", *times(n, "a = a * 1.5 + #.25"), "out[i] = a"]),
    "names": lambda n: lane(["a0 = x[i]", *(f"a{j + 1} = a{j} + a{j // 2}" for j in range(n)),
                             f"out[i] = a{n}"]),
    "guards": lambda n: lane(times(n, "out[i + #] = x[i]")),
    "guards of constants": lambda n: lane(times(n, "out[i + #] = 1.5")),
    "guards of updates": lambda n: lane(times(n, "atomic_add(out[i + #], 1.5)")),
    "guards between barriers": lambda n: lane(times(n, "tbarrier()", "out[i + #] = x[i]")),
    "places out of data": lambda n: lane(["q = i", *times(n, "q = i64(p[q])"), "out[i] = x[q]"]),
    "ifs": lambda n: lane(["a = i", *times(n, "if a > #:", "    a = a - #"), "out[i] = x[a]"]),
    "conditions that cannot hold": lambda n: lane(
        ["a = i", *times(n, "if a > # and a < #:", "    a = a * 2"), "out[i] = x[a]"]),
    "loops": lambda n: lane(["a = x[i]", *times(n, "for k in range(n):", "    b# = x[k]",
                                                "    a = a + b#"), "out[i] = a"]),
    "whiles": lambda n: lane(["a = x[i]", *times(n, "k# = 0", "while k# < n:", "    a += x[k#]",
                                                 "    k# += 1"), "out[i] = a"]),
    "variables of a loop": lambda n: lane(
        [*times(n, "a# = x[i + #]"), "for k in range(n):", *times(n, "    a# += x[k]"),
         f"out[i] = {joined(n, 'a#')}"]),
    "swaps in a loop": _swaps,
    "calls in turn": _calls_in_turn,
    "terms": lambda n: lane([f"out[i] = {joined(n, 'x[i+#] * #.5')}"]),
    "conditions of data": lambda n: lane(
        [f"if {joined(n, 'x[i] > #.5', ' and ')}:", "    out[i] = 1.0"]),
    "comparisons in a chain": lambda n: lane(
        [f"if {joined(n, 'i+#', ' < ')}:", "    out[i] = 1.0"]),
    "arrays": lambda n: lane(
        [f"if {joined(n, 'i < n#', ' and ')}: out[i] = {joined(n, 'x#[i]')}"],
        parameters=f"{joined(n, 'x#: f32[n#]', ', ')}, out: mut f32[n0]"),
    "shared arrays": _shared_arrays,
    "shared places out of data": lambda n: lane(
        ["s = tshared.alloc((64,), f32)", *times(n, "s[p[i+#]] = x[i]"), "tbarrier()",
         "out[i] = s[t]"]),
    "barriers": lambda n: lane(
        ["s = tshared.alloc((64,), f32)", "s[t] = x[i]",
         *times(n, "tbarrier()", "a# = s[63-t]", "tbarrier()", "s[t] = a#"), "out[i] = s[t]"]),
    "atomics": lambda n: lane(times(n, "atomic_add(out[#], x[i])")),
    "clauses": lambda n: lane(["out[i] = x[i]"],
                              clauses=f" where {joined(n, 'n % (#+2) == 0', ' and ')}"),
    "returns": lambda n: lane([*times(n, "if x[i] > #.5: return"), "out[i] = x[i]"]),
    "slices": lambda n: lane([f"out[i] = {joined(n, 'op.sum(x[#:#+8])')}"]),
    "kernels": lambda n: lane(["return"]) + "".join(
        lane(["out[i] = x[i]"]).replace("def f(", f"def f_{j}(") for j in range(n)),
    "tests": lambda n: lane(["return"]) + "".join(
        times(n, "@test\ndef t#():\n    assert # == #\n")),
}  # fmt: skip

TILE: dict[str, Maker] = {
    "sums": lambda n: over_rows(
        ["a = op.sum(r)", *times(n, "a = a + op.sum(r * #.5)"), "out[i:i+64, :] = r * a"]),
    "elementwise": lambda n: over_rows(
        [*times(n, "r = r * y[i:i+64, :] + #.5"), "out[i:i+64, :] = r"]),
    "products": lambda n: tile(
        ["a = x @ y", *times(n, "a = a + x @ y"), "return a"],
        "x: bf16[512, 512], y: bf16[512, 512]"),
    "loops over tiles": lambda n: tile(
        times(n, "for i in op.tile_range(m, step=64):", "    out[i:i+64, :] = x[i:i+64, :] + #.5")),
    "buffers": lambda n: over_rows(
        [*times(n, "b# = op.shared((64, 64))", "b#[:] = r + #.5"),
         f"out[i:i+64, :] = {joined(n, 'b#')}"]),
    "tiles that a loop carries": lambda n: over_rows(
        [*times(n, "a# = op.zeros((64, 64), f32)"), "for k in range(8):",
         *times(n, "    a# += r * #.5"), f"out[i:i+64, :] = {joined(n, 'a#')}"]),
}  # fmt: skip

NESTS: dict[str, Maker] = {
    "ifs": lambda n: lane(
        ["a = i", *nest(n, "if a > #:"), "    " * n + "a = a + 1", "out[i] = x[a]"]),
    "loops": lambda n: lane(
        ["a = i", *nest(n, "for k# in range(n):"), "    " * n + "a = a + 1", "out[i] = x[a]"]),
    "whiles": lambda n: lane(
        ["a = i", *nest(n, "while a > #:"), "    " * n + "a = a - 1", "out[i] = f32(a)"]),
    "loops with swaps": lambda n: lane(
        ["a = i", "b = t", "c = n", *nest(n, "for k# in range(n):"),
         "    " * n + "a, b, c = b, c, a", "out[i] = x[a]"]),
    "loops over tiles": lambda n: tile(
        ["a = x[0, 0:64]", *nest(n, "for i# in range(m):"), "    " * n + "a = a * 0.5",
         "    " * n + "a = x[i0, 0:i0+64] * 0.5", "out[0, 0] = op.sum(a)"]),
}  # fmt: skip
