# SPDX-License-Identifier: Apache-2.0
"""Check launchers of PyTorch: deepspeed, accelerate, and any of them below another launcher."""

import functools
import re
from collections.abc import Iterator

from nccltune.launch.flavor import Launcher
from nccltune.launch_lint.around import OF_DEEPSPEED
from nccltune.launch_lint.command import OF_NODE, LaunchCommand, LaunchContext, Option, View
from nccltune.launch_lint.finding import AppendOption, LaunchFinding, Replace, error, note, warning
from nccltune.launch_lint.hosts import text_of, with_slurm_gpus
from nccltune.launch_lint.options import ACCELERATE, DEEPSPEED, SERVERS, SLURM, TORCHRUN, TRAINERS
from nccltune.launch_lint.rules.shape import BEHIND
from nccltune.launch_lint.rules.torchrun import (
    LOCAL_HOSTS,
    beyond_gpus,
    beyond_nodes,
    is_own,
    not_a_host,
    of_trainer,
)
from nccltune.launch_lint.training import configured, visible
from nccltune.launch_lint.words import is_open, quoted, whole_number
from nccltune.model.scale import count

_SLOTS = re.compile(r"\bslots=")
of_accelerate = functools.partial(of_trainer, flavors=(ACCELERATE,))
of_deepspeed = functools.partial(of_trainer, flavors=(DEEPSPEED,))


