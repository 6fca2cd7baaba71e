"""Type stubs of modules: what a type checker and an editor know of a file's names.

Owns the text of a ``.pyi``. A stub has a class ``Module`` with the names of the file, and one
for each kernel: the callable, ``k[groups]``, ``k.on(stream)`` and ``k.bind``. Must not know
how arguments are checked, nor where the text goes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from keyword import iskeyword

from tessera_backend.runtime.module_interface import (
    Constant,
    FunctionInterface,
    KernelInterface,
    ModuleInterface,
    ParameterInfo,
)
from tessera_backend.runtime.python_signature import (
    default_of,
    has_default,
    positional_only,
    python_signature,
)
from tessera_lang.types.dtype import DTYPES

_MODULES = {
    "collections.abc": ("Callable",),
    "typing": ("Any", "Final", "Self"),
    "tessera_lang": ("Array", "DType", "Groups", "Integer", "Real", "Stream"),
}
_MARK = "\0"
"""Stands in front of a name of ``_MODULES`` until it is known how the stub imports it."""
_SUFFIX = "_kernel"
_INDENT = "    "
_WIDTH = 100


def stub_text(interface: ModuleInterface, file: str) -> str:
    """The text of the stub of a module. ``file`` is the name that its first line shows."""
    names = [name for name in interface.public if not iskeyword(name)]
    kernels = [interface.kernels[name] for name in names if name in interface.kernels]
    body = [line for k in kernels for line in ("", "", *_kernel_class(k))]
    body += ["", "", *_module_class(interface, names, file)]
    imports, text = _with_imports("\n".join(body), names)
    return "\n".join([f"# Written by `tesserac stubs {file}`.", *imports, text, ""])


def _with_imports(text: str, taken: Sequence[str]) -> tuple[list[str], str]:
    """The imports of what is used, under another name where the file has one of its own, and the
    text with these names."""
    lines: list[str] = []
    for module, names in _MODULES.items():
        used: list[str] = []
        for name in names:
            if f"{_MARK}{name}" in text:
                alias = f"_{name}" if name in taken else name
                text = text.replace(f"{_MARK}{name}", alias)
                used.append(name if alias == name else f"{name} as {alias}")
        if used:
            lines += [""] if module == "tessera_lang" and lines else []
            lines.append(f"from {module} import {', '.join(used)}")
    return lines, text


# --- kernels ---------------------------------------------------------------------------------


def _kernel_class(kernel: KernelInterface) -> list[str]:
    shown = python_signature(kernel.parameters, kernel.brackets, kernel.returns, launches=False)
    own = _own_name(kernel.parameters, kernel.brackets)
    given = _parameters(own, kernel.parameters, kernel.brackets, launches=True)
    result = f"{_MARK}Any" if kernel.returns else "None"
    lines = [f"class {kernel.name}{_SUFFIX}:", *_doc(f"{kernel.name}{shown}", 1)]
    lines += ["", _INDENT + "__name__: str", ""]
    lines += _method("__call__", given, result, _described(kernel))
    if kernel.level == "lane":
        lines += [
            "",
            *_method(
                "__getitem__",
                ("self", f"groups: {_MARK}Groups"),
                f"{_MARK}Self",
                "The kernel with its number of groups, per axis, last fastest.",
            ),
        ]
    lines += [
        "",
        *_method(
            "on", ("self", f"stream: {_MARK}Stream"), f"{_MARK}Self", "The kernel on a stream."
        ),
    ]
    lines += [
        "",
        *_method(
            "bind",
            given,
            f"{_MARK}Callable[[], {result}]",
            "A launch with everything decided, to be called again and again.",
        ),
    ]
    return lines


def _method(name: str, given: Sequence[str], result: str, doc: str) -> list[str]:
    line = f"{_INDENT}def {name}({', '.join(given)}) -> {result}:"
    if len(line) <= _WIDTH:
        return [line, *_doc(doc, 2)]
    parts = [f"{_INDENT * 2}{part}," for part in given]
    return [f"{_INDENT}def {name}(", *parts, f"{_INDENT}) -> {result}:", *_doc(doc, 2)]


def _described(kernel: KernelInterface) -> str:
    """The docstring, and what the annotations say: sizes and element types."""
    said = [f"{p.name}: {p.declared}" for p in (*kernel.parameters, *kernel.brackets)
            if p.declared]  # fmt: skip
    said += [f"returns {kernel.returns}"] if kernel.returns else []
    return "\n\n".join(part for part in (kernel.doc, "\n".join(said)) if part)


# --- modules ---------------------------------------------------------------------------------


def _module_class(interface: ModuleInterface, names: Sequence[str], file: str) -> list[str]:
    lines = ["class Module:", *_doc(interface.doc or f"What `tessera.load` gives for {file}.", 1)]
    for name in names:
        if name in interface.constants:
            lines += ["", _constant(name, interface.constants[name])]
        elif name in interface.kernels:
            lines += ["", f"{_INDENT}{name}: {_MARK}Final[{name}{_SUFFIX}]"]
        else:
            lines += ["", *_function(interface.functions[name])]
    return lines


def _constant(name: str, value: Constant) -> str:
    if _literal(value) and not isinstance(value, tuple):
        return f"{_INDENT}{name}: {_MARK}Final = {_literal(value)}"
    return f"{_INDENT}{name}: {_MARK}Final[{_type_of(value)}]"


def _type_of(value: Constant) -> str:
    if isinstance(value, tuple):
        return f"tuple[{', '.join(_type_of(item) for item in value) or '()'}]"
    return type(value).__name__


def _function(function: FunctionInterface) -> list[str]:
    given = _parameters("", function.parameters, function.brackets, launches=False)
    doc = function.doc or "A plain function."
    return [_INDENT + "@staticmethod", *_method(function.name, given, f"{_MARK}Any", doc)]


# --- parameters ------------------------------------------------------------------------------


def _own_name(parameters: Sequence[ParameterInfo], brackets: Sequence[ParameterInfo]) -> str:
    """What a method calls its object: no name of a parameter."""
    own = "self"
    while own in {p.name for p in (*parameters, *brackets)}:
        own = f"_{own}"
    return own


def _parameters(
    own: str, parameters: Sequence[ParameterInfo], brackets: Sequence[ParameterInfo],
    *, launches: bool,
) -> list[str]:  # fmt: skip
    """As in ``python_signature``. ``own`` stands first; ``launches`` are kernels'."""
    unnamed = positional_only(parameters)
    parts = [own] if own else []
    for number, p in enumerate(parameters, 1):
        name = f"{p.name}_" if iskeyword(p.name) else p.name
        parts.append(_parameter(name, p, launches))
        parts += ["/"] if number == unnamed else []
    named = [_parameter(p.name, p, launches) for p in brackets if not iskeyword(p.name)]
    if launches and "stream" not in {p.name for p in (*parameters, *brackets)}:
        named.append(f"stream: {_MARK}Stream | None = None")
    return [*parts, *(["*", *named] if named else [])]


