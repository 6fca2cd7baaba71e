"""The tables that editors show name what the compiler knows."""

from __future__ import annotations

from tessera_grammar.keywords import BUILTINS, MODULE_MEMBERS

from tessera_lang.sema import builtins


def test_the_compilers_builtins_have_a_line_of_doc() -> None:
    known = {name for name in builtins.FUNCTIONS if "." not in name}
    known |= {*builtins.NAMESPACES, *builtins.NUMBERS, *builtins.LATER}
    assert not sorted(name for name in known if "." not in name and name not in BUILTINS)


def test_members_of_modules_have_a_line_of_doc() -> None:
    for module, members in MODULE_MEMBERS.items():
        assert BUILTINS[module].kind == "module"
        for name, doc in members.items():
            assert name.isidentifier() and doc.endswith(".") and "\n" not in doc
    host = (f"op.{name}" for name in builtins.OP_BUILT)
    for name in (*builtins.FUNCTIONS, *builtins.TILE_FUNCTIONS, *host):
        module, _, member = name.partition(".")
        assert not member or member in MODULE_MEMBERS[module]
