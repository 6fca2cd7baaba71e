"""A program whose threads come first together: ``python -m tests.first_calls MODE THREADS ROUNDS``.

Nothing was called before. All threads begin at once and call every kind of kernel and many
functions of the library, half of them in the same order, half each beginning elsewhere, so that
some meet at one first call while others compile. MODE is ``cpu``; ``host``: arrays in host memory
for a GPU, which opens the driver too; ``default``: arrays on the GPU, the default stream;
``own``: a stream of its own for each thread; ``torch``: the same with tensors of torch. Exits with
1 and says which call failed, or gave another result than NumPy.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np

import tessera_lang as tessera

TEXT = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def turned(x: f32[n], out: mut f32[n]):
    part = tshared.alloc((128,), f32)
    i = grid_tile_linear_id()
    if i < n: part[tile_linear_id()] = x[i]
    tbarrier()
    if i < n: out[i] = part[127 - tile_linear_id()] if i < n // 128 * 128 else x[i]

@kernel tile[(64,)] grid[(1,)]
def draw(seen: mut u32[3], x: i32[64], out: mut i32[64]):
    i = tile_linear_id()
    out[i] = x[i] + i32(atomic_add(seen[1], 1)) * 0
    tbarrier()
    if i == 0: seen[1] = 0

@op.kernel
def mapped(x):
    return op.exp(x) + 1.0

@op.kernel
def product(A, B):
    return A @ B

@op.kernel
def rows(x):
    e = op.exp(x - op.max(x, axis=1)[:, None])
    return e / op.sum(e, axis=1)[:, None]

@op.kernel
def whole(x):
    return op.sum(x, axis=0)

@op.kernel
def phases(x):
    s = op.sum(x, axis=0)
    return x + s[None, :]

@op.kernel
def longest(A, B):
    return A @ B

def drawn(x):
    out = op.empty((64,), i32)
    draw(op.workspace((3,), u32), x, out)
    again = op.empty((64,), i32)
    draw(op.workspace((3,), u32), out, again)
    return again
"""

Array = Any
Call = tuple[str, Callable[[Any, Array], Any], Array, tuple[Any, ...]]
"""Its name, what makes it (modules by name, arrays), what NumPy gives, and its arguments."""


def calls(sorts: bool) -> list[Call]:
    rng = np.random.default_rng(7)

    def some(*shape: int, dtype: Any = np.float32) -> Any:
        return rng.integers(-2, 3, shape).astype(dtype)

    def one(name: str, function: str, expected: Any, *arguments: Any) -> Call:
        module, _, member = function.rpartition(".")
        return name, lambda m, a: getattr(m[module], member)(*a), expected, arguments

    x, v, ints = some(40, 96), some(1000), some(64, dtype=np.int32)
    e = np.exp(x - x.max(1, keepdims=True))
    odd, narrow = some(257, 129, dtype=ml_dtypes.bfloat16), some(129, 65, dtype=ml_dtypes.bfloat16)
    square, long, tall = some(128, 128), some(64, 4096), some(4096, 64)
    keys = rng.permutation(3000).astype(np.int32)

    def product(a: Any, b: Any) -> Any:
        return a.astype(np.float32) @ b.astype(np.float32)

    def turned(m: Any, a: Any) -> Any:
        out = a[0] * 0 if hasattr(a[0], "is_cuda") else like(a[0])
        m[""].turned(a[0], out)
        return out

    flipped = v.copy()
    flipped[:896] = v[:896].reshape(7, 128)[:, ::-1].reshape(-1)
    return [
        ("aligned copies", lambda m, a: m[""].product(*a), product(odd, narrow), (odd, narrow)),
        ("a lane kernel", turned, flipped, (v,)),
        one("elements", ".mapped", np.exp(x) + 1, x),
        one("a product", ".product", product(square, square), square, square),
        one("rows", ".rows", e / e.sum(1, keepdims=True), x),
        one("columns", ".whole", x.sum(0), x),
        one("two launches", ".phases", x + x.sum(0), x),
        one("a long sum", ".longest", product(long, tall), long, tall),
        one("workspaces", ".drawn", ints, ints),
        one("std.reduce.sum", "std.reduce.sum", v.sum(), v),
        one("std.scan.inclusive", "std.scan.inclusive", np.cumsum(v), v),
        one("std.nn.softmax", "std.nn.softmax", e / e.sum(1, keepdims=True), x),
        one("std.linalg.matmul", "std.linalg.matmul", product(square, square), square, square),
        *([one("std.sort.sort", "std.sort.sort", np.sort(keys), keys)] if sorts else []),
    ]


def like(array: Any) -> Any:
    """Memory for a result where ``array`` is."""
    if isinstance(array, np.ndarray):
        return np.zeros_like(array)
    made = tessera.to_device(np.zeros(array.shape, np.float32))
    tessera.synchronize(0)  # it is filled on the default stream
    return made


class Place:
    """Where the arrays of a mode are, and the stream of each thread."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.target = "cpu" if mode == "cpu" else "cuda" if mode == "host" else "auto"

    def arguments(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.mode in ("cpu", "host"):
            return given
        if self.mode == "torch":
            return tuple(_torch(a) for a in given)
        return tuple(tessera.to_device(a) for a in given)

    def settle(self) -> None:
        if self.mode not in ("cpu", "host"):
            tessera.synchronize(0)

    def on_a_stream(self) -> Any:
        if self.mode != "torch":
            return nullcontext()
        import torch

        return torch.cuda.stream(torch.cuda.Stream())

    def back(self, found: Any) -> Any:
        if self.mode == "torch":
            return found.float().cpu().numpy()
        return found if isinstance(found, np.ndarray) or np.isscalar(found) else found.numpy()


def _torch(array: Any) -> Any:
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16().cuda()
    return torch.from_numpy(array).cuda()


class OnStream:
    """A module whose kernels are launched on a stream; functions take the default one."""

    def __init__(self, module: Any, stream: Any) -> None:
        self._module, self._stream = module, stream

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not hasattr(found, "on"):
            return found

        def call(*arguments: Any) -> Any:
            result = found.on(self._stream.handle)(*arguments)
            self._stream.synchronize()
            return result

        return call


def main(mode: str, threads: int, rounds: int) -> int:
    sys.setswitchinterval(1e-6)  # threads meet where they rarely do
    place = Place(mode)
    modules: dict[str, Any] = {"": tessera.compile(TEXT, target=place.target)}
    every = calls(mode != "cpu")  # which takes seconds to compile there
    for name in {c[0].rpartition(".")[0] for c in every if c[0].startswith("std.")}:
        modules[name] = tessera.load(name, target=place.target)
    given = [place.arguments(c[3]) for c in every]
    place.settle()
    start = threading.Barrier(threads)
    faults: list[str] = []

    def work(number: int) -> None:
        mine = dict(modules)
        if mode == "own":
            from tessera_backend.device.driver import device
            from tessera_backend.device.stream import Stream

            mine[""] = OnStream(modules[""], Stream(device(0)))
        first = 0 if number % 2 else number * 3
        start.wait()
        with place.on_a_stream():
            for at in range(len(every) * rounds):
                name, call, expected, _ = every[at_ := (first + at) % len(every)]
                try:
                    found = place.back(call(mine, given[at_]))
                except BaseException:
                    faults.append(f"{name}: {traceback.format_exc()}")
                    continue
                found = np.asarray(found).astype(np.float32).reshape(np.shape(expected))
                if not np.allclose(found, expected, rtol=1e-2, atol=1e-2):
                    far = np.abs(found - expected).max()
                    faults.append(f"{name} of thread {number}, call {at}: {far} from NumPy's")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
