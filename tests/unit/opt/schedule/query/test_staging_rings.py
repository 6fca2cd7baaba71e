"""What feeds the ring of a product: loads in front of a condition that the data decides, arrays
whose sizes are computed or agree by the launch, and what is said where nothing feeds it."""

from __future__ import annotations

import re

from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation
from tests.tile_programs_by_hand.chosen import HALVES, POWERS, ROWS, ZEROS

PATH = "kernel.tessera"
DOT = "tessera.schedule.dot"


def made(text: str, signature: str, arch: str = "sm_90a") -> ForMachine:
    session = Session(overlay={PATH: text})
    wanted = session.signature(PATH, "kernel", signature)
    return session.for_machine(PATH, "kernel", wanted, session.machine("cuda", arch))


def conditional(found: ForMachine) -> list[Operation]:
    """The loads under a condition."""
    return [
        o for x in found.schedule.walk() if x.name == "tile.if"
        for o in x.walk() if o.name == "tessera.schedule.load"
    ]  # fmt: skip


def has_roles(found: ForMachine) -> bool:
    return "roles" in found.schedule.operations[0].attributes


def test_loads_stand_before_a_condition_that_a_staged_tile_decides() -> None:
    signature = ZEROS.signature(ZEROS.large)
    found = made(ZEROS.text, signature)
    assert has_roles(found) and not conditional(found)
    assert conditional(made(ZEROS.text, signature, "sm_80"))


def test_not_where_only_the_condition_shows_where_they_begin() -> None:
    text = ZEROS.text.replace(
        "            if op.any(x != 0.0):\n                acc += x @ b[p:p+64, j:j+64]",
        "            if op.any(x != 0.0):\n                if p >= 64:\n"
        "                    acc += x @ b[p-64:p, j:j+64]",
    )
    assert text != ZEROS.text
    found = made(text, ZEROS.signature(ZEROS.large))
    assert conditional(found) and not has_roles(found)
    assert any("depends on `a`" in d.message for d in found.remarks)


def test_a_computed_size_has_the_divisors_of_its_parts() -> None:
    found = made(HALVES.text, HALVES.signature(HALVES.large))
    assert has_roles(found) and not any("is copied once" in d.message for d in found.remarks)
    odd = made(HALVES.text, HALVES.signature({**HALVES.large, "n": 2047}))
    assert any("`w`" in d.message for d in odd.remarks if d.code == "T0743")


def test_sizes_may_have_the_name_of_another_array() -> None:
    assert has_roles(made(ROWS.text, ROWS.signature(ROWS.large)))


def test_a_product_of_computed_tiles_says_that_nothing_is_brought() -> None:
    found = made(POWERS.text, POWERS.signature(POWERS.large))
    dots = [o for o in found.schedule.walk() if o.name == DOT]
    assert all(o.attributes["unit"] == "wgmma" for o in dots)
    notes = [d for d in found.remarks if "no ring is staged for this product" in d.message]
    assert len(notes) == 1 and notes[0].code == "T0743"
    assert notes[0].span is not None


MANY_TILES = """
@op.kernel
def kernel(o: mut f32[m, e], a: f16[m, d], b: f16[d, k], c: f32[m, k], v: i8[k, d], s: f32[k],
           w: f16[d, k], z: i8[k, e]):
    for i in op.tile_range(m, step=64):
        q = a[i:i+64, :]
        acc = op.zeros((64, e), f32)
        for p in op.tile_range(k, step=128):
            x = max(q @ b[:, p:p+128], c[i:i+64, p:p+128])
            y = x.to(f16) @ (v[p:p+128, :].to(f16) * s[p:p+128][:, None])
            t = y.to(f16) @ w[:, p:p+128]
            acc += t.to(f16) @ (z[p:p+128, :].to(f16) * 0.0625)
        o[i:i+64, :] = acc
"""
SIZES = """o: f32[1032, 64], a: f16[1032, 64], b: f16[64, 1032], c: f32[1032, 1032],
v: i8[1032, 64], s: f32[1032], w: f16[64, 1032], z: i8[1032, 64]"""


