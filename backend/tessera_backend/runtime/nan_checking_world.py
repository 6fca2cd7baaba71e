"""A world that stops where something gives NaN and takes none.

Owns the question. Must not know which operators a fused kernel has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tessera_backend.runtime import host_array_arithmetic
from tessera_backend.runtime.dtypes import is_array
from tessera_backend.runtime.host_environment import HostWorld
from tessera_lang.target.host_world import KernelReference, Reduction, WorldFault


class NanCheckingWorld(HostWorld):
    """See ``tessera_lang.target.host_world.ChecksNan``."""

    check_nan = True

    def has_nan(self, value: object) -> bool:
        if isinstance(value, tuple | list):
            return any(map(self.has_nan, cast("tuple[object, ...]", value)))
        if isinstance(value, float):
            return value != value
        if not is_array(value) or not host_array_arithmetic.dtype_of(value).is_float:
            return False
        array: Any = self._array(value)
        return bool(np.any(array != array))

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        before = self.has_nan(arguments)
        made = super().launch(kernel, arguments, constants, groups)
        if not kernel.path.startswith("<graph: "):  # those are looked at operator by operator
            written = () if kernel.pure else arguments
            self._check(before, (made, written), kernel.description)
        return made

    def unary(self, operator: str, a: object) -> object:
        made = super().unary(operator, a)
        self._check(self.has_nan(a), made, f"`{operator}`")
        return made

    def binary(self, operator: str, a: object, b: object) -> object:
        made = super().binary(operator, a, b)
        self._check(self.has_nan((a, b)), made, f"`{operator}`")
        return made

    def reduce(self, kind: Reduction, array: object, axis: int | None) -> object:
        made = super().reduce(kind, array, axis)
        self._check(self.has_nan(array), made, f"`op.{kind}`")
        return made

    def _check(self, before: bool, made: object, what: str) -> None:
        if not before and self.has_nan(made):
            raise WorldFault(f"{what} gives NaN, and takes none", code="T0763")
