# SPDX-License-Identifier: Apache-2.0
"""The search against NCCL's own dumps and by hand, and the trees."""

import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.formats.topology.graph_xml import GraphId, Pattern, read_graphs
from nccltune.model.topology import Cpu, Dialect, Gpu, NvLink, Pci, Topology
from nccltune.topology.flows.flows import Place, places
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.subset import first_gpus
from nccltune.topology.nccl_model.routes import node_routes
from nccltune.topology.nccl_model.search import (
    Searched,
    SearchResult,
    nvls_channels,
    search,
    search_collnet,
    search_nvls,
    speeds,
    system_bandwidths,
)
from nccltune.topology.nccl_model.search_rules import Ring
from nccltune.topology.nccl_model.settings import PathKind, PathSettings
from tests.unit.topology.samples import FOLDER, changed, sample

GRAPHS = FOLDER.parent / "graphs"
NCCL_OF_DUMPS = (2, 28, 9)
DUMPS = [
    (FOLDER / "h200x4-graph.xml", 1, 4),
    (GRAPHS / "h200x4-as-2-nodes.xml", 2, 2),
    (GRAPHS / "h200x4-as-4-nodes.xml", 4, 1),
]


@pytest.mark.parametrize(("dump", "nodes", "gpus"), DUMPS, ids=["1x4", "2x2", "4x1"])
def test_ring_and_tree_are_those_of_nccls_own_dump(dump: Path, nodes: int, gpus: int):
    graphs = read_graphs(dump.read_bytes(), dump.name)
    node = node_routes(first_gpus(sample("h200x4-dump"), gpus), version=NCCL_OF_DUMPS)
    searched = search(node, nodes=nodes, version=NCCL_OF_DUMPS)
    for found, number in ((searched.ring, GraphId.RING), (searched.tree, GraphId.TREE)):
        dumped = graphs.find(number)
        assert dumped is not None
        assert found.channels == dumped.channel_count
        assert (found.intra_gb_per_s, found.inter_gb_per_s) == pytest.approx(
            (dumped.intra_gb_per_s, dumped.inter_gb_per_s)
        )
        assert (found.intra_type.name, found.inter_type.name) == (
            dumped.intra_type,
            dumped.inter_type,
        )
        assert (found.pattern, found.cross_nic) == (dumped.pattern, dumped.cross_nic)
        assert found.same_channels == dumped.same_channels
        order = [tuple(node.gpus[gpu].index for gpu in ring.gpus) for ring in found.rings]
        assert order == [tuple(gpu.index for gpu in channel.gpus) for channel in dumped.channels]
        ends = [(ring.net_in, ring.net_out) for ring in found.rings]
        assert ends == [(channel.net_in, channel.net_out) for channel in dumped.channels]


def test_channels_that_collectives_run_with():
    """The result on 4 H200 is 24, as in the recorded samples."""
    node = node_routes(sample("h200x4-dump"), version=NCCL_OF_DUMPS)
    searched = search(node, nodes=1, version=NCCL_OF_DUMPS)
    assert searched.connected_channels(1, 90) == 24
    assert searched.connected_channels(1, 90, most=4) == 4
    assert searched.connected_channels(1, 90, least=32) == 32


def test_channels_are_doubled_for_fast_links_between_nodes_only():
    slow = search(node_routes(sample("switch-l40s")), nodes=2)
    assert (slow.ring.channels, slow.ring.intra_gb_per_s) == (2, 12.0)
    assert slow.connected_channels(2, 90) == 4
    fast = replace(slow, ring=replace(slow.ring, intra_gb_per_s=48.0))
    assert fast.connected_channels(2, 90) == 8
    assert fast.connected_channels(2, 80) == 4
    assert fast.connected_channels(1, 90) == 4


def test_bandwidths_of_the_system_as_nccl_logs_them():
    """`=== System : maxBw 370.8 totalBw 370.8 ===` in the log of the same run."""
    node = node_routes(sample("h200x4-dump"), version=NCCL_OF_DUMPS)
    assert system_bandwidths(node, inter=False) == pytest.approx((370.8, 370.8))


