# SPDX-License-Identifier: Apache-2.0
"""Strict parsers for the cells of NVIDIA's CSV files. Errors name the cell and suggest a fix."""

import re
from collections.abc import Sequence

import msgspec

from nccltune.formats.text.lines import visible
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.sizes import parse_bytes

MAX_INT = (1 << 31) - 1
MAX_SIZE = (1 << 64) - 1
"""The largest size in bytes: NCCL's tuner interface holds sizes as 64-bit `size_t`."""
_DECIMAL = re.compile(r"[0-9]{1,20}", re.ASCII)


class Problem(msgspec.Struct, frozen=True):
    """A problem in one line of a file.

    `line` counts from 1. `message` includes the column, unless it concerns the whole line.
    """

    line: int
    message: str
    hint: str | None = None

    def error(self, name: str) -> InputError:
        """Return the problem as an `InputError` at this line of the file `name`."""
        return InputError(self.message, where=f"{name}:{self.line}", hint=self.hint)


class CellError(ValueError):
    """An invalid cell. It has a message and a hint, but no line number: the caller adds it."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class AmbiguousCellError(CellError):
    """A cell with two meanings, of which other cells may decide."""


def name_of(cell: str, names: Sequence[str], noun: str) -> str:
    """Return `cell` if it is one of `names`.

    Raises CellError otherwise; its hint is the nearest name. `noun` is the kind of name, with its
    article, as in "a protocol".
    """
    if cell in names:
        return cell
    if not cell.strip():
        raise CellError(f"empty where {noun} belongs", nearest("", names))
    hint = nearest(cell, names)
    if cell.strip().lower() in names:
        hint = f"did you mean {cell.strip().lower()!r}? names are lower case without spaces: " + (
            " ".join(names)
        )
    raise CellError(f"{_quoted(cell)} is not {noun}", hint)


def size_of(cell: str) -> int:
    """Return a size in bytes.

    Only whole bytes without a unit are valid. Raises CellError otherwise. For `1K` the hint is the
    number of bytes.
    """
    if _DECIMAL.fullmatch(cell) and int(cell) <= MAX_SIZE:
        return int(cell)
    if not cell.strip():
        raise CellError("empty where a size belongs", "sizes are whole bytes without a unit")
    try:
        meant = parse_bytes(cell)
    except InputError:
        raise CellError(
            f"{_quoted(cell)} is not a size", "sizes are whole bytes without a unit, 0 to 2^64-1"
        ) from None
    raise CellError(
        f"{_quoted(cell)} is not a size",
        f"did you mean {meant}? sizes are whole bytes without a unit"
        f" (NVIDIA's plugin would read {_lead(cell)})",
    )


def number_of(cell: str, noun: str, least: int, most: int, any_words: str) -> int | None:
    """Return a whole number from `least` to `most`, or None for -1.

    Raises CellError for other cells. `any_words` is the meaning of -1 for the hint, as in
    "matches any".
    """
    if cell == "-1":
        return None
    if _DECIMAL.fullmatch(cell) and least <= int(cell) <= most:
        return int(cell)
    upto = f"{least} to {most}" if most < MAX_INT else f"{least} or more"
    if not cell.strip():
        raise CellError(f"empty where {noun} belongs", f"-1 {any_words}, else {upto}")
    raise CellError(f"{_quoted(cell)} is not {noun}", f"-1 {any_words}, else {upto}")


def _quoted(cell: str) -> str:
    return "'" + visible(cell, 40) + "'"


def _lead(cell: str) -> str:
    match = _DECIMAL.match(cell.strip())
    return match.group() if match else "0"
