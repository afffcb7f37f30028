# SPDX-License-Identifier: Apache-2.0
"""Predict how many processes a launcher starts on each host.

Every case here was tried with Open MPI 4.1.4 and 5.0.11, MPICH's hydra 4.0.2 and Intel MPI
2021.18.1.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import NodePlacement, Placement
from nccltune.launch.program import is_nccl_test
from nccltune.launch_lint.command import Host, LaunchCommand, LaunchContext, Option, Prediction
from nccltune.launch_lint.hosts import (
    MAX_PROCESSES,
    host_list_fault,
    hosts_elsewhere,
    hosts_of,
    is_node_count,
    parts_of,
    slots_fault,
)
from nccltune.launch_lint.options import ON_JOB, OPENMPI_4, SLURM, TRAINERS
from nccltune.launch_lint.scheduled import predict_on_job
from nccltune.launch_lint.training import on_first, predict_training
from nccltune.launch_lint.words import is_open, substitution_end, whole_number
from nccltune.model.scale import count

SEVERAL = "the words around the command are for several nodes; it does not say how many: --nodes"
_INTEGER = re.compile("[+-]?[0-9]{1,18}")


class PlacementOptions(NamedTuple):
    """Numbers of processes that options set, None for a number that is not set.

    `per_part` is the number on each `part` of a node (`ppr:4:socket`). `unknown` is the reason why
    the numbers cannot be known, or None. `processes` is then their total, if only their nodes are
    unknown.
    """

    total: int | None = None
    per_node: int | None = None
    by_node: bool = False
    oversubscribe: bool = False
    unknown: str | None = None
    processes: int | None = None
    per_part: int | None = None
    part: str = "socket"


def predict(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext, gpus: int | None
) -> Prediction:
    """Return what the launcher `flavor` does with a command.

    `gpus` is the number of GPUs per process, or None if unknown.

    >>> from nccltune.launch_lint.read import read
    >>> from nccltune.launch_lint.words import split
    >>> (line,) = split("mpirun -N 8 -n 2 all_reduce_perf")
    >>> command = read(line, (OPENMPI_4,))[OPENMPI_4]
    >>> predict(command, OPENMPI_4, LaunchContext(nodes=2), 1).placement.processes
    2
    """
    if flavor.launcher is Launcher.LOCAL:
        one = (Host(None, 1),)
        if site.ran and gpus == 1:
            why = "the table is of several ranks, and this command alone starts one"
            return Prediction(None, one, unknown=why)
        if site.rank:
            why = f"the script reads {site.rank}: a launcher that is not shown starts it"
            return Prediction(None, one, unknown=why)
        found = Prediction(Placement((NodePlacement(None, 1),), gpus or 1), one)
        return on_first(found, command, site) if gpus is not None else found
    if flavor in TRAINERS:
        return predict_training(command, flavor, site)
    if flavor in ON_JOB and command.hidden is not None:
        return Prediction(None, (), unknown=command.hidden)
    if flavor in ON_JOB:
        return predict_on_job(command, flavor, site, gpus)
    ask, hosts, assumed = _asked(command, flavor, site, gpus or 1)
    if ask.unknown is not None:
        return Prediction(None, hosts, unknown=ask.unknown, processes=ask.processes)
    if site.part:
        why = f"this is program {site.part} of the command"
        return Prediction(None, hosts, unknown=why, processes=ask.total)
    refused = [option.words[0].text for option in command.options if option.meaning is None]
    if refused:
        return Prediction(None, hosts, fails=f"{refused[0]} is refused", assumed=assumed)
    if flavor.is_intel and ask.per_node is None and len(hosts) > 1 and not slots_count(command):
        why = "Intel MPI puts as many on a node as it has cores, and reads no ':8'; set -ppn"
        return Prediction(None, hosts, unknown=why, processes=ask.total)
    counts = _counts(ask, hosts, flavor, site)
    # The slots of nodes without a name are the GPUs of one, which other programs do not need.
    is_assumed = site.slots is None and gpus is None and all(host.name is None for host in hosts)
    if isinstance(counts, str) and (site.ran or is_assumed):
        why = "the slots of the hosts are not known here"
        return Prediction(None, hosts, unknown=why, processes=ask.total)
    if isinstance(counts, str):
        return Prediction(None, hosts, fails=counts, assumed=assumed)
    nodes = tuple(
        NodePlacement(host.name, number)
        for host, number in zip(hosts, counts, strict=True)
        if number
    )
    return Prediction(Placement(nodes, gpus or 1), hosts, assumed=assumed)


def _fills_cores(ask: PlacementOptions, hosts: Sequence[Host], site: LaunchContext) -> bool:
    """Return whether the cores of the first host, which are unknown, decide where ranks start."""
    is_open = len(hosts) > 1 and any(host.slots is None and host.name for host in hosts)
    is_few = ask.total is not None and ask.total <= site.gpus_per_node
    return is_open and ask.per_node is None and not ask.by_node and not is_few


def _asked(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext, gpus: int
) -> tuple[PlacementOptions, tuple[Host, ...], str | None]:
    """Return the numbers that a command asks for, its hosts, and what is assumed about them."""
    ask = placement_options(command, flavor, site)
    hosts, assumed = hosts_of(command, flavor, site, ask.total, ask.per_node, gpus)
    if ask.unknown is None and not hosts:
        ask = ask._replace(unknown="no host is named")
    doubt = _hosts_unknown(command, flavor, site, is_one=assumed is not None and len(hosts) == 1)
    is_mpi = flavor.launcher is not Launcher.SLURM
    if doubt is None and is_mpi and assumed is not None and ask.total is None:
        doubt = _hosts_unshown(ask)
    elif doubt is None and is_mpi and assumed is not None and ask.per_node is None:
        filled = hosts[0].slots or 1
        if len(hosts) > 1 and ask.total is not None and ask.total % filled:
            doubt = f"they fill no whole nodes of {filled}: --nodes or --set hosts=A,B"
        elif site.named_nodes and len(hosts) not in site.named_nodes:
            doubt = f"the text names {_listed(site.named_nodes)}: --nodes or --set hosts=A,B"
        elif len(hosts) > 1 and gpus > 1 and not site.in_job:
            doubt = "no hosts are named: --nodes or --set hosts=A,B"
    if doubt is None and is_mpi and _slots_unshown(ask, site):
        doubt = "-n is not given, and the job has neither --ntasks nor --ntasks-per-node"
    if doubt is None and flavor.launcher is Launcher.OPENMPI and _fills_cores(ask, hosts, site):
        doubt = "a host without slots= takes as many as it has cores; -N 8 starts 8 on each"
    if doubt is not None:
        is_known = ask.total is not None and ask.per_node is not None and doubt == SEVERAL
        return _without_hosts(ask, doubt), hosts, assumed if is_known else doubt
    if site.ran and ask.total is None and ask.per_node is None:
        ask = _without_hosts(ask, "the command does not say it, and the table is of a job's run")
    if ask.per_part is not None:
        ask, assumed = _of_parts(ask, hosts, assumed)
    return ask, hosts, assumed


def _hosts_unknown(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext, *, is_one: bool
) -> str | None:
    """Return why the hosts are not known, or None. `is_one` tells that one node is assumed."""
    if (file := hosts_elsewhere(command, flavor, site)) is not None:
        return f"the hosts are in {file}, which is not here: --nodes or --set hosts=A,B"
    return SEVERAL if site.several and is_one else None


def _slots_unshown(ask: PlacementOptions, site: LaunchContext) -> bool:
    """Return whether as many processes start as slots, and Slurm's job does not show these."""
    is_bare = ask.total is None and ask.per_node is None and ask.per_part is None
    return is_bare and bool(site.inherited) and site.slots is None


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers of nodes in words: `2, 4 and 8 nodes`."""
    *first, last = sorted(set(numbers))
    words = count(last, "node")
    return f"{', '.join(map(str, first))} and {words}" if first else words


def _hosts_unshown(ask: PlacementOptions) -> str:
    each = ask.per_part or ask.per_node or "as many as slots"
    where = f"{ask.part} of every node" if ask.per_part else "node"
    return f"{each} on every {where} that the launcher is given, which are not shown: --nodes"


def _without_hosts(ask: PlacementOptions, why: str) -> PlacementOptions:
    """Return the numbers of a command whose hosts are unknown: `-n 16 -N 8` is 2 of them."""
    if ask.unknown is not None or ask.total == 1 or (ask.total and ask.per_node):
        return ask
    return ask._replace(unknown=why, processes=ask.total)


def _counts(
    ask: PlacementOptions, hosts: Sequence[Host], flavor: Flavor, site: LaunchContext
) -> list[int] | str:
    """Return the number of processes on each host, or the reason why none starts."""
    if flavor.launcher is Launcher.OPENMPI:
        most = max(site.gpus_per_node, ask.per_node or 0, ask.total or 0 if ask.by_node else 0)
        slots = [most if host.slots is None else host.slots for host in hosts]
        return openmpi(ask, slots, flavor == OPENMPI_4)
    if flavor.launcher is Launcher.HOROVOD:
        return openmpi(ask, [host.slots or 1 for host in hosts], is_4=True)
    if flavor.launcher is Launcher.HYDRA:
        return hydra(ask, [1 if host.slots is None else host.slots for host in hosts])
    return slurm(ask, len(hosts))


def placement_options(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext
) -> PlacementOptions:
    """Return the numbers of processes that the options set."""
    is_openmpi = flavor.launcher is Launcher.OPENMPI
    kinds = ("rankfile", "multi_prog", *(() if is_openmpi else ("per_socket", "elastic")))
    unread = [o for name in kinds for o in command.all(name)]
    unknown = f"{unread[0].words[0].text} is given, which this does not read" if unread else None
    total = _number(command.last("total") or _inherited(site, "total", flavor))
    per_node = _number(command.last("per_node") or _inherited(site, "per_node", flavor))
    if command.last("one_per_node"):
        per_node = 1
    if per_node is None and flavor.is_intel:
        words = (word.text.partition("=")[::2] for word in command.lead)
        per_node = whole_number(dict((*site.exported, *words)).get("I_MPI_PERHOST", ""))
    of_gpu = _number(command.last("ntasks_per_gpu") or _inherited(site, "ntasks_per_gpu", flavor))
    if total is None and per_node is None and isinstance(of_gpu, int):
        per_node = of_gpu * site.gpus_per_node
    per_part = _number(command.last("per_socket")) if is_openmpi else None
    mapping = command.last("map_by") if is_openmpi else None
    mapped = _mapped(mapping.value if mapping is not None else "")
    by_node = bool(command.last("by_node")) or mapped.by_node
    over = bool(command.last("oversubscribe")) or mapped.oversubscribe
    per_node = per_node if mapped.per_node is None else mapped.per_node
    per_part = per_part if mapped.per_part is None else mapped.per_part
    unknown = unknown or mapped.unknown
    if flavor.launcher is Launcher.HOROVOD and total is None and site.gpus is None:
        unknown = "without -np one for each GPU of a job of LSF; elsewhere horovodrun refuses"
    unknown = unknown or (command.hidden if total is None and per_node is None else None)
    unknown = _unknown_nodes(command, site, flavor) or unknown
    if taken := [o.words for o in command.options if any(map(is_nccl_test, o.values))]:
        unknown = f"{taken[0][0].text} takes {taken[0][-1].text} for its value"
        total = None
    processes = total if isinstance(total, int) else None
    counted = ((per_part, f"processes per {mapped.part}"), (per_node, "processes per node"))
    for number, what in (*counted, (total, "processes")):
        if isinstance(number, str):
            unknown = f"the number of {what} is {number!r}"
        elif number is not None and not 0 <= number <= MAX_PROCESSES:
            unknown, processes = f"the number of {what} is {number}", None
    if unknown is not None:
        if isinstance(total, str) and isinstance(per_node, int):
            unknown = f"{per_node} on each node are asked for, and {unknown}"
        return PlacementOptions(unknown=unknown, processes=processes)
    assert not isinstance(total, str)
    assert not isinstance(per_node, str)
    assert not isinstance(per_part, str)
    return PlacementOptions(total, per_node, by_node, over, per_part=per_part, part=mapped.part)


def _mapped(value: str) -> PlacementOptions:
    """Return what the value of Open MPI's --map-by sets."""
    policy, _, more = value.lower().partition(":")
    over = "oversubscribe" in more.split(":")
    if policy in ("seq", "rankfile"):
        return PlacementOptions(oversubscribe=over, unknown=f"{value} reads a file")
    if policy != "ppr":
        return PlacementOptions(by_node=policy == "node", oversubscribe=over)
    match = re.fullmatch(r"([0-9]{1,18}):(\w+)(?::.*)?", more)
    if match is None or match[2] not in ("node", *_PARTS):
        return PlacementOptions(unknown=f"{value} depends on sockets and cores")
    if match[2] == "node":
        return PlacementOptions(per_node=int(match[1]), oversubscribe=over)
    part = match[2].replace("numa", "NUMA domain")
    return PlacementOptions(oversubscribe=over, per_part=int(match[1]), part=part)


