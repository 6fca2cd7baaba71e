"""What is kept between two states of a text changes nothing: every state is cut as a fresh reader
would cut it."""

from __future__ import annotations

import random

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.syntax.splitting import SegmentCache, split

PIECES = ('"""', "'''", '"', "'", "(", ")", "[", "]", "\\\n", "\n", "\nx = 1\n", "\ny = 2\n", "#",
          "\ndef f():\n    ", "return 1", "@kernel\n", "f\"{", "}", " ", "\\")  # fmt: skip
WHOLE = '''x = 1
"""A text
of two lines."""
y = (1,
     2)
print(x, y)


def f():
    """Says so."""
    return x
'''


def edited(text: str, r: random.Random) -> str:
    at = r.randrange(len(text) + 1)
    if r.random() < 0.5:
        return text[:at] + r.choice(PIECES) + text[at:]
    return text[:at] + text[min(len(text), at + r.randrange(1, 6)) :]


@pytest.mark.parametrize("seed", range(60))
def test_a_session_of_edits_is_cut_as_each_text_alone(seed: int) -> None:
    r = random.Random(seed)
    cache, text, past = SegmentCache(), WHOLE, [WHOLE]
    for _ in range(60):
        text = r.choice(past) if r.random() < 0.2 else edited(text, r)  # an undo, or an edit
        past.append(text)
        assert split(text, cache) == split(text, SegmentCache()), text


@pytest.mark.parametrize("quote", ['"""', "'''", 'f"""', 'r"""'])
def test_a_string_that_was_open_for_a_while_is_closed_again(quote: str) -> None:
    """Typing the closing quotes, and closing and opening the file again."""
    close = quote[-3:]
    states = (f"x = {quote}\nA text", f"x = {quote}\nA text\ny = 2\n",
              f"x = {quote}\nA text\n{close}\ny = 2\nprint(x, y)\n")  # fmt: skip
    session = Session()
    for version, text in enumerate((*states, *states[::-1], *states), 1):
        session.set_text("a.tessera", text, version)
        fresh = Session()
        fresh.set_text("a.tessera", text, 1)
        said = [(d.code, d.message) for d in session.check("a.tessera")]
        assert said == [(d.code, d.message) for d in fresh.check("a.tessera")]
    assert not session.check("a.tessera")
