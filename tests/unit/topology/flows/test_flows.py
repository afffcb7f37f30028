# SPDX-License-Identifier: Apache-2.0
"""Flows and ceilings of cases that can be calculated by hand.

The figures are round numbers, not the defaults. A Gen4 x16 link carries 24 GB/s here.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.optimize import linprog

from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.topology.flows.calibration import COSTS, Calibration, Figure, defaults
from nccltune.topology.flows.ceiling import Ceiling, Demand, ceiling, max_min
from nccltune.topology.flows.flows import Flows, algorithms, domain_flows, flows
from nccltune.topology.flows.settings import flow_settings
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.hardware.subset import first_gpus
from nccltune.topology.nccl_model.routes import FlowKind, NodeRoutes, node_routes
from nccltune.topology.nccl_model.search import Searched, search
from tests.unit.topology.samples import sample

SWITCH = "PCI 0000:3d:00.0"


WIRE = 28.8 / 24.0
PCIE = ("p2p_write", "gdr_write", "gdr_read", "gpu_to_host", "host_to_gpu", "host_to_nic",
        "nic_to_host")  # fmt: skip


def perfect(**figures: float) -> Calibration:
    """Return a calibration with all efficiencies 1 and no costs, except `figures`.

    Figures of PCIe are relative to 24 GB/s.
    """
    values = dict.fromkeys(defaults().values, 1.0)
    values |= {"read_request": 0.0, "read_beside_peer_writes": 0.0} | figures
    values |= {name: values[name] / WIRE for name in PCIE}
    values |= {name: values[name] * WIRE for name in COSTS}
    return Calibration(name="test", values={k: Figure(v, "test") for k, v in values.items()})


def all_reduce(
    node: NodeRoutes, searched: Searched, algorithm: Algorithm, nodes: int, *, channels: int
) -> Flows:
    return flows(
        node,
        searched,
        collective=Collective.ALLREDUCE,
        algorithm=algorithm,
        nodes=nodes,
        channels=channels,
    )


def of(
    node: NodeRoutes,
    nodes: int,
    calibration: Calibration,
    algorithm: Algorithm = Algorithm.RING,
    collective: Collective = Collective.ALLREDUCE,
    channels: int | None = None,
) -> Ceiling:
    searched = searches(node, nodes > 1)
    found = flows(
        node,
        searched,
        collective=collective,
        algorithm=algorithm,
        nodes=nodes,
        channels=channels or searched.connected_channels(nodes, 80),
    )
    return ceiling(node, found, calibration)


@functools.cache
def searches(node: NodeRoutes, several: bool) -> Searched:
    return search(node, nodes=2 if several else 1)


@functools.cache
def dgx() -> NodeRoutes:
    return node_routes(sample("dgx"))


@functools.cache
def l40s(gpus: int = 4, **settings: str) -> NodeRoutes:
    return node_routes(first_gpus(sample("switch-l40s"), gpus), flow_settings(settings).path)


def loads(found: Ceiling, link: str) -> dict[str, float]:
    full = next(one for one in found.links if one.link.name == link)
    scale = WIRE if full.link.kind is LinkKind.PCI else 1.0
    return {kind.value: pytest.approx(load / scale) for kind, load in full.by_kind.items()}


def test_a_ring_in_a_node_fills_each_gpus_link_both_ways_whatever_their_number():
    for gpus in (2, 3, 4):
        found = of(l40s(gpus), 1, perfect())
        assert found.busbw_gb_per_s == pytest.approx(24.0)
        for gpu in range(gpus):
            assert loads(found, f"GPU{gpu} -> {SWITCH}") == {"p2p_write": 24.0}
            assert loads(found, f"{SWITCH} -> GPU{gpu}") == {"p2p_write": 24.0}


def test_an_efficiency_makes_a_link_full_earlier():
    assert of(l40s(), 1, perfect(p2p_write=0.5)).busbw_gb_per_s == pytest.approx(12.0)


def test_odd_nodes_swap_their_channels_in_pairs_only_where_their_number_is_even():
    def roles(channels: int) -> list[str]:
        searched = searches(dgx(), True)
        assert searched.ring.cross_nic == 2
        found = all_reduce(dgx(), searched, Algorithm.RING, 2, channels=channels)
        return [role.words for role in found.roles]

    assert roles(4) == ["even node", "odd node"]
    assert roles(3) == ["node"]


def test_a_ring_over_nodes_has_each_kind_where_it_belongs():
    """Two equal rings of 12 each: in by NICs to GPU0, along the GPUs, out by NICs from GPU3. The
    GPUs' links of 24 are the limit, not the NICs' 2 x 12.5."""
    found = of(l40s(), 2, perfect())
    assert found.busbw_gb_per_s == pytest.approx(24.0)
    assert loads(found, f"{SWITCH} -> GPU0") == {"gdr_write": 24.0}
    assert loads(found, f"GPU0 -> {SWITCH}") == {"p2p_write": 24.0}
    assert loads(found, f"{SWITCH} -> GPU3") == {"p2p_write": 24.0, "read_request": 0.0}
    assert loads(found, f"GPU3 -> {SWITCH}") == {"gdr_read": 24.0}
    assert loads(found, "NIC 0000:4a:00.0 -> NET mlx5_0") == {"network": 12.0}
    assert not any("CPU" in one.link.name for one in found.links)


def test_without_gdr_reads_a_send_goes_up_to_host_memory_and_down_again():
    found = of(l40s(NCCL_NET_GDR_READ="0"), 2, perfect())
    assert loads(found, f"{SWITCH} -> CPU0") == {"gpu_to_host": 24.0, "read_request": 0.0}
    assert loads(found, f"CPU0 -> {SWITCH}") == {"host_to_nic": 24.0}
    assert loads(found, "CPU0 -> MEM0") == {"gpu_to_host": 24.0}
    assert loads(found, "MEM0 -> CPU0") == {"host_to_nic": 24.0}
    assert loads(found, f"{SWITCH} -> NIC 0000:4a:00.0") == {"host_to_nic": 12.0}


def test_without_gdr_at_all_both_ends_go_through_host_memory():
    found = of(l40s(NCCL_NET_GDR_LEVEL="LOC"), 2, perfect())
    up = f"{SWITCH} -> CPU0"
    assert loads(found, up) == {"gpu_to_host": 12.0, "nic_to_host": 12.0, "read_request": 0.0}
    assert found.busbw_gb_per_s == pytest.approx(12.0)
    assert found.bottleneck.link.name in (up, f"CPU0 -> {SWITCH}")


def test_without_p2p_all_hops_share_the_uplink():
    found = of(l40s(NCCL_P2P_DISABLE="1"), 1, perfect())
    assert found.busbw_gb_per_s == pytest.approx(24.0 / 4)
    assert loads(found, f"{SWITCH} -> CPU0")["gpu_to_host"] == 24.0
    assert loads(found, f"CPU0 -> {SWITCH}") == {"host_to_gpu": 24.0}


def test_read_requests_load_the_other_direction():
    """With one GPU per node, NIC writes w = r and read requests 0.2 r share a direction: 1.2 r =
    24."""
    found = of(l40s(1), 2, perfect(read_request=0.2))
    assert found.busbw_gb_per_s == pytest.approx(20.0)
    assert found.bottleneck.link.name == f"{SWITCH} -> GPU0"
    assert loads(found, f"{SWITCH} -> GPU0") == {"gdr_write": 20.0, "read_request": 4.0}


def test_reads_are_held_up_by_writes_of_peers_and_not_by_those_of_nics():
    figures = perfect(read_request=0.0, read_beside_peer_writes=0.5)
    assert of(l40s(1), 2, figures).busbw_gb_per_s == pytest.approx(24.0)
    several = of(l40s(2), 2, figures)
    assert several.busbw_gb_per_s == pytest.approx(16.0)
    assert loads(several, f"{SWITCH} -> GPU1") == {"p2p_write": 16.0, "read_request": 8.0}
    without = of(l40s(2, NCCL_NET_GDR_READ="0"), 2, figures)
    assert without.busbw_gb_per_s == pytest.approx(24.0)


def test_a_tree_in_a_node_loads_the_inner_gpus_twice():
    """In a chain of 3 each edge carries the buffer up and down, so the GPU in the middle sends it
    twice. At bus bandwidth b its link carries 2 * b / (2 * 2/3) = 1.5 b."""
    found = of(l40s(3), 1, perfect(), Algorithm.TREE)
    assert found.bottleneck.link.name in (f"GPU1 -> {SWITCH}", f"{SWITCH} -> GPU1")
    assert found.busbw_gb_per_s == pytest.approx(24.0 / 1.5)


def test_trees_of_two_nodes_go_over_the_nic_rate():
    """On two nodes of one GPU, an all-reduce of S sends S out of each node, half of it by each
    tree. Bus bandwidth is S/t, and links carry S/t each way: NICs 25, the GPU's link 24."""
    found = of(l40s(1), 2, perfect(), Algorithm.TREE)
    assert found.busbw_gb_per_s == pytest.approx(24.0)
    four = of(l40s(1), 4, perfect(), Algorithm.TREE)
    inner = next(one for one in four.links if one.role.startswith("node (inner"))
    assert inner.used == pytest.approx(four.bottleneck.used)
    # An inner node sends to its parent and its children in one tree, and is a leaf in the other.
    # That is 3 or 2 of 4 halves of S, and S/t is 4/6 of the bus bandwidth.
    sent = [
        one
        for one in four.links
        if one.link.name == f"GPU0 -> {SWITCH}" and one.role == "node (inner and leaf)"
    ]
    sending = sent[0].by_kind[FlowKind.GDR_READ] / WIRE
    assert sending == pytest.approx(four.busbw_gb_per_s * 4 / 3)