def test_what_an_even_share_leaves_is_a_second_place_of_small_rings() -> None:
    found = made(MANY_TILES, SIZES.replace("\n", " "))
    depth = {
        o.operands[0].name: o.attributes["stages"] for o in found.schedule.walk()
        if o.name == "tessera.schedule.load" and o.attributes.get("stage") == "shared"
    }  # fmt: skip
    assert depth["b"] == depth["w"] == 2 and depth["c"] == depth["v"] == depth["z"] == 1
    notes = [d for d in found.remarks if "no ring is staged for this product" in d.message]
    assert len(notes) == 2 and all("has room for one place" in d.message for d in notes)
    places = [MANY_TILES[d.span.start : d.span.end] for d in notes if d.span]
    assert "v[p:p+128" in places[0] and "z[p:p+128" in places[1], places


def test_factors_with_one_place_are_named() -> None:
    text = """
@op.kernel
def kernel(rows: i32[m], a: bf16[g, k], b: bf16[k, n], c: bf16[k, n], e: bf16[k, m], v: i8[k, n],
           s: f32[k]):
    out = op.empty((m, n), bf16)
    for i, j in op.tile_range(m, n, step=(64, 128)):
        x = op.zeros((64, 128), f32)
        y = op.zeros((64, 128), f32)
        for p in op.tile_range(k, step=80):
            x += a[rows[i:i+64], p:p+80] @ (b[p:p+80, j:j+128] * c[p:p+80, j:j+128])
            y += e[p:p+80, i:i+64].T @ (v[p:p+80, j:j+128].to(f32) * s[p:p+80][:, None])
        out[i:i+64, j:j+128] = (x + y).to(bf16)
    return out
"""
    wide = "bf16[968, 1064]"
    found = made(text, f"rows: i32[1064], a: bf16[512, 968], b: {wide}, c: {wide}, e: {wide}, "
                 "v: i8[968, 1064], s: f32[968]")  # fmt: skip
    notes = [d.message for d in found.remarks if "no ring is staged for this" in d.message]
    assert [n.partition("room for ")[2] for n in notes] == [
        "one place of its tiles of `b` and `c`", "one place of its tiles of `v`",
    ]  # fmt: skip


def test_a_tile_before_the_loop_with_two_places_is_no_ring_of_it() -> None:
    text = MANY_TILES.replace("step=128", "step=192").replace("p+128", "p+192")
    found = made(text, SIZES.replace("\n", " "))
    staged = [
        o for o in found.schedule.walk()
        if o.name == "tessera.schedule.load" and o.attributes.get("stage") == "shared"
    ]  # fmt: skip
    inner = [o for o in staged if o.operands[0].name != "a"]
    notes = [d for d in found.remarks if "no ring is staged for this product" in d.message]
    assert all(o.attributes["stages"] == 1 for o in inner), [o.attributes for o in inner]
    assert len(notes) == 4


def test_sizes_beside_loops_that_say_others_are_reported() -> None:
    signature = ZEROS.signature(ZEROS.large)
    for said, reported in (("(64, 64)", 0), ("(64, 64, 64)", 0), ("(128, 64)", 1), ("(32,)", 1)):
        text = ZEROS.text.replace(
            "c: mut f32[m, n]):\n", f"c: mut f32[m, n]):\n    schedule.tile({said})\n"
        )
        assert text != ZEROS.text
        notes = [d.message for d in made(text, signature).remarks if d.code == "T0742"]
        assert len(notes) == reported, (said, notes)
        assert all(re.search(r"of the kernel say \(?64", n) for n in notes)


def test_a_minimum_with_what_is_read_still_says_the_room() -> None:
    """Else the product is no tile, and is computed again for each of its uses."""
    text = """
@op.kernel
def kernel(q: bf16[64, 64], x: bf16[t, 64], n: i32[1]) -> f32[64]:
    top = op.full((64,), -inf, f32)
    total = op.zeros((64,), f32)
    for j in range(0, min(index(n[0]), t), 64):
        end = min(j + 64, min(index(n[0]), t))
        s = (q[:, :] @ x[j:end, :].T).to(f32)
        top = max(top, op.max(s, axis=1))
        total += op.sum(exp(s - top[:, None]), axis=1)
    return total
"""
    found = made(text, "q: bf16[64, 64], x: bf16[4096, 64], n: i32[1]", "sm_80")
    dots = [o for o in found.schedule.walk() if o.name == DOT]
    assert [o.result.type.shape for o in dots] == [(64, 64)]  # type: ignore[union-attr]
