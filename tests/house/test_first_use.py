"""Everything of the runtime that is filled at first use, each with what guards it against threads.

A name that is not in the table fails: whoever adds one says what happens when two threads come
first. ``tests/first_calls.py`` has them come.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tessera_backend

ROOT = Path(next(iter(tessera_backend.__path__)))
ONCE = "locks.once"
COMPILER = "locks.COMPILER is held"
ATOMIC = "one step of a dict, list or name; two that make it make equal values, either may stay"
POOL = "pop and append; who took one has it alone"
ONE_THREAD = "an object of one call, one recording or one load"
GUARDS = {
    "cpu/interpreter/layouts:warp_groups": ATOMIC,
    "cpu/executable_memory:_libc": ATOMIC,
    "cpu/features:host_features": ATOMIC,
    "cpu/host_cpu:cpu_identity": ATOMIC,
    "cpu/host_cpu:processor_count": ATOMIC,
    "cpu/llvm_codegen:_binding": COMPILER,
    "cpu/llvm_codegen:_target_machine": ATOMIC,
    "cpu/llvm_codegen:code_target": COMPILER,
    "device/capture:recorder": ONCE,
    "device/driver:Device._context": "a lock of the device",
    "device/driver:bandwidth": ATOMIC,
    "device/driver:memory_bytes": ATOMIC,
    "device/driver:shared_limit": ATOMIC,
    "device/launch:CudaKernel._maps": ATOMIC,
    "device/launch:_launch_function": ONCE,
    "device/memory:_pools": "_pools_lock",
    "device/memory:_records": "_lock",
    "device/memory:_spare": "_lock",
    "device/memory:zero_function": ONCE,
    "device/module:Module._module": ONE_THREAD,
    "device/permute_copy_kernel:reorder_module": ONCE,
    "device/aligned_row_copies:repack_module": ONCE,
    "device/stream:Event._event": ONE_THREAD,
    "device/stream:Stream._stream": ONE_THREAD,
    "device/tensor_map:TensorMaps._made": ATOMIC + "; a launch holds the map that it uses",
    "device/tensor_map:_encode_function": ONCE,
    "device/workspace:_Memories.before": "_lock",
    "device/workspace:_Memories.held": "_lock; launches of a stream come one after the other",
    "llvm/fork_safety:forks_wait": ONCE,
    "measure/statistics:_outer_rank": ATOMIC,
    "nvptx/hopper/fragments:": COMPILER,
    "nvptx/toolchain/llvm_to_ptx:_initialise": COMPILER,
    "nvptx/toolchain/llvm_to_ptx:_machine": COMPILER,
    "nvptx/toolchain/nvidia_tools:": ATOMIC,
    "runtime/arrays:_known_types": ATOMIC,
    "runtime/arrays:_raw_stream": ATOMIC,
    "runtime/c_interface/": ONE_THREAD,
    "runtime/cache:Cache._memory": "a lock of the cache",
    "runtime/cache:_shared": "_shared_lock",
    "runtime/call_diagnostics:_sources": ATOMIC,
    "runtime/call_diagnostics:_told": "_telling",
    "runtime/checked_code:_given": "set by the command before it runs",
    "runtime/checked_coverage:_kernels": "_noting",
    "runtime/checked_coverage:_settings": "_noting",
    "runtime/compiler:SessionProvider._begun": COMPILER,
    "runtime/compiler:SessionProvider._beside": COMPILER,
    "runtime/compiler:SessionProvider._closure": COMPILER,
    "runtime/compiler:SessionProvider._launchers": ATOMIC + " (setdefault: the first stays)",
    "runtime/compiler:SessionProvider._module": COMPILER,
    "runtime/compiler:SessionProvider._seen": ATOMIC,
    "runtime/compiler:SessionProvider._variants": COMPILER,
    "runtime/compiler:_loaded_backends": COMPILER,
    "runtime/device_mirror:Block._copy": ONE_THREAD,
    "runtime/dlpack:_handed_out": ATOMIC,
    "runtime/faults:Faults._blocks": "a lock of the device's records",
    "runtime/faults:Faults._kept": "a lock of the device's records",
    "runtime/faults:_Block.plans": "a lock of the device's records",
    "runtime/faults:_devices": "_devices_lock",
    "runtime/frameworks/jax_functions:_jax": ATOMIC,
    "runtime/frameworks/jax_functions:Function._known": ATOMIC,
    "runtime/frameworks/jax_functions:_Call._outcomes": ATOMIC,
    "runtime/frameworks/jax_functions:_Call._gradients": ATOMIC,
    "runtime/frameworks/xla_handler:RUNS": ATOMIC,
    "runtime/frameworks/torch_operators:_taken": "_making",
    "runtime/frameworks/torch_operators:_made": "_making",
    "runtime/frameworks/torch_operators:Operator.": "_making",
    "runtime/frameworks/torch_operators:_Overload.definition": "_making",
    "runtime/frameworks/torch_operators:_Overload._backward": "_making",
    "runtime/frameworks/torch_operators:_Overload._outcomes": ATOMIC,
    "runtime/frameworks/torch_operators:_Overload._gradients": ATOMIC,
    "runtime/frameworks/torch_tensors:torch_module": ATOMIC,
    "runtime/frameworks/torch_tensors:Symbols.": ONE_THREAD,
    "runtime/function_fast_path:Quick._known": ATOMIC,
    "runtime/function_fast_path:Quick.recent": ATOMIC,
    "runtime/functions:Function._modules": COMPILER,
    "runtime/functions:Function._host_tapes": ATOMIC,
    "runtime/functions:Function._nested": ATOMIC,
    "runtime/functions:Function._native": "_native_lock, which nobody waits for",
    "runtime/functions:Function._tapes": ATOMIC,
    "runtime/traced_world:TracedWorld.": ONE_THREAD,
    "runtime/host_tapes:RecordingWorld.": ONE_THREAD,
    "runtime/host_workspaces:Workspaces._used": ONE_THREAD,
    "runtime/import_closure:compiler_identity": ATOMIC,
    "runtime/kernel:Launcher._fast_memo": "_answering, with the pattern",
    "runtime/kernel:Launcher._memo": ATOMIC,
    "runtime/kernel:Launcher._native": "_answering, which nobody waits for",
    "runtime/kernel:Launcher._pattern": "_answering, with what a call looks up",
    "runtime/kernel:Launcher._views": ATOMIC,
    "runtime/kernel:_Family.asked": ATOMIC,
    "runtime/kernel:_Family.codes": "a lock for each signature",
    "runtime/kernel:_Family.known": ATOMIC,
    "runtime/kernel:_Family.locks": "the lock of the kernel",
    "runtime/kernel:_Family.module": ONE_THREAD,
    "runtime/launch:Prepared.pool": POOL,
    "runtime/launch_fast_path:_maker": ATOMIC,
    "runtime/launch_fast_path:_tried_guards": ATOMIC,
    "runtime/native_calls:NativeCall._entries": "the lock of the callable; one word at a time, so "
    "that machine code, which holds the lock of the interpreter, sees a whole list",
    "runtime/native_calls:NativeCall._forgotten": "the lock of the callable",
    "runtime/native_calls:_Entry.": ONE_THREAD,
    "runtime/native_calls:_code": ONCE,
    "runtime/native_calls:_free_counters": POOL,
    "runtime/native_calls:_known": "_making",
    "runtime/native_calls:_methods": ATOMIC + " (setdefault: the first stays)",
    "runtime/native_calls:_refused": ATOMIC,
    "runtime/native_tapes:_Planner.": ONE_THREAD,
    "runtime/numpy_address:address_function": ATOMIC,
    "runtime/portable_places:Portable._known": ONE_THREAD,
    "runtime/recorded_calls:Tape._rigs": POOL,
    "runtime/recorded_calls:Tape.": ONE_THREAD,
    "runtime/recorded_calls:_Rig.fires": ONE_THREAD,
    "runtime/launch_sequence:_Lent._free": "a lock of the object",
    "runtime/host_environment:HostWorld.": ONE_THREAD,
    "runtime/weakly_typed_arrays:NumberArrays.": ONE_THREAD,
    "runtime/torch_memory:_strided": ATOMIC,
    "runtime/torch_memory:torch_empty": ATOMIC,
}
"""By module and name; what ends with a colon, a slash or a dot is for all that begins so."""

_EMPTY = {"{}", "[]", "set()", "None"}


def _assigned_empty(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        match statement:
            case ast.AnnAssign(target=target, value=value) if value is not None:
                pass
            case ast.Assign(targets=[target], value=value):
                pass
            case _:
                continue
        if ast.unparse(value) in _EMPTY:
            yield ast.unparse(target)


def filled_later(path: Path) -> Iterator[str]:
    """Functions whose answers are kept, and what begins empty in a module or an object."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = path.relative_to(ROOT).with_suffix("").as_posix()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            marks = " ".join(ast.unparse(d) for d in node.decorator_list)
            if "cache" in marks or "once" in marks.split():
                yield f"{module}:{node.name}"
    if not module.startswith(("runtime/", "device/")):
        return  # what a compilation fills is of one thread: locks.COMPILER is held
    for name in _assigned_empty(tree.body):
        yield f"{module}:{name}"
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):
            for method in kind.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    for name in _assigned_empty(method.body):
                        yield f"{module}:{kind.name}.{name.removeprefix('self.')}"


def _entry(name: str) -> str:
    """The most special entry for a name."""
    fitting = [k for k in GUARDS if name == k or (k[-1] in ":/." and name.startswith(k))]
    return max(fitting, key=len, default="")


def test_everything_that_is_filled_at_first_use_says_its_guard() -> None:
    found = [name for path in sorted(ROOT.rglob("*.py")) for name in filled_later(path)]
    assert not [name for name in found if not _entry(name)]
    assert not GUARDS.keys() - {_entry(name) for name in found}


def test_what_is_made_once_is_not_only_cached() -> None:
    """``functools.cache`` calls its function in each thread that comes before the first answer."""
    once = [name for name, guard in GUARDS.items() if guard == ONCE]
    for name in once:
        module, _, function = name.partition(":")
        tree = ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))
        node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)
        assert [ast.unparse(d) for d in node.decorator_list] == ["once"], name
