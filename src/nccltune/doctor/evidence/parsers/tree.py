# SPDX-License-Identifier: Apache-2.0
"""Parse values of small files under /sys and /proc, and links.

Values have the format of `grep -H . FILES` (`PATH:VALUE`), links that of `ls -ld`
(`... PATH -> TARGET`).
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import LONGEST_LINE

_LINK = re.compile(r"(?:^|\s)(?P<path>/\S+) -> (?P<target>\S+)$")
_LISTED = re.compile(r"^[-dlcbps][-rwxsStT]{9}[.+@]? .* (?P<path>/\S+)$")
# A bus id, or the name of a root bus (pci0000:3a), in a path.
_BUS_PART = re.compile(
    r"(?:pci)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?(?=[/:]|$)"
)


class Value(NamedTuple):
    """Content of a file, or target of a link, and its line number in the collected text.

    Several lines of a file are joined by LF.
    """

    text: str
    line: int


class Tree(NamedTuple):
    """Values and links by full path, in the order of the text. `unread` counts unknown lines.

    A path that `ls -ld` lists and that is no link has an empty value.
    """

    values: dict[str, Value]
    links: dict[str, Value]
    unread: int

    def get(self, path: str) -> str | None:
        """Return the value of a file, None if it is not in the tree."""
        found = self.values.get(path)
        return None if found is None else found.text

    def children(self, folder: str) -> dict[str, dict[str, str]]:
        """Return the values below `folder`: by name of an entry, then by path below that entry."""
        start = folder.rstrip("/") + "/"
        found: dict[str, dict[str, str]] = {}
        for path, value in self.values.items():
            if path.startswith(start):
                entry, _, rest = path[len(start) :].partition("/")
                found.setdefault(entry, {})[rest] = value.text
        return found

    def link(self, path: str) -> str | None:
        """Return the last part of a link's target, such as the name of a driver, or None."""
        found = self.links.get(path)
        return None if found is None else found.text.rstrip("/").rpartition("/")[2]


def parse_tree(text: str) -> Tree:
    """Parse values and links.

    A bus id in a path contains colons. The value starts after the first colon that is not part of a
    bus id.
    """
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
    # grep prints the path again for each line of a file.
    if before is None:
        values[path] = Value(value, number)
    else:
        values[path] = Value(f"{before.text}\n{value}", before.line)


def render_tree(values: Iterable[tuple[str, str]], links: Iterable[tuple[str, str]]) -> str:
    """Return values and links as the text that `parse_tree` reads."""
    out = [f"{path}:{line}" for path, value in values for line in value.split("\n")]
    out += [f"{path} -> {target}" for path, target in links]
    return "".join(f"{line}\n" for line in out)
