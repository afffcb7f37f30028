# SPDX-License-Identifier: Apache-2.0
"""Check containers, and sudo: GPUs, shared memory, and variables that do not reach the program."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Launcher
from nccltune.launch.program import is_nccl_test
from nccltune.launch_lint.boxes import (
    APPTAINERS,
    CLEAN,
    DOCKERS,
    PODS,
    ContainerBox,
    boxes,
    entrypoint_of,
    env_files,
    variables_in,
)
from nccltune.launch_lint.command import View
from nccltune.launch_lint.finding import (
    Edit,
    LaunchFinding,
    ReplaceArgument,
    ReplaceLead,
    SetLead,
    error,
    note,
    warning,
)
from nccltune.launch_lint.hosts import text_of
from nccltune.launch_lint.pods import OF_INTERFACES, absent_interface
from nccltune.launch_lint.words import is_open
from nccltune.model.errors import InputError
from nccltune.model.names import listed
from nccltune.model.numbers import counted
from nccltune.model.sizes import format_bytes, parse_bytes

_DEVICE = re.compile(
    r"nvidia-docker|--runtime[= ]\S*nvidia|nvidia\.com/|/dev/(?:nvidia|kfd|dri)|NVIDIA_VISIBLE"
)
"""Other ways to give a container GPUs; those of AMD are devices, /dev/kfd and /dev/dri."""
_DEFAULT_SHM = 64 << 20
_OWN_IPC = re.compile(r"--ipc[= ](?:private|shareable)\b")
_HIDDEN = r"(?<=\s)(?:\$\{?\w+(?:\[@\])?\}?|\$\(.*\))(?=\s\S)"
"""Words that may hold more options; behind them is the image."""
_FOR_PROCESSES = ("NCCL_", "UCX_", "CUDA_VISIBLE", "FI_", "NCCLTUNE_")
_OF_LAUNCHERS = ("OMPI_", "PMI", "PRTE_", "SLURM_", "FLUX_", "HYDRA_", "I_MPI_")
"""Beginnings of the variables by which the processes of an MPI launcher find each other."""
_MPI = (Launcher.OPENMPI, Launcher.HYDRA, Launcher.SLURM, Launcher.FLUX, Launcher.PALS)


class _Placed(NamedTuple):
    """A box, and where it is: before the launcher, in the launcher's program, or around a shell."""

    box: ContainerBox
    where: str

    def adding(self, *words: str) -> tuple[Edit, ...]:
        """Return the edit that adds options behind the verb."""
        at, all_words = self.box.verb, self.box.words
        verb = all_words[at]
        if self.where == "program":
            return (ReplaceArgument(at, 1, (verb, *words)),)
        is_one = self.where == "lead" and all_words.count(verb) == 1
        return (ReplaceLead(verb, (verb, *words)),) if is_one else ()


def _boxes(view: View) -> Iterator[_Placed]:
    program = [word.text for word in view.command.program]
    end = next((at for at, word in enumerate(program) if is_nccl_test(word)), len(program))
    lead = [word.text for word in view.command.lead]
    for where, words in (("around", view.site.around), ("lead", lead), ("program", program[:end])):
        for box in boxes(words):
            yield _Placed(box, where)


def _docker_runs(view: View) -> Iterator[_Placed]:
    for placed in _boxes(view):
        if placed.box.name in DOCKERS and placed.box.words[placed.box.verb] == "run":
            yield placed


