"""What all tests share: GPU probing, golden files, profiles of generated tests."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cards import environment

pytest_plugins = ["tests.reporting", "tests.sampling", "tests.quick_code", "tests.imports"]

if sys.dont_write_bytecode:
    # Nothing beside the sources, as was asked; but hundreds of processes that tests start would
    # compile them again each, and the processes of a run the tests.
    sys.pycache_prefix = os.environ.setdefault(
        "PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / "build" / "bytecode")
    )
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if not {"TESSERA_CACHE", "TESSERA_CACHE_DIR"} & set(os.environ):
    # A cache that all processes of a run share and that ends with it. The user's would lose their
    # kernels to those of the tests, and what a run finds there differs from run to run.
    os.environ["TESSERA_CACHE_DIR"] = tempfile.mkdtemp(prefix="tessera-tests-")

    @atexit.register
    def remove(folder: str = os.environ["TESSERA_CACHE_DIR"], process: int = os.getpid()) -> None:
        if os.getpid() == process:  # not one that forked from it
            shutil.rmtree(folder, ignore_errors=True)


if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.update(environment(int(worker.removeprefix("gw"))))

# Compilers make many objects that live on. The command raises the threshold for the same reason; a
# tenth of the processor time of the tests was collection.
gc.set_threshold(400_000, 20, 20)

# Seconds for one test on a GPU. A launch that never ends is beyond signals: the thread of the limit
# ends its process, and the run goes on in another.
GPU_LIMIT = 90
GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("default", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("quick", settings.get_profile("default"), max_examples=25)
settings.register_profile("fuzz", max_examples=3000, deadline=None, print_blob=True)
settings.load_profile("default")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("hypothesis_profile", None)
    if config.getoption("markexpr") == "not slow" and chosen is None:
        settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@cache
def cuda_fault() -> str:
    """Why no CUDA device can be opened; empty where one can. Asks the driver itself."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return "no NVIDIA driver"
    if status := driver.cuInit(0):
        return f"the NVIDIA driver does not start ({status})"
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "no CUDA device"
    return ""


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests stay to the end: no collection looks at them again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    for item in on_gpu:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(GPU_LIMIT, method="thread"))
    if on_gpu and (fault := cuda_fault()):
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=fault))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: ``text`` is what ``tests/golden/name`` holds.

    With ``--update-golden`` the file is written instead.
    """
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.is_file():
            pytest.fail(f"there is no tests/golden/{name}; run with --update-golden to write it")
        assert text == path.read_text(encoding="utf-8")

    return check
