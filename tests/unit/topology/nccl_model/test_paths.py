# SPDX-License-Identifier: Apache-2.0
"""The paths that NCCL uses."""

import re
from collections.abc import Mapping

import pytest

from nccltune.model.topology import Topology
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.links import Link, LinkGraph, LinkKind, NodeKind, Vertex
from nccltune.topology.hardware.subset import first_gpus
from nccltune.topology.nccl_model.paths import Path, PathKind, Paths, paths
from nccltune.topology.nccl_model.settings import level_of, path_settings
from tests.unit.topology.samples import FOLDER, changed, sample


def find(
    topology: str | Topology,
    settings: Mapping[str, str] | None = None,
    version: Version | None = None,
) -> Paths:
    if isinstance(topology, str):
        topology = sample(topology)
    graph = link_graph([topology], nccl_version=version)
    return paths(graph, settings=path_settings(settings or {}), nccl_version=version)


def short(path: Path) -> tuple[str, float, int]:
    return (path.kind.name, round(path.gb_per_s, 1), path.hops)


# NCCL 2.28.9's log on the machine whose dump is h200x4-dump.xml.
LOG = """\
GPU/0-60 :GPU/0-60 (0/5000.0/LOC) GPU/0-70 (2/370.8/NVL) GPU/0-80 (2/370.8/NVL) \
GPU/0-90 (2/370.8/NVL) NVS/0-0 (1/370.8/NVL) CPU/0-ffffffffffffff (1/48.0/PHB) NET/0-0 (3/1.2/PHB)
GPU/0-80 :GPU/0-60 (2/370.8/NVL) GPU/0-70 (2/370.8/NVL) GPU/0-80 (0/5000.0/LOC) \
GPU/0-90 (2/370.8/NVL) NVS/0-0 (1/370.8/NVL) CPU/0-ffffffffffffff (1/48.0/PHB) NET/0-0 (3/1.2/PHB)
NET/0-0 :GPU/0-60 (3/1.2/PHB) GPU/0-70 (3/1.2/PHB) GPU/0-80 (3/1.2/PHB) \
GPU/0-90 (3/1.2/PHB) CPU/0-ffffffffffffff (2/1.2/PHB) NET/0-0 (0/5000.0/LOC)
"""
NAMES = {
    "GPU/0-60": "GPU0", "GPU/0-70": "GPU1", "GPU/0-80": "GPU2", "GPU/0-90": "GPU3",
    "NVS/0-0": "NVS", "CPU/0-ffffffffffffff": "CPU", "NET/0-0": "NET eth0",
}  # fmt: skip


def check_log(log: str, found: Paths) -> int:
    """Compare each path of NCCL's path lines. Return their number."""
    count = 0
    for source, rest in re.findall(r"((?:GPU|NET)/\S+) :(\S.*)", log):
        for target, hops, width, kind in re.findall(r"(\S+) \((\d+)/([\d.]+)/(\w+)\)", rest):
            path = found.between(NAMES[source], NAMES[target])
            # NCCL truncates 1.25 to 1.2.
            expected = (path.hops, f"{path.gb_per_s - 0.001:.1f}", path.kind.name)
            assert expected == (int(hops), width if width != "5000.0" else "5000.0", kind)
            count += 1
    return count


def test_the_log_of_the_h200_machine() -> None:
    assert check_log(LOG, find("h200x4-dump", version=(2, 28, 9))) == 20
    assert check_log(LOG, find("h200x4-dump")) == 20


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.xml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("version", [(2, 28, 9), None])
def test_every_path_holds_together(path, version: Version | None) -> None:  # type: ignore[no-untyped-def]
    if path.stem.endswith("-graph"):
        return
    graph = link_graph([sample(path.stem)], nccl_version=version)
    found = paths(graph, nccl_version=version)
    for source in graph.vertices:
        for target in graph.vertices:
            one = found.between(source.name, target.name)
            assert (one.source, one.target) == (source.name, target.name)
            if one.kind is PathKind.DIS:
                continue
            assert one.stops[-1] == target.name
            assert all(
                link.source == stop for link, stop in zip(one.links, one.stops, strict=False)
            )
            widths = [link.gb_per_s for link in one.links]
            assert one.gb_per_s == min([5000.0, *widths])