_PARTS = ("socket", "package", "numa")
_MOST_PARTS = 8
"""NUMA domains of the nodes that have most."""


def _of_parts(
    ask: PlacementOptions, hosts: Sequence[Host], assumed: str | None
) -> tuple[PlacementOptions, str | None]:
    """Return the numbers of `ppr:4:socket` for nodes with as many parts as their slots need."""
    each = ask.per_part or 1
    slots = {host.slots for host in hosts}
    room = slots.pop() if len(slots) == 1 else None
    if ask.total is not None and hosts and ask.total % len(hosts) == 0:
        room = ask.total // len(hosts)
    elif assumed is not None:
        room = None
    parts = room // each if room is not None and room % each == 0 else 0
    if not 0 < parts <= _MOST_PARTS:
        why = f"{each} on each {ask.part}: how many of these a node has is not known"
        return ask._replace(unknown=ask.unknown or why, processes=ask.total), assumed
    said = f"{count(parts, ask.part)} on a node assumed"
    return ask._replace(per_node=each * parts), f"{said}; {assumed}" if assumed else said


def _unknown_nodes(command: LaunchCommand, site: LaunchContext, flavor: Flavor) -> str | None:
    if flavor.launcher is not Launcher.SLURM:
        lists = [option.value for option in command.all("host")]
        bad = [v for v in lists if _is_hidden(v) or (not is_open(v) and slots_fault(v))]
        return f"the list of hosts is {bad[0]!r}" if bad else None
    nodes = command.last("nodes") or _inherited(site, "nodes", SLURM)
    hosts = command.last("host")
    if nodes is not None and not is_open(nodes.value) and not is_node_count(nodes.value):
        return f"the number of nodes is {nodes.value!r}"
    if hosts is not None and nodes is None and site.nodes is None and _is_hidden(hosts.value):
        return f"the list of hosts is {hosts.value!r}"
    if hosts is not None and not is_open(hosts.value) and host_list_fault(hosts.value) is not None:
        return f"the list of hosts is {hosts.value!r}"
    return None


