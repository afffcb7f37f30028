# SPDX-License-Identifier: Apache-2.0
"""From the words of `nccltune launch` to a job: a file, flags over it, or flags alone."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import stderr

if TYPE_CHECKING:
    from nccltune.launch.flavor import Flavor, Launcher
    from nccltune.launch.job import Job

_FIELDS = {
    "name": "name",
    "nodes": "nodes",
    "gpus_per_node": "gpus_per_node",
    "processes": "processes",
    "interface": "interface",
    "hcas": "hcas",
    "nvls": "nvls",
    "partition": "slurm.partition",
    "account": "slurm.account",
    "time_limit": "slurm.time",
    "mpi": "slurm.mpi",
    "namespace": "kubernetes.namespace",
    "image": "kubernetes.image",
}
"""Key of the job file by the name of its flag."""


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that describe a job."""
    for option in reversed(
        (
            click.option("--name", help="The job's name.  [default: nccl-test]"),
            click.option(
                "--nodes",
                type=int,
                help="Nodes.  [default: as many as --hosts, or Slurm gave to this shell; else 1]",
            ),
            click.option("--gpus-per-node", type=int, help="GPUs of each node.  [default: 8]"),
            click.option(
                "--processes",
                type=click.Choice(["per-gpu", "per-node"]),
                help="A process for each GPU, or one for all of a node.  [default: per-gpu]",
            ),
            click.option(
                "--hosts", help="Names of the nodes: a,b. Slurm and Kubernetes find them."
            ),
            click.option("--interface", help="NCCL_SOCKET_IFNAME."),
            click.option("--hcas", help="NCCL_IB_HCA."),
            click.option("--nvls/--no-nvls", default=None, help="NVLink SHARP on or off."),
            click.option(
                "-x",
                "--env",
                "variables",
                multiple=True,
                metavar="NAME[=VALUE]",
                help="A variable of every process; without a value the one it has here.",
            ),
            click.option("--partition", help="Slurm's partition."),
            click.option("--account", help="Slurm's account."),
            click.option("--time-limit", help="Slurm's time limit, 00:10:00."),
            click.option("--mpi", help="srun's --mpi.  [default: what srun has, PMIx first]"),
            click.option("--image", help="Kubernetes: the image of the pods."),
            click.option("--namespace", help="Kubernetes: the namespace."),
            click.option(
                "--set",
                "settings",
                multiple=True,
                metavar="KEY=VALUE",
                help="Any other key of a job file: slurm.gpus=false, kubernetes.kind=JobSet.",
            ),
        )
    ):
        command = option(command)
    return command


def job_from(words: tuple[str, ...], options: dict[str, Any]) -> "tuple[Job, bool]":
    """The job, and whether it says on how many nodes. `words` is a job file, with a program behind
    it or not, or a program with its arguments. Raises InputError for what cannot be."""
    from nccltune.launch.job import checked, read_toml
    from nccltune.model.errors import InputError

    if not words:
        raise InputError(
            "no job: neither a file nor a program",
            hint="nccltune launch JOB.toml, or nccltune launch -- all_reduce_perf -b 8 -e 1G -f 2",
        )
    raw: dict[str, Any] = {}
    where = "the job"
    if words[0].endswith(".toml"):
        raw, where, words = read_toml(Path(words[0])), words[0], words[1:]
    if words:
        raw["program"] = list(words)
    for option, key in _FIELDS.items():
        if options[option] is not None:
            _put(raw, key, options[option], where)
    put_settings(raw, options["settings"], where)
    if options["hosts"] is not None:
        raw["hosts"] = [host.strip() for host in options["hosts"].split(",") if host.strip()]
        if options["nodes"] is None and "nodes" not in raw:
            raw["nodes"] = len(raw["hosts"])
    for pair in options["variables"]:
        name, equals, value = pair.partition("=")
        if equals:
            _put(raw, f"environment.{name}", value, where)
        else:
            raw.setdefault("inherit", []).append(name)
    return checked(raw, where), "nodes" in raw


def nodes_given(launcher: "Launcher") -> int | None:
    """The nodes of the job of Slurm that this shell is in, which is said; None outside of one, and
    under other launchers."""
    from nccltune.launch.allocation import allocated

    found = allocated(launcher, os.environ)
    if found is None:
        return None
    stderr().print(f"nodes      {found.words}", markup=False, soft_wrap=True)
    return found.nodes


def put_settings(raw: dict[str, Any], settings: Iterable[str], where: str) -> None:
    """Put each KEY=VALUE of `--set` in its place. Raises InputError for what is none."""
    from nccltune.model.errors import InputError

    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: KEY=VALUE")
        _put(raw, key, _value(value), where)


def _put(raw: dict[str, Any], key: str, value: Any, where: str) -> None:
    from nccltune.model.errors import InputError

    # Of a label or a resource the name has dots itself.
    *tables, name = key.split(".", 2)
    inner: Any = raw
    for table in tables:
        inner = inner.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InputError(f"{table} is no table", where=where)
    inner[name] = value


def _value(text: str) -> Any:
    """As TOML reads it, else a string: `--set slurm.gpus=false`, `--set kubernetes.shm=32Gi`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def flavor_from(text: str, known: Sequence[str] | None = None) -> "Flavor":
    """Read `openmpi`, or `openmpi:5` where a version is meant. Raises InputError for others.

    `known` are the names to take: by default those that can start a job.
    """
    from nccltune.launch.flavor import Flavor, Launcher
    from nccltune.model.errors import InputError
    from nccltune.model.names import nearest

    name, _, version = text.partition(":")
    if known is None:
        known = [item.value for item in Launcher if item is not Launcher.TORCHRUN]
    if name not in known:
        other = re.fullmatch(r"([a-z]+)[-=@ ]?(\d+(?:\.\d+)*)", text)
        meant = f"{other[1]}:{other[2]}" if other is not None and other[1] in known else None
        raise InputError(
            f"--launcher: {text!r} is no launcher",
            hint=f"did you mean {meant!r}?" if meant is not None else nearest(name, known),
        )
    try:
        numbers = tuple(int(part) for part in version.split(".")) if version else ()
    except ValueError:
        raise InputError(f"--launcher: {version!r} is no version", hint="openmpi:5") from None
    return Flavor(Launcher(name), numbers)