def test_one_switch() -> None:
    found = find("switch-l40s")
    assert short(found.between("GPU0", "GPU3")) == ("PIX", 24.0, 2)
    assert short(found.between("GPU0", "NET mlx5_1")) == ("PIX", 12.5, 3)
    assert found.between("GPU0", "GPU3").why is None
    assert found.p2p("GPU0", "GPU3")
    assert found.nearest_nets("GPU2") == ["NET mlx5_0", "NET mlx5_1"]


def test_several_bridges_are_pxb() -> None:
    found = find("virtual-switches")
    assert short(found.between("GPU0", "NET mlx5_0")) == ("PXB", 0.2, 4)


def test_to_the_memory_of_a_cpu() -> None:
    found = find("dgx")
    path = found.between("GPU0", "MEM1")
    assert (path.kind, path.gb_per_s) == (PathKind.SYS, 22.0)
    assert path.stops == ("GPU0", "PCI 0000:18:00.0", "CPU0", "CPU1", "MEM1")
    back = found.between("MEM1", "NET mlx5_0")
    assert back.stops[:3] == ("MEM1", "CPU1", "CPU0")
    assert found.between("MEM0", "MEM1").stops == ("MEM0", "CPU0", "CPU1", "MEM1")


def test_pxn() -> None:
    found = find("dgx")
    path = found.between("GPU0", "NET mlx5_5")
    assert short(path) == ("PXN", 48.0, 5)
    assert path.why == "PXN: through GPU5"
    assert path.stops[:3] == ("GPU0", "NVS", "GPU5")
    # PXN applies only to sending.
    assert found.between("NET mlx5_5", "GPU0").kind is PathKind.SYS
    assert short(found.between("GPU5", "NET mlx5_5")) == ("PIX", 48.0, 3)
    off = find("dgx", {"NCCL_PXN_DISABLE": "1"})
    assert off.between("GPU0", "NET mlx5_5").kind is PathKind.SYS
    assert off.between("GPU0", "NET mlx5_1").kind is PathKind.PHB


def test_pxn_needs_reading_since_2_30() -> None:
    settings = {"NCCL_NET_GDR_READ": "0"}
    assert find("dgx", settings).between("GPU0", "NET mlx5_5").kind is PathKind.SYS
    old = find("dgx", settings, (2, 29, 7))
    assert old.between("GPU0", "NET mlx5_5").kind is PathKind.PXN


def test_no_p2p() -> None:
    found = find("switch-l40s", {"NCCL_P2P_DISABLE": "1"})
    path = found.between("GPU0", "GPU1")
    assert path.kind is PathKind.PHB
    assert path.stops == ("GPU0", "PCI 0000:3d:00.0", "CPU0", "PCI 0000:3d:00.0", "GPU1")
    assert path.why == "no P2P (PIX is beyond LOC): through CPU0"
    assert not found.p2p("GPU0", "GPU1")
    assert found.p2p("GPU0", "GPU0")


def test_p2p_across_the_cpu() -> None:
    pairs = find("nvlink-pairs")
    assert short(pairs.between("GPU0", "GPU1")) == ("NVL", 48.0, 1)
    path = pairs.between("GPU0", "GPU2")
    assert path.why == "no P2P (SYS is beyond PXB): through CPU1"
    far = find("nvlink-pairs", {"NCCL_P2P_LEVEL": "SYS"})
    assert far.between("GPU0", "GPU2").why is None
    assert far.p2p("GPU0", "GPU2")
    near = find("nvlink-pairs", {"NCCL_P2P_LEVEL": "0"})
    assert not near.p2p("GPU0", "GPU1")


