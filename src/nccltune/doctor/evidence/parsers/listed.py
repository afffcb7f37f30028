# SPDX-License-Identifier: Apache-2.0
"""Parse lines of files in the format of `grep -n` (`PATH:NUMBER:LINE`), and settings in them."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_LINE = re.compile(r"^(?P<path>/[^:\n]{1,400}):(?P<number>\d{1,7}):(?P<line>.*)$")
_NO = frozenset({"no", "false", "off", "0", "n", "f"})


class ListedLine(NamedTuple):
    """A line of a file."""

    path: str
    number: int
    text: str


def parse_listed(text: str) -> list[ListedLine]:
    """Return the lines of the form `PATH:NUMBER:LINE`. Other lines are ignored."""
    found = []
    for _, line in lines_of(text):
        match = _LINE.match(line)
        if match is not None:
            found.append(ListedLine(match["path"], int(match["number"]), match["line"]))
    return found


def remove_ipc(lines: list[ListedLine]) -> tuple[bool, str]:
    """Return logind's RemoveIPC and where it is set.

    The last line that sets RemoveIPC is used. The default is yes (logind.conf of systemd 212 and
    newer).
    """
    value, where = True, "systemd-logind's default"
    for line in lines:
        name, sign, text = line.text.partition("=")
        if sign and name.strip() == "RemoveIPC" and text.strip():
            value, where = text.strip().lower() not in _NO, f"{line.path}:{line.number}"
    return value, where