def test_nvls_tree_of_four_nodes_is_limited_by_the_nics_of_inner_nodes():
    """An inner node has three edges in one tree and one in the other, so 4 halves of S/8 leave each
    NIC, which gets 48 over PCIe here. S/t is 192, and bus bandwidth is 62/32 of it."""
    found = of(dgx(), 4, perfect(), Algorithm.NVLS_TREE)
    assert found.busbw_gb_per_s == pytest.approx(192.0 * 62 / 32)
    assert found.bottleneck.link.kind is LinkKind.PCI
    assert found.bottleneck.role == "node (inner and leaf)"


def test_one_domain_of_several_nodes_has_no_nic_in_the_way():
    """72 GPUs send S and S/72 each: NVLink allows S/t of 394.2 * 72/73. A ring sends S * 142/72."""
    found = ceiling(dgx(), domain_flows(dgx(), Algorithm.NVLS, 72), perfect())
    assert found.busbw_gb_per_s == pytest.approx(394.2 * 72 / 73 * 142 / 72)
    ring = ceiling(dgx(), domain_flows(dgx(), Algorithm.RING, 72), perfect())
    assert ring.busbw_gb_per_s == pytest.approx(394.2)
    assert {one.link.kind for one in (*found.links, *ring.links)} == {LinkKind.NVLINK}