def test_p2p_on_amd() -> None:
    """Since 2.23 P2P crosses the CPU only for a pair of GPUs; before, for any number."""
    assert not find("flat-vm").p2p("GPU0", "GPU1")
    assert find("flat-vm", version=(2, 22, 3)).p2p("GPU0", "GPU1")
    assert find("skeleton-vm").p2p("GPU0", "GPU1")
    assert not find("nvlink-pairs", version=(2, 22, 3)).p2p("GPU0", "GPU2")


def test_no_gdr() -> None:
    found = find(changed("switch-l40s", ('maxconn="131072" gdr="1"', 'gdr="0"')))
    path = found.between("GPU0", "NET mlx5_0")
    assert path.kind is PathKind.PHB
    assert path.why == (
        "no GPUDirect RDMA (NET mlx5_0 does not support it): through CPU0"
    )  # fmt: skip
    assert found.between("NET mlx5_0", "GPU0").kind is PathKind.PHB
    level = find("switch-l40s", {"NCCL_NET_GDR_LEVEL": "LOC"})
    assert level.between("GPU0", "NET mlx5_0").why == (
        "no GPUDirect RDMA (PIX is beyond LOC): through CPU0"
    )


def test_gdr() -> None:
    found = find("switch-l40s")
    assert found.gdr("GPU0", "NET mlx5_0", read=False) == (True, "PIX is within P2C")
    assert found.gdr("GPU0", "NET mlx5_0", read=True).allowed
    off = find("switch-l40s", {"NCCL_NET_GDR_READ": "0"})
    assert off.gdr("GPU0", "NET mlx5_0", read=True) == (False, "NCCL_NET_GDR_READ=0")
    assert off.gdr("GPU0", "NET mlx5_0", read=False).allowed
    # The search does not model the copy through host memory that follows.
    assert off.between("GPU0", "NET mlx5_0").kind is PathKind.PIX
    assert find("h200x4-dump").gdr("GPU0", "NET eth0", read=False).allowed is False


def test_reads_by_default() -> None:
    old_gpu = changed("switch-l40s", ('sm="89"', 'sm="75"'))
    off = find(old_gpu).gdr("GPU0", "NET mlx5_0", read=True)
    assert off == (False, "reading is off by default without NVLink (sm75)")
    assert find(old_gpu, {"NCCL_NET_GDR_READ": "1"}).gdr("GPU0", "NET mlx5_0", read=True).allowed
    alone = find(first_gpus(old_gpu, 1)).gdr("GPU0", "NET mlx5_0", read=True)
    assert alone.allowed
    # Until 2.19.1 this applied to all GPUs; NVIDIA's documentation still states that.
    before = find("switch-l40s", version=(2, 18, 6))
    assert not before.gdr("GPU0", "NET mlx5_0", read=True).allowed
    assert find("dgx", version=(2, 18, 6)).gdr("GPU0", "NET mlx5_0", read=True).allowed


def test_c2c_and_pcie() -> None:
    found = find("superchip")
    path = found.between("GPU0", "NET mlx5_0")
    assert (path.kind, path.gb_per_s) == (PathKind.P2C, 48.0)
    assert path.links[0].kind is LinkKind.C2C
    assert found.gdr("GPU0", "NET mlx5_0", read=False) == (True, "P2C is within P2C")
    off = find("superchip", {"NCCL_NET_GDR_C2C": "0"})
    assert off.gdr("GPU0", "NET mlx5_0", read=False).allowed is False
    old = find("superchip", version=(2, 26, 2))
    assert old.between("GPU0", "NET mlx5_0").kind is PathKind.PHB
    assert not old.gdr("GPU0", "NET mlx5_0", read=False).allowed
    assert found.between("GPU0", "NET mlx5_1").kind is PathKind.PXN
    assert find("superchip", version=(2, 27, 5)).between("GPU0", "NET mlx5_1").kind is PathKind.SYS