def test_one_switch_with_two_nics_gives_a_ring_for_each_nic():
    node = node_routes(sample("switch-l40s"))
    ring = search(node, nodes=2).ring
    assert [(one.net_in, one.net_out) for one in ring.rings] == [(0, 0), (1, 1)]
    assert ring.inter_gb_per_s == 12.0
    assert (ring.intra_type, ring.inter_type) == (PathKind.PIX, PathKind.PIX)


def test_nics_are_crossed_where_each_gpu_has_its_own():
    ring = search(node_routes(sample("dgx")), nodes=2).ring
    assert (ring.channels, ring.inter_gb_per_s, ring.cross_nic) == (8, 48.0, 2)
    for one, other in zip(ring.rings[::2], ring.rings[1::2], strict=True):
        assert (one.net_in, one.net_out) == (other.net_out, other.net_in)
    straight = search(node_routes(sample("dgx")), nodes=2, cross_nic=0).ring
    assert all(one.net_in == one.net_out for one in straight.rings)
    assert straight.inter_type is PathKind.PXN


def test_without_p2p_the_ring_shares_the_uplink_to_the_cpu():
    """Each of 4 hops books the single uplink of 24 GB/s, and 6/5 of it for the Intel CPU. A speed
    of 5 is too high."""
    node = node_routes(sample("switch-l40s"), PathSettings(p2p_level=PathKind.LOC))
    ring = search(node, nodes=1).ring
    assert (ring.channels, ring.intra_gb_per_s) == (1, 5.0)
    assert ring.intra_type is PathKind.PHB


def test_nothing_found_is_the_simple_order():
    """The link is slower than the lowest speed tried (0.12), so NCCL falls back to 0.1."""
    node = node_routes(changed("switch-l40s", ('speed="100000"', 'speed="100"')))
    ring = search(node, nodes=2).ring
    assert ring.fell_back
    assert (ring.channels, ring.intra_gb_per_s, ring.intra_type) == (1, 0.1, PathKind.SYS)
    assert ring.rings[0].gpus == (0, 1, 2, 3)


def test_one_gpu_a_node_has_a_plain_tree():
    tree = search(node_routes(first_gpus(sample("switch-l40s"), 1)), nodes=8).tree
    assert tree.pattern is Pattern.TREE


def test_speeds_by_capability_and_version():
    assert speeds(89, inter=False, version=(2, 30, 7))[0] == 40.0
    assert 11.0 not in speeds(90, inter=False, version=(2, 20, 5))
    assert 11.0 in speeds(90, inter=False, version=(2, 21, 5))
    assert 22.0 not in speeds(90, inter=True, version=(2, 19, 1))
    assert 22.0 in speeds(90, inter=True, version=(2, 19, 3))
    assert speeds(86, inter=True, version=(2, 1, 0))[0] == 48.0


@pytest.mark.parametrize(
    ("version", "fastest"),
    [
        ((2, 24, 3), [48.0, 45.0, 42.0]),
        ((2, 25, 1), [48.0, 45.0, 42.0]),
        ((2, 27, 3), [47.9, 45.0, 42.0]),
        ((2, 27, 5), [48.0, 45.1, 42.0]),
        ((2, 27, 6), [96.0, 48.0, 45.1]),
        ((2, 29, 3), [96.0, 48.0, 45.1]),
        ((2, 29, 7), [96.0, 80.0, 48.0]),
        ((2, 30, 4), [96.0, 86.0, 80.0]),
        ((2, 31, 2), [96.0, 90.2, 86.0]),
    ],
)
def test_speeds_of_blackwell_between_nodes(version: Version, fastest: list[float]):
    assert speeds(100, inter=True, version=version)[:3] == tuple(fastest)


