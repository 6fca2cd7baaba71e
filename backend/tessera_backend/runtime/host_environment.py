"""The world of a host program: its arrays, files, launches and output.

Arrays are NumPy arrays. Where kernels run on a CUDA device each has a copy there that is kept
in step (``device_mirror.py``): before the host looks at an array it waits for the kernels that were
launched. Must not know syntax.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from tessera_backend.runtime import (
    array_files as data_files,
)
from tessera_backend.runtime import (
    device_mirror,
    host_array_arithmetic,
    memory_overlap,
    random_numbers,
    scalars,
)
from tessera_backend.runtime.arrays import HOST, ArrayView, describe
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.compiler import SessionProvider, backend, options_from_environment
from tessera_backend.runtime.dtypes import TO_NUMPY, Array, from_numpy, is_array
from tessera_backend.runtime.early_compilation import CompilingEarly
from tessera_backend.runtime.host_workspaces import Workspaces
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.launch_timing import Measuring
from tessera_backend.runtime.module_interface import KernelInterface
from tessera_backend.runtime.results import aligned_empty
from tessera_backend.runtime.staging import as_numpy
from tessera_backend.runtime.weakly_typed_arrays import NumberArrays, numbers_of
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.evaluate.double import Double
from tessera_lang.record import replace
from tessera_lang.target.arange_count import arange_count
from tessera_lang.target.host_world import (
    Filling,
    Index,
    KernelCompiler,
    KernelReference,
    Reduction,
    ViewKind,
    WorldFault,
)
from tessera_lang.types.dtype import BOOL, F32, F64, DType, widens_to


class HostWorld(Measuring, CompilingEarly):
    """See ``tessera_lang.target.host_world.World``. ``target`` is ``cpu`` or ``cuda``."""

    floats: DType = F32

    def __init__(
        self, session: KernelCompiler, target: str, write: Callable[[str], None],
        provider: Callable[[str], SessionProvider] | None = None, arch_as: str = "",
        checked: bool = False,
    ) -> None:  # fmt: skip
        self._session = session
        self._arch_as = arch_as
        self._checked = checked
        self._write = write
        self._provider_of = provider or self._provider
        self._device = 0 if target == "cuda" else HOST
        self._kernels: dict[tuple[str, str], tuple[Launcher, KernelInterface]] = {}
        self._providers: dict[str, SessionProvider] = {}
        self._in_flight = False
        self._adopted: list[tuple[ArrayView, Array]] = []
        self._workspaces = Workspaces()
        self._slices = weakref.WeakValueDictionary[int, Array]()
        self._numbers_of = NumberArrays()
        self._values: dict[int, tuple[weakref.ref[Array], object]] = {}
        reason = backend(target).available()
        if reason:
            raise error(diagnostic("T0814", f"the target `{target}` does not work here: {reason}",
                                   helps=("`tesserac doctor` says more",)))  # fmt: skip

    # --- memory -----------------------------------------------------------------------

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        if any(n < 0 for n in shape):
            raise WorldFault(f"an array cannot have the shape {shape}", code="T0846")
        numpy = TO_NUMPY[dtype.name]
        size = math.prod(shape) * dtype.bytes
        try:
            if self._device == HOST or size == 0:
                return aligned_empty(shape, numpy)
            return device_mirror.empty(shape, numpy)
        except (MemoryError, ValueError):  # ValueError: more than an address can tell
            raise WorldFault(f"there is no memory for an array of shape {shape}: {size} bytes",
                             code="T0846", helps=("use a smaller size",)) from None  # fmt: skip

    def _kept(self, value: Array) -> Array:
        """The values in memory that kernels can use."""
        array = self._empty(value.shape, host_array_arithmetic.dtype_of(value))
        array[...] = value
        return array

    def _array(self, array: object, written: bool = False) -> Array:
        """An array whose newest elements are on the host; ``written``: it is about to change."""
        if self._in_flight:
            self._in_flight = False
            self.finish()
        value = cast("Array", array)
        block = device_mirror.block_of(value) if self._device != HOST else None
        if block is not None:
            block.to_host()
            if written:
                block.changes_on("host")
        return value

    # --- facts ------------------------------------------------------------------------

    def is_array(self, value: object) -> bool:
        return is_array(value)

    def dtype(self, array: object) -> DType:
        return host_array_arithmetic.dtype_of(cast("Array", array))

    def shape(self, array: object) -> tuple[object, ...]:
        return cast("Array", array).shape

    def device(self, array: object) -> str:
        return "cpu" if self._device == HOST else "cuda"

    # --- making arrays ------------------------------------------------------------------

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        array = self._empty(shape, dtype)
        if kind == "full":
            array[...] = self._element(value, dtype)
        elif kind == "ones":
            array[...] = 1
        else:
            # Also for `empty`: a program gives the same values on every target.
            array[...] = 0
        if kind == "workspace" and self._device == HOST:
            self._workspaces.add(array)
        return array

    def _element(self, value: object, dtype: DType) -> Any:
        if is_array(value) and value.size == 1:
            value = scalars.plain(self._array(value).reshape(())[()])
        if not scalars.is_number(value):
            raise WorldFault(f"{value!r} is no number to put into an array of {dtype}")
        try:
            bits = scalars.encode(value, dtype, "value")
        except TesseraError as fault:
            d = fault.diagnostics[0]
            raise WorldFault(f"{value!r} does not fit into an array of {dtype}", code=d.code,
                             helps=d.helps) from fault  # fmt: skip
        return np.frombuffer(bits.to_bytes(8, "little")[: dtype.bytes], TO_NUMPY[dtype.name])[0]

    def of_numbers(self, array: object, numbers: object = None) -> object:
        made = cast("Array", array)
        self._numbers_of.add(made, numbers_of(made, numbers))
        return array

    def beside(self, array: object, dtype: DType) -> object:
        value = cast("Array", array)
        if not self._numbers_of.has(value):
            return array
        found = self._numbers_of.beside(self._array(value), dtype)
        return array if found is value else self._kept(found)

    def is_of_numbers(self, array: object) -> bool:
        return self._numbers_of.has(array)

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object:
        count = arange_count(start, stop, step, dtype)
        array = self._empty((count,), dtype)
        if dtype.is_float:
            with np.errstate(over="ignore"):
                array[...] = host_array_arithmetic.convert(start + np.arange(count) * step, dtype)
        else:
            array[...] = (int(start) + np.arange(count, dtype=np.int64) * int(step)).astype(
                array.dtype)  # fmt: skip
        return array

    def random(
        self, shape: tuple[int, ...], dtype: DType | None, seed: int, low: float, high: float
    ) -> object:
        if any(n < 0 for n in shape):
            raise WorldFault(f"an array cannot have the shape {shape}", code="T0846")
        made = self._kept(random_numbers.uniform(shape, dtype or self.floats, seed, low, high))
        if dtype is None:
            self._numbers_of.add_without_dtype(made)
        return made

    # --- files --------------------------------------------------------------------------

    def load(self, path: str, key: str | None, dtype: DType | None) -> object:
        try:
            value = data_files.load(path, key)
        except data_files.DataFault as fault:
            raise WorldFault(fault.message, code="T0813", helps=fault.helps) from fault
        found = from_numpy(value.dtype)
        if found is None:
            raise WorldFault(f"{path} holds {value.dtype} numbers, which the language does not "
                             "have", code="T0832")  # fmt: skip
        if dtype is not None and dtype != found:
            value = host_array_arithmetic.convert(np.atleast_1d(value), dtype).reshape(value.shape)
        return self._kept(value)

    def save(self, path: str, arrays: dict[str, object]) -> None:
        values = {name: self._array(value) for name, value in arrays.items()}
        try:
            data_files.save(path, values)
        except data_files.DataFault as fault:
            raise WorldFault(fault.message, code="T0813", helps=fault.helps) from fault

    # --- elements -----------------------------------------------------------------------

    def read(self, array: object, items: tuple[Index, ...]) -> object:
        value = self._array(array)
        if any(is_array(i) for i in items):
            where = _where(value, tuple(map(self._chosen_by, items)))
            return self._numbers_of.part(self._kept(value[where]), value, lambda wide: wide[where])
        _check_items(value, items)
        found: object = value[items]
        if is_array(found):
            self._slices[id(found)] = found
            return self._numbers_of.part(found, value, lambda wide: wide[items])
        wide = self._numbers_of.of(value)
        return scalars.of_array(found) if wide is None else scalars.plain(wide[items])

    def named(self, array: object) -> object:
        if self._slices.get(id(array)) is not array:
            return array
        made = self._kept(self._array(array))
        self._numbers_of.part(made, cast("Array", array), lambda wide: wide)
        return self.viewed(made, array)

    def viewed(self, array: object, of: object) -> object:
        made = cast("Array", array)
        made.flags.writeable = False
        number, values = id(made), self._values
        values[number] = weakref.ref(made, lambda _: values.pop(number, None)), of
        return made

    def value_of(self, array: object) -> object:
        made, of = self._values.get(id(array), (None, None))
        return of if made is not None and made() is array else None

    def release(self, array: object) -> None:
        cast("Array", array).flags.writeable = True
        self._values.pop(id(array), None)

    def shares(self, a: object, b: object) -> bool:
        return np.may_share_memory(cast("Array", a), cast("Array", b))

    def write(self, array: object, items: tuple[Index, ...], value: object) -> None:
        target = self._array(array, written=True)
        if not target.flags.writeable:
            raise WorldFault("the array may not be written", code="T0818",
                             helps=("write into a copy: `y = x.copy()`",))  # fmt: skip
        self._numbers_of.change(target, value)
        chosen = [self._array(i) for i in items if is_array(i)]
        if chosen and all(host_array_arithmetic.dtype_of(i) == BOOL for i in chosen):
            self._write_where(target, tuple(map(self._chosen_by, items)), value)
            return
        _check_items(target, items, writes=True)
        places = iter(chosen)
        given = tuple(next(places) if is_array(i) else i for i in items)
        items = cast("tuple[Index, ...]", given)
        dtype = host_array_arithmetic.dtype_of(target)
        if is_array(value) and value.size != 1:
            place = target[items]
            stored = self._stored(value, target)
            if not host_array_arithmetic.fits_into(value.shape, np.shape(place)):
                raise WorldFault(f"an array of shape {value.shape} does not fit into "
                                 f"{np.shape(place)}", code="T0834",
                                 helps=host_array_arithmetic.say_axes(value.shape, np.shape(place))
                                 if value.ndim < np.ndim(place) else ())  # fmt: skip
            target[items] = stored
        else:
            target[items] = self._element(value, dtype)

    def _chosen_by(self, item: object) -> Any:
        return self._array(item) if is_array(item) else item

    def _write_where(self, target: Array, items: tuple[Any, ...], value: object) -> None:
        """A number, or an array of them in order, into the elements that bools choose."""
        place = _where(target, items)
        if not is_array(value) or value.size == 1:
            target[place] = self._element(value, host_array_arithmetic.dtype_of(target))
            return
        chosen = np.shape(target[place])
        if not host_array_arithmetic.fits_into(value.shape, chosen):
            raise WorldFault(
                f"an array of shape {value.shape} does not fit into {chosen}, which the bools"
                " choose", code="T0834",
                helps=("choose for each element: `x[:] = op.where(mask, y, x)`",),
            )  # fmt: skip
        target[place] = self._stored(value, target)

    def _stored(self, value: Array, target: Array) -> Array:
        """An array that is stored into one of its dtype, or of one that has all its values."""
        dtype = host_array_arithmetic.dtype_of(target)
        value = self._numbers_of.beside(value, dtype)
        source = host_array_arithmetic.dtype_of(value)
        if source != dtype and widens_to(source, dtype):
            return host_array_arithmetic.convert(self._array(value), dtype)
        if source != dtype:
            raise WorldFault(f"an array of {source} does not go into one of {dtype} without a cast",
                             helps=(f"convert what is stored: `.to({dtype})`",))  # fmt: skip
        return self._array(value)

    def unary(self, operator: str, a: object) -> object:
        made = self._kept(host_array_arithmetic.unary(operator, self._array(a)))
        self._numbers_of.part(made, self._array(a), lambda wide: host_array_arithmetic.unary(
            operator, wide))  # fmt: skip
        return made

    def binary(self, operator: str, a: object, b: object) -> object:
        left, right = (self._array(x) if is_array(x) else x for x in (a, b))
        computed = self._numbers_of.computed(operator, left, right)
        if computed is not None:
            found, numbers = computed
            if self.floats == F64 and found.dtype == np.float32:
                found = numbers()
            return self.of_numbers(self._kept(found), numbers)
        return self._kept(self._numbers_of.binary(operator, left, right, self.floats))

    def reduce(self, kind: Reduction, array: object, axis: int | None) -> object:
        value = self._array(array)
        found = host_array_arithmetic.reduce(kind, value, axis, self.floats)
        exact = self._numbers_of.reduced(kind, value, axis)
        if exact is not None and is_array(found):
            return self.of_numbers(self._kept(found), exact)
        found = found if exact is None else exact
        return self._kept(found) if is_array(found) else found

    def convert(self, array: object, dtype: DType) -> object:
        value = self._array(array)
        wide = self._numbers_of.of(value)
        value = value if wide is None else wide
        return self._kept(
            host_array_arithmetic.convert(np.atleast_1d(value), dtype).reshape(value.shape)
        )

    def view(self, kind: ViewKind, array: object, shape: tuple[int, ...] = ()) -> object:
        value = cast("Array", array)
        found = self._viewed(kind, value, shape)
        self._numbers_of.part(found, value, lambda wide: self._viewed(kind, wide, shape))
        if self._slices.get(id(array)) is array and self.value_of(found) is None:
            self._slices[id(found)] = found
        return found

    def _viewed(self, kind: ViewKind, value: Array, shape: tuple[int, ...]) -> Array:
        match kind:
            case "T":
                if value.ndim != 2:
                    raise WorldFault(f"`.T` is for two axes, and the array has {value.ndim}",
                                     code="T0833", helps=("write `.mT`",))  # fmt: skip
                return value.T
            case "mT":
                if value.ndim < 2:
                    raise WorldFault(f"`.mT` needs two axes, and the array has {value.ndim}",
                                     code="T0833")  # fmt: skip
                return value.swapaxes(-1, -2)
            case "contiguous":
                return value if value.flags.c_contiguous else self._kept(self._array(value))
            case "row":
                return cast("Array", value[shape[0], ...])
            case "reshape":
                return self._reshaped(value, shape)

    def _reshaped(self, value: Array, shape: tuple[int, ...]) -> Array:
        try:
            found = value.reshape(shape)
        except ValueError:
            raise WorldFault(f"{value.size} elements do not make an array of shape {shape}",
                             code="T0834") from None  # fmt: skip
        if np.shares_memory(found, value) or found.size == 0:
            return found
        return self._kept(self._array(value).reshape(shape))

    def truth(self, array: object) -> bool:
        value = self._array(array)
        if value.size != 1:
            raise WorldFault(f"an array of {value.size} elements is neither true nor false",
                             helps=("write op.all(x) or op.any(x)",))  # fmt: skip
        return bool(value.reshape(())[()] != 0)

    def text(self, array: object, format: str = "") -> str:
        value = self._array(array)
        if host_array_arithmetic.dtype_of(value).is_float:
            value = value.astype(np.float64 if value.dtype == np.float64 else np.float32)
        formatter: Any = None
        if format:
            formatter = {"all": functools.partial(_formatted, spec=format)}
        return np.array2string(value, separator=", ", threshold=1000, formatter=formatter)

    # --- launches -----------------------------------------------------------------------

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        launcher, interface = self._kernel(kernel)
        if groups is not None:
            launcher = launcher[groups]
        given = [self._given(a) for a in arguments]
        named = {k: v.name if isinstance(v, DType) else v for k, v in constants.items()}
        self._changes(interface, () if kernel.pure else arguments)
        results: list[Array] = []
        if interface.level == "lane":
            launcher(*given, **named)
        else:
            results = self._run(launcher, given, named)
        if self._device != HOST:
            self._in_flight = True
            for p, value in zip(interface.parameters, arguments, strict=False):
                block = device_mirror.block_of(value) if is_array(value) else None
                if block is not None and (p.mut or p.kind == "any"):
                    block.changes_on("device")
            for array in results:
                if (block := device_mirror.block_of(array)) is not None:
                    block.changes_on("device")
        else:
            self._check_workspaces(kernel)
        return results[0] if len(results) == 1 else tuple(results) or None

    def _changes(self, interface: KernelInterface, arguments: tuple[object, ...]) -> None:
        """A launch may write into arguments."""
        for p, value in zip(interface.parameters, arguments, strict=False):
            if is_array(value) and (p.mut or p.kind == "any"):
                self._numbers_of.change(value)

    def _check_workspaces(self, kernel: KernelReference) -> None:
        if not self._workspaces.hold_zeros():
            raise WorldFault(f"{kernel.description} left other bits than zeros in an array of "
                             "`op.workspace`", code="T0854",
                             helps=("take `op.zeros`, which is filled anew",))  # fmt: skip

    def _run(self, launcher: Launcher, given: list[object], named: dict[str, Any]) -> list[Array]:
        """Run a tile kernel; the arrays it returns, in memory of this world."""
        prepared, arguments, results = self._prepared(launcher, given, named)
        prepared.run(arguments, 0)
        return results

    def _given(self, value: object) -> object:
        if isinstance(value, DType):
            return value.name
        if isinstance(value, Double):
            return float(value)
        block = device_mirror.block_of(value) if self._device != HOST and is_array(value) else None
        if block is None or not is_array(value) or value.size == 0:
            return value
        return device_mirror.OnDevice(value, block, self._device)

    def _kernel(self, kernel: KernelReference) -> tuple[Launcher, KernelInterface]:
        key = (kernel.path, kernel.name)
        if key not in self._kernels:
            provider = self._provider_of(kernel.path)
            target = "cpu" if self._device == HOST else "cuda"
            launcher = provider.kernel(kernel.name, target)
            self._kernels[key] = launcher, provider.interface(kernel.name)
        return self._kernels[key]

    def _provider(self, path: str) -> SessionProvider:
        if path not in self._providers:
            options = options_from_environment()
            options = replace(options, arch_as=self._arch_as or options.arch_as,
                              checked=self._checked or options.checked)  # fmt: skip
            self._providers[path] = SessionProvider(path, options, session=self._session)
        return self._providers[path]

    # --- arrays of a caller -------------------------------------------------------------

    def adopt(self, value: object) -> object:
        """An argument from Python as an array of this world: its own memory on the CPU, a
        copy where kernels run on a device."""
        view = describe(value, "argument")
        if view is None:
            return value
        array = as_numpy(view)
        if self._device == HOST:
            return array
        for other, own in self._adopted:
            if _same_elements(view, other):
                return own
        own = self._kept(array)
        self._adopted.append((view, own))
        return own

    def check_sharing(self) -> None:
        """Refuse copies of which one was written and others stand for some of its memory: on the
        CPU they would be one. Raises TesseraError, T0836."""
        for i, (view, own) in enumerate(self._adopted):
            block = device_mirror.block_of(own)
            # Kernels without types in their heads count as if they wrote into all that they take.
            if block is not None and block.changed and not self._is_as_given(view, own):
                rest = (v for j, (v, _) in enumerate(self._adopted) if j != i)
                if any(memory_overlap.between(view, other) != "no" for other in rest):
                    raise error(diagnostic(
                        "T0836", f"an argument of shape {view.shape} is written and shares memory "
                        "with another one", helps=("pass a copy of the other one",),
                    ))  # fmt: skip

    def _is_as_given(self, view: ArrayView, own: Array) -> bool:
        return self._array(own).tobytes() == np.ascontiguousarray(as_numpy(view)).tobytes()

    def give_back(self, value: object, own: object) -> None:
        """Bring what was written into an adopted copy back to the caller's array."""
        block = device_mirror.block_of(own) if is_array(own) else None
        if block is not None and block.changed:
            view = describe(value, "argument")
            if view is not None and not view.read_only:
                as_numpy(view)[...] = self._array(own)

    def handed_back(self, result: object) -> object:
        """A result with its newest elements on the host."""
        if isinstance(result, (tuple, list)):
            items = cast("tuple[object, ...]", result)
            return tuple(self.handed_back(item) for item in items)
        if isinstance(result, dict):
            pairs = cast("dict[object, object]", result).items()
            return {key: self.handed_back(item) for key, item in pairs}
        if not is_array(result):
            return float(result) if isinstance(result, Double) else result
        array = self._array(result)
        if self.value_of(array) is not None:
            self.release(array)  # from now on it is the caller's alone
        elif not array.flags.writeable and self._slices.get(id(array)) is array:
            return self._kept(array)
        return array

    def print(self, text: str) -> None:
        self._write(text)

    def finish(self) -> None:
        if self._device != HOST:
            from tessera_backend.runtime.faults import synchronize_all

            synchronize_all()


