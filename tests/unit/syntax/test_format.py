"""The one layout of files, rule by rule."""

from __future__ import annotations

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax.format import FormatFault, format_source, formatter


def formatted(text: str) -> str:
    after = format_source(SourceFile("a.tessera", text))
    assert after is not None
    assert format_source(SourceFile("a.tessera", after)) == after
    return after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x=1+ 2", "x = 1 + 2"),
        ("x = - 1 ** - y", "x = -1 ** -y"),
        ("a  ,b=b ,a", "a, b = b, a"),
        ("f (x) [ 0 ] . T", "f(x)[0].T"),
        ("f(a = 1,b = - 2)", "f(a=1, b=-2)"),
        ("x = ( 1 ,)", "x = (1,)"),
        ("f(1, 2,)", "f(1, 2)"),
        ("x[i : j, : , i+1 : j, i+1 :]", "x[i:j, :, i + 1 : j, i + 1:]"),
        ("x: f32=1", "x: f32 = 1"),
        ("y = lambda a,b = 1 :a", "y = lambda a, b=1: a"),
        ("z = {1 :2, 'a':[ ]}", "z = {1: 2, 'a': []}"),
        ("assert not(a), 'why'", "assert not (a), 'why'"),
        ("if a : b = 1 ; c = 2", "if a: b = 1; c = 2"),
        ("x = 1 .real", "x = 1 .real"),
        ("x = 'a'   \"b\"  f'{ y }'", "x = 'a' \"b\" f'{ y }'"),
        ("x = a \\\n  + b", "x = a + b"),
        ("x = f(a,\n  b)", "x = f(a, b)"),
        ("from a import (b , c,)", "from a import (b, c)"),
        ("x = 1   # why  ", "x = 1  # why"),
        ("#!first\nx = 1", "#!first\nx = 1"),
    ],
)
def test_a_line(before: str, after: str) -> None:
    assert formatted(before + "\n") == after + "\n"


def test_heads() -> None:
    before = (
        "@kernel   tile[( 32 , )]shared( 4_KiB )\n"
        "def f[N:int=3]( x:mut f32[n,N],k = 1)->f32 where(n>1),N>2 :\n  return x"
    )
    assert formatted(before) == (
        "@kernel tile[(32,)] shared(4_KiB)\n"
        "def f[N: int = 3](x: mut f32[n, N], k=1) -> f32 where (n > 1), N > 2:\n"
        "    return x\n"
    )


def test_blank_lines() -> None:
    before = '''

"""doc"""
import a
def f():

    x = 1



    return x
# of g

# upon g
@test

def g(): pass
def h(): pass
x = 1




y = 2
'''
    assert (
        formatted(before)
        == '''\
"""doc"""
import a


def f():
    x = 1

    return x


# of g


# upon g
@test
def g(): pass


def h(): pass


x = 1


y = 2
'''
    )


def test_comments_stand_with_what_they_are_about() -> None:
    before = """\
def f():
  # first
  if a:
    b = 1
    # in the branch
  # behind it
# of the rest
  c = 1
  # last
# outside
"""
    assert (
        formatted(before)
        == """\
def f():
    # first
    if a:
        b = 1
        # in the branch
    # behind it
    # of the rest
    c = 1
    # last


# outside
"""
    )


def test_long_lines() -> None:
    call = f"x = function({', '.join(f'argument{i}' for i in range(11))})\n"
    items = "".join(f"    argument{i},\n" for i in range(11))
    assert formatted(call) == f"x = function(\n{items})\n"
    short = f"total = function(argument_{'x' * 60}, second_argument)[first + second, third]\n"
    assert formatted(short) == (
        f"total = function(\n    argument_{'x' * 60}, second_argument\n)[first + second, third]\n"
    )
    chain = f"x = ({' + '.join(f'operand_{i}' for i in range(12))})\n"
    lines = formatted(chain).splitlines()
    assert lines[0] == "x = (" and lines[2] == "    + operand_1" and lines[-1] == ")"


def test_a_comma_before_a_bracket_on_its_own_line_keeps_items_apart() -> None:
    apart = "x = f(\n    a,\n    b=[1, 2],\n)\n"
    assert formatted(apart) == apart
    assert formatted("x = f(\n  a, b)\n") == "x = f(a, b)\n"
    assert formatted("x = (\n  1,\n)\n") == "x = (1,)\n"


def test_comments_in_brackets_keep_the_breaks() -> None:
    before = "x = f(a, # one\n  # two\n b,\n      g(c,\n d))  # three\n"
    assert formatted(before) == (
        "x = f(a,  # one\n    # two\n    b,\n    g(c,\n        d))  # three\n"
    )


def test_strings_of_several_lines_are_left_alone() -> None:
    text = 'x = f("""a\n  b  \n""", 1)\ny = """\n\t"""\n'
    assert formatted(text) == text


def test_ends_of_lines() -> None:
    assert formatted("x=1\r\ny=2") == "x = 1\r\ny = 2\r\n"
    assert formatted("x=1\ry=2\r") == "x = 1\ny = 2\n"
    assert formatted("\ufeffx=1") == "\ufeffx = 1\n"
    assert formatted("") == ""
    assert formatted("\n\n") == ""
    assert formatted("# only") == "# only\n"


def test_a_file_with_syntax_errors_has_no_layout() -> None:
    assert format_source(SourceFile("a", "x = (\n")) is None


def test_a_fault_of_the_formatter_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatter, "laid_out", lambda pieces, indent: ["x = 2"])  # type: ignore[misc]
    with pytest.raises(FormatFault, match="another tree"):
        format_source(SourceFile("a", "x = 1\n"))


def test_deep_and_long_programs() -> None:
    formatted(f"x = {'(' * 150}1{')' * 150}\n")
    formatted(f"x = ({' + '.join('a' for _ in range(3000))})\n")
    formatted(f"x = [{', '.join(str(i) for i in range(5000))}]\n")
