# SPDX-License-Identifier: Apache-2.0
"""Build a job from the command line.

The command line names a job file, a program, or both. Options override settings of the job file.
"""

import datetime as dt
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccltune.launch.flavor import STARTED, Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions, SlurmOptions, job_from, read_toml
from nccltune.model.errors import InputError
from nccltune.model.names import nearest

_SUBMITTED = re.compile(rb"^#(?:SBATCH|PBS|BSUB|FLUX:|OAR|COBALT) |^apiVersion: *\S", re.M)
"""What sbatch, qsub, bsub, flux or kubectl is given: it has a launch command of its own."""
_TABLES = {"slurm": SlurmOptions, "kubernetes": KubernetesOptions}
_LISTS = ("hosts", "inherit")
"""Keys with a list as value, which may be written as `a,b`."""


class JobRequest(NamedTuple):
    """A job as the command line describes it.

    `words` are a job file, a program with its arguments, or both. `settings` are KEY=VALUE,
    `variables` NAME=VALUE, or NAME to inherit it.
    """

    words: Sequence[str]
    nodes: int | None = None
    gpus: int | None = None
    settings: Sequence[str] = ()
    variables: Sequence[str] = ()


def job_of(request: JobRequest) -> tuple[Job, bool]:
    """Return the job, and whether the request states the number of nodes. Raises InputError."""
    words = request.words
    if not words:
        raise InputError(
            "no job: neither a file nor a program",
            hint="nccltune launch run JOB.toml, or nccltune launch run -- all_reduce_perf -b 8 "
            "-e 1G -f 2",
        )
    raw: dict[str, Any] = {}
    where = "the job"
    if words[0].endswith(".toml"):
        raw, where, words = read_toml(Path(words[0])), words[0], words[1:]
    elif _is_submitted(Path(words[0])):
        raise InputError(
            "is a script of a scheduler or a manifest, neither a program nor a job file",
            where=words[0],
            hint=f"nccltune lint {words[0]} checks it; a job file is TOML",
        )
    if words:
        raw["program"] = list(words)
    if request.nodes is not None:
        raw["nodes"] = request.nodes
    if request.gpus is not None:
        raw["gpus_per_node"] = request.gpus
    named = put_settings(raw, request.settings, where)
    if "hosts" in named and request.nodes is None and "nodes" not in named:
        raw["nodes"] = len(raw["hosts"])
    for pair in request.variables:
        name, equals, value = pair.partition("=")
        if equals:
            _put(raw, f"environment.{name}", value, where)
        else:
            raw.setdefault("inherit", []).append(name)
    return job_from(raw, where), "nodes" in raw


def _is_submitted(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _SUBMITTED.search(file.read(1 << 16)) is not None
    except (OSError, ValueError):
        return False


def put_settings(raw: dict[str, Any], settings: Iterable[str], where: str) -> list[str]:
    """Put each KEY=VALUE into the nested dict `raw`; return the full keys.

    A key needs its table only if `slurm` and `kubernetes` both have it. Raises InputError.
    """
    keys = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError("KEY=VALUE", where=f"‹settings› {setting}")
        key = _full_key(key)
        found = _value(value)
        if key in _LISTS and isinstance(found, str):
            found = [part.strip() for part in found.split(",") if part.strip()]
        _put(raw, key, found, where)
        keys.append(key)
    return keys


def read_keys(settings: Iterable[str]) -> dict[str, Any]:
    """Return KEY=VALUE settings as the nested dict that a job file with them would give."""
    raw: dict[str, Any] = {}
    put_settings(raw, settings, "‹settings›")
    return raw


def _full_key(key: str) -> str:
    """Return a key with its table. Raises InputError if both tables have it."""
    if "." in key or key in Job.__struct_fields__:
        return key
    tables = [name for name, table in _TABLES.items() if key in table.__struct_fields__]
    if len(tables) > 1:
        raise InputError(
            f"{' and '.join(tables)} both have it",
            where=f"‹settings› {key}",
            hint=f"name one: {' or '.join(f'{table}.{key}' for table in tables)}",
        )
    return f"{tables[0]}.{key}" if tables else key


def _put(raw: dict[str, Any], key: str, value: Any, where: str) -> None:
    # Split at two dots at most: names of Kubernetes labels and resources contain dots themselves.
    *tables, name = key.split(".", 2)
    inner: Any = raw
    for table in tables:
        inner = inner.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InputError(f"{table} is no table", where=where)
    inner[name] = value


def _value(text: str) -> Any:
    """Return `text` as a TOML value, or as a string if it is not valid TOML (`32Gi`) or a date."""
    try:
        found = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return text if isinstance(found, dt.date | dt.time) else found


def launcher_flavor(text: str, known: Sequence[str] | None = None) -> Flavor:
    """Return the launcher for a name such as `openmpi` or `openmpi:5`. Raises InputError."""
    name, _, version = text.partition(":")
    if known is None:
        known = [item.value for item in STARTED]
    if name not in known:
        other = re.fullmatch(r"([a-z]+)[-=@ ]?(\d+(?:\.\d+)*)", text)
        meant = f"{other[1]}:{other[2]}" if other is not None and other[1] in known else None
        raise InputError(
            f"{text!r} is no launcher",
            where="‹launcher›",
            hint=f"did you mean {meant!r}?" if meant is not None else nearest(name, known),
        )
    try:
        numbers = tuple(int(part) for part in version.split(".")) if version else ()
    except ValueError:
        raise InputError(
            f"{version!r} is no version", where="‹launcher›", hint="openmpi:5"
        ) from None
    return Flavor(Launcher(name), numbers)


def key_text(raw: Mapping[str, Any]) -> list[str]:
    """Return the values of a nested dict as texts such as `slurm.partition=x`, for messages."""
    found = []
    for key, value in raw.items():
        if isinstance(value, dict):
            found += [f"{key}.{inner}" for inner in key_text(value)]
        else:
            found.append(f"{key}={value}")
    return found
