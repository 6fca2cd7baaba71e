"""What several files of cases share, made once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernels of ``test_cuda_headers.py``, built for two architectures."""
    from tests.cases.test_cuda_headers import built

    return built(tmp_path_factory.mktemp("library"))
