"""xDSL's parser of our textual form; a test that needs it is skipped where it is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


def module_read(text: str) -> ModuleOp:
    """The module of a printed program, verified."""
    pytest.importorskip("xdsl")
    from xdsl.context import Context
    from xdsl.dialects.builtin import Builtin
    from xdsl.parser import Parser

    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def names_read(text: str) -> list[str]:
    """Names of the operations that are found, outermost first."""
    module = module_read(text)
    inner: list[Any] = [o for o in module.walk() if o is not module]
    return [o.attributes["op_name__"].data for o in inner]


def types_read(text: str) -> set[str]:
    """The types of all results, as xDSL spells them."""
    return {str(r.type) for o in module_read(text).walk() for r in o.results}
