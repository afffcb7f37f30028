# SPDX-License-Identifier: Apache-2.0
"""Rules for graph files that do not match the machine, or that come from a failed search."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nccltune.formats.topology.graph_xml import ChannelGraph, GraphId, Graphs
from nccltune.model.finding import Severity
from nccltune.model.topology import Topology
from nccltune.topology.lint.issue import Issue, gpus, shortened
from nccltune.topology.nccl_model.settings import PathKind

_WHOLE = (GraphId.RING, GraphId.TREE, GraphId.COLLNET_CHAIN)
"""The kinds of graph in which each channel names every GPU."""
_NAMES = {member.value: member.name.lower().replace("_", "-") for member in GraphId}


def check_graphs(graphs: Graphs, topologies: Sequence[Topology]) -> Iterator[Issue]:
    """Check a graph file alone, and against the topologies that are linted together with it."""

    def issue(severity: Severity, identity: str, line: int, message: str, hint: str) -> Issue:
        return Issue(
            severity=severity, id=identity, source=graphs.source, line=line, message=message,
            hint=hint,
        )  # fmt: skip

    if graphs.version != "1":
        yield issue(
            Severity.ERROR, "version", 1, f"<graphs> has version {graphs.version}; NCCL reads 1",
            'write <graphs version="1">',
        )  # fmt: skip
    again = "leave NCCL_GRAPH_FILE out, so that NCCL searches; or dump it again on this machine"
    for graph in graphs.graphs:
        name = _NAMES.get(graph.id, str(graph.id))
        if graph.channel_count != len(graph.channels):
            yield issue(
                Severity.WARNING, "graph-channels", graph.line,
                f"{name}: nchannels is {graph.channel_count}, and {len(graph.channels)} channels "
                "follow; NCCL counts the channels", "write the number of channels",
            )  # fmt: skip
        for kind in (graph.intra_type, graph.inter_type):
            if kind is not None and kind not in PathKind.__members__:
                yield issue(
                    Severity.ERROR, "graph-type", graph.line,
                    f"{name}: '{kind[:20]}' is no type of path",
                    f"known are {' '.join(member.name for member in PathKind)}",
                )  # fmt: skip
        if graph.channels and max(graph.intra_gb_per_s, graph.inter_gb_per_s) <= 0.1:
            yield issue(
                Severity.ERROR, "graph-fallback", graph.line,
                f"{name}: {graph.intra_gb_per_s:g} GB/s a channel is NCCL's fallback if its "
                "search finds nothing",
                "check the topology of the same run: a GPU without NVLink, a link at 2.5 GT/s",
            )  # fmt: skip
        if graph.id in _WHOLE and graph.channels:
            yield from (
                issue(severity, identity, graph.line, f"{name}: {message}", again)
                for severity, identity, message in _members(graph, topologies)
            )


def _members(
    graph: ChannelGraph, topologies: Sequence[Topology]
) -> Iterator[tuple[Severity, str, str]]:
    sets = []
    for number, channel in enumerate(graph.channels):
        used = Counter((gpu.host, gpu.index) for gpu in channel.gpus)
        twice = [str(index) for (_, index), times in used.items() if times > 1]
        if twice:
            yield (
                Severity.ERROR, "graph-gpu-twice",
                f"channel {number} names GPU {shortened(twice)} twice",
            )  # fmt: skip
        sets.append(frozenset(used))
    if len(set(sets)) > 1:
        sizes = sorted({len(one) for one in sets})
        yield (
            Severity.ERROR, "graph-uneven",
            f"the channels do not name the same GPUs ({shortened(map(str, sizes))} of them)",
        )  # fmt: skip
    for topology in topologies:
        have = {gpu.index for _, gpu in gpus(topology) if gpu.index is not None}
        if not have:
            continue
        named = {index for one in sets for _, index in one}
        if named - have:
            yield (
                Severity.ERROR, "graph-gpu-unknown",
                f"names GPU {shortened(map(str, sorted(named - have)))}, which {topology.source} "
                "does not have; NCCL stops: XML Import Channel : dev not found",
            )  # fmt: skip
        elif have - named:
            yield (
                Severity.ERROR, "graph-gpus",
                f"is for {len(named)} GPUs, and {topology.source} has {len(have)}: a graph file "
                "of another job",
            )  # fmt: skip
