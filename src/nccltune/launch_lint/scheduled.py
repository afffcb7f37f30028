# SPDX-License-Identifier: Apache-2.0
"""Predict what launchers start that get their nodes from a job: Flux, jsrun, aprun, Cray PALS."""

import math
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import NodePlacement, Placement
from nccltune.launch_lint.command import Host, LaunchCommand, LaunchContext, Prediction
from nccltune.launch_lint.hosts import MAX_NODES, MAX_PROCESSES
from nccltune.launch_lint.words import whole_number
from nccltune.model.scale import count

_COUNTED = {
    "total": "processes",
    "nodes": "nodes",
    "per_node": "processes per node",
    "gpus_per_task": "GPUs per process",
    "gpus_per_node": "GPUs per node",
    "sets": "resource sets",
    "sets_per_node": "resource sets per host",
    "per_set": "processes per resource set",
    "gpus_per_set": "GPUs per resource set",
}
"""What the number of an option counts, by the option's meaning."""
_UNREAD = ("rankfile", "per_core", "per_socket")
_PER_TASK = ("total", "cpus", "gpus_per_task")
_PER_NODE = ("per_node", "gpus_per_node")


class _Amounts(NamedTuple):
    """Numbers that the options of any of these launchers come down to, None if not given."""

    total: int
    per_node: int | None
    nodes: int | None
    gpus: int | None
    sets: str = ""


def predict_on_job(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext, gpus: int | None
) -> Prediction:
    """Return the prediction for a command of Flux, jsrun, aprun or Cray PALS.

    `gpus` is the number of GPUs of a process if its program shows it, else None.
    """
    numbers: dict[str, int] = {}
    for meaning, what in _COUNTED.items():
        option = command.last(meaning)
        if option is None:
            continue
        number = whole_number(option.value)
        if number is None or number > MAX_PROCESSES:
            return Prediction(None, (), unknown=f"the number of {what} is {option.value!r}")
        numbers[meaning] = number
    if flavor.launcher is Launcher.FLUX and (why := _flux_refuses(command)) is not None:
        return Prediction(None, (), fails=why)
    unread = [option for meaning in _UNREAD for option in command.all(meaning)]
    if unread:
        word = unread[0].words[0].text
        return Prediction(None, (), unknown=f"{word} is given, which this does not read")
    refused = [option.words[0].text for option in command.options if option.meaning is None]
    if refused:
        return Prediction(None, (), fails=f"{refused[0]} is refused")
    is_jsrun = flavor.launcher is Launcher.JSRUN
    amounts = _jsrun(numbers, site.nodes) if is_jsrun else _plain(numbers)
    if amounts is None:
        why = "the number of hosts: -n is not given, so that each gets the resource sets of -r"
        return Prediction(None, (), unknown=why)
    named = [name for o in command.all("host") for name in o.value.split(",") if name]
    return _placed(amounts, site, flavor, gpus, named)


def _flux_refuses(command: LaunchCommand) -> str | None:
    task = [o for meaning in _PER_TASK for o in command.all(meaning)]
    node = [o for meaning in _PER_NODE for o in command.all(meaning)]
    cores = command.all("per_core")
    if task and (node or cores):
        node = node or cores
        first, second = task[0].words[0].text, node[0].words[0].text
        return f"Flux takes {first} or {second.partition('=')[0]}, not both"
    if node and command.last("nodes") is None:
        return f"{node[0].words[0].text.partition('=')[0]} needs -N"
    return None


def _plain(numbers: dict[str, int]) -> _Amounts:
    """Return the amounts for Flux, aprun and PALS, whose default is 1 process.

    Flux starts 1 process on each node of -N.
    """
    nodes, per_node = numbers.get("nodes"), numbers.get("per_node") or None
    total = numbers.get("total") or (nodes or 1) * (per_node or 1)
    gpus = numbers.get("gpus_per_task")
    of_node = numbers.get("gpus_per_node")
    if of_node is not None and of_node % (per_node or 1) == 0:
        gpus = of_node // (per_node or 1)
    return _Amounts(total, per_node, nodes, gpus)


def _jsrun(numbers: dict[str, int], hosts: int | None) -> _Amounts | None:
    """Return the amounts for jsrun, which starts `per_set` processes in each resource set.

    Without -n each of `hosts` gets the resource sets of -r. None if they are not known then.
    """
    each = numbers.get("per_set", 1)
    sets = numbers.get("sets", 1)
    if "sets" not in numbers and "sets_per_node" in numbers:
        if hosts is None:
            return None
        sets = hosts * numbers["sets_per_node"]
    total, text = sets * each, count(sets, "resource set")
    if "total" in numbers and "per_set" not in numbers:
        total = numbers["total"]
        each = math.ceil(total / max(sets, 1)) if "sets" in numbers else 1
    on_host = numbers.get("sets_per_node")
    gpus = numbers.get("gpus_per_set")
    return _Amounts(
        total,
        on_host * each if on_host is not None else None,
        1 if total == each else None,
        gpus // each if gpus is not None and each and gpus % each == 0 else None,
        text,
    )


def _placed(
    amounts: _Amounts, site: LaunchContext, flavor: Flavor, gpus: int | None, named: list[str]
) -> Prediction:
    total, per_node = amounts.total, amounts.per_node
    has = len(named) or site.nodes
    nodes = amounts.nodes or (1 if total == 1 else None)
    if nodes is None and per_node:
        nodes = math.ceil(total / per_node)
    elif nodes is None and has == 1:
        nodes = 1
    processes = f"{count(total, 'process')}" + (f" in {amounts.sets}" if amounts.sets else "")
    if nodes is None:
        option = {Launcher.FLUX: "-N", Launcher.JSRUN: "-r", Launcher.APRUN: "-N"}
        word = option.get(flavor.launcher, "--ppn")
        why = f"{processes}; how many of them fit on a node depends on the site: set {word}"
        return Prediction(None, (), unknown=why, gpus=amounts.gpus)
    if has is not None and nodes > has:
        why = f"{processes} need {count(nodes, 'node')}, and the job has {has}"
        return Prediction(None, (), unknown=why, gpus=amounts.gpus)
    if nodes > MAX_NODES or nodes < 1:
        return Prediction(None, (), unknown=f"the number of nodes is {nodes}")
    each = per_node if per_node and not amounts.nodes else math.ceil(total / nodes)
    hosts = tuple(Host(named[at] if at < len(named) else None, None) for at in range(nodes))
    placed = [min(each, max(0, total - at * each)) for at in range(nodes)]
    used = tuple(
        NodePlacement(host.name, number) for host, number in zip(hosts, placed, strict=True)
    )
    used = tuple(node for node in used if node.processes)
    return Prediction(Placement(used, gpus or 1), hosts, gpus=amounts.gpus)
