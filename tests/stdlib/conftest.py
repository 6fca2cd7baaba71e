"""For tests of layouts: the library called with arrays that lie on the GPU as they lie here."""

from __future__ import annotations

from typing import Any

import pytest

from tests.on_device import with_layouts


@pytest.fixture
def placed(std: Any, request: pytest.FixtureRequest) -> Any:
    """``std`` of the test's module. On a GPU it is not given copies without gaps."""
    return with_layouts(std, request.node.callspec.params["std"])
