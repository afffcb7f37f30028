# SPDX-License-Identifier: Apache-2.0
"""Build the launch of the bench, or of a user's program, from the options of the command line."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccltune.app.job import key_text, launcher_flavor, read_keys
from nccltune.examples import recording
from nccltune.launch.find import allocated, find, find_wanted, slurm_mpi
from nccltune.launch.flavor import Launcher
from nccltune.launch.job import BENCH, job_from
from nccltune.measure.bench.mps import WITHOUT, MpsDaemon, running_daemon
from nccltune.measure.bench.pods import Pods
from nccltune.measure.bench.process import NO_GPU_HINT, ONE_GPU_HINT, Launch, visible_gpus
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.model.errors import InputError

_PER_GPU, _PER_NODE = "per-gpu", "per-node"


class LaunchRequest(NamedTuple):
    """The options that select the platform; None if an option was not given.

    `gpus` are those of each node, each shared by `ranks_per_gpu`. `settings` are keys of a job file
    as KEY=VALUE.
    """

    emulate_nodes: int | None = None
    ranks_per_gpu: int | None = None
    mps: bool = False
    gpus: int | None = None
    nodes: int | None = None
    nccl: Path | None = None
    replay: str | None = None
    launcher: str | None = None
    settings: Sequence[str] = ()

    @property
    def is_launched(self) -> bool:
        """Return whether a launcher other than `local` starts the processes."""
        return self.launcher not in (None, "local")


class Site(NamedTuple):
    """Where notes of a launch go, and what must be called when the verb ends (`on_close`)."""

    note: Callable[[str], None]
    on_close: Callable[[Callable[[], None]], object]


class RequestKeys(NamedTuple):
    """The KEY=VALUE settings of a request: `others` are all keys but `hosts` and `processes`."""

    hosts: tuple[str, ...]
    per_node: bool
    others: dict[str, Any]


def launch_of(request: LaunchRequest, site: Site) -> Launch:
    """Return the launch of the bench that `request` describes; start an MPS daemon if asked.

    Raises InputError for options that contradict each other and for a single GPU, StudyError for an
    invalid recording, PlatformError if a launcher, a GPU or the MPS daemon is missing.
    """
    keys = keys_of(request)
    under = None
    if request.replay is not None and (
        request.is_launched
        or request.nccl
        or request.gpus
        or request.emulate_nodes
        or request.ranks_per_gpu
        or request.mps
        or keys.per_node
    ):
        raise InputError(
            "takes NCCL, GPUs and nodes from the recording",
            where="‹replay›",
            hint="leave out ‹launcher›, ‹nccl›, ‹gpus›, ‹emulate_nodes›, ‹ranks_per_gpu›, ‹mps› "
            "and ‹settings› processes",
        )
    if request.is_launched:
        if request.emulate_nodes:
            raise InputError("makes nodes of one machine's GPUs", where="‹emulate_nodes›")
        if request.ranks_per_gpu or request.mps:
            raise InputError(
                "is for this machine's GPUs, without ‹launcher›", where="‹ranks_per_gpu›"
            )
        under = _under(request, keys, site)
    elif request.ranks_per_gpu is not None and request.ranks_per_gpu > 1:
        return _shared_gpus(request, keys, site)
    elif request.mps:
        raise InputError("is for ranks that share a GPU", where="‹mps›", hint="add ‹ranks_per_gpu›")
    elif request.gpus == 1:
        raise InputError("one GPU alone has nothing to measure", where="‹gpus›", hint=ONE_GPU_HINT)
    return Launch(
        replay=recording(request.replay) if request.replay else None,
        nccl=request.nccl.absolute() if request.nccl else None,
        gpus=request.gpus,
        emulate_nodes=request.emulate_nodes,
        one_process=keys.per_node,
        with_launcher=under,
    )


def _shared_gpus(request: LaunchRequest, keys: RequestKeys, site: Site) -> Launch:
    """Return the launch of ranks that share GPUs, each an emulated node unless asked otherwise."""
    assert request.ranks_per_gpu is not None
    if keys.per_node:
        raise InputError("needs a process for each rank", where="‹ranks_per_gpu›")
    gpus = request.gpus or visible_gpus(NO_GPU_HINT)
    mps = running_daemon(os.environ)
    if mps is None and request.mps:
        daemon = MpsDaemon()
        site.on_close(daemon.close)
        mps = daemon.variables
    elif mps is None:
        site.note(WITHOUT)
    return Launch(
        nccl=request.nccl.absolute() if request.nccl else None,
        gpus=gpus,
        emulate_nodes=request.emulate_nodes or gpus * request.ranks_per_gpu,
        ranks_per_gpu=request.ranks_per_gpu,
        mps=mps,
    )


def program_launch_of(request: LaunchRequest, site: Site) -> WithLauncher | None:
    """Return the launcher that starts the user's program; None to start it directly.

    Raises InputError for options that contradict each other, PlatformError without the launcher.
    """
    keys = keys_of(request)
    if request.launcher is not None:
        return _under(request, keys, site)
    for option, value in (("‹nodes›", request.nodes), ("‹gpus›", request.gpus)):
        if value is not None:
            raise InputError(
                "is for ‹launcher›",
                where=option,
                hint="without one the PROGRAM is started directly, with its own options",
            )
    return None


def mpi_launch_of(request: LaunchRequest, site: Site) -> WithLauncher:
    """Return the launcher of an MPI program. Raises also InputError for Kubernetes."""
    return _mpirun(request, keys_of(request), site)


def nodes_given(launcher: Launcher, note: Callable[[str], None]) -> int | None:
    """Return, and note, the number of nodes of this shell's Slurm job; None outside one."""
    found = allocated(launcher, os.environ)
    if found is None:
        return None
    note(f"nodes      {found.words}")
    return found.nodes