def test_speeds_of_blackwell_on_one_node():
    assert speeds(100, inter=False, version=(2, 24, 3))[0] == 60.0
    assert speeds(100, inter=False, version=(2, 25, 1))[-1] == 19.0
    assert speeds(100, inter=False, version=(2, 27, 3))[-1] == 18.0
    assert 45.0 not in speeds(103, inter=False, version=(2, 28, 9))
    assert 45.0 in speeds(103, inter=False, version=(2, 29, 2))


def test_nvls_needs_switches_and_hopper():
    assert search_nvls(node_routes(sample("switch-l40s")), nodes=1) is None
    found = search_nvls(node_routes(sample("dgx")), nodes=1)
    assert found is not None
    assert [ring.gpus for ring in found.rings] == [(gpu,) for gpu in range(8)]
    assert (found.intra_gb_per_s, found.inter_gb_per_s) == (40.0, 60.0)


def test_collnet_needs_nics_with_collnet():
    found = search_collnet(node_routes(sample("dgx")), nodes=2, channels=8)
    assert (found.chain, found.direct) == (None, None)


def test_gpus_are_in_the_order_of_the_file():
    """NCCL numbers GPUs as the file lists them, not by their index."""
    swaps = [(f'<gpu dev="{a}"', f'<gpu dev="{b}"') for a, b in ("0x", "30", "x3")]
    node = node_routes(changed("switch-l40s", *swaps))
    assert [gpu.index for gpu in node.gpus] == [3, 1, 2, 0]
    tree = search(node, nodes=1).tree
    assert tree.rings[0].gpus[0] == 0


def test_many_gpus_and_channels_are_walked_without_recursion(monkeypatch: pytest.MonkeyPatch):
    """40 GPUs behind NVSwitches make a search of hundreds of nested steps. The recursion limit
    belongs to the whole process, so the search must not raise it."""

    def refuse(limit: int) -> None:
        raise AssertionError(f"the recursion limit was set to {limit}")

    monkeypatch.setattr(sys, "setrecursionlimit", refuse)
    node = node_routes(switched(40))
    ring = search(node, nodes=1, version=NCCL_OF_DUMPS).ring
    assert len(ring.rings[0].gpus) == 40
    assert ring.channels * ring.intra_gb_per_s <= 721.8


@pytest.mark.parametrize(
    ("sm", "gb_per_s", "nodes", "channels"),
    [(90, 45.0, 2, 8), (90, 45.5, 2, 16), (90, 48.0, 2, 16), (90, 48.0, 1, 8), (80, 48.0, 2, 8)],
)
def test_fast_rings_over_the_network_get_twice_the_channels_from_hopper_on(
    sm: int, gb_per_s: float, nodes: int, channels: int
):
    """`connect.cc`: `ringGraph.bwIntra > 45.0 && nChannels < 16`, on several nodes from sm90 on."""
    ring = ring_of(4, gb_per_s)
    assert Searched(ring, ring).connected_channels(nodes, sm) == channels


def ring_of(channels: int, gb_per_s: float = 20.0) -> SearchResult:
    return SearchResult(
        pattern=Pattern.RING, cross_nic=0, intra_gb_per_s=gb_per_s, inter_gb_per_s=gb_per_s,
        intra_type=PathKind.NVL, inter_type=PathKind.PIX, same_channels=True,
        rings=(Ring((0, 1), 0, 0),) * channels,
    )  # fmt: skip


def test_nccl_has_32_channels_up_to_2_24():
    ring = ring_of(20)
    old = Searched(ring, ring, (2, 24, 3))
    assert old.connected_channels(1, 90) == old.connected_channels(1, 90, least=64) == 32
    assert Searched(ring, ring, (2, 25, 1)).connected_channels(1, 90) == 40


@pytest.mark.parametrize(
    ("version", "sm", "nodes", "channels"),
    [
        ((2, 19, 4), 90, 2, 8),
        ((2, 20, 5), 90, 2, 16),
        ((2, 27, 7), 90, 2, 16),
        ((2, 28, 9), 90, 2, 8),
        ((2, 24, 3), 100, 1, 16),
        ((2, 26, 6), 100, 1, 32),
        ((2, 27, 7), 100, 1, 24),
        ((2, 27, 7), 100, 2, 32),
    ],
)
def test_channels_are_raised_for_nvls(version: Version, sm: int, nodes: int, channels: int):
    """Up to 2.27 the channels of NVLS are a minimum; since 2.28 NVLS has its own."""
    found = Searched(ring_of(4), ring_of(4), version)
    assert found.connected_channels(nodes, sm, nvls=True) == channels
    assert found.connected_channels(nodes, sm) == 8


