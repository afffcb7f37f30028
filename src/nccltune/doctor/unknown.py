# SPDX-License-Identifier: Apache-2.0
"""What a condition runs on, and how it says that it cannot be decided."""

from collections.abc import Callable, Mapping
from typing import Any, Final


class _Unknown:
    """The one value that stands for "not known"; it has no truth, so that no code forgets it."""

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = _Unknown()


class Unsure(list[Any]):
    """A list that may lack members, since a filter could not be decided for some."""


STEPS: Final = 1_000_000
"""How many members all loops of one condition may look at; a sound node needs some hundred."""

TOO_MANY: Final = "(more records than a rule looks at)"
"""Stands among the missing facts where a condition was given up."""


class Env:
    """What a condition runs on: values of facts, variables, and what turned out to be missing.

    `steps` is what is left of the members that its loops may look at, since collected files are
    foreign. `lines` keeps the joined texts of logs, since many rules search the same one.
    """

    __slots__ = ("facts", "lines", "missing", "names", "steps")

    def __init__(self, facts: Mapping[str, Any], names: dict[str, Any] | None = None) -> None:
        self.facts = facts
        self.names = names or {}
        self.missing: set[str] = set()
        self.lines: dict[int, str] = {}
        self.steps = STEPS


Run = Callable[[Env], Any]


def truth(value: Any) -> Any:
    """True, False or UNKNOWN; a list is true if it has members."""
    if value is True or value is False or value is UNKNOWN:
        return value
    if isinstance(value, Unsure) and not value:
        return UNKNOWN
    return bool(value)
