"""docs/extending.md followed in a copy of the packages: what is added works, in so many files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "tessera_lang", "grammar/tessera_grammar", "backend/tessera_backend", "stdlib/tessera_stdlib",
)  # fmt: skip
_FIRST = """
import os, sys
sys.path.insert(0, {folder!r})
os.environ["TESSERA_CACHE_DIR"] = os.path.join({folder!r}, "cache")
import numpy as np
import ml_dtypes

def tesserac(*arguments):
    from tessera_lang.driver.cli import main
    sys.stdout.flush()
    try:
        code = main(list(arguments))
    except SystemExit as end:
        code = end.code
    return code or 0

def run(name, *arguments):
    import tessera_lang as tessera
    return np.asarray(getattr(tessera.load("case.tessera", target="cpu"), name)(*arguments))
"""
_SIGNATURE = ("--signature", "x: f32[64, 64]")


class Copy:
    """The packages in a folder, to be changed; ``changed`` are the files that were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed: set[str] = set()
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / Path(package).name)
            self._bytecode(ROOT / package)

    def _bytecode(self, package: Path) -> None:
        """Takes what these tests run of it along: it is right as long as a source is not changed,
        and to compile all sources again costs more than the rest of a test."""
        for source in package.rglob("*.py"):
            made = Path(cache_from_source(str(source)))
            if made.is_file():
                beside = (self.folder / source.relative_to(package.parent)).parent / "__pycache__"
                beside.mkdir(exist_ok=True)
                shutil.copy2(made, beside / made.name)

    def add(self, file: str, text: str, before: str = "") -> None:
        """Puts text in front of another that stands there once, or at the end."""
        path = self.folder / file
        was = path.read_text()
        assert not before or was.count(before) == 1, f"{file} has {was.count(before)} {before!r}"
        path.write_text(was.replace(before, text + before) if before else was + text)
        self.changed.add(file)

    def program(self, text: str) -> None:
        (self.folder / "case.tessera").write_text(text)

    def python(self, text: str) -> str:
        """What a program prints in a process of its own that has this copy."""
        first = _FIRST.format(folder=str(self.folder))
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONPYCACHEPREFIX"}
        done = subprocess.run(
            [sys.executable, "-c", first + text], capture_output=True, text=True,
            cwd=self.folder, timeout=300, env=kept,  # bytecode goes where the copy is
        )  # fmt: skip
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    def tesserac(self, *arguments: str, code: int = 0) -> str:
        return self.python(f"assert tesserac(*{arguments!r}) == {code}")


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


_CUBES = """
@op.kernel
def cubes(x: f32[m, n]) -> f32[m, n]:
    y = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(16, 32)):
        y[i:i+16, j:j+32] = cube(x[i:i+16, j:j+32]) + op.cube(x[i:i+16, j:j+32])
    return y
"""
_THIRD = """
x = np.arange(-30, 30, dtype=np.float32).reshape(6, 10)
got = run("cubes", x)
assert np.array_equal(got, 2 * x**3), (got, 2 * x**3)
"""


def test_a_builtin_of_elements(copy: Copy) -> None:
    copy.add(
        "tessera_grammar/keywords.py",
        '    "cube": Elementwise("The third power of each element.", bare=True),\n',
        before='    "abs": Elementwise(',
    )
    copy.add(
        "tessera_stdlib/math.tessera",
        "\n\ndef _cube(x: f32):\n    return x * x * x\n"
        "\n\ndef _cube_f64(x: f64):\n    return x * x * x\n",
    )
    copy.program(_CUBES)
    copy.python(_THIRD)
    shown = copy.tesserac("emit", "case.tessera", "--stage=ptx", "--arch=sm_90", *_SIGNATURE)
    assert "mul.rn.f32" in shown
    assert len(copy.changed) <= 3


_LINES = """    "lines": Directive(
        "How many lines a group reads.",
        (Parameter("count", "int", 0, range(1, 5), "a number from 1 to 4"),
         Parameter("ahead", "bool", False, attribute="lines_ahead")),
        "a core has no lines",
    ),
"""
_SAID = """
@op.kernel
def twice(x: f32[m, n]) -> f32[m, n]:
    schedule.lines({said})
    y = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(16, 32)):
        y[i:i+16, j:j+32] = x[i:i+16, j:j+32] * 2
    return y
"""
_EMIT = ("emit", "case.tessera", "--stage=schedule", "--arch=sm_90", *_SIGNATURE)


