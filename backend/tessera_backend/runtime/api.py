"""The Python face of the runtime: ``load``, ``compile``, ``load_built`` and their modules.

Found by the entry point ``tessera.runtime``; ``tessera_lang`` shows these names. Imports
NumPy and nothing of the compiler before something is to be compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera_backend.runtime import cache as _cache
from tessera_backend.runtime.call_diagnostics import TesseraWarning, diagnostic, error
from tessera_backend.runtime.caller_errors import WrongType, ends_at_the_caller
from tessera_backend.runtime.module import Module, NoSuchKernel, Target
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact

if TYPE_CHECKING:
    from tessera_backend.runtime.benchmarks import Benchmark
    from tessera_backend.runtime.compiler import SessionProvider
    from tessera_backend.runtime.device_array import DeviceArray
    from tessera_lang.target.host_world import KernelCompiler, World

__all__ = [
    "Module", "NoSuchKernel", "TesseraError", "TesseraWarning", "bench", "compile", "from_device",
    "fused", "get_num_threads", "grad", "jvp", "load", "load_built", "set_num_threads",
    "synchronize", "to_device", "value_and_grad", "vjp",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Packages of frameworks, which are imported where they are used."""
    if name == "torch":
        from tessera_backend.runtime.frameworks import torch_operators

        return torch_operators
    if name == "jax":
        from tessera_backend.runtime.frameworks import jax_functions

        return jax_functions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@ends_at_the_caller
def load(
    path: str | os.PathLike[str], target: Target = "auto",
    paths: Sequence[str | os.PathLike[str]] = (), arch_as: str = "",
) -> Module:  # fmt: skip
    """The module of a ``.tessera`` file, or of the standard library (``std.reduce``).

    ``paths`` are folders for its imports. ``arch_as`` (``sm_90a``): code of tile kernels for
    that architecture is run on the CPU, operation by operation, and checked. The file is read
    and checked now, and a kernel is compiled when it is first called. Raises TesseraError.
    """
    _check_target(target)
    path = _path("path", path)
    name = _find(path)
    paths = _folders(paths)
    _check_text("arch_as", arch_as)
    if arch_as:
        target = _target_as(target, arch_as)
    origin = load, (path, target, paths, arch_as)
    return Module(name, _provider(name, target, paths, arch_as=arch_as), target, origin)


def _target_as(target: Target, arch_as: str) -> Target:
    from tessera_lang.driver.emulated_arch import refused_as

    refused = refused_as(target, arch_as)
    if refused is not None:
        raise error(refused)
    return "cpu"


@ends_at_the_caller
def compile(
    source: str | os.PathLike[str], target: Target = "auto", arch: str = "",
    paths: Sequence[str | os.PathLike[str]] = (),
) -> Module:  # fmt: skip
    """The module of a source text (or of a path) for a build script.

    A ``str`` with a line break is the text itself; anything else is a path. It is checked now,
    as by ``load``. Raises TesseraError.
    """
    _check_target(target)
    paths = _folders(paths)
    _check_text("arch", arch)
    text = source if isinstance(source, str) and "\n" in source else None
    name = "<source>" if text is not None else _find(_path("source", source))
    provider = _provider(name, target, paths, text, arch)
    return Module(name, provider, target, (compile, (source, target, arch, paths)))


@ends_at_the_caller
def load_built(directory: str | os.PathLike[str], target: Target = "auto") -> Module:
    """The kernels that ``tesserac build`` wrote to a folder. Raises TesseraError."""
    from tessera_backend.runtime.built_loader import BuiltProvider

    _check_target(target)
    folder = _path("directory", directory)
    provider = BuiltProvider(Path(folder))
    origin = load_built, (folder, target)
    return Module(folder, provider, _built_target(provider, target), origin)


def _built_target(provider: Any, target: Target) -> Target:
    """A folder with code for CUDA only copies NumPy arrays rather than refuse them."""
    targets = {k.artifact.options.target for k in provider.kernels}
    return "cuda" if target == "auto" and targets == {"cuda"} else target


@ends_at_the_caller
def grad(
    function: Any, wrt: str | int | Sequence[str | int] | None = None, *,
    memory_budget: float | None = None,
) -> Any:  # fmt: skip
    """The gradient of a plain function of a module, as a function with the same parameters.

    ``wrt`` is a parameter, by name or number, or several: then it gives a tuple. Without it the
    gradient is that of the first parameter. The function gives a number; of one that gives arrays
    the call takes ``cotangent=``, the gradient of what it gives. ``memory_budget``: the most bytes
    that a call has in memory, with its arguments and results; values are computed again where they
    are needed, rather than kept. Raises TesseraError."""
    from tessera_backend.runtime.derivatives import gradient

    return gradient(function, wrt, False, memory_budget)


