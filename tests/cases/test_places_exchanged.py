"""Tiles that a loop carries, each of which is computed of places that the others have; arrays that
one statement stores into each other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import TARGETS

TEXT = """
@op.kernel
def k(a: i32[n], keys: i32[q], rounds: i32) -> ({results}):
{made}
    for r in range(rounds):
        g = a[({all}) % n]
{next}
    return {names}
"""
NEW = ("g + keys", "g - keys", "g * 2", "{} + g", "a[(g + {}) % n]")


def python(count: int, forms: tuple[str, ...], a: Any, keys: Any, rounds: int) -> list[Any]:
    n, carried = len(a), [np.full(len(keys), i, np.int32) for i in range(count)]
    for _ in range(rounds):
        g = a[sum(carried) % n]
        known = {"a": a, "g": g, "keys": keys, "n": n}
        known |= {f"u{i}": u for i, u in enumerate(carried)}
        for i, form in enumerate(forms):
            known[f"u{i}"] = eval(form.format(f"u{i}"), {}, known)
        carried = [known[f"u{i}"] for i in range(count)]
    return carried


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.sample(1)
def test_a_gathered_tile_that_several_are_made_of(count: int, target: Any) -> None:
    """The compiler ends, and all have the values of the round before."""
    a, keys = np.arange(7, dtype=np.int32)[::-1].copy(), np.arange(5, dtype=np.int32)
    names = [f"u{i}" for i in range(count)]
    for forms in itertools.islice(itertools.product(NEW, repeat=count), 0, None, 7**count // 9 + 1):
        text = TEXT.format(
            results=", ".join(["i32[q]"] * count),
            made="\n".join(f"    u{i} = op.full(q, {i}, dtype=i32)" for i in range(count)),
            all=" + ".join(names), names=", ".join(names),
            next="\n".join(f"        u{i} = {f.format(f'u{i}')}" for i, f in enumerate(forms)),
        )  # fmt: skip
        m: Any = tessera.compile(text, target=target)
        found = m.k(a, keys, 4)
        for got, want in zip(found, python(count, forms, a, keys, 4),
                             strict=True):  # fmt: skip
            np.testing.assert_array_equal(np.asarray(got), want, err_msg=text)


EXCHANGES = {
    "a[:], b[:] = b, a": ("b", "a"), "a[:], b[:] = b * 1, a * 1": ("b", "a"),
    "a[:], b[:] = a + b, a - b": ("a + b", "a - b"),
    "a[0:3], a[3:6] = a[3:6], a[0:3]": ("np.concatenate((a[3:6], a[0:3], a[6:]))", "b"),
    "a[1:], a[:-1] = a[:-1], a[1:]": ("np.append(a[1:], a[-2])", "b"),
    "a[0], b[1] = b[1], a[0]": ("np.append(b[1], a[1:])", "np.concatenate((b[:1], a[:1], b[2:]))"),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("statement", EXCHANGES)
@pytest.mark.sample(6)
def test_the_right_side_is_computed_before_anything_is_stored(statement: str, target: Any) -> None:
    a, b = np.arange(1, 8, dtype=np.int32), -np.arange(3, 10, dtype=np.int32)
    known: Any = {"a": a.copy(), "b": b.copy(), "np": np}
    want: list[Any] = [eval(e, known) for e in EXCHANGES[statement]]
    source = f"@op.kernel\ndef k(a: mut i32[n], b: mut i32[n]):\n    {statement}\n"
    m: Any = tessera.compile(source, target=target)
    m.k(a, b)
    for got, wanted in zip((a, b), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_host_program_stores_as_numpy_does() -> None:
    a, b = np.arange(1, 8, dtype=np.int32), -np.arange(3, 10, dtype=np.int32)
    want = b.copy()
    m: Any = tessera.compile("def f(a, b):\n    a[:], b[:] = b, a\n", target="cpu")
    m.f(a, b)
    np.testing.assert_array_equal([a, b], [want, want])