@pytest.mark.slow
def test_a_directive(copy: Copy) -> None:
    """Its row, and the pass that honours it."""
    copy.add("tessera_grammar/directives.py", _LINES, before='    "swizzle": Directive(')
    copy.program(_SAID.format(said="3, ahead=True"))
    shown = copy.tesserac(*_EMIT)
    assert "lines = 3" in shown and "lines_ahead = true" in shown
    copy.add(  # the pass that honours it, or says why not
        "tessera_lang/opt/schedule/decide/overruled_staging_directives.py",
        '    if kernel.attributes.get("lines") == 4:\n'
        '        kernel = overruled(kernel, "lines", 3, context, "a group reads 3")\n',
        before="    if not any(is_staged(x) for x in facts.reads):",
    )
    copy.program(_SAID.format(said="4"))
    shown = copy.tesserac("check", "case.tessera", "--remarks", "--arch=sm_90", *_SIGNATURE)
    assert "`schedule.lines(4)` is not honoured: a group reads 3" in shown
    copy.program(_SAID.format(said="3"))
    shown = copy.tesserac("check", "case.tessera", "--remarks", "--target=cpu", *_SIGNATURE)
    assert "`schedule.lines(3)` is not honoured: a core has no lines" in shown
    for said, report in (
        ("7", "`schedule.lines` takes a number from 1 to 4"),
        ("2, ahead=1", "`lines_ahead` takes True or False"),
        ("ahead=True", "count"),
    ):
        copy.program(_SAID.format(said=said))
        assert report in copy.tesserac("check", "case.tessera", code=1)
    assert len(copy.changed) <= 4


_RULE = '''def _cube(e: LaneEmitter, op: Operation) -> None:
    """a * a * a of an f32."""
    a = e.operand(op.operands[0])
    square = e.f.value(f"fmul float {a}, {a}")
    e.bind(op.result, e.f.value(f"fmul float {square}, {a}"))


'''


@pytest.mark.slow
def test_an_operation(copy: Copy) -> None:
    """A row, a rule that both targets share, and something that says it: lanes and register tiles
    have it."""
    copy.add(
        "tessera_lang/ir/tile/ops.py", '    *_elementwise("cube", "a", "float"),\n',
        before='    *_elementwise("exp2", "a", "float"),\n',
    )  # fmt: skip
    rules = "tessera_backend/llvm/arithmetic.py"
    copy.add(rules, _RULE, before="RULES: dict[str, Rule] = {")
    copy.add(rules, '    "tile.cube": _cube,\n', before='    "tile.exp2": _exp2,\n')
    says = "tessera_lang/lower/ast_to_schedule/builtin_calls.py"
    copy.add(says, '_NATIVE["op.sqrt"] = "cube"\n', before="\n\ndef call(s: State")
    copy.program(_CUBES.replace("op.cube(", "cube(").replace("cube(", "op.sqrt("))
    copy.python(_THIRD)
    for stage, found in (("schedule", "tile.cube"), ("tile", "tile.cube"), ("ptx", "mul.rn.f32")):
        shown = copy.tesserac(
            "emit", "case.tessera", f"--stage={stage}", "--arch=sm_90", *_SIGNATURE
        )
        assert found in shown and "T0747" not in shown
    assert len(copy.changed) <= 3


@pytest.mark.slow
def test_an_architecture(copy: Copy) -> None:
    copy.add(
        "tessera_lang/target/arch/rows.py",
        """        Architecture(
            "sm_88", (8, 8), 90, "a device", replace(_DESKTOP, groups=24), 40, _ADA,
            Rates(512, 128, 128, 32, (32, 20), 400), models=(Model("D88", 500, 450),),
        ),
""",
        before="        replace(\n            _SM_90A, name=",
    )
    copy.program(_CUBES.replace("cube", "exp").replace("exps", "cubes"))
    for name in ("sm_88", "D88"):
        arguments = ("--stage=ptx", f"--arch={name}", *_SIGNATURE)
        assert ".target sm_88" in copy.tesserac("emit", "case.tessera", *arguments)
    assert "sm_88" in copy.tesserac("emit", "case.tessera", "--stage=ptx", "--arch=sm_9", code=1)
    assert len(copy.changed) == 1


_PAGE = """# T0699 much-unrolled

A loop is unrolled into more than 100 iterations.
"""
_REPORT = """    if name == "unroll" and isinstance(value, int) and value > 100:
        c.report("T0699", f"{value} iterations are written out", e.span, helps=("say less",))
"""


def test_a_diagnostic(copy: Copy) -> None:
    copy.add(
        "tessera_lang/diagnostics/codes/t06_tile_kernels.py",
        '    Code("T0699", "much-unrolled", "A loop is unrolled too far."),\n',
        before='    Code("T0611", ',
    )
    says = "tessera_lang/sema/tile/directives.py"
    copy.add(says, _REPORT, before='    what = f"`{parameter.attribute or')
    (copy.folder / "docs" / "errors").mkdir(parents=True)
    (copy.folder / "docs" / "errors" / "T0699.md").write_text(_PAGE)
    copy.program(_SAID.format(said="").replace("lines()", "unroll(200)"))
    shown = copy.tesserac("check", "case.tessera", code=1)
    assert "error[T0699]: 200 iterations are written out" in shown and "help: say less" in shown
    assert "more than 100" in copy.tesserac("explain", "much-unrolled")
    assert len(copy.changed) == 2


