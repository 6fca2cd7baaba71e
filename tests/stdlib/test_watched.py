"""What compute-sanitizer watches (``tests/run``) has a call of every public function."""

from __future__ import annotations

import pytest

from tessera_lang.evaluate.modules import is_test
from tests.run.library import MODULES, calls_of
from tests.stdlib.arrays import TARGETS
from tests.stdlib.test_documented import INTERNAL, PUBLIC, ROOT, declared


@pytest.mark.parametrize("name", sorted({*PUBLIC, "fast"}))
def test_every_public_function_is_called(name: str) -> None:
    functions = declared(ROOT / "stdlib" / "tessera_stdlib" / f"{name}.tessera")
    public = {f.name for f in functions if not is_test(f) and f.name[0] != "_"} - INTERNAL
    assert public <= set(calls_of(name, "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(build.__name__ for build in MODULES))
def test_the_calls_are_right(name: str, target: str) -> None:
    for call in calls_of(name, target).values():
        call()
