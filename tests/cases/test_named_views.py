"""What NumPy gives as a view of an array: seen in another way, or a value; never a silent other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

M = np.arange(1, 17, dtype=np.float32).reshape(4, 4)

SEEN_OTHERWISE = (
    "M.T", "M.mT", "M.T.T", "op.reshape(M, (16,))", "M.reshape(2, 8)", "op.ravel(M)", "M.ravel()",
)  # fmt: skip
VALUES = (
    "op.transpose(M)", "op.transpose(M, (1, 0))", "M.transpose()", "op.swapaxes(M, 0, 1)",
    "op.moveaxis(M, 0, 1)", "op.flip(M, 0)", "op.fliplr(M)", "op.flipud(M)",
    "op.expand_dims(M, 0)", "op.squeeze(M[None], 0)", "M[::-1]", "M[::2]", "M[:, None]", "M[:]",
    "M[1:].T", "op.flip(M.T, 0)", "M[1:].transpose()",
)  # fmt: skip
READ_ONLY = ("op.diagonal(M)", "M.diagonal()", "op.broadcast_to(M, (2, 4, 4))")
COPIES = (
    "+M", "op.positive(M)", "M.copy()", "M.flatten()", "op.roll(M, 1, axis=0)",
    "M.astype(f32)", "op.concat((M, M))", "op.tril(M, 9)", "M[:, :].copy()", "M[[0, 1]]",
)  # fmt: skip
USES = (
    "M[:, :] = 7.0\nreturn t * 1.0", "t[0] = 9.0\nreturn M * 1.0", "t += 1.0\nreturn M * 1.0",
    "t[0] = 9.0\nt += 1.0\nreturn t * 1.0",
)  # fmt: skip
KINDS = [(k, "def") for k in USES] + [(k, "@op.kernel\ndef") for k in USES]


class _NumPy:
    def __getattr__(self, name: str) -> Any:
        return getattr(np, {"concat": "concatenate"}.get(name, name))


def _numpy(view: str, use: str) -> Any:
    names: dict[str, Any] = {"op": _NumPy(), "f32": np.float32}
    lines = "".join(f"    {line}\n" for line in use.split("\n"))
    exec(f"def f(M):\n    t = {view}\n{lines}", names)
    return names["f"](M.copy())


def _found(view: str, use: str, head: str) -> Any:
    lines = "".join(f"    {line}\n" for line in use.split("\n"))
    text = f"{head} f(M: mut f32[m, n]):\n    t = {view}\n{lines}"
    try:
        return tessera.compile(text, target="cpu").f(M.copy())
    except tessera.TesseraError as error:
        return str(error)


@pytest.mark.parametrize("view", SEEN_OTHERWISE + COPIES)
@pytest.mark.parametrize(("use", "head"), KINDS)
@pytest.mark.sample(12)
def test_as_in_numpy_or_refused(view: str, use: str, head: str) -> None:
    found = _found(view, use.replace("[0]", "[1:2]"), head)
    if isinstance(found, str):
        # A kernel cannot do all of it; the host program has `+=` of a name alone.
        assert "error[T0" in found and (head != "def" or view in SEEN_OTHERWISE)
    else:
        np.testing.assert_array_equal(found, _numpy(view, use.replace("[0]", "[1:2]")))


@pytest.mark.parametrize("view", VALUES + READ_ONLY)
@pytest.mark.parametrize("head", ["def", "@op.kernel\ndef"])
@pytest.mark.sample(6)
def test_values_do_not_change_and_are_not_changed(view: str, head: str) -> None:
    for use in USES[1:]:
        found = _found(view, use, head)
        assert "T0609" in found or "T0818" in found, use
        assert ".copy()" in found
    found = _found(view, USES[0], head)
    if isinstance(found, str):
        assert "T0702" in found and head != "def"  # told to store it first
    else:
        np.testing.assert_array_equal(found, _numpy(view, "return t * 1.0"))


OWN = ("op.flip(M * 1.0, 0)", "op.transpose(M + 0.0)", "(M * 1.0)[1]", "op.transpose(M @ M)[0]")


@pytest.mark.parametrize("view", OWN)
def test_what_nobody_else_sees_may_change(view: str) -> None:
    for use in (*USES[1:], "for i in range(2):\n    t[i] = t[i] + 1.0\nreturn t * 1.0"):
        np.testing.assert_array_equal(_found(view, use, "def"), _numpy(view, use))
    text = f"def g(M):\n    return {view}\n"
    text += "def f(M):\n    t = g(M)\n    t[0] = 9.0\n    return t * 1.0\n"
    found = tessera.compile(text, target="cpu").f(M.copy())
    np.testing.assert_array_equal(found, _numpy(view, "t[0] = 9.0\nreturn t * 1.0"))


def test_an_array_in_a_list_is_seen() -> None:
    text = (
        "def f(M):\n    l = [M * 1.0]\n    t = op.flip(l[0], 0)\n    t[0] = 9.0\n    return l[0]\n"
    )
    with pytest.raises(tessera.TesseraError, match="T0818"):
        tessera.compile(text, target="cpu").f(M.copy())
