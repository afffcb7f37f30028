# SPDX-License-Identifier: Apache-2.0
"""Plugins of NCCL with the names of interfaces they define, one after the other in a text.

Each begins with a line `== KIND<tab>NAMED BY<tab>PATH`; below it stands what `nm -D` or
`readelf -Ws` prints of the file, or the names alone.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_HEAD = re.compile(r"^== (?P<kind>net|tuner|profiler|env)\t(?P<named_by>[^\t]*)\t(?P<path>.+)$")
_SYMBOL = re.compile(r"\b(?P<name>nccl(?:Net|CollNet|Tuner|Profiler|Env)Plugin(?:_v\d{1,3})?)\b")
_UNDEFINED = re.compile(r"^\s*U |\bUND\b")


class Plugin(NamedTuple):
    """A plugin: as what it would be loaded, what names it, the interfaces it defines."""

    path: str
    kind: str
    named_by: str
    symbols: tuple[str, ...]
    line: int

    def of(self, *starts: str) -> list[str]:
        """Symbols that begin so, sorted."""
        return sorted(name for name in self.symbols if name.startswith(starts))


class Plugins(NamedTuple):
    """The plugins of a text."""

    plugins: tuple[Plugin, ...]
    unread: int


def parse_plugins(text: str) -> Plugins:
    """Read such a text."""
    found: list[Plugin] = []
    unread = 0
    for number, line in lines_of(text):
        match = _HEAD.match(line)
        if match is not None:
            found.append(Plugin(match["path"], match["kind"], match["named_by"], (), number))
        elif not found:
            unread += 1
        elif not _UNDEFINED.search(line):
            names = [one["name"] for one in _SYMBOL.finditer(line)]
            known = found[-1].symbols
            new = tuple(name for name in names if name not in known)
            found[-1] = found[-1]._replace(symbols=known + new)
    return Plugins(tuple(found), unread)
