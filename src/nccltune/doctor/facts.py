# SPDX-License-Identifier: Apache-2.0
"""What is known of a node: named facts, each with where it was read.

The names, types and meanings stand in `facts.toml`, the catalogue; a name that is not there is
refused. A fact that could not be read is absent, which is another thing than one known to be empty.
"""

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from nccltune.model.errors import InputError
from nccltune.model.names import nearest


class FactType(StrEnum):
    """Types of a fact; those of a record's field are the same without map and records."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    TEXTS = "texts"
    INTS = "ints"
    MAP = "map"
    RECORDS = "records"


_Int = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_PYTHON: dict[FactType, Any] = {
    FactType.BOOL: bool,
    FactType.INT: _Int,
    FactType.FLOAT: float,
    FactType.TEXT: str,
    FactType.TEXTS: list[str],
    FactType.INTS: list[_Int],
    FactType.MAP: dict[str, str],
}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a fact's records."""

    name: str
    type: FactType
    meaning: str


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the catalogue: what a fact is called, is, means and is read from."""

    name: str
    type: FactType
    meaning: str
    read: str
    fields: tuple[Field, ...] = ()

    def field(self, name: str) -> Field | None:
        """Its field of that name."""
        return next((field for field in self.fields if field.name == name), None)


class Fact(msgspec.Struct, frozen=True):
    """A value of the type the catalogue says, and where it was read: `file:line` or a command.

    Records are dicts; a field that is absent or None is not known of that record.
    """

    value: Any
    source: str


class UnusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was given and of which nothing was used, and why."""

    file: str
    why: str


class Facts(Mapping[str, Fact]):
    """The facts of one node. `unread` says what could not be read, and why; `unused` are the files
    of which no fact was read."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.unread: list[str] = []
        self.unused: list[UnusedFile] = []
        self._facts: dict[str, Fact] = {}

    @classmethod
    def checked(
        cls, node: str, facts: dict[str, Fact], unread: list[str], unused: list[UnusedFile]
    ) -> "Facts":
        """Facts that `add` has seen before, in another process."""
        made = cls(node)
        made.unread = unread
        made.unused = unused
        made._facts = facts
        return made

    def add(self, name: str, value: Any, source: str) -> None:
        """Put a fact in, over an earlier one of that name.

        A number beyond 64 bits is not read. Raises InputError for a name that the catalogue has
        not, or a value of another type.
        """
        known = catalogue().get(name)
        if known is None:
            raise InputError(
                f"no fact is called {name!r}", where=source, hint=nearest(name, catalogue())
            )
        try:
            _checked(name)(value)
        except msgspec.ValidationError as error:
            if str(error).startswith("Expected `int` "):
                # No counter and no size is so large: damage of a file, which may happen.
                self.unread.append(f"{source}: {name}: a number beyond 64 bits")
                return
            raise InputError(f"{name} is {known.type}: {error}", where=source) from error
        self._facts[name] = Fact(value, source)

    def value(self, name: str) -> Any:
        """The value of a fact, None where it is not known."""
        fact = self._facts.get(name)
        return None if fact is None else fact.value

    def __getitem__(self, name: str) -> Fact:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


@cache
def catalogue() -> Mapping[str, Known]:
    """Every fact by its name, in the order of `facts.toml`."""
    text = files("nccltune.doctor").joinpath("facts.toml").read_text(encoding="utf-8")
    return MappingProxyType(
        {name: _known(name, table) for name, table in tomllib.loads(text).items()}
    )


def _known(name: str, table: dict[str, Any]) -> Known:
    fields = []
    for field, words in table.pop("fields", {}).items():
        kind, _, meaning = words.partition(": ")
        fields.append(Field(name=field, type=FactType(kind), meaning=meaning))
    known = Known(
        name=name,
        type=FactType(table.pop("type")),
        meaning=table.pop("meaning"),
        read=table.pop("read"),
        fields=tuple(fields),
    )
    assert not table, f"{name}: {sorted(table)}"
    assert bool(known.fields) == (known.type is FactType.RECORDS), name
    return known


@cache
def _checked(name: str) -> Any:
    """What checks a value of the fact `name`: strict, so that a number is no text."""
    known = catalogue()[name]
    wanted = _PYTHON.get(known.type)
    if wanted is None:
        # A struct of the record's fields: msgspec names the record and the field that are wrong.
        record = msgspec.defstruct(
            "record",
            [(field.name, _PYTHON[field.type] | None, None) for field in known.fields],
            forbid_unknown_fields=True,
            gc=False,
        )
        wanted = list[record]  # type: ignore[valid-type]
    return lambda value: msgspec.convert(value, wanted, strict=True)
