# SPDX-License-Identifier: Apache-2.0
"""Find the hosts that a command can use, and the slots of each."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch_lint.command import Host, LaunchCommand, LaunchContext, Option
from nccltune.launch_lint.shell import fields, file_text
from nccltune.launch_lint.words import is_open, substitution_end, whole_number
from nccltune.model.scale import count

MAX_NODES = 1 << 16
MAX_PROCESSES = 1 << 20
_GPUS = re.compile(r"(?:\w+:)?0*([1-9][0-9]{0,4})")
_GRES = re.compile(r"gpu:(?:[\w.-]+:)?0*([1-9][0-9]{0,4})(?:\(.*\))?")
_NODES = re.compile(r"([0-9]{1,9})(?:-[0-9]{1,9})?")
_SLURM_RANGE = re.compile(r"([^\[\]]*)\[([^\[\]]+)\]([^\[\]]*)")


def hosts_of(
    command: LaunchCommand,
    flavor: Flavor,
    site: LaunchContext,
    total: int | None,
    per_node: int | None,
    gpus: int,
) -> tuple[tuple[Host, ...], str | None]:
    """Return the hosts in order, and a sentence that states an assumption, or None.

    `total` and `per_node` are the numbers of processes, None if not given. `gpus` is the number of
    GPUs per process.
    """
    if flavor.launcher is Launcher.SLURM:
        return _slurm(command, site, total, per_node, gpus)
    named = [part for option in command.all("host") for part in parts_of(option.value)]
    if named:
        hosts = _merged(named)
        is_plain = not any("$(" in part or "`" in part for part in named)
        return hosts if is_plain else tuple(Host(None, host.slots) for host in hosts), None
    if (file := command.last("hostfile")) is not None:
        found = hostfile(file.value, flavor, site)
        if found is not None:
            return found, None
    if flavor.launcher is Launcher.HOROVOD and total is not None and site.nodes is None:
        return (Host(None, total),), None
    if site.hosts:
        return _merged(list(site.hosts), site.slots or site.gpus_per_node), None
    # More processes on a node than GPUs are assumed: the node has as many.
    more = per_node or 0 if site.gpus is None else 0
    slots = site.slots or max(site.gpus_per_node, more)
    if site.nodes is not None:
        return tuple([Host(None, slots)] * min(site.nodes, MAX_NODES)), None
    if total is not None and per_node is None and not site.slots:
        # A node has slots for the processes that its GPUs are enough for.
        slots = max(1, slots // max(1, gpus))
    nodes = min(_nodes_for(total, per_node, gpus, site), MAX_NODES)
    if total is not None and per_node is None:
        # A node is filled to its slots, however many GPUs the processes use.
        nodes = min(max(1, -(-total // slots)), MAX_NODES)
    each = count(slots, "slot")
    assumed = f"{count(nodes, 'node')} of {each} assumed: --nodes or --set hosts=A,B"
    return tuple([Host(None, slots)] * nodes), assumed


def hosts_elsewhere(command: LaunchCommand, flavor: Flavor, site: LaunchContext) -> str | None:
    """Return the name of the file with the hosts if that file is not here, else None."""
    file = command.last("hostfile")
    if file is None or command.all("host") or site.hosts or site.nodes is not None:
        return None
    return file.value if hostfile(file.value, flavor, site) is None else None


def _nodes_for(total: int | None, per_node: int | None, gpus: int, site: LaunchContext) -> int:
    if total is None:
        return 1
    if per_node is not None and per_node > 0:
        # `-N 8 -n 2` has fewer processes in total than per node. The author probably means 2 nodes.
        return total if 1 < total < per_node else max(1, -(-total // per_node))
    return max(1, -(-total * gpus // site.gpus_per_node))


def parts_of(hosts: str) -> list[str]:
    """Return the parts of a list between commas, of which a substitution may have some.

    >>> parts_of("a:8,$(head -1 f | cut -d, -f1):8")
    ['a:8', '$(head -1 f | cut -d, -f1):8']
    """
    parts, at = [""], 0
    while at < len(hosts):
        stop = max(substitution_end(hosts, at), at + 1)
        if hosts[at] == ",":
            parts.append("")
        else:
            parts[-1] += hosts[at:stop]
        at = stop
    return [part for part in parts if part]


def _merged(named: list[str], default: int | None = None) -> tuple[Host, ...]:
    """Return the hosts of a list such as `a:8,b:8`. Slots of a host that is named twice are added.

    `default` is the number of slots of a host for which the list has no number. Without `default`,
    such a host has 1 slot. The slots of `a:*` are None.
    """
    found: dict[str, int | None] = {}
    for part in named:
        end = substitution_end(part, 0)
        name, text = part[:end], part[end:].removeprefix(":")
        if not end:
            name, _, text = part.partition(":")
        slots = whole_number(text)
        if slots is None and text != "*":
            slots = default or 1
        found[name] = (found.get(name) or 0) + slots if slots is not None else None
    return tuple(Host(name, slots) for name, slots in found.items())


def text_of(name: str, site: LaunchContext) -> str | None:
    """Return the text of a file that the script writes, or that is here; None for no such file.

    The text around a command may show the file, too.
    """
    written = (site.scope.files or {}).get(name) if site.scope is not None else None
    if written is None:
        written = dict(site.files).get(PurePosixPath(name).name)
    return file_text(name, site.folder) if written is None else written


SLOT_KEYS = ("slots", "max-slots", "max_slots", "count", "cpu", "cpus", "slot")
"""Words of a host file before a number of slots. Open MPI refuses the last of them."""


def hostfile(name: str, flavor: Flavor, site: LaunchContext) -> tuple[Host, ...] | None:
    """Return the hosts of a host file with their slots, or None if the file is not known.

    A host of Open MPI on one line without a number has as many slots as cores: None here.
    """
    content = text_of(name, site)
    if content is None:
        return None
    found: dict[str, list[int | None]] = {}
    for place, line in enumerate(content.splitlines()[:MAX_NODES], 1):
        words = fields(line.partition("#")[0])
        if not words:
            continue
        name, _, text = words[0].partition(":")
        # Addresses that are left out, such as xxx.xxx.xxx.xxx, are hosts of their own.
        name = f"{name}-{place}" if re.fullmatch(r"[xX]+(?:\.[xX]+)+", name) else name
        slots = whole_number(text)
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key in SLOT_KEYS and (number := whole_number(value)) is not None:
                slots = number
        if slots is None and flavor.launcher is Launcher.HYDRA:
            slots = 1
        found.setdefault(name, []).append(slots)
    # Of several lines of one host, as in $PBS_NODEFILE, each is a slot.
    hosts = (
        Host(name, None if given == [None] else sum(1 if n is None else n for n in given))
        for name, given in found.items()
    )
    return tuple(hosts) or None


def _slurm(
    command: LaunchCommand, site: LaunchContext, total: int | None, per_node: int | None, gpus: int
) -> tuple[tuple[Host, ...], str | None]:
    listed = command.last("host")
    is_known = listed is not None and not is_open(listed.value)
    named = expand_hosts(listed.value) if listed is not None and is_known else []
    given = command.last("nodes") or site.asked("nodes")
    nodes, assumed = None, None
    if given is not None and (match := _NODES.fullmatch(given.value)):
        nodes = int(match[1])
    elif named and "/" not in (listed.value if listed is not None else ""):
        nodes = len(named)
    elif site.nodes is not None or site.hosts:
        nodes = site.nodes or len(site.hosts)
    if nodes is None:
        nodes = _nodes_for(total, per_node, gpus, site)
        assumed = f"{count(nodes, 'node')} assumed; set -N or --nodes"
    in_job = any(option.meaning == "nodes" for option in site.inherited)
    if given is not None and (assumed is not None or (in_job and is_open(given.value))):
        assumed = f"{count(nodes, 'node')} assumed, as {given.text} is not known here: --nodes"
    if total is not None and 0 < total < nodes:
        nodes = total
    names: list[str | None] = [*named[:nodes]]
    names += [None] * (min(nodes, MAX_NODES) - len(names))
    return tuple(Host(name, None) for name in names), assumed


_SLURM_NODES = re.compile(
    "0*[1-9][0-9]{0,8}[kKmM]?(?:-0*[1-9][0-9]{0,8}[kKmM]?)?(?::[0-9]{1,9})?", re.ASCII
)


def is_node_count(text: str) -> bool:
    """Return whether srun takes a text for -N: `2`, `2-4`, `1k`, `1,3,5-9:2`, but not `0`."""
    pieces = [_SLURM_NODES.fullmatch(piece) for piece in text.split(",")]
    low, dash, high = text.partition("-")
    first, last = whole_number(low), whole_number(high)
    is_backwards = bool(dash) and first is not None and last is not None and first > last
    return all(pieces) and not is_backwards


def host_list_fault(text: str) -> str | None:
    """Return what is wrong with a Slurm host list, or None.

    A text with `/` is the name of a file with hosts.

    >>> host_list_fault("a[5-1]")
    '[5-1] runs backwards'
    """
    if "/" in text:
        return None
    if text.count("[") != text.count("]"):
        return "a bracket is not closed"
    for inner in re.findall(r"\[([^\[\]]*)\]", text):
        for piece in inner.split(","):
            low, dash, high = piece.partition("-")
            first, last = whole_number(low), whole_number(high)
            if first is None or (dash and last is None):
                return f"[{inner}] is no list of numbers such as [1-3,7]"
            if last is not None and first > last:
                return f"[{inner}] runs backwards"
    return None if expand_hosts(text) else "names no host"


def slots_fault(text: str) -> str | None:
    """Return what is wrong with the numbers of slots in a list of mpirun's hosts, or None.

    >>> slots_fault("a:8,b:eight")
    "'eight' is no number of slots"
    """
    for part in text.split(","):
        _, colon, slots = part.rpartition("]")[2].partition(":")
        if colon and slots not in ("*", "auto") and whole_number(slots) is None:
            return f"{slots!r} is no number of slots"
    return None


_OF_LIST = re.compile(r",.*|[\w.-]*:\d*,?|\d+,")
_MAY_BE_OF_LIST = re.compile(r"(?!python|bash$|sh$)[\w.-]+(?::\d*)?,?")


def split_list(command: LaunchCommand) -> tuple[list[str], str] | None:
    """Return the first words of the program that are of the last option's list, and that list.

    `-H a:8, b:8` and `-H a 1: 8, b` are such lists, and `-x NCCL_IB_HCA=mlx5_0, mlx5_1`.
    """
    last = command.options[-1] if command.options else None
    if last is None or last.meaning not in ("host", "env"):
        return None
    is_host, whole, rest = last.meaning == "host", last.value, list[str]()
    words = [word.text for word in command.program]
    for word, following in zip(words, [*words[1:], "-"], strict=False):
        is_open_list = whole.endswith((",", ":") if is_host else ",")
        is_sure = is_host and _OF_LIST.fullmatch(word) is not None
        if not is_sure and not (is_open_list and _MAY_BE_OF_LIST.fullmatch(word)):
            break
        if not is_sure and following.startswith("-") and not whole.endswith(":"):
            break  # A comma too many, and the program.
        is_number = word[0].isdigit() and ":" not in whole.rpartition(",")[2]
        is_one = is_open_list or word[0] in ",:" or is_number
        whole, rest = f"{whole}{'' if is_one else ','}{word}", [*rest, word]
    return (rest, whole) if rest else None


def with_slurm_gpus(command: LaunchCommand, flavor: Flavor, site: LaunchContext) -> LaunchContext:
    """Return `site` with the GPUs per node that the options of srun or its allocation request.

    Without such options, or for another launcher than srun, return `site` unchanged.
    """
    if flavor.launcher is not Launcher.SLURM:
        return site
    listed = command.last("host")
    named = expand_hosts(listed.value) if listed is not None and not is_open(listed.value) else []
    return with_gpus_of((*site.inherited, *command.options), site, len(named))


def with_gpus_of(options: Sequence[Option], site: LaunchContext, hosts: int = 0) -> LaunchContext:
    """Return `site` with the GPUs per node that options of Slurm request, if any does."""
    total = None
    for option in options:
        if option.meaning == "gpus_per_node" and (match := _GPUS.fullmatch(option.value)):
            site = site._replace(gpus=int(match[1]))
        elif option.meaning == "gres":
            numbers = [m for part in option.value.split(",") if (m := _GRES.fullmatch(part))]
            if numbers:
                site = site._replace(gpus=int(numbers[0][1]))
        elif option.meaning == "gpus" and (match := _GPUS.fullmatch(option.value)):
            total = int(match[1])
    nodes = next((o.value for o in reversed(options) if o.meaning == "nodes"), "")
    number = whole_number(nodes) or hosts
    if total and number and total % number == 0:
        site = site._replace(gpus=total // number)
    return site


def expand_hosts(text: str) -> list[str]:
    """Return the names of a Slurm host list with at most one pair of brackets in a name.

    >>> expand_hosts("node[1-3,7],login")
    ['node1', 'node2', 'node3', 'node7', 'login']
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _SLURM_RANGE.fullmatch(part)
        if match is None:
            names += [part] if part else []
            continue
        for piece in match[2].split(","):
            low, dash, high = piece.partition("-")
            first, final = whole_number(low), whole_number(high)
            if not dash or first is None or final is None:
                names.append(f"{match[1]}{piece}{match[3]}")
                continue
            numbers = range(first, min(final, first + MAX_NODES) + 1)
            names += [f"{match[1]}{number:0{len(low)}}{match[3]}" for number in numbers]
    return names
