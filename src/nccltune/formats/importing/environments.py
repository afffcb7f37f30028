# SPDX-License-Identifier: Apache-2.0
"""Read the output of `env` beside outputs of tests, and find the outputs that it is of."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import BinaryIO

from nccltune.formats.reading.context import Context
from nccltune.formats.reading.file_report import FlagKind
from nccltune.formats.reading.runs import RunSamples

_ASSIGNED = re.compile(r"(?:export |declare -x )?(?P<name>[A-Za-z_]\w{0,80})=(?P<value>.{0,4096})$")
_USED = re.compile(r"(?:[NR]CCL_[A-Z0-9_]+|NCCLTUNE_CONFIG|LD_PRELOAD)$")
_OF_SHELL = frozenset({"PATH", "HOME", "PWD", "USER"})
_WORDS = frozenset(
    {"env", "envs", "environ", "environment", "vars", "settings", "log", "txt", "out", "dat",
     "conf", "nccl"}
)  # fmt: skip
_LEAST_SHARE = 0.5

Environments = Mapping[str, Mapping[str, str]]
"""The settings of each environment by the name of its file."""


def is_environment(lines: list[str]) -> bool:
    """Return whether the lines of a text, without blank ones, are those that `env` prints."""
    names = [match["name"] for line in lines if (match := _ASSIGNED.match(line)) is not None]
    whole = len(names) >= _LEAST_SHARE * len(lines) and bool(_OF_SHELL & set(names))
    return whole or (bool(names) and len(names) == len(lines) and any(map(_USED.match, names)))


def settings_in(text: str) -> dict[str, str]:
    """Return the settings in an environment that NCCL, a tuner or the loader reads."""
    found = (_ASSIGNED.match(line.rstrip("\r")) for line in text.split("\n"))
    return {
        match["name"]: match["value"].strip("\"'")
        for match in found
        if match is not None and _USED.match(match["name"])
    }


def environment_of(name: str, environments: Environments) -> Mapping[str, str] | None:
    """Return the settings of the environment whose file is named like the output `name`.

    It lies in the same folder, and what its name has besides words such as `env` is in the other
    name: `env.dat.2` is of `all_reduce_output.dat.2`. None if there is none or several.
    """
    path = PurePath(name)
    own = _parts(path)
    fitting = [
        settings
        for other, settings in environments.items()
        if PurePath(other).parent == path.parent and _parts(PurePath(other)) <= own
    ]
    return fitting[0] if len(fitting) == 1 else None


def _parts(path: PurePath) -> set[str]:
    return set(re.findall(r"[a-z]+|\d+", path.name.lower())) - _WORDS


def read_environment(
    file: BinaryIO,  # noqa: ARG001 - of every reader
    context: Context,
) -> Iterator[RunSamples]:
    """Yield nothing: the settings are used by the outputs that the environment is of."""
    context.report.flag(
        FlagKind.NOTE,
        "the output of env: its NCCL settings are those of outputs with the same number or name",
    )
    yield from ()
