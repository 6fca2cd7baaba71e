"""A signature that a user could give: the text of `--signature`, with the parameters of a kernel.

Owns the text. Must not know what a kernel needs sizes for.
"""

from __future__ import annotations

from collections.abc import Collection

from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.side_tables import Argument, ConstantArgument, Signature, TensorArgument
from tessera_lang.sema.signature import compile_time_kind, is_compile_time, parameters_of
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType, dtype_named

_SIZE = 64
_VALUES = {"int": "3", "float": "0.5", "bool": "True", "str": '"..."', "dtype": "f32", "any": "3"}


def missing_value(p: ast.Parameter) -> str:
    """``stride=3``: a compile-time parameter with some value of its kind."""
    return f"{p.name}={_VALUES[compile_time_kind(p)]}"


def missing_arguments(function: ast.FunctionDef, given: Collection[str]) -> str:
    """All that annotations and defaults leave open, without what is given: ``x: f32[n], k=3``."""
    texts: list[str] = []
    dtypes = {p.name for p in function.brackets}
    for bracket, p in parameters_of(function):
        if p.name in given:
            continue
        if is_compile_time(p, bracket):
            texts += [missing_value(p)] if p.default is None else []
        elif p.annotation is None:
            texts.append(f"{p.name}: f32[n]")
        elif isinstance(p.annotation.base, ast.Name) and p.annotation.base.id not in dtypes:
            known = dtype_named(p.annotation.base.id) is not None
            texts += [] if known else [f"{p.name}: f32[n]"]
    return ", ".join(texts)


def sized_arguments(
    function: ast.FunctionDef, signature: Signature, needed: Collection[tuple[str, int]]
) -> str:
    """The signature with numbers for the axes that are needed: ``x: f32[n, 64]``. What the
    annotations say is left out."""
    numbered = {
        source_of(p.annotation.shape[axis])
        for _, p in parameters_of(function) for name, axis in needed
        if p.name == name and p.annotation is not None and p.annotation.shape is not None
        and axis < len(p.annotation.shape)
    }  # fmt: skip
    texts: list[str] = []
    for (bracket, p), a in zip(parameters_of(function), signature, strict=True):
        if isinstance(a, TensorArgument):
            mine = {axis for name, axis in needed if name == p.name}
            texts += [_tensor(p, a, mine, numbered)] if mine or not _is_known(p) else []
        elif is_compile_time(p, bracket):
            texts += [f"{p.name}={_value(a)}"] if p.default is None else []
        elif not _is_known(p):
            texts.append(f"{p.name}: {getattr(a, 'dtype', 'f32')}")
    return ", ".join(texts)


def _tensor(
    p: ast.Parameter, a: TensorArgument, mine: Collection[int], numbered: Collection[str]
) -> str:
    shape = None if p.annotation is None else p.annotation.shape
    dims = [f"n{i}" if shape is None else source_of(shape[i]) for i in range(a.rank)]
    shown = [str(_SIZE) if i in mine or d in numbered and d.isidentifier() else d
             for i, d in enumerate(dims)]  # fmt: skip
    return f"{p.name}: {a.dtype}[{', '.join(shown)}]"


def _is_known(p: ast.Parameter) -> bool:
    """Whether the annotation says the dtype."""
    base = None if p.annotation is None else p.annotation.base
    return isinstance(base, ast.Name) and dtype_named(base.id) is not None


def _value(a: Argument) -> str:
    if not isinstance(a, ConstantArgument):
        return "..."
    return a.value.name if isinstance(a.value, DType) else repr(a.value)
