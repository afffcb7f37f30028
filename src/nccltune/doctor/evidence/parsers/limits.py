# SPDX-License-Identifier: Apache-2.0
"""Parse limits of a process: `/proc/PID/limits`, `ulimit -a` of bash and dash; `docker inspect`."""

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


_SHM = re.compile(r'"ShmSize": *(\d{1,15})\b')
_OWN_IPC = re.compile(r'"IpcMode": *"(?:private|shareable)?"')
_MEMLOCK = re.compile(r'"Name": *"memlock"[^{}]{0,80}?"Soft": *(-?\d{1,15})\b')
_VARIABLE = re.compile(r'"(?P<name>[A-Z]\w{1,63})=(?P<value>[^"\n]{0,400})"')


class Container(NamedTuple):
    """Bytes of a container's own /dev/shm and limit of locked memory in KiB (-1: none), None where
    not shown; environment variables."""

    shm_bytes: int | None
    memlock_kib: int | None
    environment: tuple[tuple[str, str], ...]


def parse_inspect(text: str) -> Container:
    """Parse the text; of several containers return what all have. With `--ipc=host` docker shows a
    ShmSize, too, that is not in force."""
    parts = re.split(r'"Id": *"', text)
    shown = [_container(part) for part in parts if '":' in part] if len(parts) > 2 else []
    first, *others = shown or [_container(text)]
    return Container(
        first.shm_bytes if all(one.shm_bytes == first.shm_bytes for one in others) else None,
        first.memlock_kib if all(one.memlock_kib == first.memlock_kib for one in others) else None,
        tuple(one for one in first.environment if all(one in o.environment for o in others)),
    )


def _container(text: str) -> Container:
    shm, memlock = set(_SHM.findall(text)), _MEMLOCK.search(text)
    is_own = text.count('"IpcMode"') == len(_OWN_IPC.findall(text)) > 0
    limit = int(memlock[1]) if memlock else None
    return Container(
        int(shm.pop()) if len(shm) == 1 and is_own else None,
        limit // 1024 if limit is not None and limit > 0 else limit,
        tuple((one["name"], one["value"]) for one in _VARIABLE.finditer(text)),
    )