def _parameter(name: str, p: ParameterInfo, of_kernel: bool) -> str:
    text = f"{name}: {_parameter_type(p, of_kernel)}"
    if not has_default(p):
        return text
    return f"{text} = {_literal(default_of(p)) or '...'}"


def _literal(value: object) -> str:
    """The text of a value in Python, empty where it has none."""
    text = repr(value)
    try:
        return text if ast.literal_eval(text) == value else ""
    except (ValueError, SyntaxError):  # inf and nan; a name of the file
        return ""


def _parameter_type(p: ParameterInfo, of_kernel: bool) -> str:
    match p.kind:
        case "array":
            return f"{_MARK}Array"
        case "scalar":
            return _number_type(p.dtype)
        case "constant":
            kinds = {
                "int": f"{_MARK}Integer", "float": f"{_MARK}Real", "bool": "bool", "str": "str",
                "dtype": f"{_MARK}DType",
            }  # fmt: skip
            return kinds.get(p.dtype, "int | float | bool | str")
        case "any":
            return f"{_MARK}Array | {_MARK}Real" if of_kernel else f"{_MARK}Any"


def _number_type(dtype: str) -> str:
    found = DTYPES.get(dtype)
    if found is not None and found.kind == "bool":
        return "bool"
    return f"{_MARK}Integer" if found is not None and found.is_integer else f"{_MARK}Real"


# --- text ------------------------------------------------------------------------------------


def _doc(text: str, depth: int) -> list[str]:
    """A docstring; what would end it or begin an escape is escaped."""
    indent = _INDENT * depth
    body = text.replace(_MARK, "").replace("\\", "\\\\").rstrip('"')
    quotes = len(text) - len(text.rstrip('"'))
    safe = body.replace('"""', '\\"\\"\\"') + '\\"' * quotes
    first, *rest = safe.splitlines() or [""]
    if not rest:
        return [f'{indent}"""{first}"""']
    return [f'{indent}"""{first}', *(f"{indent}{line}".rstrip() for line in rest), f'{indent}"""']
