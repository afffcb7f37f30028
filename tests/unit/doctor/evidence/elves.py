# SPDX-License-Identifier: Apache-2.0
"""Small ELF files with nothing but a dynamic symbol table."""

import struct


def elf(
    names: list[str], *, is_64: bool = True, order: str = "<", undefined: list[str] | None = None
) -> bytes:
    """Return a shared object that exports `names` and needs `undefined`."""
    strings = b"\0"
    form = "IBBHQQ" if is_64 else "IIIBBH"
    table = bytes(struct.calcsize(order + form))
    for name, section in [
        *((name, 1) for name in names),
        *((name, 0) for name in undefined or []),
    ]:
        at = len(strings)
        strings += name.encode() + b"\0"
        fields = (at, 0x11, 0, section, 4096, 8) if is_64 else (at, 4096, 8, 0x11, 0, section)
        table += struct.pack(order + form, *fields)
    head = "HHIQQQIHHHHHH" if is_64 else "HHIIIIIHHHHHH"
    size = 16 + struct.calcsize(order + head)
    entry = struct.calcsize(order + ("IIQQQQIIQQ" if is_64 else "I" * 10))
    text_at, table_at = size, size + len(strings)
    sections_at = table_at + len(table)

    def section(kind: int, at: int, length: int, link: int) -> bytes:
        form = "IIQQQQIIQQ" if is_64 else "I" * 10
        return struct.pack(order + form, 0, kind, 0, 0, at, length, link, 0, 1, 0)

    ident = b"\x7fELF" + bytes([2 if is_64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    return (
        ident
        + struct.pack(order + head, 3, 62, 1, 0, 0, sections_at, 0, size, 0, 0, entry, 3, 0)
        + strings
        + table
        + section(0, 0, 0, 0)
        + section(11, table_at, len(table), 2)
        + section(3, text_at, len(strings), 0)
    )
