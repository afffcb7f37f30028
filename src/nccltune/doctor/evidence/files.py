# SPDX-License-Identifier: Apache-2.0
"""Files of a running node below a root folder, read so that none of them can hold it up."""

import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nccltune.doctor.evidence.catalogue import PCI, PCI_CLASSES, Values
from nccltune.doctor.evidence.parsers.tree import render_tree

MOST_BYTES = 16 << 20
_VALUE_BYTES = 4096
_MOST_VALUES = 50_000
_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


class Unread(Exception):  # noqa: N818  # a reason, not a failure: most files are not on most nodes
    """A file could not be read; the message says why, and is empty where it is not there."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file, at most `most` bytes. Raises Unread."""
    try:
        # Without O_NONBLOCK a FIFO of that name would wait for somebody to write.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise Unread("") from None
    except (OSError, ValueError) as error:
        raise Unread(getattr(error, "strerror", None) or str(error)) from error
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise Unread("is no regular file")
        parts, size = [], 0
        # Files of /proc say that they are empty; the memory of each read is taken before it.
        piece = min(max(state.st_size + 1, 1 << 14), 1 << 20)
        while size <= most and (data := os.read(handle, min(piece, most + 1 - size))):
            parts.append(data)
            size += len(data)
    except OSError as error:
        raise Unread(error.strerror or str(error)) from error
    finally:
        os.close(handle)
    if size > most:
        raise Unread(f"is larger than {most >> 20} MiB")
    return b"".join(parts)


def read_values(root: Path, item: Values) -> tuple[str, list[str]]:
    """The text of an item's values and links, and what could not be read (other than files that
    are not there, or that the kernel has no value for)."""
    wanted = _devices(root) if item.name == PCI.name else None
    values: list[tuple[str, str]] = []
    problems: dict[str, None] = {}
    for path in _found(root, item.patterns, wanted):
        try:
            text = _value(root, path)
        except Unread as error:
            if str(error) and "Invalid argument" not in str(error):
                problems.setdefault(f"{path}: {error}")
            continue
        if text and not text.startswith(_EMPTY_GID):
            values.append((path, text))
        if len(values) > _MOST_VALUES:
            problems.setdefault(f"{item.name}: more than {_MOST_VALUES} values")
            break
    links = []
    for path in _found(root, item.links, wanted):
        try:
            links.append((path, str(Path(f"{root}{path}").readlink())))
        except OSError:
            values.append((path, ""))
    return render_tree(values, links), list(problems)[:20]


def _value(root: Path, path: str) -> str:
    return read_file(below(root, path), _VALUE_BYTES).decode(errors="replace").strip()


def below(root: Path, path: str) -> Path:
    """`path` of a node whose files stand below `root`."""
    return Path(f"{root}{path}" if root != Path("/") else path)


def _found(root: Path, patterns: tuple[str, ...], wanted: frozenset[str] | None) -> Iterator[str]:
    base = "" if root == Path("/") else str(root)
    for pattern in patterns:
        if "*" not in pattern:
            if os.path.lexists(base + pattern):
                yield pattern
            continue
        if wanted is not None:
            for device in sorted(wanted):
                path = pattern.replace("*", device, 1)
                if os.path.lexists(base + path):
                    yield path
            continue
        yield from matching(root, pattern)


def matching(root: Path, pattern: str) -> list[str]:
    """Paths of the node that match a pattern, sorted. Links to folders are followed, as sysfs is
    made of them, which Path.glob does only from Python 3.13 on."""
    base = "" if root == Path("/") else str(root)
    found = glob.glob(glob.escape(base) + pattern)  # noqa: PTH207
    return sorted(path[len(base) :] for path in found)


def _devices(root: Path) -> frozenset[str]:
    """PCI devices of the classes that are looked at: a server has hundreds of others."""
    found = set()
    for path in _found(root, ("/sys/bus/pci/devices/*/class",), None):
        try:
            if _value(root, path).startswith(PCI_CLASSES):
                found.add(path.split("/")[5])
        except Unread:
            continue
    return frozenset(found)
