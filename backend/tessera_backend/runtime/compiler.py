"""The compiler behind its cache: artifacts and interfaces of one source file.

Owns the cache keys and what an entry holds. A hit loads neither the front end nor LLVM; a
miss opens a session. Must not know arguments or launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from tessera_backend.runtime import signature as signatures
from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.cache import Cache, Entry, key_of, shared_cache
from tessera_backend.runtime.call_diagnostics import (
    diagnostic,
    error,
    remember_source,
    rendered,
    tell_once,
    tell_text_once,
)
from tessera_backend.runtime.import_closure import Closure, closure_of, compiler_identity
from tessera_backend.runtime.kernel import Launcher, new_kernel
from tessera_backend.runtime.module_interface import KernelInterface, ModuleInterface
from tessera_backend.runtime.signature import Signature
from tessera_lang.diagnostics.diagnostic import Diagnostic, TesseraError
from tessera_lang.driver.modules import standard_library
from tessera_lang.driver.options import Options, from_environment
from tessera_lang.locks import COMPILER
from tessera_lang.record import replace
from tessera_lang.target.backend import (
    Artifact,
    Backend,
    Resources,
    TargetOptions,
    backend_named,
    backend_names,
)
from tessera_lang.target.launch_plan import LaunchPlan

_MAX_SIGNATURES = 17
_VARIANTS = (128, 152)
"""Signatures of a tile kernel that are told apart by every class of sizes, and by octaves; those
behind them are compiled for any size."""
_loaded_backends: dict[str, Backend] = {}


def backend(name: str) -> Backend:
    """An installed backend. Raises TesseraError where there is none of that name."""
    found = _loaded_backends.get(name)
    if found is not None:
        return found
    try:
        with COMPILER:
            return _loaded_backends.setdefault(name, backend_named(name))
    except KeyError:
        known = ", ".join(f"`{n}`" for n in backend_names())
        raise error(diagnostic("T0814", f"there is no target `{name}`", helps=(
            f"the installed targets are {known}",))) from None  # fmt: skip


def options_from_environment() -> Options:
    """The TESSERA_ variables. Raises TesseraError where one is not usable."""
    try:
        return from_environment()
    except ValueError as fault:
        raise error(diagnostic("T0814", str(fault))) from fault


class SessionProvider:
    """Gives artifacts of the kernels of one file.

    ``session`` is made on the first miss, or given (a host program has one already).
    """

    def __init__(
        self, path: str, options: Options, *, text: str | None = None,
        session: Any = None, cache: Cache | None = None,
    ) -> None:  # fmt: skip
        self.path = path
        self.options = options
        self._text = text
        self._session = session
        self._cache = cache or shared_cache()
        self._closure: Closure | None = None
        self._module: ModuleInterface | None = None
        self._beside: dict[str, SessionProvider] = {}
        self._seen: dict[str, set[Signature]] = {}
        self._variants: dict[str, dict[Signature, None]] = {}
        self._launchers: dict[tuple[str, str], Launcher] = {}
        self._begun: dict[str, Callable[[], Artifact]] = {}

    def beside(self, path: str) -> SessionProvider:
        """The provider of another file of the same session."""
        if path == self.path:
            return self
        with COMPILER:
            if path not in self._beside:
                self._beside[path] = SessionProvider(
                    path, self.options, session=self.session(), cache=self._cache
                )
            return self._beside[path]

    def kernel(self, name: str, target: str) -> Launcher:
        """The one launcher of a kernel and target: it keeps what was compiled."""
        found = self._launchers.get((name, target))
        if found is None:
            self.interface(name)
            found = self._launchers.setdefault((name, target), new_kernel(name, self, target))
        return found

    def check(self) -> None:
        """Raises TesseraError with everything that ``tesserac check`` finds wrong. That nothing is
        wrong is kept in the cache; the standard library's own tests look at that."""
        if _is_standard(self.path):
            return
        key = key_of(("checked", compiler_identity(), *self.closure().parts()))
        if self._cache.get(key) is not None:
            return
        with COMPILER:
            session = self.session()
            faults = [d for d in session.check(self.path) if d.severity == "error"]
            if faults:
                raise session.error(faults)
        if self._is_current():
            self._cache.put(key, {"kind": "checked"}, b"")

    # --- what the launcher asks -----------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The kernels of the file."""
        return tuple(self.module().kernels)

    def interface(self, name: str) -> KernelInterface:
        found = self.module().kernels.get(name)
        if found is None:
            known = ", ".join(f"`{n}`" for n in self.names())
            raise error(diagnostic("T0819", f"{self.path} has no kernel `{name}`", helps=(
                f"it has {known}",) if known else ()))  # fmt: skip
        return found

    def settled(self, name: str, wanted: Signature) -> Signature:
        """Sizes that change at each call make code without end, so few of them are told apart
        once a kernel has many signatures."""
        known = self._variants.setdefault(name, {})
        if wanted in known:
            return wanted
        with COMPILER:
            for level, most in enumerate(_VARIANTS):
                found = signatures.coarser_signature(wanted, level)
                if found in known or len(known) < most:
                    known[found] = None
                    return found
        return signatures.coarser_signature(wanted, len(_VARIANTS))

    def artifact(self, name: str, wanted: Signature, device: int, grid_rank: int = 0) -> Artifact:
        """Code for a signature: from the cache, or compiled now and kept."""
        self._count(name, wanted)
        return self.compile(name, wanted, self._options(device), grid_rank)

    def _options(self, device: int) -> TargetOptions:
        target = "cpu" if device == HOST else "cuda"
        return self.options.for_target(target, self._arch(target, device))

    def begin(self, name: str, wanted: Signature, device: int, grid_rank: int = 0) -> None:
        """Begin what ``artifact`` will give, so that code is generated meanwhile. What is wrong
        with it is said by ``artifact``."""
        from tessera_lang.driver.internal_fault import InternalFault

        options = self._options(device)
        key = self._artifact_key(name, wanted, options, grid_rank)
        if key in self._begun or self._cache.get(key) is not None:
            return
        with COMPILER:
            try:
                self._begun[key] = self.session().begin_kernel(
                    self.path, name, signatures.to_typed(wanted), options, grid_rank=grid_rank
                )
            except (TesseraError, InternalFault):
                return

    def compile(
        self, name: str, wanted: Signature, options: TargetOptions, grid_rank: int = 0
    ) -> Artifact:
        """Code for a signature, options and axes of a grid that calls give."""
        key = self._artifact_key(name, wanted, options, grid_rank)
        entry = self._cache.get(key)
        if entry is not None:
            artifact = _unpack(entry, options)
            if artifact is not None:
                self._tell(entry.header.get("warnings", ()))
                return artifact
        with COMPILER:
            artifact = self._compiled(name, wanted, options, grid_rank, key)
        warned = _warnings(artifact)
        if self._is_current():
            header = {**_pack(artifact), "warnings": warned}
            self._cache.put(key, header, b"".join(a.code for a in _all_of(artifact)))
        self._tell(warned)
        return artifact

    def _tell(self, warned: Sequence[Sequence[str]]) -> None:
        """What the compiler warns of the form of a kernel, once a process: also where its code
        comes from the cache. What the library does is for us to mend, not the user."""
        if not warned or _is_standard(self.path):
            return
        shown: set[tuple[str, str]] = self._session.shown if self._session is not None else set()
        origin = self._session.origins.get(self.path) if self._session is not None else None
        for code, message, text in warned:
            if origin is not None:  # nobody wrote the text, and the cache may have it of others
                says = message.replace("`call`", "the kernel of this line")
                text = rendered((Diagnostic(code, says, origin, severity="warning"),))
            if (code, message) not in shown:
                tell_text_once(f"{code} {message}", text)

    def _compiled(
        self, name: str, wanted: Signature, options: TargetOptions, grid_rank: int, key: str
    ) -> Artifact:
        from tessera_lang.driver.internal_fault import InternalFault  # with the lock held

        begun = self._begun.pop(key, None)
        try:
            if begun is not None:
                return begun()
            artifact: Artifact = self.session().compile_kernel(
                self.path, name, signatures.to_typed(wanted), options, grid_rank=grid_rank
            )
        except InternalFault as fault:
            raise error(fault.diagnostic()) from fault
        return artifact

    def _arch(self, target: str, device: int) -> str:
        if self.options.arch and self.options.target in (target, "auto"):
            return self.options.arch
        chosen = backend(target)
        of_device = cast("Callable[[int], str] | None", getattr(chosen, "arch_of_device", None))
        if device != HOST and of_device is not None:
            return of_device(device)
        return chosen.default_arch()

    def _count(self, name: str, wanted: Signature) -> None:
        """The 17th signature of a kernel is worth a word: something varies at each call."""
        seen = self._seen.setdefault(name, set())
        if wanted in seen:
            return
        seen.add(wanted)
        ours = _is_standard(self.path)  # what varies there is for us to mend, not the user
        if len(seen) == _MAX_SIGNATURES and not ours:
            from tessera_lang.evaluate.one_call_kernels import call_of, written

            interface = self.interface(name)
            names = [p.name for p in (*interface.brackets, *interface.parameters)]
            call = call_of(self.path)  # the host program has no kernel of that name
            shown = f"the kernel of `{call}`" if call else f"`{name}`"
            names = [written(n) for n in names] if call else names
            varies = signatures.varying(sorted(seen, key=repr), names)
            tell_once(f"signatures {self.path} {name}", diagnostic(
                "T0850", f"{shown} is being compiled for its {_MAX_SIGNATURES}th signature, "
                f"({signatures.text(wanted)}); what varies most is {varies}", severity="warning",
                helps=("each size class of an array has code of its own; where sizes change in a"
                       " loop compute with one array of the largest size" if call else
                       "make a compile-time value a run-time parameter, and call with few layouts "
                       "and sizes",),
            ))  # fmt: skip

    def asked(self, name: str, wanted: Signature) -> signatures.Asked:
        """Which sizes code of a tile kernel is made for: from the cache, or found now."""
        key = key_of(("asked", compiler_identity(), name, repr(wanted), *self.closure().parts()))
        entry = self._cache.get(key)
        found = _asked(entry) if entry is not None else None
        if found is None:
            with COMPILER:
                needed, whole = self.session().asked(self.path, name, signatures.to_typed(wanted))
            found = signatures.Asked(needed, whole)
            header = {"kind": "asked", "needed": needed, "whole": whole}
            if self._is_current():
                self._cache.put(key, header, b"")
        return found

    # --- keys -----------------------------------------------------------------------------

    def closure(self) -> Closure:
        """The texts as they were when the module was loaded."""
        if self._closure is None:
            with COMPILER:
                return self._closure_now()
        return self._closure

    def _closure_now(self) -> Closure:
        if self._closure is None:
            text = self._text
            if text is None and self._session is not None:
                text = self._session.source(self.path).text  # it may stand in no file
            found = closure_of(self.path, self.options.path, text)
            for path, text in found.texts.items():
                remember_source(path, text)
            self._closure = found
        return self._closure

    def _artifact_key(
        self, name: str, wanted: Signature, options: TargetOptions, grid_rank: int
    ) -> str:
        identity = backend(options.target).identity(options)
        return key_of((
            "artifact", compiler_identity(), name, repr(wanted), options.target, options.arch,
            options.bounds, str(options.optimize), options.arch_as,
            str(options.checked), str(grid_rank), *identity, "texts",
            *self.closure().parts(),
        ))  # fmt: skip

    def _is_current(self) -> bool:
        """Whether what was compiled is what the key speaks of: a file may have changed."""
        texts = self.closure().texts
        with COMPILER:
            used = self.session().closure(self.path)
        return all(texts.get(p, used[p]) == used[p] for p in used)

    # --- the session ----------------------------------------------------------------------

    def session(self) -> Any:
        """The compiler's session, made when first needed; it sees the texts of the load."""
        with COMPILER:
            if self._session is None:
                from tessera_lang.driver.session import Session

                self._session = Session(self.options.path, self.closure().texts)
            return self._session

    def module(self) -> ModuleInterface:
        """What the file gives: from the cache, or read now."""
        if self._module is None:
            with COMPILER:
                self._module = self._module or self._module_now()
        return self._module

    def _module_now(self) -> ModuleInterface:
        key = key_of(("interface", compiler_identity(), *self.closure().parts()))
        entry = self._cache.get(key)
        found = _interface(entry) if entry is not None else None
        if found is None:
            from tessera_backend.runtime.interface_from_source import module_interface

            found = module_interface(self.session(), self.path)
            self._cache.put(key, {"kind": "interface", **found.to_json()}, b"")
        return found