def inner_nodes(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -N 2 torchrun --nnodes=4`, and launchers on several nodes that form no job."""
    inner, placement = view.prediction.inner, view.prediction.placement
    if inner is None or placement is None or inner.nodes is None:
        return
    started, outer = placement.processes, view.command.launcher.text
    if started < 2 and inner.nodes < 2:
        return
    if inner.flavor == DEEPSPEED and inner.command.last("no_ssh") is None:
        if started > 1:
            yield error(
                "inner-alone",
                f"{outer} starts deepspeed {started} times, and each starts a whole job",
                f"leave out {outer} and name the hosts (--hostfile), or add --no_ssh"
                " --node_rank=RANK to each",
            )
        return
    if view.prediction.assumed is not None and "assumed" in view.prediction.assumed:
        return
    others = view.site.spreads > 1 or BEHIND.search(view.command.tail) is not None
    if inner.nodes > started and others:
        return  # Other lines, or rounds of a loop, may start it on the other nodes.
    if inner.nodes > started:
        yield error(
            "inner-nodes",
            f"{inner.name} waits for {inner.nodes} nodes, and {outer} starts it"
            f" {'once' if started == 1 else f'{started} times'}",
            f"give {outer} {count(inner.nodes, 'node')}, or {inner.name} {started}",
        )
    elif inner.nodes == 1 and len(placement.nodes) == started:
        # Servers may be meant to be alone.
        yield (note if inner.flavor in SERVERS else warning)(
            "inner-alone",
            f"{outer} starts {inner.name} on {count(started, 'node')}, and none is given the number"
            " of nodes: each is a job of its own",
            f"give {inner.name} the number of nodes, and the address of one of them",
        )


def batch_alone(view: View) -> Iterator[LaunchFinding]:
    """Find `#SBATCH -N 2` and `torchrun --nnodes=2` without srun: only the first node runs it."""
    awaited, batch = view.prediction.awaited, view.site.on_first
    if not awaited:
        return
    is_bare = view.flavor.launcher is Launcher.LOCAL
    name = view.command.program[0].text if is_bare else view.flavor.launcher.value
    nodes = view.site.nodes or 1
    start = _STARTERS.get(batch, f"srun --nodes={nodes} --ntasks-per-node=1")
    if awaited == 1:
        yield warning(
            "batch-alone",
            f"{batch} runs the batch script on the first of {nodes} nodes only, and {name} starts"
            f" there alone: {count(nodes - 1, 'node')} of the job stay{'s' * (nodes == 2)} idle",
            "ask for 1 node, or name the hosts: --hostfile"
            if view.flavor == DEEPSPEED
            else f"ask for 1 node, or start it on each node ({start})"
            if is_bare
            else f"ask for 1 node, or start it once on each node ({start}) and give it the number"
            " of nodes and the address of one",
        )
        return
    rank = view.command.last("node_rank")
    option = rank.words[0].text.partition("=")[0] if rank is not None else ""
    yield error(
        "batch-alone",
        f"{batch} runs the batch script on the first node only: {name} waits there for"
        f" {count(awaited, 'node')}, and nothing starts it on {count(awaited - 1, 'other')}",
        f"start it once on each node ({start})" + (f", each with its own {option}" * bool(option))
        if batch in _STARTERS
        else f"start it once on each node: {start} bash -c '{name} ... {option}=$SLURM_NODEID ...'"
        if option
        else f"start it once on each node: {start} {view.command.launcher.text} ...",
    )


_STARTERS = {"PBS": "mpiexec, pbsdsh or ssh", "LSF": "jsrun, blaunch or ssh"}
"""What starts a program on each node of a job, where it is not srun."""


def idle_trainer_gpus(view: View) -> Iterator[LaunchFinding]:
    """Find `#SBATCH --gpus-per-node=8` and `torchrun --nproc-per-node=4`, if both are stated."""
    inner, placement = view.prediction.inner, view.prediction.placement
    command = inner.command if inner is not None else view.command
    each = inner.each if inner is not None else 1
    if (inner is None and view.flavor not in TRAINERS) or placement is None or each is None:
        return
    named = ("gpus_per_node", "gres")
    found = [view.command.last(name) or view.site.asked(name) for name in named]
    own = view.command if inner is not None else view.command._replace(options=())
    asked, have = next(filter(None, found), None), with_slurm_gpus(own, SLURM, view.site).gpus
    used = placement.most * each
    shown = visible(command, view.site) is not None or "&" in view.command.tail
    if asked is None or have is None or shown or not 0 < used < have:
        return
    name = command.launcher.text if inner is None else inner.name
    yield warning(
        "idle-gpus",
        f"{name} starts {count(used, 'process')} on a node, 1 GPU each, and the job asks for {have}"
        f" GPUs of a node ({asked.text})",
        f"start {have}, or ask for {used}",
    )


def inner_rank(view: View) -> Iterator[LaunchFinding]:
    """Find `srun torchrun --node-rank=$SLURM_NODEID`: the shell of the script reads the variable.

    It is 0 there. Only a shell that srun starts on each node reads the rank of that node.
    """
    inner, placement = view.prediction.inner, view.prediction.placement
    command = inner.command if inner is not None else view.command
    if placement is None or len(placement.nodes) < 2 or not (inner or view.site.on_each):
        return
    rank, backend = command.last("node_rank"), command.last("rdzv_backend")
    rank = rank or _rank_of_file(command, view.site)
    if rank is None or (backend is not None and backend.value != "static"):
        return
    text, outer = rank.text, view.command.launcher.text
    if inner is None:
        if whole_number(rank.value) is not None:
            yield error(
                "inner-rank",
                f"{view.site.on_each} this line on each of {len(placement.nodes)} nodes, and each"
                f" gets {text}",
                "give each node its own rank"
                + ", or add --rdzv-backend=c10d" * (view.flavor == TORCHRUN),
            )
        return
    name = next((name for name in OF_NODE if name in rank.value), None)
    if whole_number(rank.value) is not None:
        why = f"each of {len(placement.nodes)} nodes gets {text}"
    elif name is not None and not inner.on_node and view.flavor.launcher is Launcher.SLURM:
        why = f"the shell of the script replaces ${name} by 0, before {outer} starts"
    else:
        return
    option = rank.words[0].text.partition("=")[0] + (" " if len(rank.words) > 1 else "=")
    yield error(
        "inner-rank",
        f"{why}: every node is node {0 if name else rank.value}",
        "start a shell on each node:"
        f' {outer} bash -c "{inner.name} ... {option}\\$SLURM_NODEID ..."'
        if view.flavor.launcher is Launcher.SLURM
        else f"give each node its own {option.rstrip(' =')}",
    )


def _rank_of_file(command: LaunchCommand, site: LaunchContext) -> Option | None:
    """Return the option that is machine_rank of accelerate's file, where it numbers machines."""
    file, given = command.last("configuration"), configured(command, site)
    text, rank = text_of(file.value, site) if file is not None else None, given.get("node_rank", "")
    # With c10d and with DeepSpeed's own launcher, machines are not numbered by it.
    is_other = text is None or command.hidden or re.search("c10d|pdsh|hostfile|mpirun", text)
    if is_other or (whole_number(given.get("nodes", "")) or 1) < 2 or whole_number(rank) is None:
        return None
    return Option((quoted("--machine_rank"), quoted(rank)), "machine_rank", (rank,), "node_rank")


def master_address(view: View) -> Iterator[LaunchFinding]:
    """Find `export MASTER_ADDR=localhost` where srun or mpirun starts Python on several nodes."""
    placement, launcher = view.prediction.placement, view.flavor.launcher
    script = _SCRIPT.search(text := " ".join(word.text for word in view.command.program))
    nodes = len(placement.nodes) if placement is not None else 0
    is_sure = "assumed" not in (view.prediction.assumed or "") and view.prediction.inner is None
    if launcher not in _PASS_ON or script is None or nodes < 2 or not is_sure:
        return
    given = [variable for variable in view.variables if variable.name == "MASTER_ADDR"]
    # Open MPI passes on what -x names, srun all unless --export limits that.
    export = view.command.last("export") or view.site.asked("export")
    is_all = launcher is not Launcher.OPENMPI and (export is None or "ALL" in export.value)
    is_passed = is_all or any(variable.option is not None for variable in given)
    values = [one.value for one in given if one.value is not None] if is_passed else []
    values += _MASTER.findall(text[: script.end()])
    if values and values[-1] in LOCAL_HOSTS:
        yield warning(
            "master-address",
            f"MASTER_ADDR={values[-1]} on {nodes} nodes: if the program reads it, each node"
            " waits at its own address",
            "name the first node: MASTER_ADDR=$(scontrol show hostnames | head -n 1)"
            if launcher is Launcher.SLURM
            else "name one host that all nodes reach",
        )


def world_size(view: View) -> Iterator[LaunchFinding]:
    """Find `srun -n 16 python t.py --distributed-world-size 2`."""
    placement, text = view.prediction.placement, " ".join(w.text for w in view.command.program)
    stated, script = _WORLD_SIZE.search(text), _SCRIPT.search(text)
    if placement is None or stated is None or script is None or view.prediction.inner is not None:
        return
    # Some programs mean the number of nodes by --world-size.
    is_nodes = not stated[1] and int(stated[2]) == len(placement.nodes)
    if view.flavor.launcher in _PASS_ON and int(stated[2]) < placement.processes and not is_nodes:
        said = (
            f"{view.command.launcher.text} starts {placement.processes} processes, and the program"
        )
        said += f" gets {stated[0]}: where it goes by that, the other ranks fail"
        yield note("world-size", said, f"write {placement.processes}, or leave it out")


_WORLD_SIZE = re.compile(r"--(distributed[-_])?world[-_]size[ =](\d+)(?!\S)")
_PASS_ON = (Launcher.SLURM, Launcher.OPENMPI, Launcher.HYDRA, Launcher.PALS, Launcher.FLUX)
_SCRIPT = re.compile(r"\bpython[\d.]*(?:\s+-[a-zA-Z]+)*?\s+(?:-m\s+)?[\w./]")
_MASTER = re.compile(r"(?<!\S)MASTER_ADDR=[\"']?([^\s\"';&|]*)")


@of_accelerate
def accelerate_total(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find numbers of processes and machines that do not go together."""
    given = configured(command, view.site)
    total, nodes = whole_number(given.get("total", "")), whole_number(given.get("nodes", "1"))
    have = view.site.gpus_per_node
    ids = given.get("gpu_ids", "all")
    named = 0 if ids == "all" or is_open(ids) else len(ids.split(","))
    if not nodes or command.last("cpu") is not None:
        return
    option = command.last("total")
    if total is None:
        if nodes > 1 and "total" not in given and command.last("configuration") is None:
            yield warning(
                "accelerate-total",
                f"without --num_processes accelerate divides the GPUs of one machine by {nodes}",
                f"add --num_processes={nodes * have}",
            )
        return
    each = total // nodes
    if total % nodes:
        yield error(
            "accelerate-total",
            f"{count(total, 'process')} on {nodes} machines: accelerate starts {each} on each,"
            f" {each * nodes} in all",
            f"write --num_processes={nodes * max(1, each)}",
        )
    elif nodes > 1 and total == have and not named:
        yield (warning if view.site.gpus is not None else note)(
            "accelerate-total",
            f"--num_processes is the number on all machines: {each} on each of {nodes}, which have"
            f" {have} GPUs ({view.site.gpus_source})",
            f"write --num_processes={nodes * have}, if each is to use all its GPUs",
        )
    elif each > have and (view.site.gpus is not None or not named):
        right = f"--num_processes={nodes * have}"
        edits = (Replace(option, (right,)),) if option is not None else ()
        yield beyond_gpus(view, each, f"write {right}", edits)
    if 0 < named < each:
        yield error(
            "visible-devices",
            f"gpu_ids {ids} shows {count(named, 'GPU')}, and {count(each, 'process')} use {each}",
            "name as many GPUs as processes",
        )


@of_accelerate
def accelerate_address(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find several machines without a common address, or without a rank for each."""
    given = configured(command, view.site)
    nodes = whole_number(given.get("nodes", ""))
    file = command.last("configuration")
    if nodes is None or nodes < 2 or command.last("hostfile") is not None:
        return
    address, is_read = given.get("master_addr"), file is None or "" in given
    if address is None and is_read:
        yield error(
            "accelerate-address",
            f"{nodes} machines without --main_process_ip have no address to meet at",
            "add --main_process_ip=HOST, with one host for all machines",
        )
    elif address is not None and (found := not_a_host("main_process_ip", address, is_bare=True)):
        yield from found
    elif address is not None and is_own(view, address, given.get("node_rank")):
        yield error(
            "accelerate-address",
            f"--main_process_ip={address}: each of {nodes} machines waits at its own address",
            "name one host that all machines reach",
        )
    rank = given.get("node_rank")
    is_c10d = any("c10d" in value for option in command.options for value in option.values)
    if rank is None and is_read and not is_c10d:
        yield error(
            "accelerate-rank",
            f"{nodes} machines without --machine_rank: accelerate does not number them",
            "add --machine_rank=N, another on each machine",
        )
    elif rank is not None and (whole_number(rank) or 0) >= nodes:
        yield beyond_nodes("accelerate-rank", f"--machine_rank={rank}", nodes, "machine")


@of_deepspeed
def deepspeed_resources(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find --include beside --num_gpus, and a CUDA_VISIBLE_DEVICES that deepspeed ignores."""
    numbers = [o for name in ("nodes", "per_node") for o in command.all(name)]
    filters = [o for name in ("include", "exclude_gpus") for o in command.all(name) if o.value]
    if numbers and filters:
        yield error(
            "deepspeed-resources",
            f"deepspeed refuses {filters[0].words[0].text} beside {numbers[0].words[0].text}",
            "keep one of them",
        )
        return
    written = (view.site.scope.files if view.site.scope is not None else None) or {}
    written = {} if OF_DEEPSPEED in written else written
    named = next((name for name, text in written.items() if _SLOTS.search(text)), None)
    if named is not None and not command.all("hostfile") and not filters:
        yield warning(
            "deepspeed-hostfile",
            f"the script writes hosts to {named}, which deepspeed does not read: without --hostfile"
            " it reads /job/hostfile, and starts on this node alone where there is none",
            f"add --hostfile={named}",
            (AppendOption((f"--hostfile={named}",)),),
        )
    each, have = command.last("per_node"), view.site.gpus_per_node
    number = whole_number(each.value) if each is not None else None
    if each is not None and number is not None and number > have:
        right = (each.words[0].text.partition("=")[0], str(have))
        yield beyond_gpus(view, number, f"write {' '.join(right)}", (Replace(each, right),))
    shown = visible(command, view.site)
    first = ",".join(str(n) for n in range(number or 0))
    if shown is not None and (filters or (numbers and shown != first)):
        yield warning(
            "deepspeed-visible",
            f"deepspeed ignores CUDA_VISIBLE_DEVICES={shown} beside"
            f" {(filters or numbers)[0].words[0].text}",
            f"write --include localhost:{shown} and leave out the variable",
        )
