"""Writing LLVM IR as text: one function, one module, metadata.

Owns names, blocks and the order of lines. The text is parsed and verified by llvmlite in the
end; building it here is an order of magnitude faster than through a builder of objects. Must
not know Tile IR or a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class FunctionText:
    """Lines of one function. Stack slots go to the front of the entry block. ``behind``: what every
    instruction ends in."""

    def __init__(self) -> None:
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._temporaries = 0
        self._labels = 0
        self._block = "entry"
        self._open = True
        self.behind = ""

    @property
    def block(self) -> str:
        """Label of the block being written (for ``phi``)."""
        return self._block

    @property
    def open(self) -> bool:
        """Whether the block being written still lacks its terminator."""
        return self._open

    def fresh(self) -> str:
        self._temporaries += 1
        return f"%t{self._temporaries}"

    def value(self, instruction: str) -> str:
        """Writes an instruction that gives a value; returns its name."""
        name = self.fresh()
        self.line(f"{name} = {instruction}")
        return name

    def line(self, instruction: str) -> None:
        """Writes an instruction without a value. Unreachable code is dropped."""
        if self._open:
            self._lines.append(f"  {instruction}{self.behind}")

    def slot(self, llvm_type: str, align: int = 0, initial: str = "") -> str:
        """A stack slot in the entry block, where it may get a value."""
        name = self.fresh()
        suffix = f", align {align}" if align else ""
        self._slots.append(f"  {name} = alloca {llvm_type}{suffix}")
        if initial:
            self._slots.append(f"  store {llvm_type} {initial}, ptr {name}")
        return name

    def label(self, hint: str) -> str:
        """A new block name, to be placed later."""
        self._labels += 1
        return f"{hint}.{self._labels}"

    def place(self, label: str) -> None:
        """Begins the block ``label``; the open one falls through into it."""
        if self._open:
            self.branch(label)
        self._lines.append(f"{label}:")
        self._block = label
        self._open = True

    def branch(self, label: str, suffix: str = "") -> None:
        self.terminate(f"br label %{label}{suffix}")

    def branch_if(self, condition: str, then: str, other: str, suffix: str = "") -> None:
        self.terminate(f"br i1 {condition}, label %{then}, label %{other}{suffix}")

    def terminate(self, instruction: str) -> None:
        self.line(instruction)
        self._open = False

    def body(self) -> str:
        """The blocks, to stand between the braces."""
        if self._open:
            raise ValueError("the last block has no terminator")
        return "\n".join(["entry:", *self._slots, *self._lines])


class ModuleText:
    """Globals, declarations, helper functions, metadata and functions of one module."""

    def __init__(self) -> None:
        self._globals: dict[str, str] = {}
        self._declarations: dict[str, None] = {}
        self._helpers: dict[str, str] = {}
        self._shared: dict[str, str] = {}
        self._entries: dict[str, str] = {}
        self._functions: list[str] = []
        self._metadata: list[str] = []
        self._known: dict[str, str] = {}

    def declare(self, prototype: str) -> None:
        """``void @llvm.x(i32)``: a declaration, once however often asked for."""
        self._declarations.setdefault(prototype)

    def add_global(self, name: str, definition: str) -> None:
        """``@name = definition``."""
        self._globals[name] = definition

    def new_global(self, name: str, definition: str) -> str:
        """The same with a number behind its name, which is given back."""
        made = f"{name}_{len(self._globals)}"
        self.add_global(made, definition)
        return made

    def add_helper(self, name: str, definition: str) -> None:
        """A whole internal function, once however often asked for."""
        self._helpers.setdefault(name, definition)

    def add_shared(self, name: str, definition: str, prototype: str = "") -> None:
        """The same of what other modules have just so. ``prototype``: of what is called from
        outside of these functions."""
        self._shared.setdefault(name, definition)
        if prototype:
            self._entries.setdefault(name, prototype)

    def add_function(self, definition: str) -> None:
        self._functions.append(definition)

    def metadata(self, body: str) -> str:
        """``!{...}`` as a node; equal bodies share one."""
        if body not in self._known:
            self._known[body] = self.distinct(body, distinct=False)
        return self._known[body]

    def distinct(self, body: str, *, distinct: bool = True) -> str:
        """A node of its own; ``{self}`` in the body stands for the node."""
        name = f"!{len(self._metadata)}"
        text = body.replace("{self}", name)
        self._metadata.append(f"{name} = {'distinct ' if distinct else ''}{text}")
        return name

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of what is called of the shared functions."""
        return tuple(self._entries)

    def render(self, header: str, footer: str = "") -> str:
        """The module: ``header`` holds the triple and layout, ``footer`` attribute groups."""
        return self._rendered(header, [*self._global_lines(), *self._shared.values()], (), footer)

    def render_apart(self, header: str, footer: str = "") -> tuple[str, str]:
        """The module without its shared functions, and those alone, none of which is seen from
        outside."""
        made = self._rendered(header, self._global_lines(), self._entries.values(), footer)
        shared = [*self._shared.values(), *(f"declare {d}" for d in self._declarations)]
        return made, "\n".join([header, *shared, footer, *self._metadata]) + "\n"

    def _global_lines(self) -> list[str]:
        return [f"@{name} = {text}" for name, text in self._globals.items()]

    def _rendered(
        self, header: str, first: Sequence[str], declared: Iterable[str], footer: str
    ) -> str:
        parts = [
            header,
            *first,
            *self._helpers.values(),
            *self._functions,
            *(f"declare {d}" for d in (*self._declarations, *declared)),
            footer,
            *self._metadata,
        ]
        return "\n".join(p for p in parts if p) + "\n"
