"""The functions of the language that a host program may call, by full name.

Owns the table. Must not know what a function does.
"""

from __future__ import annotations

from tessera_lang.evaluate.array_functions import ARRAY_FUNCTIONS
from tessera_lang.evaluate.builtin_protocol import Function
from tessera_lang.evaluate.scalar_functions import SCALAR_FUNCTIONS

BUILTINS: dict[str, Function] = {**ARRAY_FUNCTIONS, **SCALAR_FUNCTIONS}
