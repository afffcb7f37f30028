# SPDX-License-Identifier: Apache-2.0
"""Check servers of models, vLLM and SGLang: GPUs, and how nodes find each other."""

import functools
from collections.abc import Iterator

from nccltune.launch_lint.boxes import entrypoint_of
from nccltune.launch_lint.command import LaunchCommand, View
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.options import SERVERS, VLLM
from nccltune.launch_lint.rules.torchrun import (
    LOCAL_HOSTS,
    beyond_assumed,
    beyond_nodes,
    is_own,
    of_trainer,
)
from nccltune.launch_lint.words import is_open, whole_number
from nccltune.model.scale import count

of_server = functools.partial(of_trainer, flavors=SERVERS)


@of_server
def node_gpus(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `vllm serve M --tensor-parallel-size 16` on nodes of 8 GPUs."""
    inner, found = view.prediction.inner, view.prediction
    placement, have = found.placement, view.site.gpus_per_node
    all_gpus = have * (view.site.nodes or 0) if view.site.gpus is not None else 0
    is_part = bool(command.all("data_rank") or command.all("data_local"))
    if not is_part and not placement and inner is None and 0 < all_gpus < (found.processes or 0):
        yield error(
            "too-many-gpus",
            f"{count(found.processes or 0, 'rank')} with 1 GPU each, and"
            f" {count(view.site.nodes or 0, 'node')} of {have} ({view.site.gpus_source}) have"
            f" {all_gpus}",
            "lower the sizes, or give it more nodes",
        )
    elif placement is None and found.processes and inner is None and found.processes > have:
        is_ray = any(option.value == "ray" for option in command.all("executor"))
        if not is_ray and not is_part:
            data = command.last("data")
            world = found.processes // (whole_number(data.value) or 1 if data is not None else 1)
            refused = "vLLM 0.11.1 and newer refuse to start, older ones look for a cluster of Ray"
            is_one = view.site.gpus is not None and (view.site.nodes or 1) == 1
            yield (warning if is_one else note)(
                "server-nodes",
                f"{count(found.processes, 'rank')} are more than the {count(have, 'GPU')} of a node"
                f" ({view.site.gpus_source})" + f": {refused}" * (world > have),
                "add --distributed-executor-backend ray, or --nnodes, --node-rank and --master-addr"
                if world > have
                else "add --data-parallel-size-local, and start the other ranks on other nodes",
            )
        return
    each = inner.each if inner is not None else placement.most if placement is not None else None
    if each is None or each <= have:
        return
    if view.site.gpus is None:
        yield beyond_assumed(each)
        return
    yield error(
        "too-many-gpus",
        f"{count(each, 'rank')} on a node with 1 GPU each need {each}; the node has {have}"
        f" ({view.site.gpus_source})",
        "lower the sizes, or give it more nodes",
    )


@of_server
def server_nodes(view: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find nodes of a server that wait at different addresses, or that have no valid rank."""
    nodes = command.last("nodes")
    number = whole_number(nodes.value) if nodes is not None else None
    if number is None or number < 2:
        return
    address, rank = command.last("master_addr"), command.last("node_rank")
    is_vllm = view.flavor == VLLM or (
        view.prediction.inner is not None and view.prediction.inner.flavor == VLLM
    )
    option = "--master-addr" if is_vllm else "--dist-init-addr"
    if address is None:
        yield error(
            "server-address",
            f"--nnodes {number} without {option}: each node waits at its own 127.0.0.1",
            f"add {option} HOST{'' if is_vllm else ':PORT'}, with one host for all nodes",
        )
    else:
        host = address.value.rpartition(":")[0] if not is_vllm else address.value
        is_first = rank is not None and rank.value == "0"
        if is_own(view, host, rank.value if rank is not None else None):
            yield (note if is_first else error)(
                "server-address",
                f"{address.text}: the other nodes need an address of node 0"
                if is_first
                else f"{address.text}: this node waits at its own address",
                "name one host that all nodes reach",
            )
        elif not is_vllm and ":" not in address.value and not is_open(address.value):
            yield error(
                "server-address", f"{address.text} has no port", f"write {address.text}:PORT"
            )
    given = whole_number(rank.value) if rank is not None else None
    if rank is None:
        yield error(
            "server-rank",
            f"--nnodes {number} without --node-rank: each node is node 0",
            "add --node-rank N, another on each node",
        )
    elif given is not None and given >= number:
        yield beyond_nodes("server-rank", rank.text, number)


@of_server
def entrypoint(_: View, command: LaunchCommand) -> Iterator[LaunchFinding]:
    """Find `docker run vllm/vllm-openai vllm serve M`: the image starts `vllm serve` itself."""
    words = [word.raw for option in command.options for word in option.words]
    first = words[0].split()[0].rpartition("/")[2] if words else ""
    is_image = bool(entrypoint_of(command.launcher.raw))
    if is_image and first in ("vllm", "python", "python3", "bash", "sh", "ray"):
        yield error(
            "server-entrypoint",
            f"the image starts `vllm serve` itself, which gets {words[0]} as an argument",
            "give the arguments of vllm serve alone, or another --entrypoint",
        )


def host_ip(view: View) -> Iterator[LaunchFinding]:
    """Find `VLLM_HOST_IP=0.0.0.0`: nodes of a cluster know each other by this address."""
    for variable in view.variables:
        if variable.name == "VLLM_HOST_IP" and variable.value in LOCAL_HOSTS:
            yield note(
                "server-host-ip",
                f"VLLM_HOST_IP={variable.value}: with several nodes it is the address at which the"
                " others reach this node, another on each",
            )
