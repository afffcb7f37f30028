# SPDX-License-Identifier: Apache-2.0
"""Parse a list of NCCL's plugins with the tuner interfaces that they define.

Each plugin starts with a line `== KIND<tab>NAMED BY<tab>PATH`. The next lines are the output of
`nm -D` or `readelf -Ws`, or only the names.
"""

import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.settings import PluginFile

_HEAD = re.compile(r"^== (?P<kind>net|tuner|profiler|env)\t(?P<named_by>[^\t]*)\t(?P<path>.+)$")
_SYMBOL = re.compile(r"\bncclTunerPlugin(?:_v\d{1,3})?\b")
_UNDEFINED = re.compile(r"^\s*U |\bUND\b")


def parse_plugins(text: str) -> Parsed[PluginFile]:
    """Parse a list of plugins. `unread` counts the lines before the first plugin."""
    found: list[PluginFile] = []
    symbols: set[str] = set()
    unread = 0
    for _, line in lines_of(text):
        match = _HEAD.match(line)
        if match is not None:
            symbols = set()
            found.append(PluginFile(**match.groupdict(), tuner_symbols=[]))
        elif not found:
            unread += 1
        elif not _UNDEFINED.search(line):
            symbols.update(_SYMBOL.findall(line))
            found[-1].tuner_symbols = sorted(symbols)
    return Parsed(found, unread)