def test_channels_of_nvls():
    assert nvls_channels((2, 24, 3), 100, 2) == 16
    assert nvls_channels((2, 30, 7), 90, 1) == 16
    assert nvls_channels((2, 30, 7), 103, 1) == 24


@pytest.mark.parametrize(
    ("version", "sm", "count", "channels"),
    [
        ((2, 19, 4), 90, 8, 32),
        ((2, 20, 5), 90, 8, 16),
        ((2, 24, 3), 90, 4, 16),
        ((2, 24, 3), 100, 4, 8),
        ((2, 25, 1), 100, 4, 16),
    ],
)
def test_doubling_by_version(version: Version, sm: int, count: int, channels: int):
    ring = ring_of(count, 48.0)
    assert Searched(ring, ring, version).connected_channels(2, sm) == channels


def switched(gpus: int) -> Topology:
    link = NvLink(target="fffffff:ffff:ff", count=18, target_class="0x068000")
    devices = tuple(
        Pci(
            bus_id=f"0000:{number + 1:02x}:00.0",
            class_code="0x030200",
            speed="32.0 GT/s PCIe",
            width=16,
            gpu=Gpu(index=number, sm=100, rank=number, gdr=True, nvlinks=(link,)),
        )
        for number in range(gpus)
    )
    cpu = Cpu(numa=0, arch="x86_64", vendor="GenuineIntel", family=6, model=143, devices=devices)
    return Topology(source="switched", dialect=Dialect.NCCL, cpus=(cpu,))


def parent_of(nodes: int, node: int) -> int | None:
    """Return the parent as drawn in NCCL's graph/trees.cc: the node without its lowest set bit."""
    if node == 0:
        return None
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < nodes else node ^ bit


def drawn(nodes: int) -> list[Place]:
    """Return the places of a tree from its parents: lower children are first, higher ones
    second."""
    parents = [parent_of(nodes, node) for node in range(nodes)]
    return [
        Place(
            parents[node] is not None,
            any(parent == node and child < node for child, parent in enumerate(parents)),
            any(parent == node and child > node for child, parent in enumerate(parents)),
        )
        for node in range(nodes)
    ]


@pytest.mark.parametrize("nodes", [*range(2, 34), 100, 127, 128, 1000])
def test_every_node_has_the_place_that_the_drawing_gives_it(nodes: int):
    one = drawn(nodes)
    other = (
        [one[(node - 1) % nodes] for node in range(nodes)]
        if nodes % 2
        else [one[nodes - 1 - node] for node in range(nodes)]
    )
    assert places(nodes) == dict(Counter(zip(one, other, strict=True)))


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 16, 1024])
def test_the_trees_are_connected(nodes: int):
    """Each tree has one root, and one edge down for each node with a parent."""
    found = places(nodes)
    assert sum(found.values()) == nodes
    for tree in (0, 1):
        edges = sum((both[tree].first + both[tree].second) * n for both, n in found.items())
        parents = sum(both[tree].parent * n for both, n in found.items())
        assert edges == parents == nodes - 1


def test_1024_nodes_are_a_few_different_ones():
    assert len(places(1024)) <= 8


def test_the_trees_that_nccl_logged_for_four_nodes():
    """`Tree 0 : 0 -> 2 -> 1/3/-1` and so on: NCCL 2.28.9, four nodes of one GPU."""
    root, leaf, inner = (
        Place(False, False, True),
        Place(True, False, False),
        Place(True, True, True),
    )
    assert places(4) == {(root, leaf): 1, (leaf, inner): 1, (inner, leaf): 1, (leaf, root): 1}
