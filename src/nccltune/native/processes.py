# SPDX-License-Identifier: Apache-2.0
"""Read what `/proc` shows of processes: commands, mapped files, start environments.

Every function takes the folder of a process, `/proc/PID`, and raises OSError where this user may
not look, or the process has ended.
"""

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nccltune.model.errors import InputError, PlatformError

PROC = Path("/proc")
_GONE = " (deleted)"
_STEPS = 400
"""Most components and links of a path that are followed. Linux follows 40 links."""
_OCTAL = re.compile(r"\\([0-7]{3})")


class MappedFile(NamedTuple):
    """A file in the memory of a process. `is_gone`: its path has another file now, or none."""

    path: str
    inode: int
    is_gone: bool


def no_process(pid: int) -> InputError:
    """Return the error for a process that does not exist."""
    return InputError(
        f"there is no process {pid}",
        hint="ids are those of this namespace; one of a container is seen inside it, "
        "and on its host under another number",
    )


def hidden_process(pid: int) -> PlatformError:
    """Return the error for a process that this user may not read."""
    return PlatformError(
        f"process {pid} may not be looked at", hint="run it as that user, or as root"
    )


def process_ids(proc: Path = PROC) -> list[int]:
    """Return the ids of all processes, ascending."""
    return sorted(int(folder.name) for folder in proc.iterdir() if folder.name.isdecimal())


def mapped_files(folder: Path) -> list[MappedFile]:
    """Return the files that a process has mapped, each once."""
    found: dict[MappedFile, None] = {}
    for line in (folder / "maps").read_text("utf-8", "replace").splitlines():
        cells = line.split(None, 5)
        if len(cells) == 6 and cells[5].startswith("/") and cells[4].isdecimal():
            path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), cells[5])
            is_gone = path.endswith(_GONE)
            found[MappedFile(path.removesuffix(_GONE), int(cells[4]), is_gone)] = None
    return list(found)


def memories(folder: Path, name: str) -> Iterator[int]:
    """Yield a descriptor of each memfd `name` that a process holds open, closed after its turn."""
    link = f"/memfd:{name}{_GONE}"
    for path in sorted((folder / "fd").iterdir(), key=lambda path: int(path.name)):
        try:
            if str(path.readlink()) != link:
                continue
            # O_NONBLOCK: the descriptor may by now belong to another file, which could block.
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except FileNotFoundError:
            # The memory or the process has gone since the folder was listed.
            continue
        try:
            if str(Path(f"/proc/self/fd/{fd}").readlink()) == link:
                yield fd
        finally:
            os.close(fd)


def start_environment(folder: Path) -> dict[str, str] | None:
    """Return the environment that a process was started with, without its own changes.

    The first value counts, as for `getenv`. None if its title stands there (`setproctitle`).
    """
    found: dict[str, str] = {}
    raw = (folder / "environ").read_bytes()
    if raw and b"=" not in raw.partition(b"\0")[0]:
        return None
    for entry in raw.split(b"\0"):
        name, sign, value = entry.decode("utf-8", "replace").partition("=")
        if sign:
            found.setdefault(name, value)
    return found


def absolute(folder: Path, path: str) -> str:
    """Return a path that a process uses as an absolute one."""
    return path if path.startswith("/") else f"{(folder / 'cwd').readlink()}/{path}"


def inside(folder: Path, path: str) -> Path:
    """Return where this process finds an absolute path of another, maybe in a container.

    Links are followed below its root; the kernel would follow absolute ones below ours.
    """
    root = current = folder / "root"
    parts = deque(PurePosixPath(path).parts[1:])
    for _ in range(_STEPS):
        if not parts:
            break
        part = parts.popleft()
        if part == "..":
            current = current.parent if current != root else root
            continue
        step = current / part
        if not step.is_symlink():
            current = step
            continue
        target = PurePosixPath(step.readlink())
        current = root if target.is_absolute() else current
        parts.extendleft(reversed(target.parts[target.is_absolute() :]))
    return current


def status_fields(folder: Path) -> dict[str, str]:
    """Return the fields of `/proc/PID/status`."""
    lines = (folder / "status").read_text("utf-8", "replace").splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def own_number(folder: Path) -> int:
    """Return the process id in the process's own namespace, such as that of its container."""
    return int(status_fields(folder).get("NSpid", folder.name).split()[-1])


def is_dead(folder: Path) -> bool:
    """Return whether the process is a zombie: it has ended, but its parent has not reaped it."""
    return status_fields(folder).get("State", "").startswith("Z")


def command_of(folder: Path) -> str:
    """Return the command line in one line; empty if it cannot be read."""
    try:
        raw = (folder / "cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(part.decode("utf-8", "replace") for part in raw.split(b"\0") if part)


def started_at(folder: Path) -> float:
    """Return the start of a process in seconds since 1970, to hundredths; else ValueError."""
    # The name of the program, in brackets, may itself have brackets and blanks.
    ticks = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
    for line in (folder.parent / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    raise ValueError(f"{folder.parent}/stat has no btime")
