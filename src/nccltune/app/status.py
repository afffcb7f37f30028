# SPDX-License-Identifier: Apache-2.0
"""Status: what NCCL has loaded in the processes of this node, and whose settings win."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from nccltune.app.bench_launch import LaunchRequest, Site, mpi_launch_of
from nccltune.app.each_node import on_each_node
from nccltune.guard.jobs import read_job_log
from nccltune.guard.metrics import metrics_text
from nccltune.guard.node_status import NodeStatus, joined, node_status
from nccltune.native.net_processes import NetWatch
from nccltune.study.files import write_whole


def status(pids: Sequence[int] = (), logs: Sequence[Path] = ()) -> NodeStatus:
    """Return what the processes `pids`, or all with NCCL on this node, have loaded and set.

    `logs` are NCCL's logs of one job (NCCL_DEBUG=INFO), which show more processes. Raises
    InputError for a missing process and a file that is no log, PlatformError for a process that
    this user may not read.
    """
    return node_status(pids, read_job_log(logs) if logs else None)


def status_of_nodes(request: LaunchRequest, site: Site) -> NodeStatus:
    """Return the status of all nodes of a launcher as one: jobs are compared across them."""
    # The launcher asks for GPUs, and to look at processes needs none.
    under = mpi_launch_of(request._replace(gpus=request.gpus or 1), site)
    nodes, unread = [], []
    outputs = on_each_node(["status"], under)
    for one in outputs:
        try:
            nodes.append(msgspec.json.decode(one.document, type=NodeStatus))
        except msgspec.DecodeError:
            unread.append(f"{one.host}: {one.error or 'printed no result'}")
    if len(outputs) < under.nodes:
        unread.append(f"{under.nodes - len(outputs)} of {under.nodes} nodes did not answer")
    return joined(nodes, unread)


def write_metrics(found: NodeStatus, path: Path) -> None:
    """Write the counters of this user's processes and connections for Prometheus, atomically."""
    write_whole(path, metrics_text(found, NetWatch().read()))