def test_which_algorithms_there_are():
    hopper, ada = dgx(), l40s()
    ring, tree, nvls = Algorithm.RING, Algorithm.TREE, Algorithm.NVLS
    assert algorithms(Collective.ALLREDUCE, hopper, 1, nvls=None) == [ring, tree, nvls]
    assert algorithms(Collective.ALLREDUCE, hopper, 1, nvls=False) == [ring, tree]
    tree_of_nvls = Algorithm.NVLS_TREE
    assert algorithms(Collective.ALLREDUCE, hopper, 2, nvls=None) == [ring, tree, tree_of_nvls]
    assert algorithms(Collective.ALLREDUCE, hopper, 2, nvls=False) == [ring, tree]
    assert algorithms(Collective.ALLREDUCE, ada, 1, nvls=None) == [ring, tree]
    assert algorithms(Collective.ALLGATHER, hopper, 1, nvls=None) == [ring]


def test_pxn_sends_through_the_gpu_beside_the_nic():
    node = dgx()
    kinds = [leg.kind for leg in node.gpu_net[0][1].legs]
    assert kinds == [FlowKind.NVLINK, FlowKind.GDR_READ, FlowKind.NETWORK]
    assert [leg.kind for leg in dgx().gpu_net[1][1].legs] == kinds[1:]


