# SPDX-License-Identifier: Apache-2.0
"""A job: a program, and the nodes and GPUs to run it on. `render` turns it into a command."""

import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from nccltune.launch.placement import Placement, block
from nccltune.model.errors import InputError
from nccltune.model.names import nearest

BENCH = "nccltune-bench"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options for Slurm.

    `mpi` is srun's --mpi; None: what it supports. `gpus` is False where Slurm does not manage them.
    `options` are further ones of sbatch or srun.
    """

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    mpi: str | None = None
    gpus: bool = True
    exclusive: bool = True
    options: list[str] = []


class KubernetesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options for Kubernetes.

    `context` is one of kubectl's configuration, `resources` are limits of a worker besides GPUs
    (`rdma/ib = 1`), `shm` sizes its /dev/shm. `ssh_secret` has the key pair of a JobSet's pods; the
    MPI Operator mounts its own at `ssh_path`, `.ssh` in the home of the image's user.
    """

    kind: Literal["MPIJob", "JobSet"] = "MPIJob"
    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    mpi: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"
    gpu_resource: str = "nvidia.com/gpu"
    resources: dict[str, int | str] = {}
    shm: str = "16Gi"
    ssh_secret: str = "nccl-test-ssh"  # noqa: S105 - a name
    ssh_path: str = "/root/.ssh"
    node_selector: dict[str, str] = {}


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A test to run, and where.

    The arguments of `program` do not contain the GPUs of a process, which follow from `processes`.
    `interface`, `hcas` and `nvls` set NCCL_SOCKET_IFNAME, NCCL_IB_HCA and NCCL_NVLS_ENABLE. Values
    of `inherit` come from the launcher's environment, and stand on no command line.
    """

    program: list[str]
    name: str = "nccl-test"
    nodes: int = 1
    gpus_per_node: int = 8
    processes: Literal["per-gpu", "per-node"] = "per-gpu"
    hosts: list[str] = []
    interface: str | None = None
    hcas: str | None = None
    nvls: bool | None = None
    environment: dict[str, str] = {}
    inherit: list[str] = []
    slurm: SlurmOptions = SlurmOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()

    @property
    def processes_per_node(self) -> int:
        """Return the number of processes on each node."""
        return self.gpus_per_node if self.processes == "per-gpu" else 1

    @property
    def gpus_per_process(self) -> int:
        """Return the number of GPUs that each process drives."""
        return 1 if self.processes == "per-gpu" else self.gpus_per_node

    @property
    def placement(self) -> Placement:
        """Return the placement of the processes on the nodes."""
        return block(self.nodes, self.processes_per_node, self.gpus_per_process, self.hosts)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that the job sets in every process, sorted by name."""
        found = dict(self.environment)
        if self.interface is not None:
            found["NCCL_SOCKET_IFNAME"] = self.interface
        if self.hcas is not None:
            found["NCCL_IB_HCA"] = self.hcas
        if self.nvls is not None:
            found["NCCL_NVLS_ENABLE"] = "1" if self.nvls else "0"
        return dict(sorted(found.items()))

    @property
    def words(self) -> list[str]:
        """Return the program with its arguments and the option for the GPUs of a process."""
        binary = PurePosixPath(self.program[0]).name
        flag = "--gpus-per-process" if binary == BENCH else "-g"
        return [*self.program, flag, str(self.gpus_per_process)]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raises InputError if it is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(
            "is not UTF-8 text", where=f"{path}:{line}", hint="a job file is TOML"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"is not TOML: {error}", where=str(path)) from error


def job_from(raw: object, where: str) -> Job:
    """Return a job from plain values, as read from a job file.

    `where` names the source of the values in messages. Raises InputError for an unknown key, a
    value of a wrong type, and values that contradict each other.

    >>> job_from({"program": ["all_reduce_perf"], "nodes": 2}, "job.toml").placement.ranks
    16
    """
    try:
        job = msgspec.convert(raw, Job)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), where) from error
    check(job, where)
    return job


_UNKNOWN_KEY = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `\$\.?(\w*)`)?")
_TABLES = {"": Job, "slurm": SlurmOptions, "kubernetes": KubernetesOptions}


def _invalid(message: str, where: str) -> InputError:
    every = "docs/reference/job-files.md has every key"
    unknown = _UNKNOWN_KEY.fullmatch(message)
    table = _TABLES.get(unknown[2] or "") if unknown is not None else None
    if unknown is None or table is None:
        return InputError(message, where=where, hint=every)
    key = f"{unknown[2]}.{unknown[1]}" if unknown[2] else unknown[1]
    return InputError(
        f"no key is called {key!r}",
        where=where,
        hint=f"{nearest(unknown[1], table.__struct_fields__)}; {every}",
    )


def check(job: Job, where: str) -> None:
    """Raise InputError, at `where`, for values that are invalid or contradict each other."""
    if not job.program or not job.program[0]:
        raise InputError("program names no binary", where=where)
    for name, number in (("nodes", job.nodes), ("gpus_per_node", job.gpus_per_node)):
        if number < 1:
            raise InputError(f"{name} is {number}; at least 1", where=where)
    if job.hosts and len(job.hosts) < job.nodes:
        raise InputError(
            f"hosts names {len(job.hosts)} for {job.nodes} nodes",
            where=where,
            hint="name one for each node, or none where the launcher finds them",
        )
    if len(set(job.hosts)) < len(job.hosts):
        raise InputError("hosts names one twice", where=where)
    _check_names(job, where)
    _check_variables(job, where)
    for flag in ("-g", "--ngpus", "--gpus-per-process"):
        given = re.compile(rf"{flag}(=.*|\d+)?")
        if any(given.fullmatch(word) for word in job.program[1:]):
            raise InputError(
                f"program has {flag}, which follows from processes = {job.processes!r}",
                where=where,
                hint="leave it out",
            )


def _check_names(job: Job, where: str) -> None:
    if not _NAME.fullmatch(job.name):
        raise InputError(
            f"name {job.name!r}: small letters, digits and - inside, at most 50",
            where=where,
            hint="Kubernetes takes no other",
        )
    for host in job.hosts:
        if not _HOST.fullmatch(host):
            raise InputError(f"{host!r} is no host", where=where, hint="one name each, no :8")


def _check_variables(job: Job, where: str) -> None:
    for name in [*job.environment, *job.inherit]:
        if not _VARIABLE.fullmatch(name):
            raise InputError(f"{name!r} is no name of a variable", where=where)
    for name in job.inherit:
        if name in job.variables:
            raise InputError(f"{name} is inherited and given", where=where, hint="leave out one")
    for key, name in (
        ("interface", "NCCL_SOCKET_IFNAME"),
        ("hcas", "NCCL_IB_HCA"),
        ("nvls", "NCCL_NVLS_ENABLE"),
    ):
        if getattr(job, key) is not None and name in job.environment:
            raise InputError(f"{key} and {name} both set it", where=where, hint="leave out one")
