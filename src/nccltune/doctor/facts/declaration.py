# SPDX-License-Identifier: Apache-2.0
"""Declare a fact: its name for rules, its type, its meaning and where it is read.

A fact is declared once, as a constant in one of the modules of this package. Code that reads a node
adds the fact by its constant. Rules use its name. The reference page and the checks of the rule
language use `catalogue`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")
R = TypeVar("R", bound="FactRecord")


class FactType(StrEnum):
    """Types of a fact in the rule language.

    Fields of records have the same types, except MAP and RECORDS.
    """

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    TEXTS = "texts"
    INTS = "ints"
    MAP = "map"
    RECORDS = "records"


_TYPES: tuple[tuple[Any, FactType], ...] = (
    (bool, FactType.BOOL),
    (int, FactType.INT),
    (float, FactType.FLOAT),
    (str, FactType.TEXT),
    (list[str], FactType.TEXTS),
    (list[int], FactType.INTS),
    (dict[str, str], FactType.MAP),
)


class FactRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base class of the records of a fact. A field that is None is unknown for that record."""

    def filled(self, other: Self) -> Self:
        """Return a copy whose unknown fields have the values of `other`."""
        return msgspec.structs.replace(
            other, **{k: v for k, v in msgspec.structs.asdict(self).items() if v is not None}
        )


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a fact's records."""

    name: str
    type: FactType
    meaning: str


@dataclass(frozen=True, eq=False)
class FactName(Generic[T]):
    """A declared fact. Its values have the type `T`, which is `python` at run time."""

    name: str
    type: FactType
    python: Any
    meaning: str
    read: str
    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        assert self.name not in _DECLARED, f"{self.name} is declared twice"
        _DECLARED[self.name] = self

    def field(self, name: str) -> Field | None:
        """Return the field of that name, None if there is none."""
        return next((field for field in self.fields if field.name == name), None)


_DECLARED: dict[str, FactName[Any]] = {}


def fact(name: str, type_: type[T], *, meaning: str, read: str) -> FactName[T]:
    """Declare a fact with one value."""
    return FactName(name, _type_of(type_), type_, meaning=meaning, read=read)


def records(name: str, record: type[R], *, meaning: str, read: str) -> FactName[list[R]]:
    """Declare a fact whose value is a list of records."""
    fields = []
    for field, hint in get_type_hints(record, include_extras=True).items():
        assert get_origin(hint) is Annotated, f"{record.__name__}.{field} has no meaning"
        optional, about = get_args(hint)
        (type_,) = (one for one in get_args(optional) if one is not type(None))
        fields.append(Field(name=field, type=_type_of(type_), meaning=about))
    return FactName(
        name,
        FactType.RECORDS,
        list[record],  # type: ignore[valid-type]
        meaning=meaning,
        read=read,
        fields=tuple(fields),
    )


def declared() -> Mapping[str, FactName[Any]]:
    """Return all facts declared so far, by name."""
    return _DECLARED


def _type_of(python: Any) -> FactType:
    return next(type_ for candidate, type_ in _TYPES if candidate == python)