@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.TREE])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_nodes_of_one_role_are_as_good_as_all_of_them(nodes: int, algorithm: Algorithm):
    """A separate role for each node gives the same ceiling as one role for equal nodes."""
    node = l40s(2)
    searched = searches(node, True)
    found = all_reduce(node, searched, algorithm, nodes, channels=4)
    assert sum(role.count for role in found.roles) == nodes
    unfolded = replace(
        found,
        roles=tuple(
            replace(role, words=f"{role.words} {number}", count=1)
            for role in found.roles
            for number in range(role.count)
        ),
    )
    one = ceiling(node, found, defaults())
    all_of_them = ceiling(node, unfolded, defaults())
    assert one.busbw_gb_per_s == pytest.approx(all_of_them.busbw_gb_per_s)
    assert one.channel_rates == pytest.approx(all_of_them.channel_rates)


def test_what_leaves_a_node_comes_in_elsewhere():
    """Summed over all nodes, the network carries as much out as in: for ring and tree, for odd and
    even numbers of nodes."""
    node = l40s(2)
    for nodes in (2, 3, 4, 7):
        searched = searches(node, True)
        for algorithm in (Algorithm.RING, Algorithm.TREE):
            found = all_reduce(node, searched, algorithm, nodes, channels=4)
            out, into = 0.0, 0.0
            for role in found.roles:
                for part in role.parts:
                    if part.leg.kind is FlowKind.NETWORK:
                        leaves = node.links[part.leg.links[0]].target.startswith("NET")
                        out += role.count * part.amount * leaves
                        into += role.count * part.amount * (not leaves)
            assert out == pytest.approx(into)
            # In a ring every channel's bytes leave each node once. In a tree they cross each edge
            # twice.
            ranks = 2 * nodes
            each = (
                nodes if algorithm is Algorithm.RING else 2 * (nodes - 1) * ranks / (2 * ranks - 2)
            )
            assert out == pytest.approx(4 * each)


A, B, C = {"a": 1.0}, {"b": 1.0}, {"c": 1.0}


@pytest.mark.parametrize(
    ("demands", "capacity", "rates", "held_by", "used"),
    [
        ([Demand(A), Demand(A)], {"a": 10}, (5, 5), "aa", {"a": 10}),
        # An example of Bertsekas and Gallager: two links, and one flow over both.
        ([Demand(A | B), Demand(A), Demand(B)], {"a": 2, "b": 10}, (1, 1, 9), "aab", None),
        # A cost above one eats more of the link.
        ([Demand({"a": 1.25}), Demand(A)], {"a": 9}, (4, 4), "aa", None),
        ([Demand(A, count=3), Demand(A | B)], {"a": 8, "b": 1}, (7 / 3, 1), "ab", None),
        # An unused link is empty, and a dead one stops.
        ([Demand(A)], {"a": 0, "b": 3}, (0,), "a", {"a": 0, "b": 0}),
        # A link of width -1 stops a ring, whose other links then stay empty.
        ([Demand(A | B)], {"a": -1.5, "b": 3}, (0,), "a", None),
        (
            [Demand({"a": 1, "b": 2, "c": 1}), Demand(C)],
            {"a": 0, "b": 24, "c": 12},
            (0, 12),
            "ac",
            {"a": 0, "b": 0, "c": 12},
        ),
        # Of links that fill together the one loaded most is named.
        ([Demand({"a": 1, "b": 2, "c": 2})], {"a": 5, "b": 10, "c": 10}, (5,), "b", None),
        ([], {"a": 1}, (), "", {"a": 0}),
    ],
)
def test_shares(demands, capacity, rates, held_by, used):
    shares = max_min(demands, capacity)
    assert shares.rates == pytest.approx(rates)
    assert shares.held_by == tuple(held_by)
    assert used is None or shares.used == pytest.approx(used)


