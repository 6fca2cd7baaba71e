"""The functions of the language that a host program may call, by full name.

Owns the table. Must not know what a function does.
"""

from __future__ import annotations

from tessera_grammar.keywords import MODULE_MEMBERS

from tessera_lang.evaluate.array_functions import ARRAY_FUNCTIONS
from tessera_lang.evaluate.builtin_protocol import Function
from tessera_lang.evaluate.derivatives import DERIVATIVES
from tessera_lang.evaluate.host_array_functions import HOST_NAMES
from tessera_lang.evaluate.library_functions import LIBRARY_FUNCTIONS
from tessera_lang.evaluate.one_call_kernels import ONE_CALL_KERNELS
from tessera_lang.evaluate.python_functions import PYTHON_FUNCTIONS
from tessera_lang.evaluate.scalar_functions import SCALAR_FUNCTIONS

BUILTINS: dict[str, Function] = {
    **ONE_CALL_KERNELS, **ARRAY_FUNCTIONS, **SCALAR_FUNCTIONS, **PYTHON_FUNCTIONS,
    **HOST_NAMES, **LIBRARY_FUNCTIONS, **DERIVATIVES,
}  # fmt: skip

_PLANNED = (
    "transpose", "concat", "scan", "mul", "add",
)  # fmt: skip
OP_LATER = tuple(
    name for name in (*MODULE_MEMBERS["op"], *_PLANNED) if f"op.{name}" not in BUILTINS
)
"""Members of ``op`` that the host program does not have yet."""
