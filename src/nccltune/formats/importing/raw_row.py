# SPDX-License-Identifier: Apache-2.0
"""Read the cells of one row of a raw CSV: choice, numbers, bandwidths and times."""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, TypeVar

from nccltune.formats.importing.raw_header import (
    ALGORITHM_NAMES,
    COLLECTIVES,
    PROTOCOL_NAMES,
    plain_collective,
)
from nccltune.formats.reading.quantities import Number, bandwidth_of, time_of, whole_of
from nccltune.formats.reading.table_header import Header
from nccltune.formats.text.cells import MAX_INT, CellError, name_of, number_of
from nccltune.model.choice import (
    DEFAULT,
    MAX_CHANNELS,
    Algorithm,
    AnyChoice,
    Choice,
    Protocol,
    parse_algorithm,
    parse_choice,
    parse_protocol,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest

_Value = TypeVar("_Value")


class RawColumn(NamedTuple):
    """A column that is read: its position, and its name for messages."""

    at: int
    name: str


class RawRow:
    """The cells of one row. Errors name the column.

    `places` are the columns of the roles that are read.
    """

    def __init__(self, header: Header, places: dict[str, RawColumn], cells: list[str]) -> None:
        self._header = header
        self._columns = header.columns
        self._places = places
        self._cells = cells

    def cells(self, *roles: str) -> list[str]:
        """Return the cells of the columns with any of `roles`; empty text for those without."""
        places = [at for role in roles for at in self._header.at(role)]
        return [self._cells[at].strip("-\u2013\u2014 ") for at in places]

    def cell(self, role: str) -> str | None:
        """Return the cell of a role; None if the file has no such column."""
        place = self._places.get(role)
        return None if place is None else self._cells[place.at]

    def of(self, role: str, parse: Callable[[str], _Value]) -> _Value | None:
        """Return the value of a cell; None if the file has no such column."""
        place = self._places.get(role)
        return None if place is None else self._at(place, parse)

    def _at(self, place: RawColumn, parse: Callable[[str], _Value]) -> _Value:
        try:
            return parse(self._cells[place.at])
        except (CellError, InputError) as error:
            where = f"column {place.at + 1} ({place.name})"
            raise CellError(f"{where}: {error.message}", error.hint) from None

    def collective(self) -> Collective | None:
        """Return the collective, in any spelling of nccl-tests and NCCL."""

        def parse(cell: str) -> Collective:
            plain = plain_collective(cell)
            name = plain if plain in COLLECTIVES else cell
            return Collective(name_of(name, COLLECTIVES, "a collective"))

        return self.of("collective", parse)

    def choice(self) -> AnyChoice | None:
        """Return the choice; None if the file has no columns for it."""
        if (choice := self.of("choice", parse_choice)) is not None:
            return choice
        algorithm = (self.cell("algorithm") or "").lower()
        if "algorithm" not in self._places or "protocol" not in self._places:
            return None
        if algorithm == DEFAULT:
            self.of("protocol", lambda cell: name_of(cell.lower(), [DEFAULT], "a protocol"))
            return DEFAULT
        chosen = self.of("algorithm", _algorithm_of)
        protocol = self.of("protocol", _protocol_of)
        channels = self.of(
            "channels",
            lambda cell: number_of(
                cell, "a number of channels", 1, MAX_CHANNELS, "is NCCL's own number"
            ),
        )
        assert chosen is not None
        assert protocol is not None
        return Choice(chosen, protocol, channels)

    def number(
        self, role: str, noun: str, least: int, any_words: str, most: int = MAX_INT
    ) -> int | None:
        """Return a whole number; None for -1 and if the file has no such column."""
        return self.of(role, lambda cell: number_of(cell, noun, least, most, any_words))

    def word(self, role: str) -> str | None:
        """Return a data type or a reduction as nccl-tests names it; None if there is none."""
        cell = (self.cell(role) or "").lower()
        return None if cell in ("", "-", "none", "n/a") else cell

    def wrong(self) -> int | None:
        """Return the number of wrong elements; None if it was not checked."""
        if self.word("#wrong") is None:
            return None
        return self.of("#wrong", lambda cell: whole_of(cell, "a number of errors"))

    def bandwidth(self, role: str) -> Number | None:
        """Return a bandwidth; None for an empty cell and if the file has no such column."""
        place = self._places.get(role)
        if place is None:
            return None
        factor = self._columns[place.at].factor

        def parse(cell: str) -> Number | None:
            found = bandwidth_of(cell, factor)
            if found is not None and found.value < 0:
                raise CellError(f"{cell} is not a bandwidth", "write a number above 0")
            return found

        return self._at(place, parse)

    def time(self, place: RawColumn, *, checked: bool) -> float | None:
        """Return a time in microseconds. Its unit must be named, or `checked` by a bandwidth."""
        factor = self._columns[place.at].factor

        def parse(cell: str) -> float:
            time, united = time_of(cell, factor)
            if not (united or checked):
                raise CellError("the unit of this time is not named", f"write '{place.name} (us)'")
            if not 0 < time.value < inf:
                raise CellError(f"{cell} is not a time", "write a number above 0")
            return time.value

        return self._at(place, parse)


def _algorithm_of(cell: str) -> Algorithm:
    if not cell:
        return Algorithm(name_of(cell, ALGORITHM_NAMES, "an algorithm"))
    try:
        return parse_algorithm(cell)
    except InputError as error:
        raise CellError(error.message, nearest(cell, ALGORITHM_NAMES)) from None


def _protocol_of(cell: str) -> Protocol:
    if not cell:
        return Protocol(name_of(cell, PROTOCOL_NAMES, "a protocol"))
    return parse_protocol(cell)
