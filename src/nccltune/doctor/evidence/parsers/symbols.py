# SPDX-License-Identifier: Apache-2.0
"""Parse a list of NCCL's plugins with the interfaces that they define.

Each plugin starts with a line `== KIND<tab>NAMED BY<tab>PATH`. The next lines are the output of
`nm -D` or `readelf -Ws`, or only the names.
"""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_HEAD = re.compile(r"^== (?P<kind>net|tuner|profiler|env)\t(?P<named_by>[^\t]*)\t(?P<path>.+)$")
_SYMBOL = re.compile(r"\b(?P<name>nccl(?:Net|CollNet|Tuner|Profiler|Env)Plugin(?:_v\d{1,3})?)\b")
_UNDEFINED = re.compile(r"^\s*U |\bUND\b")


class Plugin(NamedTuple):
    """A plugin file.

    - `kind`: plugin kind that NCCL would load it as
    - `named_by`: setting or folder that leads to it
    - `symbols`: interfaces that it defines
    """

    path: str
    kind: str
    named_by: str
    symbols: tuple[str, ...]
    line: int

    def of(self, *starts: str) -> list[str]:
        """Return the symbols that start with one of `starts`, sorted."""
        return sorted(name for name in self.symbols if name.startswith(starts))


class Plugins(NamedTuple):
    """Plugins of a text. `unread` counts lines before the first plugin."""

    plugins: tuple[Plugin, ...]
    unread: int


def parse_plugins(text: str) -> Plugins:
    """Parse such a text."""
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
