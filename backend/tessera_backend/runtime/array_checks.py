"""An array against what its parameter declares: element type, rank, whether it may be written.

Must not know sizes or other arguments.
"""

from __future__ import annotations

from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.call_diagnostics import Place, diagnostic
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.launch_plan import LARGEST_SIZE, ParameterPlan, reach

_NUMPY = {
    "bool": "bool_", "f16": "float16", "f32": "float32", "f64": "float64", "index": "int64",
    **{f"{s}{n}": f"{'u' if s == 'u' else ''}int{n}" for s in "iu" for n in (8, 16, 32, 64)},
}  # fmt: skip
_TORCH = {**_NUMPY, "bool": "bool", "bf16": "bfloat16"}


def _conversion(p: ParameterPlan) -> str:
    """How arrays of NumPy and tensors are converted to what a parameter takes."""
    forms = [f"`{p.name}.astype(np.{_NUMPY[p.dtype]})`"] if p.dtype in _NUMPY else []
    if p.dtype in _TORCH:
        forms.append(f"`{p.name}.to(torch.{_TORCH[p.dtype]})` of a tensor")
    return ", or ".join(forms) or f"to {p.dtype}"


def label_of(p: ParameterPlan) -> tuple[Place, int]:
    return p.span, len(p.name)


def check_array(kernel: str, p: ParameterPlan, declared: str, view: ArrayView) -> list[Diagnostic]:
    """Element type, rank and whether it may be written; ``declared`` is shown.

    A rank of -1 and an empty dtype are not known and agree with everything.
    """
    found: list[Diagnostic] = []
    place, length = label_of(p)
    label = f"declared `{declared}`" if declared else ""
    as_index = p.dtype == "index" and view.dtype.name == "i64"
    if p.dtype and view.dtype.name != p.dtype and not as_index:
        found.append(diagnostic(
            "T0832", f"argument `{p.name}` of `{kernel}` has {view.dtype} elements, and "
            f"{p.dtype} is expected", place, length, label,
            helps=(f"convert it before the call: {_conversion(p)}",),
        ))  # fmt: skip
    if len(view.shape) != p.rank >= 0:
        wanted = f"{_axes(p.rank)} {'is' if p.rank == 1 else 'are'}"
        found.append(diagnostic(
            "T0833", f"argument `{p.name}` of `{kernel}` has {_axes(len(view.shape))} "
            f"(shape {view.shape}), and {wanted} expected", place, length, label,
        ))  # fmt: skip
    if reach(view.shape) > LARGEST_SIZE:
        found.append(diagnostic(
            "T0846", f"argument `{p.name}` of `{kernel}` has the shape {view.shape}, and there may "
            f"be {LARGEST_SIZE} elements along its axes", place, length, label,
        ))  # fmt: skip
    if p.mut and view.read_only:
        found.append(diagnostic(
            "T0835", f"argument `{p.name}` of `{kernel}` is written, and the array given "
            "for it is read-only", place, length, label, helps=("pass a copy of it",),
        ))  # fmt: skip
    return found


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"
