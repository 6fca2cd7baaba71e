"""Folders of `tesserac build` as one ships them: linked into programs, moved, read elsewhere."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tessera_backend.cpu import features
from tessera_backend.cpu.elf import ElfError, ElfObject, renamed
from tessera_backend.runtime.built_loader import digest_of
from tessera_backend.runtime.c_interface.names import RESERVED, Names, comment_of, text_of

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.cli import run

FLAGS = ("-Wall", "-Wextra", "-Werror", "-O1")
LANGUAGES = {"c": ("gcc", "-std=c99", "-pedantic"), "cpp": ("g++", "-std=c++11")}

KERNELS = """\
@op.kernel
def product(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:
    return A @ B

@op.kernel
def soft(x: f32[n, m]) -> (f32[n, m], f32[n]):
    top = op.max(x, axis=1)
    e = op.exp(x - top[:, None])
    return e / op.sum(e, axis=1)[:, None], top

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def double(register: f32[n], int: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = register[i] * int

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def memcpy(a: i32[n], A: i32[n], out: mut i32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = a[i] - A[i]

@kernel tile[(32,)]
def addc(x: f64[n], out: mut f64[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = x[i] + 1.0

@kernel tile[(32,)] grid[(1,)]
def Addc(x: f64[n], at: i32[n], out: mut f64[n]) where n % 4 == 0:
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = x[at[i]] + 2.0

@kernel tile[(32,)] grid[(1,)]
def main[BINS: int = 16](x: i32[n], out: mut i32[BINS]) where n >= BINS:
    i = grid_tile_linear_id()
    if i < BINS:
        print("bin", i, x[i])
        out[i] = x[i]
"""
"""Names of C, of its library, of macros, and pairs that differ in case alone."""


def compiler(language: str) -> list[str]:
    name, *flags = LANGUAGES[language]
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return [found, *FLAGS, *flags]


def compiled(language: str, source: Path, folder: Path, out: Path) -> Path:
    """A program of a source and all objects of a folder, linked as one library."""
    library = folder / "libkernels.a"
    library.unlink(missing_ok=True)
    objects = sorted(map(str, folder.glob("*.o")))
    subprocess.run(["ar", "rcs", str(library), *objects], check=True, timeout=60)
    command = [*compiler(language), f"-I{folder}", str(source), str(library), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def build(home: Path, file: str, *options: str, target: str = "cpu", out: str = "out") -> Path:
    """The folder that the command makes of a file in ``home``."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.chdir(home)
        patch.delenv("TESSERA_ARCH", raising=False)
        code = run(["build", file, "-o", out, f"--target={target}", *options])
    assert code == 0, said.getvalue()
    return home / out


FEW = "@kernel" + "@kernel".join(KERNELS.split("@kernel")[1:3])
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include "tessera_product.h"
#include "tessera_soft.h"
#include "tessera_double.h"
#include "tessera_memcpy.h"
#include "tessera_addc.h"
#include "tessera_Addc_2.h"
#include "tessera_main.h"
#define ROOM 40000
static float a[ROOM], b[ROOM], c[ROOM], d[ROOM];
static double f[ROOM], g[ROOM];
static int32_t p[ROOM], q[ROOM], r[ROOM];
static uint64_t words[TESSERA_PRINT_WORDS];
static int failed;
static void expect(int holds, const char *what)
{ if (!holds) { printf("FAILED %s\n", what); failed = 1; } }
static tessera_array of(int32_t dtype, const void *data, int32_t rank, const int64_t *shape)
{ return tessera_of(dtype, data, rank, shape, NULL); }
/* Runs work twice one behind the other: what a launch counts is shared. */
static void twice(void *context, void (*work)(void *), void *argument)
{ int *calls = (int *)context; ++*calls; work(argument); work(argument); }

static void product(int64_t m, int64_t k, int64_t n, int64_t rows)
{
    int64_t sa[2], sb[2], sc[2], i, j, l;
    tessera_array A, B, C;
    const char *why;
    int wrong = 0, status;
    sa[0] = m; sa[1] = k; sb[0] = rows; sb[1] = n; sc[0] = m; sc[1] = n;
    for (i = 0; i < ROOM; i++) { a[i] = (float)(i % 7); b[i] = (float)(i % 5); c[i] = -1; }
    A = of(TESSERA_F32, a, 2, sa); B = of(TESSERA_F32, b, 2, sb); C = of(TESSERA_F32, c, 2, sc);
    status = tessera_product_launch(&A, &B, &C, NULL);
    if (rows != k) {
        expect(status == TESSERA_REFUSED && !tessera_product_accepts(&A, &B, &C), "rows");
        for (i = 0; i < ROOM; i++) wrong += c[i] != -1;
        expect(!wrong, "written although refused");
        why = tessera_product_1_refuses(&A, &B, &C);
        expect(strcmp(why, "the size of axis 0 of `B` is k") == 0, why);
        return;
    }
    expect(status == TESSERA_OK, "product");
    for (i = 0; i < m; i++) for (j = 0; j < n; j++) {
        float want = 0;
        for (l = 0; l < k; l++) want += a[i * k + l] * b[l * n + j];
        wrong += want != c[i * n + j];
    }
    for (i = m * n; i < ROOM; i++) wrong += c[i] != -1;
    expect(!wrong, "elements of product");
    C = of(TESSERA_F32, a, 2, sc);
    expect(!m || !tessera_product_accepts(&A, &B, &C), "the result is an argument");
    C = of(TESSERA_F64, c, 2, sc);
    expect(!tessera_product_accepts(&A, &B, &C), "another element type");
    expect(!tessera_product_accepts(&A, NULL, &C), "no array");
    A.data = (char *)a + 4;
    C = of(TESSERA_F32, c, 2, sc);
    expect(!tessera_product_accepts(&A, &B, &C), "not aligned");
}

static void rest(void)
{
    int64_t shape[2], n = 77, one[1], far[1], grid[1], i;
    tessera_array x, y, z, w;
    tessera_options options;
    uint64_t fault[TESSERA_FAULT_WORDS];
    double sum = 0;
    int calls = 0;
    memset(&options, 0, sizeof options);
    one[0] = n; shape[0] = 11; shape[1] = 7; far[0] = n + 1; grid[0] = 3;
    for (i = 0; i < ROOM; i++) {
        a[i] = (float)(i % 7); f[i] = (double)i; p[i] = (int32_t)i; q[i] = 5;
    }

    x = of(TESSERA_F32, a, 2, shape); y = of(TESSERA_F32, c, 2, shape);
    z = of(TESSERA_F32, d, 1, shape);
    expect(tessera_soft_launch(&x, &y, &z, NULL) == TESSERA_OK, "soft");
    for (i = 0; i < 77; i++) sum += c[i];
    expect(fabs(sum - 11) < 1e-4 && d[0] == 6, "values of soft");

    x = of(TESSERA_F32, a, 1, one); y = of(TESSERA_F32, c, 1, one);
    options.parallel = twice; options.context = &calls;
    expect(tessera_double_launch(&x, 2.5f, &y, &options) == TESSERA_OK && calls == 1, "double");
    expect(c[6] == 15 && c[76] == 2.5f * (float)(76 % 7), "values of double");
    y = of(TESSERA_F32, c, 1, far);
    expect(tessera_double_launch(&x, 2.5f, &y, NULL) == TESSERA_REFUSED, "one more element");

    x = of(TESSERA_I32, p, 1, one); y = of(TESSERA_I32, q, 1, one); z = of(TESSERA_I32, r, 1, one);
    expect(tessera_memcpy_launch(&x, &y, &z, NULL) == TESSERA_OK && r[9] == 4, "memcpy");

    x = of(TESSERA_F64, f, 1, one); w = of(TESSERA_F64, g, 1, one);
    expect(tessera_addc_launch(&x, &w, grid, NULL) == TESSERA_OK && g[76] == 77, "addc");
    grid[0] = -1;
    expect(!tessera_addc_accepts(&x, &w, grid), "a negative grid");
    expect(tessera_Addc_2_launch(&x, &y, &w, NULL) == TESSERA_REFUSED, "where n % 4 == 0");
    expect(strcmp(tessera_Addc_2_1_refuses(&x, &y, &w), "n % 4 == 0") == 0, "its text");
    one[0] = 76; q[3] = 1000;
    options.fault = fault;
    expect(tessera_Addc_2_launch(&x, &y, &w, &options) == TESSERA_FAULTED, "a fault");
    expect(fault[0] && fault[2] == 1000 && fault[3] == 76 && fault[5] == 3, "its record");

    one[0] = 64; shape[0] = 16;
    x = of(TESSERA_I32, p, 1, one); y = of(TESSERA_I32, r, 1, shape);
    expect(tessera_main_launch(&x, &y, NULL) == TESSERA_REFUSED, "prints need room");
    options.print = words;
    expect(tessera_main_launch(&x, &y, &options) == TESSERA_OK && words[2] == 1, "prints");
}

int main(void)
{
    product(90, 100, 70, 100); product(90, 100, 70, 99); product(1, 1, 1, 1); product(0, 4, 4, 4);
    product(64, 128, 32, 128);
    rest();
    puts(failed ? "failed" : "all right");
    return failed;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of ``KERNELS``, built once."""
    home = tmp_path_factory.mktemp("library")
    (home / "p.tessera").write_text(KERNELS)
    return build(home, "p.tessera")


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.sample(1)
def test_a_program_calls_every_kernel(library: Path, tmp_path: Path, language: str) -> None:
    """Names of C and of its library, wrong sizes, faults, prints, threads: see ``PROGRAM``."""
    source = tmp_path / f"use.{language}"
    source.write_text(PROGRAM)
    program = compiled(language, source, library, tmp_path / "use")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "all right\n", done.stdout


SEVERAL = r"""
#include <stdio.h>
#include "tessera_product.h"
#include "tessera_filled.h"
static float a[200 * 200], b[200 * 200], c[200 * 200];
static double d[300];
static int run(int64_t m, int64_t k, int64_t n)
{
    int64_t sa[2], sb[2], sc[2], i, j, l;
    tessera_array A, B, C;
    int taken;
    sa[0] = m; sa[1] = k; sb[0] = k; sb[1] = n; sc[0] = m; sc[1] = n;
    for (i = 0; i < 200 * 200; i++) { a[i] = (float)(i % 7); b[i] = (float)(i % 5); c[i] = -1; }
    A = tessera_of(TESSERA_F32, a, 2, sa, NULL);
    B = tessera_of(TESSERA_F32, b, 2, sb, NULL);
    C = tessera_of(TESSERA_F32, c, 2, sc, NULL);
    taken = tessera_product_accepts(&A, &B, &C);
    if (tessera_product_launch(&A, &B, &C, NULL) != TESSERA_OK)
        return -1;
    for (i = 0; i < m; i++) for (j = 0; j < n; j++) {
        float want = 0;
        for (l = 0; l < k; l++) want += a[i * k + l] * b[l * n + j];
        if (want != c[i * n + j]) return -2;
    }
    for (i = m * n; i < 200 * 200; i++) if (c[i] != -1) return -3;
    return taken;
}
int main(void)
{
    int64_t n[1];
    tessera_array x, y;
    n[0] = 300;
    x = tessera_of(TESSERA_F64, d, 1, n, NULL);
    y = tessera_of(TESSERA_F32, c, 1, n, NULL);
    printf("%d %d %d", run(90, 100, 70), run(128, 128, 128), run(128, 128, 130));
    printf(" %d %d %d", tessera_filled_accepts(3, &x), tessera_filled_accepts(4, &y),
           tessera_filled_accepts(5, &x));
    printf(" %d", tessera_filled_launch(3, &x, NULL));
    printf(" %g %g\n", d[0], d[299]);
    return 0;
}
"""
FILLED = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def filled[VALUE: int, T: dtype](out: mut T[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = T(VALUE)
"""


@pytest.mark.parametrize("language", list(LANGUAGES))
@pytest.mark.sample(1)
def test_several_signatures_and_processors_in_one_library(tmp_path: Path, language: str) -> None:
    """Each call takes the variant whose premises hold, and objects of all link together."""
    (tmp_path / "p.tessera").write_text(KERNELS[: KERNELS.index("@op.kernel\ndef soft")] + FILLED)
    out = build(
        tmp_path, "p.tessera", "--arch=native", "--arch=x86-64-v2",
        "--signature", "A: f32[m, k], B: f32[k, n]",
        "--signature", "A: f32[128, 128], B: f32[128, 128]",
        "--signature", "out: f64[n], VALUE=3", "--signature", "out: f32[n], VALUE=4",
    )  # fmt: skip
    source = tmp_path / f"use.{language}"
    source.write_text(SEVERAL)
    program = compiled(language, source, out, tmp_path / "use")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 3 1 1 3 0 0 3 3\n"
    module = tessera.load_built(out)
    a, b = np.ones((90, 100), np.float32), np.ones((100, 70), np.float32)
    assert (module.product(a, b) == 100).all()


# --- what is in a folder -------------------------------------------------------------------------


def test_no_path_of_the_machine_is_in_a_folder(tmp_path: Path) -> None:
    """Two spellings of a path give the same bytes, and another folder the same as this one."""
    folders: list[dict[str, bytes]] = []
    for home, spelled in (("one", "p.tessera"), ("one", "{home}/../one/p.tessera"),
                          ("two", "{home}/p.tessera")):  # fmt: skip
        place = tmp_path / home
        (place / "sub").mkdir(parents=True, exist_ok=True)
        (place / "sub" / "helper.tessera").write_text("def pick(x, i):\n    return x[i * 2]\n")
        text = "import sub.helper as helper\nfrom std import math\n" + FEW
        text = text.replace("register[i] * int", "helper.pick(register, i) * math.exp(int)")
        (place / "p.tessera").write_text(text)
        out = build(place, spelled.format(home=place), out=f"out{len(folders)}")
        folders.append({p.name: p.read_bytes() for p in out.iterdir()})
    first = folders[0]
    for name, data in first.items():
        assert str(tmp_path).encode() not in data and b"/tmp/" not in data, name
    assert folders[1] == first and folders[2] == first
    manifest = json.loads(first["manifest.json"])
    files = set(re.findall(r'"([^"]*\.tessera)"', first["manifest.json"].decode()))
    assert files == {"p.tessera", "sub/helper.tessera"}
    for kernel in manifest["kernels"]:
        assert len(kernel["premises"]) > 5 and kernel["needs"] is not None
        header = first[f"{kernel['label'].rpartition('_')[0]}.h"].decode()
        for text in kernel["premises"]:
            assert f" * - {comment_of(text)}\n" in header, text
            checked = text_of(text) in header
            # A C type says how many axes a grid has, and the code names its processor's features.
            assert checked or re.fullmatch(r"the grid has \d ax[ie]s|`\w+` is \w+", text)


def test_a_second_build_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "p.tessera").write_text(FEW)
    out = build(tmp_path, "p.tessera")
    (out / "notes.txt").write_text("mine")
    build(tmp_path, "p.tessera", "--kernel=memcpy", "--prefix=lib")
    names = sorted(p.name for p in out.iterdir())
    made = ["lib_memcpy.h", "lib_memcpy_1.native.o", "manifest.json", "notes.txt", "tessera.h"]
    assert names == made


def test_names_are_told_apart_without_their_case() -> None:
    names = Names()
    wanted = ["double", "a", "A", "Double", "errno", "x-1", "x_1", "", "7", "größe", "a" * 300]
    found = [names.take(w) for w in wanted]
    assert len({f.lower() for f in found}) == len(wanted)
    assert not {f.lower() for f in found} & RESERVED
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,80}", f) for f in found)


def test_texts_within_c() -> None:
    text = 'a "b" \\ ??/ */ /* \n é'
    literal = text_of(text)
    assert eval(f"b{literal}") == text.encode() and "?" not in literal
    assert "*/" not in comment_of(text) and "/*" not in comment_of(text)
    assert "\n" not in comment_of(text)


# --- objects -------------------------------------------------------------------------------------


def test_an_object_is_renamed_and_nothing_else(library: Path) -> None:
    code = (library / "tessera_addc_1.native.o").read_bytes()
    machine = features.host_machine()
    before = ElfObject(code, machine).image()
    for name in ("x", "tessera_" + "long" * 40):
        other = renamed(code, "tessera_addc_1", name)
        after = ElfObject(other, machine).image()
        assert list(after.entries) == [name]
        assert (after.content, after.code_size) == (before.content, before.code_size)
        assert renamed(renamed(other, name, "y"), "y", name) != b""
    with pytest.raises(ElfError, match="no function"):
        renamed(code, "nothing", "x")


def test_a_wrong_object_says_what_it_is(library: Path) -> None:
    code = (library / "tessera_addc_1.native.o").read_bytes()
    machine = features.host_machine()

    def said(data: bytes) -> str:
        with pytest.raises(ElfError) as caught:
            ElfObject(data, machine).image()
        return str(caught.value)

    for size in (0, 1, 3, 4, 7, 20, 63, 64, len(code) // 2, len(code) - 1):
        assert "cut short" in said(code[:size]), size
    other = 183 if machine == "x86_64" else 62
    name = "aarch64" if machine == "x86_64" else "x86_64"
    assert f"an object for {name}" in said(code[:18] + bytes([other, 0]) + code[20:])
    assert "number 999" in said(code[:18] + (999).to_bytes(2, "little") + code[20:])
    assert "32-bit little-endian" in said(code[:4] + b"\x01" + code[5:])
    assert "64-bit big-endian" in said(code[:5] + b"\x02" + code[6:])
    assert "linked program" in said(code[:16] + b"\x03" + code[17:])
    assert "no ELF object" in said(b"\xcf\xfa\xed\xfe" + code[4:])
    assert "no ELF object" in said(b"MZ" + code[2:])


def test_a_wrong_object_of_a_folder_is_built_again(library: Path, tmp_path: Path) -> None:
    """The advice is about the folder, also where its manifest says that the object is right."""
    shutil.copytree(library, tmp_path / "out")
    manifest = json.loads((library / "manifest.json").read_text())
    kernel = next(k for k in manifest["kernels"] if k["kernel"] == "double")
    code = (library / kernel["file"]).read_bytes()
    machine = 183 if features.host_machine() == "x86_64" else 62
    for damaged, words in (
        (code[:100], "cut short"), (b"", "cut short"), (b"MZ" + code, "no ELF object"),
        (code[:18] + bytes([machine, 0]) + code[20:], "and this machine is"),
        (renamed(code, kernel["entry"], "x"), "has no function tessera_double_1"),
    ):  # fmt: skip
        (tmp_path / "out" / kernel["file"]).write_bytes(damaged)
        kernel["sha256"] = hashlib.sha256(damaged).hexdigest()
        manifest["sha256"] = digest_of(manifest["kernels"])
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
        module = tessera.load_built(tmp_path / "out")
        with pytest.raises(TesseraError) as caught:
            module.double(np.ones(3, np.float32), 2.0, np.ones(3, np.float32))
        said = str(caught.value)
        assert caught.value.diagnostics[0].code == "T0849" and words in said
        assert "build it again: tesserac build" in said and "cache clear" not in said


def test_the_processor_of_a_folder_is_looked_at(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for more than this machine has is refused before its code runs."""
    here = features.host_features()
    needs = json.loads((library / "manifest.json").read_text())["kernels"][0]["needs"]
    if not needs or here is None:
        pytest.skip("nothing is known of this processor")
    monkeypatch.setattr(features, "host_features", lambda: here - {needs[-1]})
    with pytest.raises(TesseraError) as caught:
        tessera.load_built(library).double(np.ones(3, np.float32), 2.0, np.ones(3, np.float32))
    assert caught.value.diagnostics[0].code == "T0849"
    said = str(caught.value)
    assert f"it needs {needs[-1]}, which this processor lacks" in said and "`--arch native`" in said
