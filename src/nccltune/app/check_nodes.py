# SPDX-License-Identifier: Apache-2.0
"""Check file and platform on every node of a launcher, without a measurement."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from nccltune.app.bench_launch import LaunchRequest, Site, mpi_launch_of
from nccltune.app.check import CheckRequest, CheckResult, Fact
from nccltune.app.status import NodeOutput, on_each_node
from nccltune.measure.bench.process import Launch
from nccltune.measure.bench.with_launcher import WithLauncher


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one node: its file (None if it could not be checked), and what differs."""

    host: str
    config_hash: str | None = None
    differs: list[Fact] = []
    problem: str | None = None


class NodesResult(CheckResult, frozen=True, kw_only=True):
    """A check with that of every node. `missing` is the number of nodes that did not answer."""

    nodes: list[NodeCheck]
    missing: int


def nodes_to_check(
    launch: Launch | None, request: LaunchRequest, site: Site
) -> WithLauncher | None:
    """Return the launcher whose nodes are checked; None without one, and for pods."""
    if not request.is_launched or request.launcher == "kubernetes":
        return None
    if launch is not None:
        return launch.with_launcher
    return mpi_launch_of(request, site)


def with_nodes(
    result: CheckResult, path: Path, asked: CheckRequest, under: WithLauncher
) -> NodesResult:
    """Return a check with that of every node; it holds if all hold, and have the same file."""
    words = ["check", str(path.absolute()), "--budget", "0"]
    if asked.max_age_days is not None:
        words += ["--max-age", str(asked.max_age_days)]
    return joined(result, on_each_node(words, under), under.nodes)


def joined(result: CheckResult, outputs: Sequence[NodeOutput], expected: int) -> NodesResult:
    """Return a check with the outputs of `expected` nodes."""
    nodes = [_node(one) for one in outputs]
    missing = max(0, expected - len(nodes))
    # The rows that --apply left are the file of all nodes only where they share it.
    content = {result.config_hash, result.new_hash}
    alike = all(
        one.problem is None and one.config_hash in content and not one.differs for one in nodes
    )
    return NodesResult(
        **{**msgspec.structs.asdict(result), "holds": result.holds and alike and not missing},
        nodes=nodes,
        missing=missing,
    )


def _node(output: NodeOutput) -> NodeCheck:
    try:
        found = msgspec.json.decode(output.document, type=CheckResult)
    except msgspec.DecodeError:
        return NodeCheck(host=output.host, problem=output.error or "printed no result")
    differs = [fact for fact in found.facts if fact.verdict == "differs"]
    return NodeCheck(host=output.host, config_hash=found.config_hash, differs=differs)
