"""What the machine lacks or refuses: a result, or one diagnostic that names the remedy.

Each case also shows in ``tesserac doctor``.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import cuda_fault
from tests.world.conftest import Command, Done

posix = pytest.mark.skipif(os.name != "posix", reason="paths and links of POSIX")
no_device = pytest.mark.skipif(not cuda_fault(), reason="there is a CUDA device")
RIGHT = "last 198.0\n"


def doctor(tesserac: Command, env: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    done = tesserac("doctor", "--format=json", env=env)
    assert done.status == 0, done.err
    return {finding["name"]: finding for finding in json.loads(done.out)}


def patched(tmp_path: Path, code: str) -> dict[str, str]:
    """An environment in which every Python runs ``code`` first."""
    folder = tmp_path / "site"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


# --- CUDA ------------------------------------------------------------------------------------


@no_device
def test_no_driver(tesserac: Command, double: Path) -> None:
    done = tesserac("run", "double.tessera", "--target=cuda")
    assert (done.status, done.codes, done.out) == (3, ["T0814"], "")
    assert "--target cpu" in done.err and "tesserac doctor" in done.err
    done = tesserac("run", "double.tessera", "--target=auto")
    assert (done.status, done.out) == (0, RIGHT)
    assert re.match(r"target: cpu \(cuda: .+\)\n$", done.err)
    found = doctor(tesserac)
    assert not found["target cuda"]["ok"] and not found["NVIDIA driver"]["ok"]
    assert "--target cpu" in found["NVIDIA driver"]["remedy"]


@pytest.mark.slow
def test_no_package(tesserac: Command, double: Path, tmp_path: Path) -> None:
    code = "import sys\nsys.modules['cuda'] = None\nsys.modules['cuda.bindings'] = None\n"
    env = patched(tmp_path, code)
    done = tesserac("run", "double.tessera", "--target=cuda", env=env)
    assert (done.status, done.codes) == (3, ["T0814"])
    done = tesserac("run", "double.tessera", env=env)
    assert (done.status, done.out) == (0, RIGHT)
    remedies = [f["remedy"] for f in doctor(tesserac, env).values() if not f["ok"]]
    assert any("pip install cuda-python" in remedy for remedy in remedies)


FAKE = """
import sys, types
sys.path.insert(0, {root!r})
from tests.unit.backend.device.fake_driver import FakeApi
api = FakeApi(version={version}, capabilities={capabilities})
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "cuda.bindings.driver":
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, self)
    def create_module(self, spec):
        return api
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Finder())
"""
ROOT = str(Path(__file__).resolve().parents[2])


@pytest.mark.slow
def test_a_driver_that_is_too_old(tesserac: Command, double: Path, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    env = patched(tmp_path, FAKE.format(root=ROOT, version=11040, capabilities=((9, 0),)))
    done = tesserac("run", "double.tessera", "--target=cuda", env=env)
    assert (done.status, done.codes) == (3, ["T0814"])
    assert "11.4" in done.err and "12.0" in done.err
    done = tesserac("run", "double.tessera", env=env)
    assert (done.status, done.out) == (0, RIGHT)
    assert "11.4" in done.err
    found = doctor(tesserac, env)["NVIDIA driver"]
    assert not found["ok"] and "11.4" in found["detail"] and "update" in found["remedy"]


def test_two_devices_of_different_architecture(
    tesserac: Command, double: Path, tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings")
    both = FAKE.format(root=ROOT, version=13000, capabilities=((9, 0), (8, 0)))
    found = tesserac("devices", "--format=json", env=patched(tmp_path, both))
    assert found.status == 0, found.err
    archs = [d["arch"] for d in json.loads(found.out) if d["target"] == "cuda"]
    assert archs == ["sm_90", "sm_80"]
    assert doctor(tesserac, patched(tmp_path, both))["target cuda"]["ok"]


@pytest.mark.parametrize("capability", [(7, 5), (99, 0)])
@pytest.mark.slow
def test_a_device_that_is_not_served(
    tesserac: Command, double: Path, tmp_path: Path, capability: tuple[int, int]
) -> None:
    pytest.importorskip("cuda.bindings")
    env = patched(tmp_path, FAKE.format(root=ROOT, version=13000, capabilities=(capability,)))
    assert tesserac("devices", env=env).status == 0
    doctor(tesserac, env)
    done = tesserac("run", "double.tessera", "--target=cuda", env=env)
    assert done.status == 3 and len(done.codes) == 1 and "--target cpu" in done.err
    done = tesserac("run", "double.tessera", env=env)
    assert (done.status, done.out) == (0, RIGHT)


@pytest.mark.parametrize("named", [None, "missing", "folder", "text"])
@pytest.mark.sample(1)
def test_no_ptxas(tesserac: Command, double: Path, tmp_path: Path, named: str | None) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no program")
    own = None if named is None else str(tmp_path / named)
    env = {"PATH": "", "CUDA_HOME": None, "CUDA_PATH": None, "TESSERA_PTXAS": own}
    if named is None:
        env |= patched(tmp_path, "import sys\nsys.modules['nvidia'] = None\n")
    done = tesserac("emit", "double.tessera", "--stage=ptx", "--arch=sm_90", env=env)
    assert done.status == 0 and ".target sm_90" in done.out
    done = tesserac("emit", "double.tessera", "--stage=sass", "--arch=sm_90", env=env)
    assert (done.status, done.codes) == (1, ["T0879"]) and "ptxas" in done.err
    done = tesserac("build", "double.tessera", "-o", "o", "--target=cuda", "--arch=sm_90", env=env)
    assert done.status == 0 and list((tmp_path / "o").glob("*.ptx")), done.err
    found = doctor(tesserac, env)["ptxas"]
    assert not found["ok"] and "pip install" in found["remedy"]


# --- the home and the cache -------------------------------------------------------------------


def ran(done: Done, *, noted: bool) -> None:
    """The result is right; where nothing can be kept, one note says so."""
    assert (done.status, done.out) == (0, RIGHT), done.err
    assert done.codes == ["T0848"] * noted and "Warning" not in done.err, done.err
    assert not noted or "TESSERA_CACHE_DIR" in done.err


def test_a_second_process_finds_the_kernel(tesserac: Command, double: Path, home: Path) -> None:
    ran(tesserac("run", "double.tessera", "--target=cpu"), noted=False)
    kept = {path: path.stat().st_ino for path in home.rglob("*.entry")}
    assert kept
    ran(tesserac("run", "double.tessera", "--target=cpu"), noted=False)
    assert {path: path.stat().st_ino for path in home.rglob("*.entry")} == kept
    assert doctor(tesserac)["cache"]["ok"]


@posix
@pytest.mark.parametrize("home", ["file", "below a file", "missing", "none", "relative", "proc"])
@pytest.mark.slow
def test_homes(tesserac: Command, double: Path, tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    values: dict[str, str | None] = {
        "file": str(tmp_path / "file"), "below a file": str(tmp_path / "file" / "home"),
        "missing": str(tmp_path / "a" / "b"), "none": None, "relative": "here",
        "proc": "/proc/1/none",
    }  # fmt: skip
    env: dict[str, str | None] = {"HOME": values[home]}
    if home == "none":
        env["XDG_CACHE_HOME"] = str(tmp_path / "kept")  # else the true home is used
    if home == "proc" and not os.path.isdir("/proc/1"):
        pytest.skip("no /proc")
    unusable = home in ("file", "below a file", "proc")
    ran(tesserac("run", "double.tessera", "--target=cpu", env=env), noted=unusable)
    found = doctor(tesserac, env)["cache"]
    assert found["ok"] == (not unusable)
    assert not unusable or "TESSERA_CACHE_DIR" in found["remedy"]


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_is_read_only(tesserac: Command, double: Path, home: Path) -> None:
    home.chmod(0o500)
    try:
        ran(tesserac("run", "double.tessera", "--target=cpu"), noted=True)
        assert not doctor(tesserac)["cache"]["ok"]
    finally:
        home.chmod(0o700)


@posix
@pytest.mark.slow
def test_a_cache_that_others_can_write(tesserac: Command, double: Path, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    env = {"TESSERA_CACHE_DIR": str(folder)}
    ran(tesserac("run", "double.tessera", "--target=cpu", env=env), noted=True)
    found = doctor(tesserac, env)["cache"]
    assert not found["ok"] and "other users" in found["detail"]


@pytest.mark.slow
def test_the_cache_switched_off(tesserac: Command, double: Path, home: Path) -> None:
    env = {"TESSERA_CACHE": "off"}
    ran(tesserac("run", "double.tessera", "--target=cpu", env=env), noted=False)
    assert not list(home.rglob("*.entry"))
    doctor(tesserac, env)
    for command in ("dir", "stats", "clear"):
        assert tesserac("cache", command, env=env).status == 0


FULL = """
import errno, os, tempfile
def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.replace = full
"""


def test_a_full_disk(tesserac: Command, double: Path, tmp_path: Path) -> None:
    env = patched(tmp_path, FULL)
    ran(tesserac("run", "double.tessera", "--target=cpu", env=env), noted=True)


@posix
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_output_to_a_full_disk(double: Path, tmp_path: Path, tesserac: Command) -> None:
    done = tesserac("emit", "double.tessera", "--stage=ast", "-o", "/dev/full")
    assert done.status == 2 and "no space left" in done.err and "= help" in done.err


@posix
@pytest.mark.parametrize("where", ["none/a.npy", "file/a.npy", "."])
@pytest.mark.sample(1)
def test_a_result_that_cannot_be_written(tesserac: Command, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    text = f"op.save({where!r}, op.zeros((4,), f32))\n"
    (tmp_path / "s.tessera").write_text(text, encoding="utf-8")
    done = tesserac("run", "s.tessera", "--target=cpu")
    assert done.status == 3 and len(done.codes) == 1, done.err


class Hostile:
    def __reduce__(self) -> object:
        return (os.abort, ())


DAMAGE: dict[str, Any] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0" * 4096,
    "another version": lambda data: data.replace(b"cache 1", b"cache 0", 1),
    "flipped": lambda data: data[:-100] + bytes([data[-100] ^ 255]) + data[-99:],
    "pickle": lambda data: pickle.dumps(Hostile()),
    "huge header": lambda data: data[:16] + b"\xff" * 16 + data[32:],
    "noise": lambda data: bytes(range(256)) * 40,
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.slow
def test_garbled_entries(tesserac: Command, double: Path, home: Path, how: str) -> None:
    ran(tesserac("run", "double.tessera", "--target=cpu"), noted=False)
    whole = {entry: entry.read_bytes() for entry in home.rglob("*.entry")}
    assert whole
    for entry, data in whole.items():
        entry.write_bytes(DAMAGE[how](data))
    ran(tesserac("run", "double.tessera", "--target=cpu"), noted=False)
    assert {entry: entry.read_bytes() for entry in whole} == whole
    assert doctor(tesserac)["cache"]["ok"]


def test_the_cache_is_shown_and_emptied(tesserac: Command, double: Path, home: Path) -> None:
    tesserac("run", "double.tessera", "--target=cpu")
    stats = json.loads(tesserac("cache", "stats", "--json").out)
    assert stats["entries"] == len(list(home.rglob("*.entry"))) > 0
    assert tesserac("cache", "clear").out.startswith("freed ")
    assert not list(home.rglob("*.entry"))


# --- the network ------------------------------------------------------------------------------

NO_NETWORK = """
import os, socket
def refuse(*_, **__):
    os.write(2, b"CONNECTED\\n")
    os._exit(77)
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
for name in ("create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, refuse)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "double.tessera"), ("check", "double.tessera"), ("doctor",), ("devices",),
        ("build", "double.tessera", "-o", "o"), ("version",), ("explain", "T0101"),
    ],
)  # fmt: skip
@pytest.mark.sample(1)
def test_nothing_connects(
    tesserac: Command, double: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = tesserac(*arguments, env=patched(tmp_path, NO_NETWORK))
    assert done.status == 0 and "CONNECTED" not in done.err, done.err


# --- what the caller leaves behind -----------------------------------------------------------


@pytest.mark.parametrize(("size", "noted"), [("7", False), ("-5x", True), ("1e3", True)])
@pytest.mark.slow
def test_the_size_of_the_cache_is_a_number(
    tesserac: Command, double: Path, size: str, noted: bool
) -> None:
    done = tesserac("run", str(double), "--target=cpu", env={"TESSERA_CACHE_SIZE": size})
    assert (done.status, done.out, done.codes) == (0, RIGHT, ["T0848"] * noted), done.err


@posix
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
@pytest.mark.sample(1)
def test_closed_streams(double: Path, closed: str) -> None:
    command = f'"{sys.executable}" -m tessera_lang.driver.cli check "{double}" --lints {closed}'
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 0


@posix
def test_a_working_folder_that_is_gone(double: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    run = f'"{sys.executable}" -m tessera_lang.driver.cli run "{double}" --target=cpu'
    command = f'rmdir "{gone}"; {run}'
    done = subprocess.run(["/bin/sh", "-c", command], cwd=gone, check=False, capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, RIGHT)
