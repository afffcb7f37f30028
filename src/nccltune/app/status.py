# SPDX-License-Identifier: Apache-2.0
"""Status: what NCCL has loaded in the processes of this node, and whose settings win."""

from collections.abc import Sequence
from pathlib import Path

from nccltune.guard.job_log import read_job_log
from nccltune.guard.metrics import metrics_text
from nccltune.guard.node_status import NodeStatus, node_status
from nccltune.native.net_processes import NetWatch
from nccltune.study.files import write_whole


def status(pids: Sequence[int] = (), logs: Sequence[Path] = ()) -> NodeStatus:
    """Return what the processes `pids`, or all with NCCL on this node, have loaded and set.

    `logs` are NCCL's logs of one job (NCCL_DEBUG=INFO). They show more of its processes here, and
    add its processes elsewhere.

    Raises InputError for a process that does not exist and for a file that is no log, PlatformError
    for a process that this user may not read.
    """
    return node_status(pids, read_job_log(logs) if logs else None)


def write_metrics(found: NodeStatus, path: Path) -> None:
    """Write the counters of processes to `path` for Prometheus; a reader sees a whole file.

    Also those of the network plugin's connections in all processes that this user may read.
    """
    write_whole(path, metrics_text(found, NetWatch().read()))
