# SPDX-License-Identifier: Apache-2.0
"""Facts of one node: the values of declared facts, and where each was read.

A fact that could not be read is absent. That is different from a fact that is known to be empty.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from nccltune.doctor.facts.catalogue import catalogue
from nccltune.doctor.facts.declaration import FactName, FactType
from nccltune.model.errors import InputError
from nccltune.model.names import nearest

T = TypeVar("T")
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


class Fact(msgspec.Struct, frozen=True):
    """A value of the declared type, and where it was read: `file:line` or a command.

    Records are dicts. A field that is absent or None is unknown for that record.
    """

    value: Any
    source: str


class UnusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file from the user of which nothing was used, and the reason."""

    file: str
    why: str


class Facts(Mapping[str, Fact]):
    """Facts of one node.

    `unread` lists what could not be read, and why. `unused` lists the files from which no fact was
    read.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.unread: list[str] = []
        self.unused: list[UnusedFile] = []
        self._facts: dict[str, Fact] = {}

    @classmethod
    def checked(
        cls, node: str, facts: dict[str, Fact], unread: list[str], unused: list[UnusedFile]
    ) -> "Facts":
        """Return facts that `add` has already checked in another process."""
        made = cls(node)
        made.unread = unread
        made.unused = unused
        made._facts = facts
        return made

    def add(self, fact: FactName[T], value: T, source: str) -> None:
        """Add a fact. It replaces an earlier value. A number beyond 64 bits is skipped and listed
        in `unread`."""
        self.add_named(fact.name, msgspec.to_builtins(value), source)

    def add_named(self, name: str, value: Any, source: str) -> None:
        """Add a fact by its name, with records as dicts.

        A number beyond 64 bits is skipped and listed in `unread`. Raises InputError for a name that
        is not declared, or for a value of another type.
        """
        known = catalogue().get(name)
        if known is None:
            raise InputError(
                f"no fact is called {name!r}", where=source, hint=nearest(name, catalogue())
            )
        try:
            _checked(name)(value)
        except msgspec.ValidationError as error:
            if _has_large_number(value):
                # No real counter or size is so large. The file is damaged, which is no error of the
                # caller.
                self.unread.append(f"{source}: {name}: a number beyond 64 bits")
                return
            raise InputError(f"{name} is {known.type}: {error}", where=source) from error
        self._facts[name] = Fact(value, source)

    def named(self, name: str) -> Any:
        """Return the value of a fact by its name, with records as dicts, or None if it is
        unknown."""
        known = self._facts.get(name)
        return None if known is None else known.value

    def value(self, fact: FactName[T]) -> T | None:
        """Return the value of a fact, or None if it is unknown."""
        known = self._facts.get(fact.name)
        if known is None:
            return None
        value: T = msgspec.convert(known.value, fact.python)
        return value

    def __getitem__(self, name: str) -> Fact:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


@cache
def _checked(name: str) -> Any:
    """Return the function that checks a value of the fact `name`.

    The check is strict, so a number is not accepted as a text.
    """
    known = catalogue()[name]
    wanted = _PYTHON.get(known.type)
    if wanted is None:
        # Use a struct with the record's fields: then msgspec's error names the record and the
        # field.
        record = msgspec.defstruct(
            "record",
            [(field.name, _PYTHON[field.type] | None, None) for field in known.fields],
            forbid_unknown_fields=True,
            gc=False,
        )
        wanted = list[record]  # type: ignore[valid-type]
    return lambda value: msgspec.convert(value, wanted, strict=True)


def _has_large_number(value: object) -> bool:
    """Return whether a value, or a record in it, has a number beyond 64 bits."""
    if isinstance(value, dict | list | tuple):
        inner = value.values() if isinstance(value, dict) else value
        return any(map(_has_large_number, inner))
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