def _is_standard(path: str) -> bool:
    root = standard_library()
    return root is not None and Path(path).parent == Path(root)


def _asked(entry: Entry) -> signatures.Asked | None:
    try:
        needed, whole = (
            tuple((str(name), int(axis)) for name, axis in entry.header[kind])
            for kind in ("needed", "whole")
        )
    except (KeyError, TypeError, ValueError):
        return None
    return signatures.Asked(needed, whole)


def _interface(entry: Entry) -> ModuleInterface | None:
    try:
        return ModuleInterface.from_json(entry.header)
    except (KeyError, TypeError, ValueError):
        return None


def _all_of(artifact: Artifact) -> tuple[Artifact, ...]:
    """The launches of a call."""
    return artifact, *artifact.then


def _warnings(artifact: Artifact) -> list[list[str]]:
    """Code, message and text of what there is to tell of the form of a kernel, and of elements
    that it reads as 0 and NumPy does not."""
    warned = (d for d in artifact.diagnostics if d.severity == "warning")
    said = (d for d in warned if d.code[:3] == "T07" or d.code == "T0624")
    return [[d.code, d.message, rendered((d,))] for d in said]


def _pack(artifact: Artifact) -> dict[str, Any]:
    return {"launches": [_pack_one(a) for a in _all_of(artifact)]}


def _pack_one(artifact: Artifact) -> dict[str, Any]:
    r = artifact.resources
    return {
        "kind": artifact.kind, "entry": artifact.entry, "plan": artifact.plan.to_json(),
        "resources": [r.registers, r.spill_bytes, r.shared_bytes, r.local_bytes],
        "bytes": len(artifact.code), "needs": list(artifact.needs),
    }  # fmt: skip


def _unpack(entry: Entry, options: TargetOptions) -> Artifact | None:
    found: list[Artifact] = []
    at = 0
    try:
        for h in entry.header["launches"]:
            code = entry.payload[at : at + int(h["bytes"])]
            at += len(code)
            found.append(Artifact(
                str(h["kind"]), code, str(h["entry"]), LaunchPlan.from_json(h["plan"]),
                options, Resources(*(int(n) for n in h["resources"])),
                needs=tuple(str(name) for name in h["needs"]),
            ))  # fmt: skip
        return replace(found[0], then=tuple(found[1:]))
    except (KeyError, TypeError, ValueError, IndexError):
        return None
