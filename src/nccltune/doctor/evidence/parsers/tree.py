# SPDX-License-Identifier: Apache-2.0
"""Values of small files under /sys and /proc, as `grep -H . FILES` prints them (`PATH:VALUE`), and
links as `ls -ld` prints them (`... PATH -> TARGET`)."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import LONGEST_LINE

_LINK = re.compile(r"(?:^|\s)(?P<path>/\S+) -> (?P<target>\S+)$")
_LISTED = re.compile(r"^[-dlcbps][-rwxsStT]{9}[.+@]? .* (?P<path>/\S+)$")
# A bus id, or the name of a root bus (pci0000:3a), as a part of a path.
_BUS_PART = re.compile(
    r"(?:pci)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?(?=[/:]|$)"
)


class Value(NamedTuple):
    """What a file holds (several lines are parted by LF), and its line in the collected text."""

    text: str
    line: int


class Tree(NamedTuple):
    """Values and links by their whole paths, in the order of the text."""

    values: dict[str, Value]
    links: dict[str, Value]
    unread: int

    def get(self, path: str) -> str | None:
        """The value of a file, None where it is not there."""
        found = self.values.get(path)
        return None if found is None else found.text

    def children(self, folder: str) -> dict[str, dict[str, str]]:
        """Values below `folder`, by the name of its entry and the rest of the path."""
        start = folder.rstrip("/") + "/"
        found: dict[str, dict[str, str]] = {}
        for path, value in self.values.items():
            if path.startswith(start):
                entry, _, rest = path[len(start) :].partition("/")
                found.setdefault(entry, {})[rest] = value.text
        return found

    def link(self, path: str) -> str | None:
        """The last part of a link's target: the name of a driver, a group, a device."""
        found = self.links.get(path)
        return None if found is None else found.text.rstrip("/").rpartition("/")[2]


def parse_tree(text: str) -> Tree:
    """Read such a text. A bus id in a path holds colons too: the value begins behind the first
    colon that is not one of them."""
    values: dict[str, Value] = {}
    links: dict[str, Value] = {}
    unread = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        if len(line) > LONGEST_LINE:
            unread += 1
            continue
        if " -> " in line and (match := _LINK.search(line)) is not None:
            links[match["path"]] = Value(match["target"], number)
            continue
        if line[0] == "/":
            path, sign, value = _parted(line)
            if sign:
                _put(values, path, value, number)
                continue
        match = _LISTED.match(line)
        if match is not None:
            values.setdefault(match["path"], Value("", number))
        elif not line.isspace():
            unread += 1
    return Tree(values, links, unread)


def _parted(line: str) -> tuple[str, str, str]:
    at = line.find(":")
    while at >= 0:
        match = _BUS_PART.match(line, line.rfind("/", 0, at) + 1)
        if match is None or match.end() <= at:
            return line[:at], ":", line[at + 1 :]
        at = line.find(":", match.end())
    return line, "", ""


def _put(values: dict[str, Value], path: str, value: str, number: int) -> None:
    before = values.get(path)
    # grep prints one line of a file at a time.
    if before is None:
        values[path] = Value(value, number)
    else:
        values[path] = Value(f"{before.text}\n{value}", before.line)


def render_tree(values: Iterable[tuple[str, str]], links: Iterable[tuple[str, str]]) -> str:
    """The text of values and links."""
    out = [f"{path}:{line}" for path, value in values for line in value.split("\n")]
    out += [f"{path} -> {target}" for path, target in links]
    return "".join(f"{line}\n" for line in out)