def _is_hidden(hosts: str) -> bool:
    """Return whether a list may have more hosts than its commas show: `$HOSTS`, `a,...`."""
    part = r"\$(?:\w+|\{[^}]*\})|<[^>]*>|\{\{[^}]*\}\}|\.{2,}|…|[xX]{3,}"
    # One substitution with slots is one host.
    kept = [
        one for one in parts_of(hosts) if not re.match(r":\d+$", one[substitution_end(one, 0) :])
    ]
    return any(re.search(rf"\$\(|`|^(?:{part})$", one) for one in kept)


def _inherited(site: LaunchContext, meaning: str, flavor: Flavor) -> Option | None:
    if flavor.launcher is not Launcher.SLURM:
        return None
    return site.asked(meaning)


def _number(option: Option | None) -> int | str | None:
    if option is None:
        return None
    return int(option.value) if _INTEGER.fullmatch(option.value) else option.value


def openmpi(ask: PlacementOptions, slots: Sequence[int], is_4: bool) -> list[int] | str:
    """Return the number of processes on each host, or the reason why Open MPI starts none."""
    all_slots = sum(slots)
    if ask.per_node is not None:
        return _openmpi_per_node(ask, ask.per_node, slots, is_4)
    total = all_slots if ask.total is None else ask.total
    if total > all_slots and not ask.oversubscribe:
        return not_enough(total, all_slots)
    if total > all_slots:
        # Processes beyond the slots are divided equally. The first hosts get the remainder.
        share, rest = divmod(total - all_slots, len(slots))
        return [own + share + (at < rest) for at, own in enumerate(slots)]
    return _dealt(total, slots) if ask.by_node else _filled(total, slots)


