"""The tables of dtypes, which threads fill at their first use of a narrow float."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.runtime import dtypes

from tessera_lang.types.dtype import DTYPES

NARROW = {name: np.dtype(getattr(ml_dtypes, dtypes._NARROW_NAMES[name]))
          for name in dtypes._NARROW_NAMES}  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_a_name_is_there_when_all_dtypes_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from_numpy: dict[Any, Any] = {}
    monkeypatch.setattr(dtypes, "FROM_NUMPY", from_numpy)

    class Watched(dtypes._ToNumpy):
        def __setitem__(self, key: str, value: Any) -> None:
            self.update({key: value})

        def update(self, *given: Any, **named: Any) -> None:
            assert {from_numpy[d] for d in NARROW.values()} == {DTYPES[n] for n in NARROW}
            super().update(*given, **named)

    assert Watched()[name] == NARROW[name]


@pytest.mark.parametrize("name", NARROW)
def test_what_another_thread_adds_between_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dtypes.TO_NUMPY[name] == NARROW[name]

    class Late(dict[Any, Any]):
        asked = 0

        def get(self, key: Any, default: Any = None) -> Any:
            self.asked += 1
            return default if self.asked == 1 else super().get(key, default)

    monkeypatch.setattr(dtypes, "FROM_NUMPY", Late(dtypes.FROM_NUMPY))
    assert dtypes.from_numpy(NARROW[name]) is DTYPES[name]


def test_dtypes_that_are_none_of_ours() -> None:
    for other in (np.complex64, object, ml_dtypes.int4, np.dtype([("a", np.int8)])):
        assert dtypes.from_numpy(np.dtype(other)) is None
