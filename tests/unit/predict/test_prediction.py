# SPDX-License-Identifier: Apache-2.0
"""The choices of a prediction, the reasons for them, and what cannot be predicted."""

import re

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import read_matrix, smi_topology
from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.predict import NEWEST, LimitKind, Prediction, changes, predict
from nccltune.predict.constants import Generation, Link, constants_of
from tests.unit.predict.test_nccl_model import DATA
from tests.unit.topology.samples import MATRIX, sample

NVLS = Choice(Algorithm.NVLS, Protocol.SIMPLE)
NVLS_TREE = Choice(Algorithm.NVLS_TREE, Protocol.SIMPLE)
RING = Choice(Algorithm.RING, Protocol.SIMPLE)
TREE = Choice(Algorithm.TREE, Protocol.SIMPLE)
TREE_LL = Choice(Algorithm.TREE, Protocol.LL)
TREE_LL128 = Choice(Algorithm.TREE, Protocol.LL128)


def h200(**asked: object) -> Prediction:
    return predict(sample("h200x4-dump"), version=(2, 28, 9), **asked)  # type: ignore[arg-type]


def dgx(nodes: int, version: tuple[int, int, int] = (2, 28, 9)) -> Prediction:
    return predict(sample("dgx"), nodes=nodes, version=version)


def test_nvls_of_four_gpus_is_capped_by_bwinter_and_never_chosen() -> None:
    found = h200()
    assert found.modelled[NVLS].limit.kind is LimitKind.INTER
    assert "bwInter, 4 channels x 60 GB/s" in found.modelled[NVLS].limit.words
    assert found.modelled[NVLS].gb_per_s == pytest.approx(160.0)
    assert NVLS not in {one.choice for one in found.sizes}
    assert found.sizes[-1].choice == RING
    assert found.sizes[-1].busbw_gb_per_s == pytest.approx(359.7, abs=0.1)


def test_settings_turn_nvls_off() -> None:
    found = h200(settings={"NCCL_NVLS_ENABLE": "0"})
    assert found.communicator.nvls is None
    assert found.communicator.nvls_channels == 0
    assert found.excluded[NVLS] == "NCCL_NVLS_ENABLE=0"


def test_nvls_is_off_with_two_gpus_up_to_2_28() -> None:
    def why_off(version: tuple[int, int, int], **settings: str) -> str | None:
        return predict(sample("superchip"), version=version, settings=settings).excluded.get(NVLS)

    assert why_off((2, 28, 9)) == "needs 3 GPUs a node"
    assert why_off((2, 29, 2)) is None
    assert why_off((2, 28, 9), NCCL_NVLS_ENABLE="1") is None


def test_nvls_needs_nvswitches_and_hopper() -> None:
    assert predict(sample("nvlink-pairs")).excluded[NVLS] == "needs NVSwitches"
    path = DATA / "topologies" / "nccl-paths" / "random-2.xml"
    old = predict(read_topology(path.read_bytes(), path.name))
    assert old.excluded[NVLS] == "needs GPUs from Hopper on"


def test_the_cap_of_ll_is_that_of_the_cpu_vendor_on_several_nodes() -> None:
    one, two = dgx(1).modelled[TREE_LL], dgx(2).modelled[TREE_LL]
    assert one.limit.kind is LimitKind.GRAPH
    assert two.limit.kind is LimitKind.NODE_CAP
    assert two.limit.words.startswith("LL's cap for ")
    assert "CPUs" in two.limit.words


def test_reasons_name_the_next_best_choice_and_what_decides() -> None:
    reasons = {one.size: one.reason for one in dgx(4).sizes}
    assert reasons[8] == "latency 35.2 us, that of tree/ll128 is 65.5 us"
    assert "is limited by the cap of NVLSTree for Hopper GPUs" in reasons[8 << 30]


def test_a_choice_that_is_missing_has_a_reason() -> None:
    found = h200()
    assert found.excluded[NVLS_TREE] == "needs several nodes"
    assert found.excluded[Choice(Algorithm.COLLNET_DIRECT, Protocol.SIMPLE)] == (
        "needs several nodes"
    )
    gather = h200(collective=Collective.ALLGATHER)
    assert gather.excluded[Choice(Algorithm.PAT, Protocol.SIMPLE)] == "needs one GPU a node"
    pairs = predict(sample("nvlink-pairs"), version=(2, 28, 9))
    assert "LL128 needs NVLink between all GPUs" in pairs.excluded[TREE_LL128]


def test_pat_with_several_gpus_is_listed_and_never_chosen() -> None:
    found = predict(sample("dgx"), nodes=2, version=(2, 31, 2), collective=Collective.REDUCESCATTER)
    pat = Choice(Algorithm.PAT, Protocol.SIMPLE)
    assert found.modelled[pat].by_hand
    assert all(one.choice != pat and "pat" not in one.reason for one in found.sizes)


