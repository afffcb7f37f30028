# SPDX-License-Identifier: Apache-2.0
"""Parse limits of a process: `/proc/PID/limits`, or `ulimit -a` of bash and dash."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

UNLIMITED = -1
_PROC = re.compile(r"^Max (?P<name>[a-z]+(?: [a-z]+)*) {2,}(?P<soft>unlimited|\d+) ")
_SHELL = re.compile(r"^[^()]{0,20}\)\s+(?P<soft>unlimited|\d+)$")
# dash prints `locked memory(kbytes)     8192`: no space between name and unit.
_NAMES = {
    "locked memory": "memlock",
    "max locked memory": "memlock",
    "stack size": "stack",
    "stack": "stack",
    "open files": "files",
    "nofiles": "files",
}


class Limit(NamedTuple):
    """A soft limit, and its line number in the text.

    `value` is in KiB for memory, a count for open files, and -1 for unlimited.
    """

    value: int
    line: int


def parse_limits(text: str) -> dict[str, Limit]:
    """Return the limits `memlock`, `stack` and `files` that either format prints."""
    found: dict[str, Limit] = {}
    asked = False
    for number, line in lines_of(text):
        if asked and re.fullmatch(r"unlimited|\d{1,18}", line.strip()):
            value = UNLIMITED if line.strip() == "unlimited" else int(line)
            found.setdefault("memlock", Limit(value, number))
        asked = re.search(r"\bulimit -l *$", line) is not None
        match = _PROC.match(line)
        in_bytes = match is not None
        title, _, rest = line.partition("(")
        name = _NAMES.get(match["name"] if match else title.strip())
        match = match or _SHELL.match(rest.rstrip())
        if match is None or name is None or name in found:
            continue
        value = UNLIMITED if match["soft"] == "unlimited" else int(match["soft"][:18])
        if in_bytes and name != "files" and value > 0:
            value //= 1024
        found[name] = Limit(value, number)
    return found
