"""The host program on known values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera_lang.evaluate.fault import HostFault

Output = Callable[..., str]
Failure = Callable[..., tuple[str, str, int]]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(7 // -2, -7 // 2, -7 % 2, 7 / 2)", "-4 -4 1 3.5\n"),
        ("print(ceil_div(7, -3), ceil_div(-7, -3), ceil_div(6, -3))", "-2 3 -2\n"),
        ("a, (b, c) = 1, (2, 3)\nprint(a + b * c)", "7\n"),
        ("x = [i * i for i in range(5) if i % 2 == 0]\nprint(x, len(x))", "[0, 4, 16] 3\n"),
        ("d = {'a': 1, 2: 'b'}\nd['c'] = 3\nprint(d['a'], d[2], d['c'])", "1 b 3\n"),
        ("f = lambda x, y=2: x ** y\nprint(f(3), f(3, 3), f(y=1, x=5))", "9 27 5\n"),
        ("print(f'{3.14159:.2f} and {1 + 1}', sep='', end='!')", "3.14 and 2!"),
        ("print(1 < 2 < 3, 1 < 3 < 2, not True, None is None)", "True False False True\n"),
        ("print(True and 0 or 'x', 1 if 0 else 2)", "x 2\n"),
        ("i = 0\nwhile True:\n    i += 1\n    if i == 3: continue\n    if i > 5: break\nprint(i)",
         "6\n"),
        ("for a, b in [(1, 2), (3, 4)]:\n    print(a, b)", "1 2\n3 4\n"),
        ("print((1,), (1, 'a'), [True], ())", "(1,) (1, 'a') [True] ()\n"),
        ("print((1, 2, 3)[-1], 'abc'[0:2], (1, 2) + (3,), 'a' * 3)", "3 ab (1, 2, 3) aaa\n"),
        ("print(f32(0.1), i8(300), u8(-1), i32(2.9), bool(3))",
         "0.10000000149011612 44 255 2 True\n"),
        ("print(min(3, 1, 2), max([4, 5]), abs(-2), int('7'), float(2))", "1 5 2 7 2.0\n"),
        ("print(16_KiB, 1_MiB, 2_B)", "16384 1048576 2\n"),
        ("print(f32 == f32, f32 == f16, f32)", "True False f32\n"),
        ("print(op.ones((2,)).device)", "cpu\n"),
        ("print(math.sqrt(16.0), math.floor(-1.5), math.sqrt(-1.0))", "4.0 -2.0 nan\n"),
        ("n = 3\ndef f():\n    return n\nn = 4\nprint(f())", "4\n"),
        ("def outer(k):\n    def inner(x): return x + k\n    return inner\nprint(outer(2)(3))",
         "5\n"),
        ("def f(x):\n    for i in range(9):\n        if i == x: return i\nprint(f(4), f(9))",
         "4 None\n"),
        ("def fact(n): return 1 if n == 0 else n * fact(n - 1)\nprint(fact(20))",
         "2432902008176640000\n"),
        ("print(deep(400))\ndef deep(n):\n    if n == 0: return 0\n    return 1 + deep(n - 1)",
         "400\n"),
        ("x: i32 = 3\nassert x == 3, 'no'\nprint(x)", "3\n"),
        ("from tessera import max as most, op as o\nprint(most(1, 2), o.zeros((2,)).shape)",
         "2 (2,)\n"),
        ("import_me = 1\npass\nprint(2 in (1, 2), 'b' in 'abc', 3 not in [1])", "True True True\n"),
    ],
)  # fmt: skip
def test_prints(output: Output, program: str, expected: str) -> None:
    assert output(program + "\n") == expected


@pytest.mark.parametrize(
    ("program", "code", "line"),
    [
        ("x = 9223372036854775807\ny = x + 1", "T0802", 2),
        ("x = 1 << 63", "T0802", 1),
        ("x = 2 ** 100", "T0802", 1),
        ("x = 10 ** 10000000", "T0803", 1),
        ("x = 1 // 0", "T0803", 1),
        ("x = 'a' + 1", "T0803", 1),
        ("a, b = 1, 2, 3", "T0816", 1),
        ("x = (1, 2)[5]", "T0807", 1),
        ("i = -3\nx = (1, 2)[i]", "T0807", 2),
        ("assert 1 > 2, 'one is not more'", "T0805", 1),
        ("print(nothing)", "T0101", 1),
        ("def f():\n    print(x)\n    x = 1\nf()", "T0808", 2),
        ("def f(a, b=1): return a\nf()", "T0804", 2),
        ("def f(a, b=1): return a\nf(1, 2, 3)", "T0804", 2),
        ("def f(a, b=1): return a\nf(1, c=2)", "T0804", 2),
        ("def f(): return f()\nf()", "T0806", 1),
        ("(1)(2)", "T0818", 1),
        ("x = 1\nx.y", "T0817", 2),
        ("for i in 5: pass", "T0818", 1),
        ("x = op.scan(op.zeros((4,)))", "T0809", 1),
        ("x = op.zeroes((4,))", "T0104", 1),
        ("x = op.zeros((-4,))", "T0818", 1),
        ("x = op.zeros((4,), dtype='f99')", "T0818", 1),
        ("x = op.zeros((4,))\nx[4]", "T0807", 2),
        ("x = op.load('none.npy')", "T0813", 1),
        ("tile_linear_id()", "T0818", 1),
        ("atomic_add(1, 2)", "T0818", 1),
        ("grad(1)", "T0761", 1),
        ("op.zeros((tile_linear_idx(),))", "T0101", 1),
        ("x = {[1]: 2}", "T0818", 1),
        ("print(f'{1:zz}')", "T0803", 1),
        ("range(1, 2, 0)", "T0804", 1),
        ("x = int('seven')", "T0803", 1),
    ],
)
def test_faults(failure: Failure, program: str, code: str, line: int) -> None:
    found = failure(program + "\n")
    assert (found[0], found[2]) == (code, line), found


@pytest.mark.parametrize("calls", ["f(9)", "g(9)"])
def test_each_call_is_shown_once(run: Callable[..., object], calls: str) -> None:
    """Of calls within calls of the same place the places are shown, the outermost too."""
    text = "def f(n): return 1 // n if n == 0 else f(n - 1)\ndef g(n): return f(n)\n"
    with pytest.raises(HostFault) as caught:
        run(text + calls + "\n")
    (found,) = caught.value.diagnostics
    places = [text.count("\n", 0, label.span.lo) + 1 for label in found.labels]
    assert places == ([1, 3] if calls[0] == "f" else [1, 2, 3])


@pytest.mark.parametrize(("rest", "takes"), [("b", "2"), ("b=1", "1 to 2"), ("b=1, c=2", "1 to 3")])
def test_how_many_arguments_are_taken(failure: Failure, rest: str, takes: str) -> None:
    message = failure(f"def f(a, {rest}): return a\nf(1, 2, 3, 4)\n")[1]
    assert message == f"`f` takes {takes} arguments, and the call has 4"


def test_assertion_message(failure: Failure) -> None:
    assert failure("n = 3\nassert n == 4, f'n is {n}'\n")[1] == "the assertion is false: n is 3"


def test_arrays(output: Output) -> None:
    program = """\