def keys_of(request: LaunchRequest) -> RequestKeys:
    """Return the KEY=VALUE settings. Raises InputError for one without effect here."""
    others = read_keys(request.settings)
    processes = others.pop("processes", _PER_GPU)
    if processes not in (_PER_GPU, _PER_NODE):
        raise InputError(f"processes={processes}: {_PER_GPU} or {_PER_NODE}", where="‹settings›")
    hosts = tuple(others.pop("hosts", ()))
    for option, value in (("‹nodes›", request.nodes), ("‹settings› hosts", hosts)):
        if value and not request.is_launched:
            raise InputError("is for ‹launcher›", where=option)
    if others and request.launcher != "kubernetes":
        raise InputError(
            "is for ‹launcher› kubernetes",
            where=f"‹settings› {key_text(others)[0].partition('=')[0]}",
        )
    return RequestKeys(hosts, processes == _PER_NODE, others)


def _under(request: LaunchRequest, keys: RequestKeys, site: Site) -> WithLauncher:
    if request.launcher != "kubernetes":
        return _mpirun(request, keys, site)
    if keys.hosts:
        raise InputError("Kubernetes finds the nodes itself", where="‹settings› hosts")
    return _pods(request, keys, site)


def _mpirun(request: LaunchRequest, keys: RequestKeys, site: Site) -> WithLauncher:
    assert request.launcher is not None
    wanted = launcher_flavor(request.launcher)
    if wanted.launcher is Launcher.KUBERNETES:
        raise InputError(
            "starts our bench, and no COMMAND of yours",
            where="‹launcher› kubernetes",
            hint="nccltune launch run and nccltune ab do: "
            "--launcher kubernetes --set image=... -- all_reduce_perf ...",
        )
    found = find_wanted(wanted)
    return WithLauncher(
        found,
        request.nodes or len(keys.hosts) or nodes_given(wanted.launcher, site.note) or 1,
        request.gpus or visible_gpus(NO_GPU_HINT),
        keys.hosts,
        # The launcher `local` starts only one process, which uses all GPUs of the node.
        keys.per_node or wanted.launcher is Launcher.LOCAL,
        slurm_mpi() if wanted.launcher is Launcher.SLURM else None,
    )


def _pods(request: LaunchRequest, keys: RequestKeys, site: Site) -> WithLauncher:
    raw: dict[str, Any] = {"program": [BENCH], "name": "nccltune", "nodes": request.nodes or 1}
    raw["processes"] = _PER_NODE if keys.per_node else _PER_GPU
    if request.gpus is not None:
        raw["gpus_per_node"] = request.gpus
    raw |= keys.others
    job = job_from(raw, "‹launcher› kubernetes")
    pods = Pods(job, lambda line: site.note(f"kubernetes {line}"))
    site.on_close(pods.close)
    found = find(Launcher.KUBERNETES)
    return WithLauncher(found, job.nodes, job.gpus_per_node, per_node=keys.per_node, pods=pods)
