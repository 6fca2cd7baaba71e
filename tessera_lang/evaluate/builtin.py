"""The functions of the language that a host program may call, by full name.

Owns the table. Must not know what a function does.
"""

from __future__ import annotations

from tessera_lang.evaluate.array_functions import ARRAY_FUNCTIONS
from tessera_lang.evaluate.builtin_protocol import Function
from tessera_lang.evaluate.scalar_functions import SCALAR_FUNCTIONS

BUILTINS: dict[str, Function] = {**ARRAY_FUNCTIONS, **SCALAR_FUNCTIONS}

OP_LATER = (
    "kernel", "autotunable", "tile_range", "shared", "prefetch", "barrier", "matmul", "softmax",
    "relu", "gelu", "silu", "exp", "log", "sqrt", "tanh", "layernorm", "rmsnorm", "transpose",
    "concat", "gather", "fft", "ifft", "conv2d", "window", "causal", "scan", "clamp", "where",
    "mul", "add", "iota", "cumsum", "prod", "var", "exp2", "log2", "log1p", "rsqrt", "sin", "cos",
    "erf", "sigmoid", "floor", "ceil", "round", "trunc",
)  # fmt: skip
"""Members of ``op`` that the host program does not have yet."""
