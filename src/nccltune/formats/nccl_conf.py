# SPDX-License-Identifier: Apache-2.0
"""NCCL's configuration file: `NAME=value` lines, read at a process's first call of NCCL.

As `src/misc/param.cc` reads it (2.19 to 2.30): a comment only where `#` is the first character,
and everything behind the first `=` is the value. What the environment sets counts first.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nccltune.model.errors import InputError


def render_conf(settings: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """The text of a file, comments first."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    lines += [f"{name}={value}" for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def read_conf(path: Path) -> dict[str, str]:
    """The settings of a file. Raises InputError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    settings = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            settings[name] = value
    return settings
