# SPDX-License-Identifier: Apache-2.0
"""What a rule finds, and how a command is to be changed for it."""

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


class DropLead(NamedTuple):
    """A variable before the launcher goes."""

    name: str


class DropArgument(NamedTuple):
    """Words of the program that go, by their place."""

    first: int
    length: int


Edit = Replace | Add | SetArgument | DropLead | DropArgument


class Finding(NamedTuple):
    """One thing to say; `mend` is how to mend it in words, `edits` the same for `mend.py`."""

    severity: Severity
    id: str
    message: str
    mend: str = ""
    edits: tuple[Edit, ...] = ()
