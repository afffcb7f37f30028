# SPDX-License-Identifier: Apache-2.0
"""A finding of a rule, and the edits of the command that fix the finding."""

import functools
from typing import NamedTuple

from nccltune.launch_lint.command import Option
from nccltune.model.finding import Severity


class Replace(NamedTuple):
    """Replace an option by `words`. If there are no words, the option is removed."""

    option: Option
    words: tuple[str, ...]


class AppendOption(NamedTuple):
    """Add an option at the end of the launcher's options."""

    words: tuple[str, ...]


class SetArgument(NamedTuple):
    """Set an argument of the program to `value`. If `value` is None, the argument is removed.

    `flag` is the letter of the argument.
    """

    flag: str
    value: str | None


class SetLead(NamedTuple):
    """Change a variable before the launcher to `text` (NAME=VALUE).

    If `text` is None, the variable is removed. With `add`, a missing variable is added. With `old`,
    only words that give the variable this value are changed.
    """

    name: str
    text: str | None = None
    add: bool = False
    old: str | None = None


class ReplaceArgument(NamedTuple):
    """Replace `length` words of the program, from index `first` on, by `words`."""

    first: int
    length: int
    words: tuple[str, ...] = ()


class ReplaceLead(NamedTuple):
    """Replace one word before the launcher by `words`."""

    word: str
    words: tuple[str, ...]


Edit = Replace | AppendOption | SetArgument | SetLead | ReplaceArgument | ReplaceLead


class LaunchFinding(NamedTuple):
    """One problem of a command.

    `fix` describes in words how to fix the problem. `edits` are the same fix for `apply_edits`.
    """

    severity: Severity
    id: str
    message: str
    fix: str = ""
    edits: tuple[Edit, ...] = ()


error = functools.partial(LaunchFinding, Severity.ERROR)
warning = functools.partial(LaunchFinding, Severity.WARNING)
note = functools.partial(LaunchFinding, Severity.NOTE)
