# SPDX-License-Identifier: Apache-2.0
"""A finding of a rule, and the edits of a command that fix it."""

from typing import NamedTuple

from nccltune.launch_lint.command import Option
from nccltune.model.finding import Severity


class Replace(NamedTuple):
    """Replace an option by other words; no words drop it."""

    option: Option
    words: tuple[str, ...]


class AppendOption(NamedTuple):
    """Add an option at the end of the launcher's options."""

    words: tuple[str, ...]


class SetArgument(NamedTuple):
    """Set an argument of the program, by its letter; None drops it."""

    flag: str
    value: str | None


class SetLead(NamedTuple):
    """Change a variable before the launcher to `text` (NAME=VALUE); None drops it.

    With `add` a missing variable is added.
    """

    name: str
    text: str | None = None
    add: bool = False


class ReplaceArgument(NamedTuple):
    """Replace `length` words of the program, from place `first` on."""

    first: int
    length: int
    words: tuple[str, ...] = ()


class ReplaceLead(NamedTuple):
    """Replace one of the words before the launcher."""

    word: str
    words: tuple[str, ...]


Edit = Replace | AppendOption | SetArgument | SetLead | ReplaceArgument | ReplaceLead


class LaunchFinding(NamedTuple):
    """One problem of a command. `fix` is how to fix it in words; `edits` do so, by `fix.py`."""

    severity: Severity
    id: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()
