# SPDX-License-Identifier: Apache-2.0
"""Define UNKNOWN, the third truth value, and the environment that an expression is evaluated in.

A rule whose expression is UNKNOWN has the verdict "cannot tell". Four functions of `doctor.examine`
return this verdict: `ask`, `_compared`, `_ask_all` and `_asked`. That module's docstring has the
reason of each.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final


class _Unknown:
    """Type of UNKNOWN, which has no truth value.

    So code that forgets to test for UNKNOWN raises TypeError.
    """

    def __bool__(self) -> bool:
        raise TypeError("unknown is neither true nor false")

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = _Unknown()


class Unsure(list[Any]):
    """A list that may lack members, because a filter was UNKNOWN for some members."""


STEPS: Final = 1_000_000
"""Maximum number of list members that all loops of one rule may visit. Real nodes need hundreds."""

TOO_MANY: Final = "(more records than a rule looks at)"
"""Entry among the missing facts of a rule whose loops exceed STEPS."""


class Env:
    """Environment of an evaluation: values of facts, variables, and missing facts.

    `steps` is the number of members that the loops may still visit. It limits the time on damaged
    files. `lines` caches the joined texts of logs, because many rules search the same log.
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
    """Return True, False or UNKNOWN.

    A list is true if it has members. An empty Unsure is UNKNOWN. Other values are true or false as
    in Python.
    """
    if value is True or value is False or value is UNKNOWN:
        return value
    if isinstance(value, Unsure) and not value:
        return UNKNOWN
    return bool(value)
