# SPDX-License-Identifier: Apache-2.0
"""Read names from the dynamic symbol table of an ELF file without loading the file.

Loading a plugin would run its constructors. The layout is that of the System V ABI, chapters 4 and
5; 64 and 32 bit, both byte orders.
"""

import struct
from typing import BinaryIO, NamedTuple

from nccltune.model.errors import InputError

_DYNSYM = 11
_MOST_SECTIONS = 4096
_MOST_TABLE = 64 << 20
_MOST_NAMES = 200_000
_NAME_BYTES = 256


class _Layout(NamedTuple):
    """Struct formats of the tables in one class of ELF files (32 or 64 bit)."""

    head: str
    section: str
    symbol: str
    # Indices into an unpacked symbol: its name, and the section that defines the symbol.
    name: int
    defined: int


_LAYOUTS = {
    2: _Layout("HHIQQQIHHHHHH", "IIQQQQIIQQ", "IBBHQQ", 0, 3),
    1: _Layout("HHIIIIIHHHHHH", "IIIIIIIIII", "IIIBBH", 0, 5),
}


def exported_names(file: BinaryIO, prefix: str = "") -> list[str]:
    """Return the sorted names of symbols that the file defines and exports and that begin with
    `prefix`.

    Raises InputError if the file is no ELF file, has no section table or is damaged.
    """
    try:
        return sorted(_names(file, prefix.encode()))
    except (struct.error, ValueError, OverflowError) as error:
        raise InputError(f"is a damaged ELF file: {error}") from error


def _names(file: BinaryIO, prefix: bytes) -> set[str]:
    file.seek(0)
    ident = file.read(16)
    if ident[:4] != b"\x7fELF" or len(ident) < 16:
        raise InputError("is no ELF file")
    layout = _LAYOUTS.get(ident[4])
    order = {1: "<", 2: ">"}.get(ident[5])
    if layout is None or order is None:
        raise InputError("is no ELF file of a known class")
    head = struct.unpack(
        order + layout.head, _exact(file, 16, struct.calcsize(order + layout.head))
    )
    offset, entry, count = head[5], head[10], head[11]
    size = struct.calcsize(order + layout.section)
    if not offset or not count:
        raise InputError("has no section table")
    if entry < size or count > _MOST_SECTIONS:
        raise InputError("is a damaged ELF file: its section table")
    table = _exact(file, offset, entry * count)
    sections = [
        struct.unpack_from(order + layout.section, table, number * entry) for number in range(count)
    ]
    found: set[str] = set()
    for section in sections:
        if section[1] == _DYNSYM and section[6] < count:
            found |= _of_table(file, order, layout, section, sections[section[6]], prefix)
    return found


def _of_table(
    file: BinaryIO,
    order: str,
    layout: _Layout,
    symbols: tuple[int, ...],
    strings: tuple[int, ...],
    prefix: bytes,
) -> set[str]:
    form = struct.Struct(order + layout.symbol)
    data = _exact(file, symbols[4], min(symbols[5], _MOST_NAMES * form.size))
    text = _exact(file, strings[4], strings[5])
    found = set()
    for symbol in form.iter_unpack(data[: len(data) - len(data) % form.size]):
        at = symbol[layout.name]
        # Section 0 is "undefined": the file imports this symbol from another library.
        if symbol[layout.defined] == 0 or not 0 < at < len(text):
            continue
        if text.startswith(prefix, at):
            end = text.find(b"\0", at, at + _NAME_BYTES)
            if end > at:
                found.add(text[at:end].decode("ascii", errors="replace"))
    return found


def _exact(file: BinaryIO, at: int, size: int) -> bytes:
    if size > _MOST_TABLE:
        raise InputError("is a damaged ELF file: a table of more than 64 MiB")
    file.seek(at)
    data = file.read(size)
    if len(data) != size:
        raise InputError("is a damaged ELF file: it ends too early")
    return data
