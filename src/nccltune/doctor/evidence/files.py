# SPDX-License-Identifier: Apache-2.0
"""Read files of a running node below a root folder. No file can block the reader."""

import errno
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


class Unread(Exception):  # noqa: N818  # not an error: most nodes lack most files
    """Reason why a file could not be read. The message is empty if the file does not exist."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises Unread if the file cannot be read, is not a regular file, or is larger.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
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
        # os.read allocates the requested size first, so pieces are small. Files of /proc report
        # size 0 and may be longer.
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
    """Return the text of an item's values and links, and the problems.

    A problem is a file that exists but cannot be read, or more than _MOST_VALUES values. A file for
    which the kernel has no value (EINVAL) is not a problem. At most 20 problems are returned.
    """
    wanted = _devices(root) if item.name == PCI.name else None
    values: list[tuple[str, str]] = []
    problems: dict[str, None] = {}
    for path in _matching(root, item.patterns, wanted):
        try:
            text = _value(root, path)
        except Unread as error:
            cause = error.__cause__
            has_no_value = isinstance(cause, OSError) and cause.errno == errno.EINVAL
            if str(error) and not has_no_value:
                problems.setdefault(f"{path}: {error}")
            continue
        if text and not text.startswith(_EMPTY_GID):
            values.append((path, text))
        if len(values) > _MOST_VALUES:
            problems.setdefault(f"{item.name}: more than {_MOST_VALUES} values")
            break
    links = []
    for path in _matching(root, item.links, wanted):
        try:
            links.append((path, str(Path(f"{root}{path}").readlink())))
        except OSError:
            values.append((path, ""))
    return render_tree(values, links), list(problems)[:20]


def _value(root: Path, path: str) -> str:
    return read_file(below(root, path), _VALUE_BYTES).decode(errors="replace").strip()


def below(root: Path, path: str) -> Path:
    """Return where this process finds `path` of a node whose root folder is `root`."""
    return Path(f"{root}{path}" if root != Path("/") else path)


def _matching(
    root: Path, patterns: tuple[str, ...], wanted: frozenset[str] | None
) -> Iterator[str]:
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
    """Return the paths of the node that match a pattern, sorted.

    Links to folders are followed, because sysfs consists of such links. Path.glob follows links
    only since Python 3.13.
    """
    base = "" if root == Path("/") else str(root)
    found = glob.glob(glob.escape(base) + pattern)  # noqa: PTH207
    return sorted(path[len(base) :] for path in found)


def _devices(root: Path) -> frozenset[str]:
    """Return the bus ids of PCI devices in PCI_CLASSES.

    A server has hundreds of other devices. Reading their files would take too long.
    """
    found = set()
    for path in _matching(root, ("/sys/bus/pci/devices/*/class",), None):
        try:
            if _value(root, path).startswith(PCI_CLASSES):
                found.add(path.split("/")[5])
        except Unread:
            continue
    return frozenset(found)
