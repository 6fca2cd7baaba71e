"""Data files of host programs: ``.npy``, ``.npz`` and ``.csv``, read and written.

Never unpickles. Must not know devices. Raises ``DataFault`` with a sentence in the user's
words for whatever a file holds.
"""

from __future__ import annotations

import csv
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from tessera_backend.runtime.dtypes import Array, is_array


class DataFault(Exception):
    """Why a data file cannot be read or written, and what to do."""

    def __init__(self, message: str, *helps: str) -> None:
        self.message = message
        self.helps = helps
        super().__init__(message)


def load(path: str, key: str | None) -> Array:
    """The array of a file; ``key`` names one of an ``.npz`` or a column of a ``.csv``."""
    kind = Path(path).suffix.lower()
    if kind not in (".npy", ".npz", ".csv"):
        raise DataFault(f"{path} is no data file: its name does not end in .npy, .npz or .csv")
    if not os.path.exists(path):
        raise DataFault(f"there is no file {path}")
    if not os.path.isfile(path):
        raise DataFault(f"{path} is not a file")
    try:
        if kind == ".csv":
            return _load_csv(path, key)
        if kind == ".npz":
            return _load_npz(path, key)
        if key is not None:
            raise DataFault(f"{path} holds one array, and none named {key!r}")
        return _checked(path, np.load(path, allow_pickle=False))
    except OSError as fault:
        raise DataFault(f"{path} cannot be read: {_reason(fault)}") from fault
    # NumPy reads a damaged header as Python, which raises what its tokenizer raises.
    except (
        ValueError, EOFError, zipfile.BadZipFile, KeyError, MemoryError, SyntaxError, TokenError,
    ) as fault:  # fmt: skip
        what = f"{path} is truncated or not a {kind} file"
        if "pickle" in str(fault):  # NumPy's advice is to load it all the same
            raise DataFault(f"{what}: Python objects are not read") from fault
        raise DataFault(f"{what}: {_first_line(fault)}") from fault


def _reason(fault: OSError) -> str:
    if fault.errno is None and " requested and " in str(fault):
        return "no space left on device"  # NumPy says how many elements it wrote
    return (fault.strerror or str(fault)).lower()


def _first_line(fault: BaseException) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0].rstrip(".")


def _checked(path: str, value: Any) -> Array:
    if not is_array(value):
        raise DataFault(f"{path} is not what its name says: it holds several arrays")
    if value.dtype.hasobject:
        raise DataFault(f"{path} holds Python objects, which are not read")
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return value


def _load_npz(path: str, key: str | None) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        if not hasattr(archive, "files"):
            raise DataFault(f"{path} is not an .npz file: it holds a single array",
                            "name it .npy")  # fmt: skip
        names = list(archive.files)
        if key is None:
            if len(names) != 1:
                raise DataFault(f"{path} holds {len(names)} arrays: {', '.join(names)}",
                                'name one: op.load("file.npz", "name")')  # fmt: skip
            key = names[0]
        if key not in names:
            raise DataFault(f"{path} holds no array {key!r}; it holds {', '.join(names)}")
        return _checked(path, archive[key])


def _load_csv(path: str, key: str | None) -> Array:
    """Numbers separated by commas; a first line without numbers names the columns."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [(reader_line, row) for reader_line, row in _rows(file)]
    if not rows:
        raise DataFault(f"{path} is empty")
    header: list[str] | None = None
    if not any(_is_number(cell) for cell in rows[0][1]):
        header = [cell.strip() for cell in rows[0][1]]
        rows = rows[1:]
    width = len(header) if header is not None else len(rows[0][1])
    column = _column(path, key, header, width)
    values = np.empty((len(rows), width if column is None else 1), np.float64)
    for at, (line, row) in enumerate(rows):
        if len(row) != width:
            raise DataFault(f"{path}, line {line}: {len(row)} values, and {width} are expected")
        cells = row if column is None else [row[column]]
        for j, cell in enumerate(cells):
            values[at, j] = _number(path, line, cell)
    if column is not None or width == 1:
        return values.reshape(-1)
    return values


def _rows(file: Any) -> list[tuple[int, list[str]]]:
    reader = csv.reader(file)
    try:
        return [
            (reader.line_num, row)
            for row in reader
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")
        ]
    except (csv.Error, UnicodeDecodeError) as fault:
        raise ValueError(str(fault)) from fault


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: str, line: int, cell: str) -> float:
    text = cell.strip()
    if not text:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise DataFault(
            f"{path}, line {line}: {text!r} is no number",
            'name the column to read: op.load("file.csv", "column")',
        ) from None


def _column(path: str, key: str | None, header: list[str] | None, width: int) -> int | None:
    if key is None:
        return None
    if header is not None and key in header:
        return header.index(key)
    if key.isdecimal() and int(key) < width:
        return int(key)
    names = ", ".join(header) if header else f"0 to {width - 1}"
    raise DataFault(f"{path} has no column {key!r}; its columns are {names}")


def save(path: str, arrays: Mapping[str, Array]) -> None:
    """Write a file anew; it appears whole or not at all."""
    kind = Path(path).suffix.lower()
    if kind not in (".npy", ".npz", ".csv"):
        raise DataFault(f"{path} is no data file: its name does not end in .npy, .npz or .csv")
    if kind != ".npz" and len(arrays) != 1:
        raise DataFault(f"a {kind} file holds one array, and {len(arrays)} are given",
                        "name the file .npz")  # fmt: skip
    folder = os.path.dirname(path) or "."
    try:
        handle, name = tempfile.mkstemp(prefix=".new-", suffix=kind, dir=folder)
    except OSError as fault:
        raise _unwritable(path, fault) from fault
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, kind, arrays)
        _publish(name, path)
    except OSError as fault:
        os.unlink(name)
        raise _unwritable(path, fault) from fault
    except BaseException:
        os.unlink(name)
        raise


def _unwritable(path: str, fault: OSError) -> DataFault:
    return DataFault(f"{path} cannot be written: {_reason(fault)}")


def _publish(name: str, path: str) -> None:
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
    os.replace(name, path)


def _write(file: Any, kind: str, arrays: Mapping[str, Array]) -> None:
    if kind == ".npz":
        named: dict[str, Any] = {name or "array": value for name, value in arrays.items()}
        np.savez(file, **named)
        return
    (value,) = arrays.values()
    if kind == ".npy":
        np.save(file, value, allow_pickle=False)
        return
    if value.ndim > 2:
        raise DataFault(f"a .csv file holds one or two axes, and the array has {value.ndim}")
    rows = value.reshape(len(value), -1) if value.ndim else value.reshape(1, 1)
    for row in rows.tolist():
        file.write((",".join(repr(cell) for cell in row) + "\n").encode())