@ends_at_the_caller
def value_and_grad(
    function: Any, wrt: str | int | Sequence[str | int] | None = None, *,
    memory_budget: float | None = None,
) -> Any:  # fmt: skip
    """What a plain function gives and its gradient, as ``grad`` does. Raises TesseraError."""
    from tessera_backend.runtime.derivatives import gradient

    return gradient(function, wrt, True, memory_budget)


@ends_at_the_caller
def vjp(function: Any, *arguments: Any) -> tuple[Any, Any]:
    """What a plain function of a module gives, and a function of the gradient of that, which gives
    a tuple with the gradient of each argument (None of what holds no floats). Raises
    TesseraError."""
    from tessera_backend.runtime.derivatives import pulled_back

    return pulled_back(function, arguments)


@ends_at_the_caller
def jvp(function: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """What a plain function of a module gives, and how that changes when its arguments ``primals``
    change by ``tangents`` (None: they do not). Raises TesseraError."""
    from tessera_backend.runtime.derivatives import pushed_forward

    return pushed_forward(function, primals, tangents)


@ends_at_the_caller
def fused(function: Any, *, memory_budget: float | None = None) -> Any:
    """A plain function of a module as one graph, with the same parameters: products, reductions and
    element-wise work are fused where that saves time. ``memory_budget``: as of ``grad``. Raises
    TesseraError."""
    from tessera_backend.runtime.derivatives import fused as as_graph

    return as_graph(function, memory_budget)


@ends_at_the_caller
def bench(
    function: Callable[..., Any], *arguments: Any,
    peers: Mapping[str, Callable[..., Any]] | None = None, cache: str = "warm",
    seconds: float = 1.0, precision: float = 0.01, device: int | str | None = None,
) -> Benchmark:  # fmt: skip
    """What a call ``function(*arguments)`` takes, beside ``peers``: callables by their names, each
    called with the same arguments and measured in turn with the function.

    ``cache``: ``warm`` measures calls one behind the other, ``cold`` empties the last cache before
    each. ``seconds``: about how long to measure for each callable; ``precision``: the part of the
    median by which its confidence interval (95 %) may go up and down, where measuring ends earlier.
    ``device``: whose clock counts, ``"cpu"`` or a number; None: that of the arguments. Raises
    TesseraError (T0859), and what a call raises."""
    from tessera_backend.runtime.benchmarks import bench as measured

    return measured(function, arguments, peers or {}, cache, seconds, precision, device)


def _check_target(target: str) -> None:
    if target not in ("auto", "cpu", "cuda"):
        raise error(diagnostic("T0814", f"there is no target `{target}`",
                               helps=("targets are `auto`, `cpu` and `cuda`",)))  # fmt: skip


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise WrongType(name, value, "a text")


def _path(name: str, value: str | bytes | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        raise WrongType(name, value, "a path") from None


def _folders(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    try:
        if not isinstance(paths, (str, bytes, os.PathLike)):
            return tuple([_path("paths", p) for p in paths])
    except TypeError:
        pass
    raise WrongType("paths", paths, "a list of folders")


def _check_device(value: object) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise WrongType("device", value, "the number of a device")


def _find(path: str) -> str:
    from tessera_lang.driver.modules import SUFFIX, ModuleFinder, Refused

    if not path.endswith(SUFFIX) and (path == "std" or path.startswith("std.")):
        found = ModuleFinder((), os.path.isfile).find(path, "<host>")
        if isinstance(found, Refused):
            raise error(diagnostic(found.code, found.message, helps=found.helps))
        return found
    return path


def _provider(
    path: str, target: Target, paths: Sequence[str],
    text: str | None = None, arch: str = "", arch_as: str = "",
) -> SessionProvider:  # fmt: skip
    from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

    options = options_from_environment()
    folders = (*paths, *options.path)
    options = replace(
        options, target=target, arch=arch or options.arch, path=folders,
        arch_as=arch_as or options.arch_as,
    )  # fmt: skip
    if target == "cuda":
        _require("cuda")
    provider = SessionProvider(path, options, text=text)
    try:
        provider.closure()
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        missing = isinstance(fault, FileNotFoundError)
        message = f"there is no file {path}" if missing else f"{path} cannot be read: {reason}"
        raise error(diagnostic("T0810", message)) from fault
    provider.check()
    return provider


def _require(target: str) -> None:
    from tessera_backend.runtime.compiler import backend

    reason = backend(target).available()
    if reason:
        raise error(diagnostic(
            "T0814", f"the target `{target}` does not work here: {reason}",
            helps=("`tesserac doctor` says more", 'load with target="cpu"'),
        ))  # fmt: skip


# --- arrays and waiting --------------------------------------------------------------------


@ends_at_the_caller
def to_device(value: object, device: int = 0) -> DeviceArray:
    """A copy of an array in the memory of a CUDA device. Raises TesseraError."""
    from tessera_backend.runtime.device_array import to_device as copy

    _check_device(device)
    return copy(value, device)


@ends_at_the_caller
def from_device(array: object) -> Any:
    """A NumPy copy of a device array, after the kernels before it. Raises TesseraError."""
    from tessera_backend.runtime.device_array import DeviceArray

    if not isinstance(array, DeviceArray):
        raise WrongType("array", array, "an array of `to_device`")
    return array.numpy()


@ends_at_the_caller
def synchronize(device: int | None = None) -> None:
    """Wait for the kernels of a device (None: of all in use); raise what they reported."""
    from tessera_backend.runtime import faults

    if device is None:
        faults.synchronize_all()
        return
    from tessera_backend.device.driver import device as cuda_device

    _check_device(device)
    cuda_device(device).synchronize()
    faults.report_all()


@ends_at_the_caller
def set_num_threads(count: int | None) -> None:
    """Launches on the CPU from here on use so many threads, 1 to 256, the calling one included.

    None: as TESSERA_NUM_THREADS says, or else as many as there are processors for this process.
    Raises TesseraError (T0856).
    """
    from tessera_backend.cpu.thread_count import set_thread_count

    set_thread_count(count)


@ends_at_the_caller
def get_num_threads() -> int:
    """How many threads a launch on the CPU may use. Raises TesseraError (T0856) where
    TESSERA_NUM_THREADS is no such number."""
    from tessera_backend.cpu.thread_count import thread_count

    return thread_count()


# --- what the command line asks (tessera_lang.target.runtime.Runtime) ----------------------


def host_world(
    session: KernelCompiler, target: str, write: Callable[[str], None], arch_as: str = "",
    checked: bool = False, check_nan: bool = False,
) -> World:  # fmt: skip
    """A world of arrays and launches for ``tesserac run``."""
    from tessera_backend.runtime.host_environment import HostWorld

    kind = HostWorld
    if check_nan:
        from tessera_backend.runtime.nan_checking_world import NanCheckingWorld as kind
    return kind(session, target, write, arch_as=arch_as, checked=checked)


def use_lane_order(order: str, seed: int) -> None:
    """How checked mode runs lanes from here on."""
    from tessera_backend.runtime.checked_code import use_setting

    use_setting(order, seed)


def checked_report() -> tuple[str, ...]:
    """What was run in checked mode, and what that says."""
    from tessera_backend.runtime.checked_coverage import checked_report as report

    return report()


def asynchronous_report(arch_as: str) -> tuple[str, ...]:
    """What was run with ``--as``, and what that says."""
    from tessera_backend.runtime.emulated_code import asynchronous_report as report

    return report(arch_as)


def write_build(
    directory: Path, artifacts: Sequence[Artifact], root: str = "", prefix: str = "tessera"
) -> tuple[Path, ...]:  # fmt: skip
    """Code, manifest and C headers; the files written."""
    from tessera_backend.runtime.build_folder import write_build as write

    return write(directory, artifacts, root, prefix)


def stub_of(file: str, folders: Sequence[str]) -> str:
    """The text of a type stub. Raises TesseraError where the file is wrong."""
    from tessera_backend.runtime.stubs import stub_text

    return stub_text(_provider(_find(file), "auto", folders).module(), Path(file).name)


def proofs() -> _cache.CachedProofs:
    """What checks found right, kept in the compile cache."""
    from tessera_backend.runtime.import_closure import compiler_identity

    return _cache.CachedProofs(compiler_identity())


def cache_directory() -> Path:
    return _cache.configured_directory() or Path(os.devnull)


def cache_stats() -> Mapping[str, object]:
    s = _cache.shared_cache().stats()
    return {"directory": s.directory, "entries": s.entries, "bytes": s.size, "limit": s.limit,
            "problem": s.problem}  # fmt: skip


def cache_clear() -> int:
    """Empty the cache; the number of bytes freed."""
    return _cache.shared_cache().clear()


def cache_prune(limit: int | None = None) -> int:
    """Remove what was not used for longest until ``limit`` bytes are left; bytes freed."""
    shared = _cache.shared_cache()
    return shared.prune(shared.limit if limit is None else limit)


def devices() -> Sequence[Mapping[str, object]]:
    """One mapping a CUDA device. Raises TesseraError where CUDA does not work."""
    from tessera_backend.device.driver import devices as cuda_devices

    return [
        {"index": d.ordinal, "name": d.name, "arch": d.arch, "memory_bytes": d.memory_bytes}
        for d in cuda_devices()
    ]