def test_collnet_is_off_by_default() -> None:
    path = DATA / "graphs" / "machines" / "made-106.xml"
    topology = read_topology(path.read_bytes(), path.name)
    chain = Choice(Algorithm.COLLNET_CHAIN, Protocol.SIMPLE)
    plain = predict(topology, nodes=2)
    assert plain.excluded[chain].startswith("CollNet is off")
    on = predict(topology, nodes=2, version=(2, 28, 9), settings={"NCCL_COLLNET_ENABLE": "1"})
    assert on.modelled[chain].gb_per_s == pytest.approx(7.5)
    direct = Choice(Algorithm.COLLNET_DIRECT, Protocol.SIMPLE)
    assert on.excluded[direct] == "needs NVSwitches"


def test_the_latency_of_nics_counts_twice_with_simple() -> None:
    text = (DATA / "topologies" / "dgx.xml").read_text()
    text, count = re.subn(r'latency="[^"]*"', 'latency="7"', text)
    assert count == 8
    slow = predict(read_topology(text.encode(), "slow.xml"), nodes=2, version=(2, 28, 9))
    fast = dgx(2)
    for choice, added in ((TREE_LL, 14.0), (RING, 28.0), (NVLS_TREE, 28.0)):
        more = slow.modelled[choice].latency_us - fast.modelled[choice].latency_us
        assert more == pytest.approx(added, abs=1e-3), choice


@pytest.mark.parametrize(
    ("file", "version", "tree_us", "ring_us"),
    [
        ("made-power", (2, 28, 9), 72.4, 83.6),  # the last NIC has 5 us, the first none
        ("made-power", (2, 22, 3), 188.0, 124.8),
        ("made-slow-tree", (2, 30, 7), 72.4, 78.0),  # both NICs have 7 us
        ("made-slow-tree", (2, 28, 9), 44.4, 78.0),  # no tree is found, and so no NIC
    ],
)
def test_each_graph_has_the_latency_of_its_own_nic(
    file: str, version: tuple[int, int, int], tree_us: float, ring_us: float
) -> None:
    path = DATA / "graphs" / "machines" / f"{file}.xml"
    found = predict(read_topology(path.read_bytes(), path.name), nodes=2, version=version)
    assert found.modelled[TREE].latency_us == pytest.approx(tree_us, rel=1e-5)
    assert found.modelled[RING].latency_us == pytest.approx(ring_us, rel=1e-5)


@pytest.mark.parametrize(
    ("version", "settings", "left"),
    [
        ((2, 28, 9), {"NCCL_ALGO": "Ring", "NCCL_PROTO": "^LL128"}, "ring/ll ring/simple"),
        ((2, 28, 9), {"NCCL_ALGO": "^tree,ring,nvls"}, "nvls_tree/simple"),
        ((2, 28, 9), {"NCCL_ALGO": "ring;allreduce:tree", "NCCL_PROTO": "LL"}, "tree/ll"),
        ((2, 28, 9), {"NCCL_ALGO": "allgather:ring", "NCCL_PROTO": "LL"}, "tree/ll ring/ll"),
        ((2, 23, 4), {"NCCL_ALGO": "collnetdirect", "NCCL_PROTO": "LL"}, "tree/ll ring/ll"),
        ((2, 23, 4), {"NCCL_ALGO": "nvls", "NCCL_PROTO": "LL"}, "tree/ll ring/ll"),
    ],
)
def test_algorithms_and_protocols_that_settings_leave(
    version: tuple[int, int, int], settings: dict[str, str], left: str
) -> None:
    found = predict(sample("dgx"), nodes=2, version=version, settings=settings)
    assert [choice.label for choice in found.modelled] == left.split()
    assert {one.choice for one in found.sizes} <= set(found.modelled)
    ruled_out = [choice for choice, why in found.excluded.items() if "excludes it" in why]
    assert ruled_out
    assert not {choice.label for choice in ruled_out} & set(left.split())


def test_forced_ll128_is_legal_where_nccl_does_not_choose_it() -> None:
    path = DATA / "topologies" / "switch-l40s.xml"
    topology = read_topology(path.read_bytes(), path.name)
    assert not any("ll128" in one.label for one in predict(topology).modelled)
    found = predict(topology, settings={"NCCL_PROTO": "LL128"})
    assert [one.label for one in found.modelled] == ["tree/ll128", "ring/ll128"]