def behind_image(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run vllm/vllm-openai --gpus all`: the image's program gets what is behind it."""
    options = view.command.options if entrypoint_of(view.command.launcher.raw) else ()
    for name in (option.text.partition("=")[0] for option in options):
        if name.startswith("--") and name[2:] in _OPTIONS:
            said = f"{name} stands behind the image, whose program gets it, not docker"
            yield error("container-image", said, "write it before the image")


def gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run` without --gpus, and `apptainer exec` without --nv."""
    for placed in _boxes(view):
        box = placed.box
        heads = {word.partition("=")[0] for word in box.options}
        text = " ".join(box.words)
        if box.name in DOCKERS and box.words[box.verb] == "run":
            is_device = _DEVICE.search(text) is not None
            if heads.intersection(("--gpus", "--privileged")) or is_device:
                continue
            if view.site.in_swarm:
                said = "in a swarm the container gets GPUs only where nvidia is the default runtime"
                fix = 'on those nodes write "default-runtime": "nvidia" in daemon.json'
                yield note("container-without-gpus", said, fix)
                continue
            yield warning(
                "container-without-gpus",
                "the container gets no GPU, unless nvidia is Docker's default runtime",
                "add deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}"
                if box.is_service
                else "add --gpus all after run",
                placed.adding("--gpus", "all"),
            )
        elif box.name in APPTAINERS and view.program is not None:
            is_given = heads.intersection(("--nv", "--nvccli", "--rocm")) or "instance://" in text
            names = [variable.name for variable in view.variables]
            from_variable = any(name.endswith(("_NV", "_NVCCLI")) for name in names)
            if is_given or from_variable or _has_hidden_options(box.options):
                continue
            verb = box.words[box.verb]
            yield warning(
                "container-without-gpus",
                f"the container gets no GPU, unless the site's {box.name}.conf has `always use nv`",
                f"add --nv after {verb}",
                placed.adding("--nv"),
            )


def image(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run ulimit memlock=-1 IMAGE`: the first word that is no option is the image."""
    for box in (placed.box for placed in _docker_runs(view) if not placed.box.is_service):
        name, *behind = [*box.options[box.image :], ""]
        option = name.partition("=")[0]
        if option in _OPTIONS and any(word.startswith("-") for word in behind):
            yield error(
                "container-image",
                f"{box.text} takes {name!r} for the image, and all behind it for its command",
                f"write --{option} and its value",
            )


_OPTIONS = listed("cap-add cpus gpus ipc memory net network privileged shm-size ulimit volume")
"""Names of options of docker run that are neither an image nor a command."""


def too_few_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run --gpus 4 ... torchrun --nproc-per-node=8`."""
    placement, each = view.prediction.placement, view.gpus_per_process
    if placement is None or not placement.nodes or not each:
        return
    if len(placement.nodes) > 1 and any(host.name is not None for host in view.prediction.hosts):
        return  # The processes on other nodes are in other containers.
    for placed in _boxes(view):
        have, processes = placed.box.gpus, 1 if placed.where == "program" else placement.most
        if have is not None and have < processes * each:
            whose = "a process uses" if processes == 1 else f"{processes} processes use"
            yield error(
                "container-gpus",
                f"the container has {counted(have, 'GPU')}, and {whose} {processes * each}:"
                " invalid device ordinal",
                f"give the container {processes * each}, or use {have} in it",
            )


def _has_hidden_options(options: Sequence[str]) -> bool:
    """Return whether a variable before the image may hold options."""
    bare = [word for word in options if word.startswith(("$", "`"))]
    return len(bare) > 1 or (bool(bare) and any(w.endswith((".sif", ".simg")) for w in options))


def shared_memory(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run` with Docker's default of 64 MiB of shared memory."""
    placement = view.prediction.placement
    if placement is not None and placement.most_gpus < 2:
        return
    for placed in _docker_runs(view):
        box, text = placed.box, " ".join(placed.box.words)
        if placed.where == "program":
            continue
        is_shared = "/shm" in text or ("--ipc" in text and not _OWN_IPC.search(text))
        size = _shm_size(text)
        if box.gpus != 1 and not is_shared and size is not None and size <= _DEFAULT_SHM:
            yield warning(
                "container-shm",
                f"the container has {format_bytes(size)} of /dev/shm, which NCCL's shared buffers"
                " may exceed",
                "docker stack deploy ignores ipc and shm_size: add volumes: [{type: tmpfs, target:"
                " /dev/shm}]"
                if view.site.in_swarm
                else "add ipc: host (or shm_size: 8gb)"
                if box.is_service
                else "add --ipc=host (or --shm-size=8g) after run",
                placed.adding("--ipc=host") if "--ipc" not in text else (),
            )


def _shm_size(text: str) -> int | None:
    """Return the bytes of /dev/shm that options of docker give, or None if they are not known."""
    given = re.search(r"--shm-size[= ](\S+)", text)
    with contextlib.suppress(InputError):
        return parse_bytes(given[1]) if given is not None else _DEFAULT_SHM
    return None


def infiniband(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run -e NCCL_IB_HCA=mlx5_0` without the devices of InfiniBand."""
    given = {variable.name: variable.value for variable in view.variables}
    is_off = (
        given.get("NCCL_IB_DISABLE") == "1" or (given.get("NCCL_NET") or "").lower() == "socket"
    )
    placement = view.prediction.placement
    if is_off or (placement is not None and len(placement.nodes) < 2):
        return
    for placed in _docker_runs(view):
        box, text = placed.box, " ".join(placed.box.words)
        if view.site.in_swarm:
            continue  # It ignores devices.
        is_given = re.search(rf"--privileged|infiniband|MOFED|MELLANOX|{_HIDDEN}", text)
        names = given if box.is_service else box.passed
        if "NCCL_IB_HCA" in names and not is_given:
            yield warning(
                "container-infiniband",
                "the container does not get /dev/infiniband: NCCL cannot open what NCCL_IB_HCA"
                " names, and uses sockets",
                'add devices: ["/dev/infiniband:/dev/infiniband"] and ulimits: {memlock: -1}'
                if box.is_service
                else "add --device=/dev/infiniband --ulimit memlock=-1 after run",
                placed.adding("--device=/dev/infiniband", "--ulimit", "memlock=-1"),
            )
        elif placement is None and not is_given and _HOST_NETWORK.search(text):
            if box.is_service and not any(name.startswith("NCCL_") for name in given):
                continue  # A service may be of another kind.
            yield note(
                "container-infiniband",
                "over InfiniBand or RoCE, the container also needs"
                + (" devices: [/dev/infiniband]" if box.is_service else " --device=/dev/infiniband")
                + (" and ulimits: {memlock: -1}" if box.is_service else " --ulimit memlock=-1"),
            )


def own_network(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run IMAGE torchrun --nnodes=2` in a network that other nodes do not reach."""
    placement = view.prediction.placement
    if placement is None or len(placement.nodes) < 2:
        return
    for placed in _docker_runs(view):
        text = " ".join(placed.box.words)
        if not placed.box.is_service and not re.search(rf"--net(?:work)?\b|{_HIDDEN}", text):
            yield warning(
                "container-network",
                "the container has a network of its own, in which other nodes do not reach NCCL",
                "add --network=host after run",
                placed.adding("--network=host"),
            )


def ports(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run -p 80:80 --network host`: the program has the ports of the host itself."""
    for box in (placed.box for placed in _docker_runs(view) if not placed.box.is_service):
        words = list(box.options[: box.image])
        at = next((n for n, word in enumerate(words) if _PUBLISHES.match(word)), None)
        if at is not None and _HOST_NETWORK.search(" ".join(words)):
            said = " ".join(words[at : at + (1 if re.search("[=:]", words[at]) else 2)])
            yield note("container-ports", f"{said} has no effect beside --network=host")


_PUBLISHES = re.compile(r"(?:-p|--publish)(?:$|=|\d)")
_HOST_NETWORK = re.compile(r"--net(?:work)?[= ]host\b")


def own_interface(view: View) -> Iterator[LaunchFinding]:
    """Find `docker run -e NCCL_SOCKET_IFNAME=ens6` in a network of the container's own."""
    given = {variable.name: variable.value or "" for variable in view.variables}
    for box in (placed.box for placed in _docker_runs(view)):
        names = OF_INTERFACES if box.is_service else box.passed.intersection(OF_INTERFACES)
        if not view.site.in_swarm and _OF_OTHERS.search(" ".join(box.words)) is None:
            for name in sorted(given.keys() & names):
                if (why := absent_interface(given[name])) is not None:
                    fix = "add network_mode: host" if box.is_service else "add --network=host"
                    yield warning("container-interface", f"{name}={given[name]}: {why}", fix)


_OF_OTHERS = re.compile(rf"--net(?:work)?[= ](?:host|container|ns)|--extends|{_HIDDEN}")
"""Options with the network of the node or of another container, and what may hold them."""


def not_passed(view: View) -> Iterator[LaunchFinding]:
    """Find `NCCL_ALGO=Ring docker run ...`: the program in the container does not get NCCL_ALGO."""
    for placed in _boxes(view):
        box = placed.box
        texts = [text_of(name, view.site) for name in env_files(box.words)]
        if box.keeps or None in texts or _has_hidden_options(box.options):
            continue
        passed = box.passed | {name for text in texts for name, _ in variables_in(text or "")}
        passed |= set(view.site.boxed) if box.words[box.verb] == "exec" else set()
        outside: dict[str, str | None] = {
            variable.name: variable.value
            for variable in view.variables
            if placed.where == "program" or variable.option is None
        }
        if placed.where == "around":
            outside = dict(view.site.outside)
        for name, value in outside.items():
            if not name.startswith(_FOR_PROCESSES) or name in passed:
                continue
            words, edits = _passing(placed, name, value)
            yield warning(
                "env-not-passed",
                f"{name} is set outside {box.text}, which does not pass it on",
                words,
                edits,
            )


def _passing(placed: _Placed, name: str, value: str | None) -> tuple[str, tuple[Edit, ...]]:
    box = placed.box
    if box.name in DOCKERS or box.name == "enroot":
        return f"add -e {name} after {box.words[box.verb]}", placed.adding("-e", name)
    if box.name in APPTAINERS:
        return f"leave out {'/'.join(CLEAN[::2])}, or add --env {name}={value}", ()
    if box.name in PODS:
        return f"write env {name}={value} after --", ()
    known = value is not None and not is_open(value)
    edits = (SetLead(name), *placed.adding(f"{name}={value}"))
    return f"write {name}={value} after sudo", edits if known else ()


def alone(view: View) -> Iterator[LaunchFinding]:
    """Find `mpirun -n 8 docker run ...`: the processes do not get the launcher's variables."""
    placement = view.prediction.placement
    if view.flavor.launcher not in _MPI or view.program is None:
        return
    if placement is None or placement.processes < 2:
        return
    for placed in _boxes(view):
        box = placed.box
        if placed.where != "program" or box.keeps or env_files(box.words):
            continue
        if _has_hidden_options(box.options):
            continue
        if any(name.startswith(_OF_LAUNCHERS) for name in box.passed):
            continue
        launcher = view.command.launcher.text
        if box.name == "enroot":
            yield note(
                "container-alone",
                f"{box.text} passes {launcher}'s variables on only with enroot's hooks"
                " 50-slurm-pmi and 50-slurm-pytorch: assumed",
            )
            continue
        option = next((word for word in box.options if word in CLEAN), None)
        is_apptainer = box.name in APPTAINERS and option is not None
        what = f"{box.text} {option}" if is_apptainer else box.text
        edits: tuple[Edit, ...] = ()
        if is_apptainer and option == CLEAN[0]:
            edits = (ReplaceArgument(box.words.index(option), 1),)
        yield error(
            "container-alone",
            f"{what} does not pass {launcher}'s variables on: the processes do not find each other,"
            " each is rank 0 of its own test",
            f"leave out {option}" if is_apptainer else f"start {launcher} in the container",
            edits,
        )
