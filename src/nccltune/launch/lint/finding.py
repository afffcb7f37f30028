# SPDX-License-Identifier: Apache-2.0
"""What a rule finds, and how a command is changed to fix it."""

from enum import StrEnum
from typing import NamedTuple

from nccltune.launch.lint.command import Option


class Severity(StrEnum):
    """An error does not do what it says; a warning rarely does; a note is good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Replace(NamedTuple):
    """Other words in the place of an option; none drops it."""

    option: Option
    words: tuple[str, ...]


class Add(NamedTuple):
    """One more option, at the end of the launcher's."""

    words: tuple[str, ...]


class SetArgument(NamedTuple):
    """An argument of the program, by its letter; None drops it."""

    flag: str
    value: str | None


class SetLead(NamedTuple):
    """A variable before the launcher: `text` is NAME=VALUE in its place, None drops it.

    A variable that is not there is added where `add` is set.
    """

    name: str
    text: str | None = None
    add: bool = False


class ReplaceArgument(NamedTuple):
    """Words of the program by their place, and the words that take their place."""

    first: int
    length: int
    words: tuple[str, ...] = ()


class ReplaceLead(NamedTuple):
    """Other words in the place of one that stands before the launcher."""

    word: str
    words: tuple[str, ...]


Edit = Replace | Add | SetArgument | SetLead | ReplaceArgument | ReplaceLead


class Finding(NamedTuple):
    """One problem; `fix` says in words how to fix it, `edits` the same for `fix.py`."""

    severity: Severity
    id: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()
