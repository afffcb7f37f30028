# SPDX-License-Identifier: Apache-2.0
"""Read and write NCCL's configuration file: `NAME=value` lines.

NCCL reads its files at the first NCCL call of a process (`src/misc/param.cc`, NCCL 2.19 to 2.30):

- A line is a comment only if `#` is its first character.
- The value is everything after the first `=`.
- A setting that is already set is kept. So the environment overrides the file, and the first line
  of a name overrides later lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nccltune.model.errors import InputError

MAX_BYTES = 1 << 20
SYSTEM = "/etc/nccl.conf"


def conf_files(named: str | None, home: str | None) -> list[str]:
    """Return the files that NCCL reads, those whose settings win first.

    `named` is the value of NCCL_CONF_FILE, which replaces the file in the home folder (since 2.23).
    """
    user = named or (f"{home}/.nccl.conf" if home else None)
    return [*([user] if user else []), SYSTEM]


def render_conf(settings: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """Return the text of a configuration file, comments first."""
    lines = [f"# {comment}".rstrip() for comment in comments]
    lines += [f"{name}={value}" for name, value in settings.items()]
    return "".join(f"{line}\n" for line in lines)


def conf_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number (from 1), name and value of each setting."""
    for number, line in enumerate(text.split("\n"), 1):
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            yield number, name, value


def first_settings(text: str) -> dict[str, str]:
    """Return the settings of a configuration file's text.

    If a name is set twice, the first line counts.
    """
    settings: dict[str, str] = {}
    for _, name, value in conf_lines(text):
        settings.setdefault(name, value)
    return settings


def read_conf(path: Path) -> dict[str, str]:
    """Return the settings of a file. Raises InputError if it cannot be read or is too large."""
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