_BACKEND = """
from tessera_lang.ir.printer import print_program
from tessera_lang.target.backend import Artifact

class Paper:
    name = "paper"
    def available(self): return "paper does not run"
    def default_arch(self): return "a4"
    def identity(self, options): return ("paper 1",)
    def refusals(self, program, plan, options): return ()
    def compile(self, program, plan, options, stages):
        text = print_program(program)
        return Artifact("paper", text.encode(), "twice", plan, options)

BACKEND = Paper()
"""
_LANES = """
@kernel tile[(64,)] grid[(1,)]
def twice(x: f32[n], y: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        y[i] = x[i] * 2.0
"""
_COMPILED = """
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions, backend_names
assert "paper" in backend_names()
s = Session()
made = s.compile_kernel("case.tessera", "twice", s.signature("case.tessera", "twice", ""),
                        TargetOptions("paper", "a4"))
assert made.kind == "paper" and b"tile.mul" in made.code
assert made.plan.parameters
"""


@pytest.mark.slow
def test_a_target(copy: Copy) -> None:
    """A distribution of its own: no file of these packages."""
    info = copy.folder / "paper-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paper\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tessera.backends]\npaper = paper_backend:BACKEND\n")
    (copy.folder / "paper_backend.py").write_text(_BACKEND)
    copy.program(_LANES)
    copy.python(_COMPILED)
    assert "tile.mul" in copy.tesserac("emit", "case.tessera", "--stage=tile", "--target=paper")
    shown = copy.tesserac("build", "case.tessera", "-o", "out", "--target=paper", code=2)
    assert "Folders are built for cpu and cuda, not paper." in shown
    assert not copy.changed


_ROW = """F8E3M4 = DType(
    "f8e3m4", "float", 8, 5, 3, mlir="f8E3M4", numpy="ml_dtypes.float8_e3m4", dlpack=7,
    c="uint8_t", aliases=("float8_e3m4",),
)
"""
_NARROWED = """
@op.kernel
def tiles(x: f32[m, n]) -> f8e3m4[m, n]:
    y = op.empty((m, n), f8e3m4)
    for i, j in op.tile_range(m, n, step=(16, 32)):
        y[i:i+16, j:j+32] = f8e3m4(x[i:i+16, j:j+32] * 0.5)
    return y

@op.kernel
def largest(x: f8e3m4[m, n]) -> f8e3m4[m]:
    y = op.empty((m,), f8e3m4)
    for i in op.tile_range(m, step=16):
        y[i:i+16] = op.max(x[i:i+16, :], axis=1)
    return y

@kernel tile[(64,)] grid[(1,)]
def lanes(x: f8e3m4[n], y: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        y[i] = f32(x[i]) * 2.0
"""
_CONVERTED = """
import tessera_lang as tessera
theirs = np.dtype(ml_dtypes.float8_e3m4)
codes = np.arange(256, dtype=np.uint8).view(theirs)
r = np.random.default_rng(1)
x = np.concatenate([r.normal(0, 5, 500), r.normal(0, 0.1, 500), [1e9, -1e9, np.inf, np.nan]])
x = np.resize(x.astype(np.float32), (16, 63))
most = float(ml_dtypes.finfo(theirs).max)
right = np.clip(x * np.float32(0.5), -most, most).astype(theirs)
got = run("tiles", x)
assert got.dtype == theirs
assert np.array_equal(got.astype(np.float32), right.astype(np.float32), equal_nan=True)
finite = np.where(np.isnan(right.astype(np.float32)), np.float32(0), right).astype(theirs)
assert np.array_equal(run("largest", finite), finite.astype(np.float32).max(1).astype(theirs))
lanes = tessera.load("case.tessera", target="cpu").lanes
codes, wide = codes[:64].copy(), np.zeros(64, np.float32)
lanes(codes, wide)
assert np.array_equal(wide, codes.astype(np.float32) * 2, equal_nan=True), (wide, codes)
"""


@pytest.mark.slow
def test_a_dtype(copy: Copy) -> None:
    """Stored, converted with the rounding of a package, reduced, and in PTX."""
    table = "tessera_lang/types/dtype.py"
    copy.add(table, _ROW, before="INDEX = DType(")
    copy.add(table, "F8E3M4, ", before="INDEX,")
    copy.add(
        "tessera_grammar/keywords.py",
        '    "f8e3m4": "A float of 8 bits: 3 of exponent, 4 of mantissa.",\n',
        before='    "index": "A 64-bit',
    )
    header = "tessera_backend/runtime/c_interface/include/tessera.h"
    copy.add(header, ", TESSERA_F8E3M4", before="\n};\n\nenum {\n    TESSERA_OK")
    copy.program(_NARROWED)
    copy.python(_CONVERTED)
    for kernel in ("tiles", "largest", "lanes"):
        copy.tesserac("emit", "case.tessera", "--stage=ptx", "--arch=sm_90", f"--kernel={kernel}",
                      "--signature", "x: f32[64, 64]" if kernel == "tiles" else
                      "x: f8e3m4[64, 64]" if kernel == "largest" else "x: f8e3m4[64]")  # fmt: skip
    assert len(copy.changed) <= 8
