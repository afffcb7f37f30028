# SPDX-License-Identifier: Apache-2.0
"""Apply all lint rules to files, also those that compare files with each other or a machine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from nccltune.formats.text.lines import encoding_of
from nccltune.formats.topology.graph_xml import ChannelGraph, GraphId, Graphs
from nccltune.formats.topology.nccl_xml_rules import refusals
from nccltune.formats.topology.sysfs import read_sysfs
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.topology import Dialect, Pci, Topology
from nccltune.topology.files.load import load
from nccltune.topology.hardware import bandwidth
from nccltune.topology.lint.balance import check_balance
from nccltune.topology.lint.issue import Issue, gpus, issue_about, nets, placed, shortened
from nccltune.topology.lint.links import check_links, check_nvlinks
from nccltune.topology.lint.shape import check_shape
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


def check_across(topologies: Sequence[Topology]) -> Iterator[Issue]:
    """Report properties that differ between nodes from the majority's, else the first's."""
    if len(topologies) < 2:
        return
    aspects = [_aspects(topology) for topology in topologies]
    for aspect in aspects[0]:
        values = Counter(one[aspect] for one in aspects)
        if len(values) < 2:
            continue
        usual, times = values.most_common(1)[0]
        if times * 2 <= len(aspects):
            usual = aspects[0][aspect]
            whom = topologies[0].source
        else:
            whom = f"{times} of {len(aspects)} nodes"
        for topology, one in zip(topologies, aspects, strict=True):
            if one[aspect] != usual:
                yield Issue(
                    severity=Severity.ERROR,
                    id="nodes-differ",
                    source=topology.source,
                    message=f"{aspect}: {one[aspect] or 'none'}; {whom}: {usual or 'none'}",
                    hint="find out which is right; a job runs at the pace of its slowest node",
                )


def _aspects(topology: Topology) -> dict[str, str]:
    held = gpus(topology)
    links = [bandwidth.pci(one.device).how for one in placed(topology)]
    switches = sum(bool(one.device.children) for one in placed(topology))
    return {
        "GPUs": _count(f"sm{gpu.sm}" if gpu.sm is not None else "GPU" for _, gpu in held),
        "NVLinks by GPU": _count(
            str(sum(link.count for link in gpu.nvlinks)) for _, gpu in held
        ),
        "NICs": _count(
            f"{net.mbit_per_s / 1000:g} Gbit/s" if net.mbit_per_s is not None else "NIC"
            for net in nets(topology)
        ),
        "names of NICs": shortened(sorted(net.name or "?" for net in nets(topology)), 16),
        "GPUs with GPUDirect RDMA": str(sum(bool(gpu.gdr) for _, gpu in held)),
        "NICs with GPUDirect RDMA": str(sum(bool(net.gdr) for net in nets(topology))),
        "switches": str(switches),
        "PCIe links": _count(links),
        "GPUs by CPU": shortened([
            str(sum(one.cpu is cpu for one, _ in held)) for cpu in topology.cpus
        ], 16),
        "CPUs": _count(
            f"{cpu.vendor or cpu.arch or '?'} {cpu.family}/{cpu.model}" for cpu in topology.cpus
        ),
    }  # fmt: skip


def _count(words: "Iterator[str] | list[str]") -> str:
    """Return counts such as `4 x Gen5 x16, 1 x Gen4 x8`, independent of the order of the words."""
    counts = Counter(words)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return shortened([f"{times} x {word}" for word, times in ordered], 8)


def check_here(topology: Topology, root: Path = Path("/")) -> Iterator[Issue]:
    """Report GPUs and NICs that only the file or only the machine has."""
    folder = root / "sys" / "bus" / "pci" / "devices"
    here = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    leaves = [one.device for one in placed(topology) if _is_end(one.device)]
    yield from issue_about(
        topology, Severity.ERROR, "bus-id-absent",
        (device for device in leaves if device.bus_id.lower() not in here),
        "{}: not on this machine; NCCL then places the real device by sysfs",
        "bus ids of GPUs and NICs must be those of lspci -D on the machine that runs the job",
    )  # fmt: skip
    named = {device.bus_id.lower() for device in leaves}
    missing = [
        one.device.bus_id
        for one in placed(read_sysfs(root))
        if (one.device.gpu is not None or one.device.nets) and one.device.bus_id not in named
    ]
    if missing:
        yield Issue(
            severity=Severity.WARNING,
            id="not-in-file",
            source=topology.source,
            message=f"{shortened(missing)}: GPUs or NICs of this machine that are not in the file",
            hint="add them below their switches; otherwise NCCL places them by sysfs",
            devices=tuple(missing),
        )


def _is_end(device: Pci) -> bool:
    code = device.class_code or ""
    is_end = device.gpu is not None or bool(device.nets) or code.startswith(("0x03", "0x02"))
    return is_end and not device.children


_ORDER = list(Severity)
_XML = (Dialect.NCCL, Dialect.RCCL, Dialect.FLAGCX)


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """The files read and the issues found, sorted by file and then by severity."""

    topologies: tuple[Topology, ...]
    graphs: tuple[Graphs, ...]
    issues: tuple[Issue, ...]
    files: int

    @property
    def is_bad(self) -> bool:
        """Return whether any issue is a warning or an error."""
        return any(issue.severity is not Severity.NOTE for issue in self.issues)


def lint_files(files: Iterable[tuple[str, bytes]], *, here: Path | None = None) -> LintResult:
    """Return the issues of files, given by name and content.

    `here` is the root folder (`/`) of a machine to compare topologies with. An unreadable file is
    an issue. But if no file can be read, the InputError of the first file is raised.

    >>> result = lint_files([("topo.xml", b'<system version="2"><cpu numaid="0"/></system>')])
    >>> [issue.id for issue in result.issues]
    ['no-gpu']
    """
    topologies: list[Topology] = []
    graphs: list[Graphs] = []
    order: list[str] = []
    issues: list[Issue] = []
    first: InputError | None = None
    for source, data in files:
        order.append(source)
        try:
            found = load(data, source)
        except InputError as error:
            first = first or error
            issues.append(_unreadable(source, error))
            continue
        if isinstance(found, Graphs):
            graphs.append(found)
        else:
            topologies.append(found)
            issues += lint_topology(found)
            if here is not None:
                issues += check_here(found, here)
        if isinstance(found, Graphs) or found.dialect in _XML:
            issues += _refused(data, source)
    if first is not None and not topologies and not graphs:
        raise first
    for one in graphs:
        issues += check_graphs(one, topologies)
    issues += check_across(topologies)
    return LintResult(
        topologies=tuple(topologies),
        graphs=tuple(graphs),
        issues=tuple(_sorted(issues, order)),
        files=len(order),
    )


def _unreadable(source: str, error: InputError) -> Issue:
    line = (error.where or "").removeprefix(source).removeprefix(":")
    return Issue(
        severity=Severity.ERROR,
        id="unreadable",
        source=source,
        line=int(line) if line.isdecimal() else None,
        message=error.message,
        hint=error.hint or "dump it again",
    )


def lint_topology(topology: Topology) -> list[Issue]:
    """Return the issues found by the rules that need only one topology."""
    return [
        *check_links(topology),
        *check_nvlinks(topology),
        *check_shape(topology),
        *check_balance(topology),
    ]


def _refused(data: bytes, source: str) -> list[Issue]:
    encoding = encoding_of(data[:4])
    # Keep the byte order mark: a rule reports it.
    text = data.decode("utf-8" if encoding == "utf-8-sig" else encoding, errors="replace")
    return [
        Issue(
            severity=Severity.ERROR if one.fatal else Severity.WARNING,
            id=one.id,
            source=source,
            line=one.line,
            message=one.message,
            hint=one.hint,
        )
        for one in refusals(text)
    ]


def _sorted(issues: list[Issue], order: Sequence[str]) -> list[Issue]:
    places = {source: place for place, source in enumerate(order)}
    return sorted(
        issues, key=lambda one: (places[one.source], _ORDER.index(one.severity), one.line or 0)
    )
