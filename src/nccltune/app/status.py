# SPDX-License-Identifier: Apache-2.0
"""Status: what NCCL has loaded in the processes of this node, and whose settings win."""

import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.bench_launch import LaunchRequest, Site, mpi_launch_of
from nccltune.guard.jobs import read_job_log
from nccltune.guard.metrics import metrics_text
from nccltune.guard.node_status import NodeStatus, joined, node_status
from nccltune.measure.bench.with_launcher import WithLauncher, program_with_launcher
from nccltune.measure.engine.program import run_program
from nccltune.model.errors import LaunchError
from nccltune.native.net_processes import NetWatch
from nccltune.study.files import write_whole

_LIMIT_S = 180.0
_BESIDE = {"SLURM_OVERLAP": "1"}
"""A step of Slurm otherwise waits for the job's own steps to end."""


class NodeOutput(NamedTuple):
    """What a verb printed on one node: its document, and its first line on standard error."""

    host: str
    document: bytes
    error: str


def on_each_node(
    words: Sequence[str], under: WithLauncher, environment: Mapping[str, str] = os.environ
) -> list[NodeOutput]:
    """Run `nccltune WORDS --json` once on each node; return what each printed, by its name.

    Each node writes a file to the current folder, which all must share. A node without a file is
    left out. Raises LaunchError if the launcher fails before any has one.
    """
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=Path.cwd()) as name:
        # Slurm may give a machine several nodes, and containers may share a name.
        place = f'{shlex.quote(name)}/"${{SLURMD_NODENAME:-$(uname -n)}}".$$'
        verb = shlex.join([sys.executable, "-m", "nccltune", *words, "--json", "-q"])
        # A launcher ends all processes if one of them fails, and a finding is no failure.
        script = f"{verb} >{place}.json 2>{place}.error || :"
        single = under._replace(per_node=True)
        rendered = program_with_launcher(["sh", "-c", script], single, environment)
        ended = run_program(list(rendered.words), {**environment, **_BESIDE}, _LIMIT_S)
        files = sorted(Path(name).glob("*.json"))
        if not files:
            raise LaunchError(
                f"no node printed anything: the launcher {ended.sentence()}",
                hint="is nccltune at the same path on every node, and is this folder shared?",
            )
        return [_output(path) for path in files]


def _output(path: Path) -> NodeOutput:
    error = path.with_suffix(".error").read_text(encoding="utf-8", errors="replace")
    lines = [line for line in error.splitlines() if line.strip()]
    return NodeOutput(Path(path.stem).stem, path.read_bytes(), lines[0] if lines else "")


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
    """Write the counters of this user's processes and connections for Prometheus, atomically.

    A file whose name ends in `.openmetrics` gets that format.
    """
    openmetrics = path.suffix == ".openmetrics"
    write_whole(path, metrics_text(found, NetWatch().read(), openmetrics=openmetrics))
