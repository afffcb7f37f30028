# SPDX-License-Identifier: Apache-2.0
"""Rules for the NVLinks of a file's GPUs."""

from collections import Counter
from collections.abc import Iterator

from nccltune.model.finding import Severity
from nccltune.model.topology import Topology
from nccltune.topology.hardware.classify import kind_of_target
from nccltune.topology.hardware.links import NodeKind
from nccltune.topology.lint.issue import Issue, gpus, issue_about


def check_nvlinks(topology: Topology) -> Iterator[Issue]:
    """Report NVLinks that are missing, that lead nowhere, or that only one end lists."""
    found = gpus(topology)
    by_bus = {one.device.bus_id.lower(): gpu for one, gpu in found}
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-self",
        (
            one.device for one, gpu in found
            if any(link.target.lower() == one.device.bus_id.lower() for link in gpu.nvlinks)
        ),
        "{}: an NVLink whose target is the GPU itself; NCCL does not use it",
        "write the other GPU's bus id, or leave the <nvlink> out: NCCL then asks NVML",
    )  # fmt: skip
    counts = {
        one.device.bus_id: sum(
            link.count for link in gpu.nvlinks
            if link.target.lower() != one.device.bus_id.lower()
        )
        for one, gpu in found
    }  # fmt: skip
    yield from _uneven(topology, counts)
    one_way = []
    unknown = []
    for one, gpu in found:
        me = one.device.bus_id.lower()
        for link in gpu.nvlinks:
            target = link.target.lower()
            peer = by_bus.get(target)
            if kind_of_target(link, peer is not None) is not NodeKind.GPU or target == me:
                continue
            if peer is None:
                unknown.append(one.device)
            elif not any(back.target.lower() == me for back in peer.nvlinks):
                one_way.append(one.device)
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-one-way", dict.fromkeys(one_way),
        "{}: an NVLink that the GPU at its other end does not list; NCCL stops with an error",
        "dump the topology again with all GPUs of the node in one job; check nvidia-smi nvlink -s",
    )  # fmt: skip
    yield from issue_about(
        topology, Severity.NOTE, "nvlink-elsewhere", dict.fromkeys(unknown),
        "{}: an NVLink to a GPU that the file does not name; NCCL does not use it",
        "a dump has the GPUs of one job only; dump from a job on all GPUs of the node",
    )  # fmt: skip


def _uneven(topology: Topology, counts: dict[str, int]) -> Iterator[Issue]:
    """Report GPUs with fewer NVLinks than most GPUs."""
    if len(set(counts.values())) < 2:
        return
    devices = {one.device.bus_id: one.device for one, _ in gpus(topology)}
    usual = Counter(counts.values()).most_common()
    # If several counts are equally frequent, take the highest as the healthy one.
    most = max(count for count, times in usual if times == usual[0][1])
    none = [bus_id for bus_id, count in counts.items() if not count]
    fewer = [bus_id for bus_id, count in counts.items() if 0 < count < most]
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-missing", (devices[bus_id] for bus_id in none),
        f"{{}}: no NVLink, where its peers have {most or max(counts.values())}; NCCL falls back to "
        "a few slow channels without a warning",
        "take the GPU out of service and reset it (nvidia-smi nvlink -s); do not hide the fault "
        "with a topology file",
    )  # fmt: skip
    for count in sorted({counts[bus_id] for bus_id in fewer}):
        yield from issue_about(
            topology, Severity.ERROR, "nvlink-fewer",
            (devices[bus_id] for bus_id in fewer if counts[bus_id] == count),
            f"{{}}: {count} NVLinks, where its peers have {most}",
            "inactive links: nvidia-smi nvlink -s, Xid 74 in dmesg; reset the GPU or replace it",
        )  # fmt: skip