def _same_elements(a: ArrayView, b: ArrayView) -> bool:
    return (a.pointer, a.shape, a.strides, a.dtype) == (b.pointer, b.shape, b.strides, b.dtype)


def _formatted(value: Any, spec: str) -> str:
    try:
        return format(scalars.plain(value), spec)
    except (ValueError, TypeError) as fault:
        raise WorldFault(f"the format {spec!r} does not fit: {fault}") from fault


def _where(array: Array, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """``items``, of which bools stand for as many axes as they have."""
    axis = 0
    rest: list[Any] = []
    for item in items:
        axes = item.ndim if is_array(item) else 0 if item is None else 1
        if is_array(item) and item.shape != array.shape[axis : axis + axes]:
            raise WorldFault(f"bools of shape {item.shape} for an array of shape {array.shape}",
                             code="T0807")  # fmt: skip
        rest.extend([slice(None)] * axes if is_array(item) else [item])
        axis += axes
    _check_items(array, tuple(rest))
    return items


def _check_items(array: Array, items: tuple[Index, ...], *, writes: bool = False) -> None:
    """Elements outside are faults, as NumPy has it, in our words. ``writes``: places to store to
    may stand in arrays."""
    for item in cast("tuple[object, ...]", items):
        if writes and is_array(item) and item.dtype.kind in "iu":
            continue
        if item is not None and (isinstance(item, bool) or not isinstance(item, (int, slice))):
            shown = "an array" if is_array(item) else item
            raise WorldFault(f"an index is an integer, not {shown}", code="T0807")
    axes = [i for i in items if i is not None]
    if len(axes) > array.ndim:
        raise WorldFault(f"{len(axes)} indices for an array of {array.ndim} axes", code="T0807")
    for axis, item in enumerate(axes):
        n = array.shape[axis]
        if isinstance(item, int) and not -n <= item < n:
            raise WorldFault(f"index {item} along axis {axis}: {_inside(n)}", code="T0807")
        if is_array(item) and item.size:
            outside = item[(item < -n) | (item >= n)]
            if outside.size:
                raise WorldFault(f"place {outside.reshape(-1)[0]} along axis {axis}: {_inside(n)}",
                                 code="T0807")  # fmt: skip


def _inside(n: int) -> str:
    return f"0 to {n - 1} are inside" if n else "it has no element"
