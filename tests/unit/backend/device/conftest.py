"""A driver without a GPU for the tests of this folder."""

from __future__ import annotations

import pytest
from tessera_backend.device import driver, memory

from tests.unit.backend.device.fake_driver import FakeApi


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """The stand-in, in the place of cuda-python, with nothing opened yet."""
    fake = FakeApi()
    monkeypatch.setattr(driver, "_bindings", lambda: fake)
    monkeypatch.setattr(driver, "_loaded", driver._Loaded())
    monkeypatch.setattr(memory, "_pools", {})
    monkeypatch.setattr(memory, "_records", {})
    return fake