def test_nvls_stays_without_peer_to_peer_and_has_no_latency_since_2_25() -> None:
    off = {"NCCL_P2P_DISABLE": "1"}
    old = predict(sample("dgx"), version=(2, 24, 3), settings=off)
    assert (old.modelled[NVLS].latency_us, old.notes) == (25.0, ())
    new = predict(sample("dgx"), version=(2, 25, 1), settings=off)
    assert new.modelled[NVLS].latency_us == 0.0
    assert new.sizes[0].choice == NVLS
    assert "no latency for nvls/simple over paths without NVLink" in new.notes[0]


def test_two_versions_differ_where_the_choice_changes() -> None:
    old, new = dgx(2, (2, 27, 7)), dgx(2, (2, 28, 9))
    found = changes(old, new)
    assert [one.size for one in found] == [one.size for one in old.sizes]
    moved = {one.size: one.ratio for one in found}
    assert moved[8] == pytest.approx(1.0)
    assert moved[8 << 30] != pytest.approx(1.0, abs=0.01)
    for one, before, after in zip(found, old.sizes, new.sizes, strict=True):
        assert (one.before, one.after) == (before.choice, after.choice)


def test_a_newer_version_is_predicted_by_the_newest_known_model() -> None:
    for version, named in (((2, 33, 1), "2.33.1"), ((2, 32, 6), "2.32.6"), ((2, 32, 999), "2.32")):
        newer = predict(sample("h200x4-dump"), version=version)
        assert newer.communicator.version == NEWEST
        words = f"NCCL {named} may have a newer model than the newest known, that of 2.32.3"
        assert newer.notes[-1] == words
    assert not h200().notes
    assert not predict(sample("h200x4-dump"), version=NEWEST).notes


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"version": (2, 18, 5)}, "older than the oldest known model"),
        ({"collective": Collective.ALLTOALL}, "NCCL makes no choice for all-to-all"),
        ({"nodes": 0}, "not between 1"),
        ({"ranks_per_node": 1}, "one rank has no peer"),
        ({"settings": {"NCCL_CROSS_NIC": "3"}}, "is not 0, 1 or 2"),
        ({"settings": {"NCCL_ALGO": "Treee"}}, "'Treee' names nothing that NCCL has"),
        ({"settings": {"NCCL_ALGO": "nvls_tree"}}, "leave no choice for all-reduce, so NCCL fails"),
    ],
)
def test_what_cannot_be_predicted(asked: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        predict(sample("h200x4-dump"), **asked)  # type: ignore[arg-type]


def test_a_nic_without_a_speed_and_racks_are_noted() -> None:
    path = DATA / "topologies" / "nccl-paths" / "random-0.xml"
    found = predict(read_topology(path.read_bytes(), path.name), nodes=2)
    assert found.notes == ("assumed: mlx5_2 has no speed in the file: 10 Gbit/s, as NCCL takes it",)
    rack = predict(sample("superchip"), nodes=2)
    assert "NVLink between nodes (MNNVL), which is not modelled" in rack.notes[0]
    assert not predict(sample("superchip"), nodes=2, settings={"NCCL_MNNVL_ENABLE": "0"}).notes


def test_files_of_other_programs_lack_what_decides() -> None:
    for nodes in (1, 2):
        with pytest.raises(InputError, match="a file of RCCL"):
            predict(sample("rccl"), nodes=nodes)
    matrix = smi_topology(read_matrix(MATRIX.encode(), "topo.txt"))
    with pytest.raises(InputError, match="shows no speeds of links"):
        predict(matrix)
    with pytest.raises(InputError, match="leaves NVLink to detection"):
        predict(sample("skeleton-vm"))


def test_several_nodes_need_a_nic() -> None:
    with pytest.raises(InputError, match="names no NIC"):
        predict(sample("nvlink-pairs"), nodes=2)


def test_every_collective_has_a_choice_at_every_size() -> None:
    for collective in TUNED:
        found = h200(collective=collective, sizes=(1, 1 << 20, 1 << 40))
        assert [one.size for one in found.sizes] == [1, 1 << 20, 1 << 40]
        assert all(one.launch.channels >= 1 for one in found.sizes)


def test_constants_of_a_version() -> None:
    old, new = constants_of((2, 22, 3)), constants_of((2, 32, 3))
    assert old.generation(100) is Generation.HOPPER
    assert new.generation(100) is Generation.BLACKWELL
    assert [new.generation(sm).value for sm in (70, 80, 90)] == ["volta", "ampere", "hopper"]
    assert old.step_us(Link.NET, Algorithm.TREE, Protocol.SIMPLE) == 28.0
    assert new.step_us(Link.NET, Algorithm.TREE, Protocol.SIMPLE) == 14.0
    assert new.step_us(Link.PCI, Algorithm.NVLS, Protocol.SIMPLE) == 0.0
    assert new.ll_max[Generation.BLACKWELL] == (282.4, 90.0, 70.0)