def test_a_demand_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="no bound"):
        max_min([Demand({"a": 0.0})], {"a": 1.0})


LINKS = "abcdef"
DEMANDS = st.lists(
    st.builds(
        Demand,
        st.dictionaries(st.sampled_from(LINKS), st.floats(0.1, 4.0), min_size=1),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=6,
)
CAPACITY = st.fixed_dictionaries({name: st.floats(0.5, 500.0) for name in LINKS})


@settings(max_examples=60, deadline=None)
@given(DEMANDS, CAPACITY)
def test_no_share_can_grow_without_shrinking_a_smaller_one(demands, capacity):
    """This is the definition of max-min fairness: each demand uses a full link on which no other
    demand has a higher rate."""
    shares = max_min(demands, capacity)
    used = {
        name: sum(
            demand.loads.get(name, 0.0) * demand.count * rate
            for demand, rate in zip(demands, shares.rates, strict=True)
        )
        for name in LINKS
    }
    for name in LINKS:
        assert used[name] <= capacity[name] * (1 + 1e-6)
        assert used[name] == pytest.approx(shares.used[name])
    for number, demand in enumerate(demands):
        rate = shares.rates[number]
        assert rate > 0
        full = [name for name in demand.loads if used[name] >= capacity[name] * (1 - 1e-5)]
        assert any(
            all(
                other <= rate * (1 + 1e-5)
                for rival, other in zip(demands, shares.rates, strict=True)
                if name in rival.loads
            )
            for name in full
        )
        assert shares.held_by[number] in full


@settings(max_examples=60, deadline=None)
@given(DEMANDS, CAPACITY)
def test_shares_are_those_of_linear_programs(demands, capacity):
    assert max_min(demands, capacity).rates == pytest.approx(linear_rates(demands, capacity))


_HELD = 1e-7
"""A demand with a multiplier above this cannot grow. The multipliers of one step add up to 1."""


def linear_rates(demands: Sequence[Demand], capacity: Mapping[str, float]) -> list[float]:
    """Return the rates of `demands`: maximize the smallest, fix the demands that cannot grow, and
    repeat with the others."""
    names = sorted(capacity)
    # Scale by the largest capacity, because the solver's tolerances are absolute.
    scale = max(capacity.values())
    matrix = np.zeros((len(names), len(demands)))
    for column, demand in enumerate(demands):
        for name, load in demand.loads.items():
            matrix[names.index(name), column] += load * demand.count
    left = np.array([capacity[name] for name in names]) / scale
    rates = np.zeros(len(demands))
    rising = list(range(len(demands)))
    while rising:
        level, held = _step(matrix[:, rising], left)
        stopped = [demand for demand, is_held in zip(rising, held, strict=True) if is_held]
        rates[stopped] = level
        left = np.maximum(left - matrix[:, stopped].sum(axis=1) * level, 0.0)
        rising = [demand for demand in rising if demand not in stopped]
    return [float(rate) * scale for rate in rates]


def _step(matrix: np.ndarray, left: np.ndarray) -> tuple[float, list[bool]]:
    """Return the level that all columns reach together, and the columns that end there.

    The program is: maximize t where matrix x <= left and t <= x. The multiplier of `t <= x` is
    positive only for a demand on a link that is full in every solution, so it ends at t. At least
    one does.
    """
    links, demands = matrix.shape
    above = np.hstack([-np.eye(demands), np.ones((demands, 1))])
    answer = linprog(
        np.append(np.zeros(demands), -1.0),
        A_ub=np.vstack([np.hstack([matrix, np.zeros((links, 1))]), above]),
        b_ub=np.append(left, np.zeros(demands)),
        bounds=(0, None),
        method="highs",
    )
    assert answer.status == 0
    multipliers = -np.asarray(answer.ineqlin.marginals)[links:]
    limit = min(_HELD, float(multipliers.max()))
    return float(answer.x[-1]), [bool(one >= limit) for one in multipliers]