x = op.arange(6, dtype=f32)
y = op.reshape(x, (2, -1))
y[0, 1] = 10
print(y.shape, y.dtype, x[1], x.shape[-1], len(y))
print(op.sum(y), max(x), op.max(x + 1), y[1, :].shape, abs(x - 20)[0])
assert op.all(x < 11)
z = op.full((2,), 7, dtype="f64")
print(z.dtype, z.to(i32).dtype, op.zeros_like(z).shape, y.T.shape)
"""
    assert output(program) == (
        "(2, 3) f32 10.0 6 2\n24.0 10.0 11.0 (3,) 20.0\nf64 i32 (2,) (3, 2)\n"
    )


KERNEL = """\
@kernel tile[(8,)]
def k[N: int = 4, T: dtype](x: T[n], out: mut T[m], s: f32 = 2.0):
    pass
"""


def test_launches(run: Callable[..., object]) -> None:
    program = KERNEL + (
        "x = op.zeros((4,))\ny = op.zeros((2,))\n"
        "k(x, y)\nk[3](x, out=y, N=8)\nk[(2, 2)](x, y, 1)\n"
        "def through(f): f(x, y)\nthrough(k)\n"
    )
    launches = run(program).launches  # type: ignore[attr-defined]
    assert [(name, a[2], constants, groups) for name, a, constants, groups in launches] == [
        ("k", 2.0, {"N": 4}, None),
        ("k", 2.0, {"N": 8}, (3,)),
        ("k", 1, {"N": 4}, (2, 2)),
        ("k", 2.0, {"N": 4}, None),
    ]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("k(x)", "T0804"), ("k(x, x, 1, 2)", "T0804"), ("k(x, x, M=1)", "T0804"),
        ("k[1.5](x, x)", "T0818"), ("k[-1](x, x)", "T0818"),
    ],
)  # fmt: skip
def test_wrong_launches(failure: Failure, call: str, code: str) -> None:
    assert failure(f"{KERNEL}x = op.zeros((4,))\n{call}\n")[0] == code


def test_the_loops_of_a_tile_kernel_make_its_groups(failure: Failure) -> None:
    assert failure("@op.kernel\ndef f(x): pass\nf[3](1)\n")[::2] == ("T0839", 3)


def test_plain_functions_take_brackets(output: Output) -> None:
    program = "def f[how: str, n: int = 2](x):\n    return (how, x * n)\n"
    assert output(program + "print(f['a'](3), f['b', 5](1), f(4, how='c'))\n") == (
        "('a', 6) ('b', 5) ('c', 8)\n"
    )


def test_imports_take_definitions_and_constants(output: Output) -> None:
    files = {
        "lib.tessera": (
            "SIZE = 4 * 8\ncount = 0\ncount = 1\nprint('not run')\n"
            "def twice(x): return x * 2 + SIZE\n"
        ),
    }
    program = "import lib\nfrom lib import twice as t, SIZE\nprint(lib.twice(1), t(2), SIZE)\n"
    assert output(program, files) == "34 36 32\n"


def test_variables_of_an_import_are_not_there(failure: Failure) -> None:
    files = {"lib.tessera": "count = 0\ncount = 1\n"}
    assert failure("import lib\nprint(lib.count)\n", files)[0] == "T0817"


def test_the_standard_library_needs_no_import(output: Output) -> None:
    assert output("print(std.reduce.sum, std.reduce)\n") == "<function sum> <module std.reduce>\n"


def test_set_values_replace_the_first_assignment(output: Output) -> None:
    program = "x = 1\nx = x + 1\nprint(x, y)\n"
    assert output(program, x=10, y="free") == "11 free\n"


def test_files_stand_beside_the_program(run: Callable[..., object]) -> None:
    world = run("op.save('out.npz', a=op.zeros((1,)), b=op.zeros((2,)))\n")
    assert world.output == "saved out.npz: ['a', 'b']\n"  # type: ignore[attr-defined]


def test_a_fault_in_a_function_shows_the_calls(run: Callable[..., object]) -> None:
    from tessera_lang.evaluate.fault import HostFault

    with pytest.raises(HostFault) as caught:
        run("def f(x): return 1 // x\ndef g(x): return f(x)\ng(0)\n")
    (found,) = caught.value.diagnostics
    assert [label.text for label in found.labels] == ["in this call of `f`", "in this call of `g`"]


def test_a_long_chain_of_operators(output: Output) -> None:
    assert output(f"print({' + '.join(['1'] * 5000)})\n") == "5000\n"
