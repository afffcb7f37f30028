# SPDX-License-Identifier: Apache-2.0
"""What a rule finds, and how a command is changed to fix it."""

from typing import NamedTuple

from nccltune.launch_lint.command import Option
from nccltune.model.finding import Severity


class Replace(NamedTuple):
    """Other words in the place of an option; none drops it."""

    option: Option
    words: tuple[str, ...]


class AppendOption(NamedTuple):
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
    """Replace one of the words before the launcher."""

    word: str
    words: tuple[str, ...]


Edit = Replace | AppendOption | SetArgument | SetLead | ReplaceArgument | ReplaceLead


class LaunchFinding(NamedTuple):
    """One problem; `fix` is a sentence on how to fix it, `edits` the same for `fix.py`."""

    severity: Severity
    id: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()