def chain(*links: tuple[str, str, float]) -> LinkGraph:
    """Return a topology with GPUs joined by NVLink in pairs, all on one CPU."""
    names = sorted({end for source, target, _ in links for end in (source, target)})
    vertices = [
        Vertex(name=name, kind=NodeKind.GPU, index=place) for place, name in enumerate(names)
    ]
    made = [
        Link(source=a, target=b, kind=LinkKind.NVLINK, gb_per_s=width, how="made")
        for source, target, width in links
        for a, b in ((source, target), (target, source))
    ]
    vertices.append(Vertex(name="CPU0", kind=NodeKind.CPU, arch="x86_64", vendor="GenuineIntel"))
    made += [
        Link(source=a, target=b, kind=LinkKind.PCI, gb_per_s=12.0, how="made")
        for name in names
        for a, b in ((name, "CPU0"), ("CPU0", name))
    ]
    return LinkGraph(vertices=tuple(vertices), links=tuple(made))


def test_nvlink_through_one_gpu() -> None:
    graph = chain(("a", "b", 40.0), ("b", "c", 20.0), ("c", "d", 40.0))
    found = paths(graph)
    assert short(found.between("a", "c")) == ("NVB", 20.0, 2)
    assert found.between("a", "c").stops == ("a", "b", "c")
    # NVLink passes through at most one other GPU.
    assert found.between("a", "d").kind is PathKind.PHB
    off = paths(graph, settings=path_settings({"NCCL_NVB_DISABLE": "1"}))
    assert off.between("a", "c").kind is PathKind.PHB


def test_kind_before_bandwidth_since_2_30_7() -> None:
    graph = chain(("a", "b", 6.0))
    assert paths(graph).between("a", "b").kind is PathKind.NVL
    # Before 2.30.7 the wider path through the CPU loses because it is longer.
    assert paths(graph, nccl_version=(2, 28, 9)).between("a", "b").kind is PathKind.NVL
    ring = chain(("a", "b", 10.0), ("b", "c", 10.0))
    assert paths(ring).between("a", "c").kind is PathKind.NVB
    old = paths(ring, nccl_version=(2, 28, 9))
    assert short(old.between("a", "c")) == ("PHB", 12.0, 2)


def test_between_nodes() -> None:
    found = paths(link_graph([sample("dgx"), sample("dgx")]))
    path = found.between("node0/GPU0", "node1/GPU0")
    assert (path.kind, path.links) == (PathKind.NET, ())
    assert not found.p2p("node0/GPU0", "node1/GPU0")
    assert not found.gdr("node0/GPU0", "node1/NET mlx5_0", read=False).allowed
    assert short(found.between("node1/GPU0", "node1/GPU7")) == ("NVL", 370.8, 2)
    with pytest.raises(KeyError):
        found.between("GPU0", "GPU1")


def test_not_joined() -> None:
    lonely = LinkGraph(
        vertices=tuple(Vertex(name=name, kind=NodeKind.GPU) for name in "ab"), links=()
    )
    assert paths(lonely).between("a", "b").kind is PathKind.DIS


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (None, None), ("PXB", PathKind.PXB), ("P2C", PathKind.P2C), ("SYS", PathKind.SYS),
        ("0", PathKind.LOC), ("1", PathKind.PIX), ("3", PathKind.PHB), ("9", PathKind.SYS),
        ("4x", PathKind.SYS), ("999999999999999999999", PathKind.SYS),
        ("DIS", None), ("pxb", None), ("", None), ("-1", None),
    ],
)  # fmt: skip
def test_levels(text: str | None, level: PathKind | None) -> None:
    assert level_of(text) is level


def test_settings() -> None:
    settings = path_settings(
        {
            "NCCL_P2P_LEVEL": "NVL",
            "NCCL_P2P_DISABLE": "1",
            "NCCL_NET_GDR_READ": "-2",
            "NCCL_PXN_C2C": "0",
            "NCCL_NET_GDR_C2C": "yes",
        }
    )
    assert settings.p2p_level is PathKind.LOC
    assert settings.gdr_read is None
    assert settings.pxn_c2c is False
    assert settings.gdr_c2c is None
    assert settings.pxn