def _openmpi_per_node(
    ask: PlacementOptions, per_node: int, slots: Sequence[int], is_4: bool
) -> list[int] | str:
    most = per_node * len(slots)
    total = most if ask.total is None else ask.total
    if not is_4 and total > sum(slots) and not ask.oversubscribe:
        return not_enough(total, sum(slots))
    if total > most:
        return f"{total} processes are more than {per_node} on each of {count(len(slots), 'node')}"
    counts, left = [], total
    for own in slots:
        # Open MPI 4 needs `per_node` slots on each node that it uses. Open MPI 5 uses fewer slots
        # where a node has fewer.
        if left and is_4 and own < per_node and not ask.oversubscribe:
            return not_enough(per_node, own, " on a node")
        take = min(left, per_node if ask.oversubscribe else min(per_node, own))
        counts.append(take)
        left -= take
    return not_enough(total, total - left) if left else counts


def not_enough(wanted: int, slots: int, where: str = "") -> str:
    """Return Open MPI's error for too few slots."""
    return f"there are not enough slots: {wanted} wanted{where}, {slots} there"


def _filled(total: int, slots: Sequence[int]) -> list[int]:
    counts = []
    for own in slots:
        counts.append(min(own, total))
        total -= counts[-1]
    return counts


def _dealt(total: int, slots: Sequence[int]) -> list[int]:
    counts = [0] * len(slots)
    while total:
        for at, own in enumerate(slots):
            if total and counts[at] < own:
                counts[at] += 1
                total -= 1
    return counts


