# SPDX-License-Identifier: Apache-2.0
"""Rules for nodes that differ from the other nodes. The slowest node limits the whole job."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nccltune.model.finding import Severity
from nccltune.model.topology import Topology
from nccltune.topology.hardware import bandwidth
from nccltune.topology.lint.issue import Issue, gpus, nets, placed, shortened


def check_across(topologies: Sequence[Topology]) -> Iterator[Issue]:
    """Report properties that differ between the nodes of several files.

    The value of the majority of nodes is taken as right. If no value has a majority, the value of
    the first file is taken.
    """
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
    """Return the properties that should be equal on all nodes of a job, as text."""
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
