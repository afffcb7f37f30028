# SPDX-License-Identifier: Apache-2.0
"""NCCL's configuration file: `NAME=value` lines, read at a process's first call of NCCL.

As `src/misc/param.cc` reads it (2.19 to 2.30): a comment only where `#` is the first character,
everything behind the first `=` is the value, and what is set already stays: the environment counts
before the file, and the first line of a name before the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nccltune.model.errors import InputError

MAX_BYTES = 1 << 20


def render_conf(settings: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """The text of a file, comments first."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    lines += [f"{name}={value}" for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def conf_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Number (from 1), name and value of each line that sets something."""
    for number, line in enumerate(text.split("\n"), 1):
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            yield number, name, value


def first_settings(text: str) -> dict[str, str]:
    """What a file's text sets."""
    settings: dict[str, str] = {}
    for _, name, value in conf_lines(text):
        settings.setdefault(name, value)
    return settings


def read_conf(path: Path) -> dict[str, str]:
    """Return the settings of a file. Raises InputError where it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise InputError(
            "is larger than 1 MiB", where=str(path), hint="name a file of NAME=value lines"
        )
    return first_settings(text)
