"""The session: what an edit computes again, and what imports may reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.lower.ast_to_tile import kernel as lower_kernel
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument

Folder = Callable[[Mapping[str, str]], Path]


def kernel(name: str, factor: str = "2.0") -> str:
    return (
        f"@kernel tile[(32,)] grid[(1,)]\n"
        f"def {name}(x: f32[n], out: mut f32[n]):\n"
        f"    for k in range(tile_linear_id(), n, group_tile_count()):\n"
        f"        out[k] = scaled(x[k], {factor})\n\n\n"
    )


HELPER = "def scaled(v, factor):\n    return v * factor\n\n\n"


def text(*kernels: str) -> str:
    return HELPER + "".join(kernels)


def work(session: Session) -> dict[str, int]:
    counts = {k: session.counts[k] for k in ("structure", "check", "lower")}
    session.counts.clear()
    return counts


def test_an_edit_of_one_kernel_checks_only_it() -> None:
    session = Session(overlay={"m.tessera": text(kernel("a"), kernel("b"), kernel("c"))})
    assert session.check("m.tessera") == ()
    assert work(session) == {"structure": 4, "check": 3, "lower": 3}
    assert session.check("m.tessera") == ()
    assert work(session) == {"structure": 0, "check": 0, "lower": 0}
    session.set_text("m.tessera", text(kernel("a"), kernel("b", "3.0"), kernel("c")), 2)
    assert session.check("m.tessera") == ()
    assert work(session) == {"structure": 1, "check": 1, "lower": 1}
    session.set_text("m.tessera", "# moved\n\n" + text(kernel("a"), kernel("b"), kernel("c")), 3)
    assert session.check("m.tessera") == ()
    assert work(session) == {"structure": 1, "check": 1, "lower": 1}


def test_an_edit_of_a_called_function_checks_its_callers() -> None:
    session = Session(overlay={"m.tessera": text(kernel("a"), kernel("b"))})
    session.check("m.tessera")
    work(session)
    session.set_text("m.tessera", text(kernel("a"), kernel("b")).replace("v * f", "v + f"), 2)
    assert session.check("m.tessera") == ()
    assert work(session)["check"] == 2


def test_an_edit_of_a_constant_checks_its_readers() -> None:
    source = "SIZE = 4\n" + text(kernel("a", "SIZE"), kernel("b"))
    session = Session(overlay={"m.tessera": source})
    session.check("m.tessera")
    work(session)
    session.set_text("m.tessera", source.replace("SIZE = 4", "SIZE = 5"), 2)
    session.check("m.tessera")
    assert work(session)["check"] == 1


def test_diagnostics_move_with_their_lines() -> None:
    broken = kernel("b").replace("x[k]", "y[k]")
    session = Session(overlay={"m.tessera": text(kernel("a"), broken)})
    (before,) = session.check("m.tessera")
    assert before.span is not None
    low = before.span.lo
    session.set_text("m.tessera", "# one more line\n" + text(kernel("a"), broken), 2)
    (after,) = session.check("m.tessera")
    assert after.span is not None and after.span.lo == low + len("# one more line\n")


def test_a_mended_file_is_clean_again() -> None:
    good = text(kernel("a"))
    session = Session(overlay={"m.tessera": good.replace("range(", "range((")})
    assert session.check("m.tessera")
    session.set_text("m.tessera", good, 2)
    assert session.check("m.tessera") == ()


def test_an_edit_of_an_import_reaches_the_importer() -> None:
    main = "from lib import scaled\n" + kernel("a")
    session = Session(overlay={"main.tessera": main, "lib.tessera": HELPER})
    assert session.check("main.tessera") == ()
    session.set_text("lib.tessera", HELPER.replace("v * factor", "v * w"), 2)
    assert [d.code for d in session.check("main.tessera")] == ["T0101"]
    session.set_text("lib.tessera", HELPER, 3)
    assert session.check("main.tessera") == ()


def test_files_on_disk_are_read_again_when_they_change(folder: Folder) -> None:
    path = folder({"m.tessera": text(kernel("a"))}) / "m.tessera"
    session = Session()
    assert session.check(str(path)) == ()
    path.write_text("print(zork)\n")
    os.utime(path, ns=(1, 1))
    assert [d.code for d in session.check(str(path))] == ["T0101"]


def test_the_closure_holds_every_import(folder: Folder) -> None:
    root = folder({
        "main.tessera": "import lib\nimport std.reduce\n", "lib.tessera": "import deep.inner\n",
        "deep/inner.tessera": "SIZE = 1\n",
    })  # fmt: skip
    names = [os.path.basename(p) for p in Session().closure(str(root / "main.tessera"))]
    assert names[:3] == ["main.tessera", "lib.tessera", "reduce.tessera"]
    assert "inner.tessera" in names


def test_folders_to_search(folder: Folder) -> None:
    root = folder({"a/main.tessera": "import lib\n", "b/lib.tessera": "X = 1\n"})
    main = str(root / "a" / "main.tessera")
    (missing,) = Session().check(main)
    assert missing.code == "T0130" and missing.span is not None
    assert Session([str(root / "b")]).check(main) == ()


def test_a_circle_of_imports(folder: Folder) -> None:
    root = folder({"a.tessera": "import b\n", "b.tessera": "import c\n", "c.tessera": "import a\n"})
    found = Session().check(str(root / "a.tessera"))
    assert {d.code for d in found} == {"T0131"}
    assert "a.tessera -> " in found[0].message


def test_a_file_that_imports_itself(folder: Folder) -> None:
    root = folder({"a.tessera": "import a\n"})
    assert [d.code for d in Session().check(str(root / "a.tessera"))] == ["T0131"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_out_of_the_folder_is_refused(folder: Folder) -> None:
    root = folder({"in/main.tessera": "import lib\n", "out/lib.tessera": "X = 1\n"})
    (root / "in" / "lib.tessera").symlink_to(root / "out" / "lib.tessera")
    (found,) = Session().check(str(root / "in" / "main.tessera"))
    assert found.code == "T0132" and "--path" in found.helps[0]


@pytest.mark.parametrize("name", ["..lib", ".lib", "/etc/passwd", "lib/inner", "a..b"])
def test_odd_module_names_are_refused(name: str) -> None:
    found = Session(overlay={"m.tessera": f"import {name}\n"}).check("m.tessera")
    assert found and all(d.code.startswith(("T00", "T01")) for d in found)


def test_unknown_standard_modules_name_the_known_ones() -> None:
    (found,) = Session(overlay={"m.tessera": "import std.nothing\n"}).check("m.tessera")
    assert found.code == "T0130" and "`std.reduce`" in found.helps[0]


def test_two_spellings_are_one_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    root = folder({"m.tessera": text(kernel("a"))})
    monkeypatch.chdir(root)
    session = Session()
    session.check("m.tessera")
    session.check(str(root / "m.tessera"))
    assert session.counts["parse"] == 1


def test_errors_are_exceptions_for_hosts() -> None:
    session = Session(overlay={"m.tessera": text(kernel("a").replace("x[k]", "y[k]"))})
    signature = session.signature("m.tessera", "a")
    with pytest.raises(TesseraError) as caught:
        session.tile("m.tessera", "a", signature)
    assert "T0101" in str(caught.value) and "m.tessera:" in str(caught.value)
    with pytest.raises(TesseraError, match="no kernel `b`"):
        session.signature("m.tessera", "b")


def test_lines_of_a_plan_are_those_of_the_text_now() -> None:
    source = text(kernel("a")).replace("out[k]", "out[k + 1]")
    session = Session(overlay={"m.tessera": source})
    signature = session.signature("m.tessera", "a")
    before = session.tile("m.tessera", "a", signature)[1].sites
    session.set_text("m.tessera", "#\n#\n" + source, 2)
    after = session.tile("m.tessera", "a", signature)[1].sites
    assert before and [s.line + 2 for s in before] == [s.line for s in after]


def test_barriers_and_bounds_are_checked() -> None:
    source = (
        "@kernel tile[(32,)] shared(1_KiB) grid[(1,)]\n"
        "def f(out: mut f32[n]):\n"
        "    smem = tshared.alloc((32,), f32)\n"
        "    if tile_linear_id() < 7:\n        tbarrier()\n"
        "    smem[tile_linear_id() + 40] = 1.0\n"
    )
    found = Session(overlay={"m.tessera": source}).check("m.tessera")
    assert [d.code for d in found] == ["T0401", "T0402"]


def test_other_alignments_are_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an array begins changes nothing that the checks look at; strides and the text do."""
    seen: list[object] = []
    given = lower_kernel._checks
    monkeypatch.setattr(lower_kernel, "_checks", lambda *a: (seen.append(a), given(*a))[1])
    source = (
        "@kernel tile[(32,)] grid[(2,)]\n"
        "def f(x: f32[n], out: mut f32[m]):\n    out[tile_linear_id()] = x[grid_tile_linear_id()]\n"
    )
    session = Session(overlay={"m.tessera": source})
    signature = session.signature("m.tessera", "f")
    facts = [(True, False), (True, True), (False, False)]
    said = [
        session.instance("m.tessera", "f", tuple(
            replace(a, contiguous=dense, aligned=aligned) if isinstance(a, TensorArgument) else a
            for a in signature
        ))[2]
        for dense, aligned in facts
    ]  # fmt: skip
    assert len(seen) == 2
    assert said[0] == said[1] == said[2] and [d.code for d in said[0]] == ["T0414"]
    fresh = Session(overlay={"m.tessera": source.replace("grid[(2,)]", "grid[(1,)]")})
    assert fresh.instance("m.tessera", "f", signature)[2] == () and len(seen) == 3
    session.set_text("m.tessera", source.replace("(2,)", "(1,)"), 2)
    assert session.instance("m.tessera", "f", signature)[2] == () and len(seen) == 4