def slots_count(command: LaunchCommand) -> bool:
    """Return whether Intel MPI reads numbers of processes from the host file of the command.

    Intel MPI reads such numbers from a -machinefile, but not from the file of -f or -hostfile.
    """
    return any(option.name in ("machinefile", "machine") for option in command.all("hostfile"))


def hydra(ask: PlacementOptions, slots: Sequence[int]) -> list[int] | str:
    """Return the number of processes on each host, or an error if no host takes a process.

    hydra gives one block of processes to each host, in the order of the hosts. After the last host
    hydra continues with the first host.
    """
    blocks = [ask.per_node] * len(slots) if ask.per_node is not None else list(slots)
    if not sum(blocks):
        return "no host takes a process"
    total = sum(blocks) if ask.total is None else ask.total
    rounds, left = divmod(total, sum(blocks))
    counts = [block * rounds for block in blocks]
    return [own + more for own, more in zip(counts, _filled(left, blocks), strict=True)]


def slurm(ask: PlacementOptions, nodes: int) -> list[int]:
    """Return the number of tasks on each node.

    A total is shared evenly, and the first nodes get the remainder. Without a total, each node has
    the number per node, or 1.
    """
    total = ask.total
    if total is None:
        return [1 if ask.per_node is None else ask.per_node] * nodes
    # If the total is above --ntasks-per-node times the nodes, srun (22.05) warns and ignores
    # --ntasks-per-node. So only the total counts.
    share, rest = divmod(total, nodes)
    return [share + (at < rest) for at in range(nodes)]
