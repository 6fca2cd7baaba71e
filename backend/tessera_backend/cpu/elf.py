"""Reads ELF relocatable objects (x86-64, aarch64) and resolves them at an address.

Enough for what the CPU backend emits: code, constants, jump tables, no outside symbol. Every
offset is checked against the bytes that are there, so a damaged object ends in ``ElfError``.
Needs no LLVM; must not know how memory becomes executable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tessera_lang.record import dataclass

_X86_64, _AARCH64 = 62, 183
_MACHINES = {_X86_64: "x86_64", _AARCH64: "aarch64", 3: "i386", 40: "arm", 243: "riscv"}
_ALLOC, _EXEC = 0x2, 0x4
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_SKIPPED = (".eh_frame", ".note.GNU-stack")
PAGE = 1 << 16  # the largest page size of the systems the code runs on


class ElfError(Exception):
    """The object is damaged, for another machine, or needs what is not there."""


@dataclass(slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    place: int = -1


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int


@dataclass(frozen=True, slots=True)
class Image:
    """Bytes to be put at an address: ``code_size`` bytes to execute (whole pages), the rest
    to read. ``entries`` are offsets of the functions and ``resolve`` writes the addresses."""

    content: bytes
    code_size: int
    entries: dict[str, int]
    resolve: Callable[[bytearray, int], None]


def _text(table: bytes, start: int) -> str:
    end = table.find(b"\0", start)
    if not 0 <= start < len(table) or end < 0:
        raise ElfError("a name lies outside its table")
    return table[start:end].decode("utf-8", "replace")


def _check_kind(data: bytes, machine: str, wanted: int) -> None:
    """Whether these are the first bytes of an object for a machine. Raises ElfError."""
    if not data.startswith(b"\x7fELF"[: len(data)]):
        raise ElfError(f"no ELF object: it begins with {data[:4]!r}")
    if len(data) < 64:
        raise ElfError(f"the object is cut short: {len(data)} bytes of it are there")
    if data[4] != 2 or data[5] != 1:
        bits, order = 64 if data[4] == 2 else 32, "little" if data[5] == 1 else "big"
        raise ElfError(f"an object for a {bits}-bit {order}-endian machine, and this is {machine}")
    kind, found = struct.unpack_from("<HH", data, 16)
    if found != wanted:
        its = _MACHINES.get(found, f"another machine (number {found} of ELF)")
        raise ElfError(f"an object for {its}, and this machine is {machine}")
    if kind != 1:
        raise ElfError("a linked program or library, and no object")


def renamed(code: bytes, old: str, new: str) -> bytes:
    """An object whose function ``old`` is called ``new``; nothing else of it changes. Raises
    ElfError where there is no such function."""
    machine = _MACHINES.get(int.from_bytes(code[18:20], "little"), "")
    obj = ElfObject(code, machine)
    out = bytearray(code)
    place, names = obj.place_of(old)
    # The names move behind all else, with the new one at their end.
    start, size = len(out), names.size
    out += code[names.offset : names.offset + size] + new.encode() + b"\0"
    struct.pack_into("<I", out, place, size)
    header = struct.unpack_from("<Q", code, 0x28)[0] + 64 * obj.number_of(names)
    struct.pack_into("<QQ", out, header + 24, start, size + len(new.encode()) + 1)
    return bytes(out)


class ElfObject:
    """A parsed object."""

    def __init__(self, data: bytes, machine: str) -> None:
        self._data = data
        wanted = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(machine)
        if wanted is None:
            raise ElfError(f"there is no loader for {machine}")
        _check_kind(data, machine, wanted)
        self._machine = wanted
        self._sections = self._read_sections()
        self._symbols = self._read_symbols()

    def image(self) -> Image:
        """Lays the sections out."""
        content = bytearray()
        entries: dict[str, int] = {}
        self._lay_out(content, executable=True)
        content.extend(bytes(-len(content) % PAGE))
        code_size = len(content)
        self._lay_out(content, executable=False)
        content.extend(bytes(-len(content) % PAGE))
        for symbol in self._symbols:
            section = self._section_of(symbol)
            if section is not None and section.flags & _EXEC and symbol.name:
                entries[symbol.name] = section.place + symbol.value
        return Image(bytes(content), code_size, entries, self._resolve)

    def flat(self) -> tuple[bytes, dict[str, int]]:
        """All of it as one piece that runs wherever it stands, a multiple of 64, and the offsets of
        its functions. Raises ElfError where an address or a page is named in it."""
        near = (2, 4, 24) if self._machine == _X86_64 else (260, 261, 282, 283)
        content, entries = bytearray(), dict[str, int]()
        self._lay_out(content, executable=True)
        self._lay_out(content, executable=False)
        for table in self._sections:
            if table.kind != _RELA or self._section(table.info).place < 0:
                continue
            for offset in range(table.offset, table.offset + table.size - 23, 24):
                if self._unpack("<QQq", offset)[1] & 0xFFFFFFFF not in near:
                    raise ElfError("the code depends on where it stands")
        self._resolve(content, 0)
        for symbol in self._symbols:
            section = self._section_of(symbol)
            if section is not None and section.flags & _EXEC and symbol.name:
                entries[symbol.name] = section.place + symbol.value
        return bytes(content), entries

    def place_of(self, name: str) -> tuple[int, _Section]:
        """Where the symbol of that name begins in the bytes, and the section of names."""
        table = next(s for s in self._sections if s.kind == _SYMTAB)
        for number, symbol in enumerate(self._symbols):
            if symbol.name == name and symbol.section:
                return table.offset + 24 * number, self._section(table.link)
        raise ElfError(f"the object has no function {name}")

    def number_of(self, section: _Section) -> int:
        return self._sections.index(section)

    # --- reading ----------------------------------------------------------------------------

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(form, self._data, offset)
        except struct.error as error:
            raise ElfError("the object is cut short") from error

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._data):
            raise ElfError("the object is cut short")
        return self._data[offset : offset + size]

    def _read_sections(self) -> list[_Section]:
        (table,) = self._unpack("<Q", 0x28)
        entry, count, names = self._unpack("<HHH", 0x3A)
        if entry != 64 or names >= count:
            raise ElfError("the section table is damaged")
        raw = [self._unpack("<IIQQQQIIQQ", table + 64 * i) for i in range(count)]
        strings = self._bytes(raw[names][4], raw[names][5])
        return [
            _Section(_text(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1))
            for r in raw
        ]

    def _read_symbols(self) -> list[_Symbol]:
        tables = [s for s in self._sections if s.kind == _SYMTAB]
        if len(tables) != 1:
            raise ElfError("the object has no symbol table")
        table = tables[0]
        strings = self._section(table.link)
        names = self._bytes(strings.offset, strings.size)
        found: list[_Symbol] = []
        for offset in range(table.offset, table.offset + table.size - 23, 24):
            name, info, _, section, value, _ = self._unpack("<IBBHQQ", offset)
            if section == 0 and name and info >> 4:
                raise ElfError(f"the code needs {_text(names, name)}, which is not there")
            found.append(_Symbol(_text(names, name), section, value))
        return found

    def _section(self, number: int) -> _Section:
        if number >= len(self._sections):
            raise ElfError("a section is missing")
        return self._sections[number]

    def _section_of(self, symbol: _Symbol) -> _Section | None:
        if symbol.section == 0 or symbol.section >= 0xFF00:
            return None
        section = self._section(symbol.section)
        return section if section.place >= 0 else None

    def _lay_out(self, content: bytearray, *, executable: bool) -> None:
        for section in self._sections:
            wanted = bool(section.flags & _EXEC) == executable
            if not section.flags & _ALLOC or not wanted or section.name in _SKIPPED:
                continue
            if section.align > PAGE or section.align & (section.align - 1):
                raise ElfError("an alignment is wrong")
            content.extend(bytes(-len(content) % section.align))
            section.place = len(content)
            if section.kind == _NOBITS:
                if section.size > 1 << 30:
                    raise ElfError("a section is too large")
                content.extend(bytes(section.size))
            else:
                content.extend(self._bytes(section.offset, section.size))

    # --- relocations ------------------------------------------------------------------------

    def _resolve(self, content: bytearray, base: int) -> None:
        """Writes addresses into ``content``, which will stand at ``base``."""
        for table in self._sections:
            if table.kind != _RELA:
                continue
            target = self._section(table.info)
            if target.place < 0:
                continue
            for offset in range(table.offset, table.offset + table.size - 23, 24):
                where, info, addend = self._unpack("<QQq", offset)
                if where + 4 > target.size or info >> 32 >= len(self._symbols):
                    raise ElfError("a relocation lies outside its section")
                symbol = self._symbols[info >> 32]
                section = self._section_of(symbol)
                if section is None:
                    raise ElfError(f"the code needs {symbol.name or 'a symbol'}")
                address = base + section.place + symbol.value + addend
                place = target.place + where
                apply = _relocate_x86 if self._machine == _X86_64 else _relocate_arm
                apply(content, info & 0xFFFFFFFF, place, base + place, address)


def _put(content: bytearray, place: int, value: int, size: int) -> None:
    if place + size > len(content):
        raise ElfError("a relocation lies outside its section")
    content[place : place + size] = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _put_near(content: bytearray, place: int, value: int) -> None:
    if not -(1 << 31) <= value < 1 << 31:
        raise ElfError("a relocation is out of reach")
    _put(content, place, value, 4)


def _relocate_x86(content: bytearray, kind: int, place: int, here: int, address: int) -> None:
    match kind:
        case 1:  # 64
            _put(content, place, address, 8)
        case 2 | 4:  # PC32, PLT32
            _put_near(content, place, address - here)
        case 24:  # PC64
            _put(content, place, address - here, 8)
        case _:
            raise ElfError(f"relocation {kind} is not supported")


# Bits that an aarch64 load or store scales its 12-bit offset by, by relocation type.
_LOW_12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}


def _relocate_arm(content: bytearray, kind: int, place: int, here: int, address: int) -> None:
    if kind == 257:  # ABS64
        _put(content, place, address, 8)
        return
    if kind == 260:  # PREL64
        _put(content, place, address - here, 8)
        return
    if kind == 261:  # PREL32
        _put_near(content, place, address - here)
        return
    word = int.from_bytes(content[place : place + 4], "little")
    if kind in (275, 276):  # ADR_PREL_PG_HI21
        pages = (address >> 12) - (here >> 12)
        if not -(1 << 20) <= pages < 1 << 20:
            raise ElfError("a relocation is out of reach")
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    elif kind in (282, 283):  # JUMP26, CALL26
        step = address - here
        if step & 3 or not -(1 << 27) <= step < 1 << 27:
            raise ElfError("a relocation is out of reach")
        word |= step >> 2 & 0x3FFFFFF
    elif kind in _LOW_12:
        scale = _LOW_12[kind]
        if address & ((1 << scale) - 1):
            raise ElfError("a constant is not aligned")
        word |= (address & 0xFFF) >> scale << 10
    else:
        raise ElfError(f"relocation {kind} is not supported")
    _put(content, place, word, 4)
