# SPDX-License-Identifier: Apache-2.0
"""Which systems are alike, the usual node of a GPU, what makes a run slow; the published curves."""

import re
from pathlib import Path

import pytest

from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.predict import predict
from nccltune.reference.alike import SystemShown, gpu_class, node_range, unlike
from nccltune.reference.causes import causes, limiting_settings
from nccltune.reference.curves import ReferenceCurve, add_curves, published_curves, read_curves
from nccltune.reference.nodes import is_whole_board, usual_node
from nccltune.topology.flows.expect import expect
from tests.programs import load_script

CEILINGS = load_script(Path(__file__).parents[3] / "benchmarks" / "ceilings.py")


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "H200", "NVIDIA H100 PCIe"),
        ("NVIDIA H20-3e", "H100", "NVIDIA H800"),
        ("NVIDIA A100-SXM4-80GB", "A100", "NVIDIA A100-PCIE-40GB"),
        ("A100-SXM-80GB", "A100-SXM4-40GB", "NVIDIA A800-SXM4-80GB"),
        ("NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA GB200"),
        ("NVIDIA GH200 120GB", "GH200", "H200"),
        ("Tesla V100-SXM3-32GB", "V100-SXM3", "Tesla V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", "NVIDIA GeForce RTX 3090"),
        ("Tesla T4", "T4", "NVIDIA L4"),
        ("NVIDIA H100 NVL", "H100 NVL", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_gpus_with_the_same_links_are_alike(name: str, same: str, other: str) -> None:
    assert gpu_class(name) == gpu_class(same)
    assert gpu_class(name) != gpu_class(other)


def test_a_name_without_a_model_has_no_class() -> None:
    assert gpu_class("NVIDIA Graphics Device") is None
    assert gpu_class(None) is None
    assert gpu_class("NVIDIA H20") == "H100, H200 or H20"


def test_two_nodes_are_like_two_nodes_only() -> None:
    assert [node_range(nodes) for nodes in (1, 2, 3, 4, 5, 64)] == [
        (1, 1),
        (2, 2),
        (3, 6),
        (3, 8),
        (3, 10),
        (32, 128),
    ]


def test_each_rule_is_named() -> None:
    curve = ReferenceCurve(
        system="x",
        gpu="H100",
        gpus=16,
        nodes=2,
        nic_gbps_per_gpu=400,
        collective=Collective.ALLREDUCE,
        source="x",
        read="table",
        busbw_gb_per_s=400.0,
    )

    def rules(collective: Collective = Collective.ALLREDUCE, **facts: object) -> list[str]:
        plain = {"gpu": "H200", "nodes": 2, "gpus": 16, "nic_gbps_per_gpu": 400.0}
        return unlike(SystemShown(**{**plain, **facts}), collective, curve)  # type: ignore[arg-type]

    assert rules() == []
    assert rules(Collective.ALLGATHER) == ["collective"]
    assert rules(gpu="A100") == ["GPU"]
    assert rules(gpus=8) == ["GPUs a node"]
    assert rules(nodes=4, gpus=32) == ["nodes"]
    assert rules(nic_gbps_per_gpu=200.0) == ["NIC rate"]
    assert rules(nic_gbps_per_gpu=None) == [], "an unknown fact breaks no rule"
    assert rules(nodes=1, gpus=8) == ["nodes"]
    assert rules(limited=True) == ["settings"]


def test_nics_matter_between_nodes_only() -> None:
    assert SystemShown(gpu="H100", nodes=1, gpus=8).missing == []
    assert SystemShown(gpu="H100", nodes=2, gpus=16).missing == ["nics"]
    assert SystemShown(gpu="GB200", nodes=18, gpus=72).missing == []
    assert SystemShown(gpu="GB200", nodes=32, gpus=128).missing == ["nics"]
    assert SystemShown(gpus=16).missing == ["gpu", "nodes", "nics"]


def found(nodes: int = 2, label: str = "default", **facts: object) -> str:
    return "; ".join(
        causes(
            PlatformFacts(**facts),  # type: ignore[arg-type]
            nodes=nodes,
            gpus=8 * nodes,
            label=label,
        )
    )


def test_a_run_that_shows_nothing_has_no_cause() -> None:
    assert found() == found(settings={"NCCL_IB_DISABLE": "0", "NCCL_P2P_LEVEL": "NVL"}) == ""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"network": "Socket"}, "TCP between the nodes, no RDMA"),
        ({"nics": ("IB mlx5_0",)}, "NCCL found 1 NIC on a node with 8 GPUs"),
        ({"settings": {"NCCL_IB_HCA": "mlx5_0:1"}}, "it names 1 NIC for 8 GPUs of a node"),
        ({"settings": {"NCCL_IB_DISABLE": "1"}}, "NCCL_IB_DISABLE=1 is set"),
    ],
)
def test_the_network_counts_between_nodes_only(facts: dict[str, object], words: str) -> None:
    assert words in found(**facts)
    assert found(nodes=1, **facts) == ""


@pytest.mark.parametrize("names", ["^mlx5_0", "mlx5", ",".join(f"mlx5_{i}" for i in range(8))])
def test_a_list_that_leaves_enough_nics_is_no_cause(names: str) -> None:
    assert found(settings={"NCCL_IB_HCA": names}) == ""


def test_limits_and_conditions_are_named() -> None:
    assert "NCCL_ALGO=Ring is set" in found(settings={"NCCL_ALGO": "Ring"})
    assert "ring/simple was forced" in found(label="ring/simple")
    assert "measured with -z 1" in found(conditions=("-z 1",))


@pytest.mark.parametrize(
    ("label", "settings", "limited"),
    [
        ("default", {}, ""),
        ("default", {"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring"),
        ("default", {"NCCL_ALGO": "NVLSTree"}, ""),
        ("default", {"NCCL_NVLS_ENABLE": "0"}, "NCCL_NVLS_ENABLE=0"),
        ("default", {"NCCL_NVLS_ENABLE": "1"}, ""),
        ("ring/simple", {}, "NCCL_ALGO=ring"),
        ("nvls/simple", {}, ""),
    ],
)
def test_what_keeps_nccl_from_its_default(
    label: str, settings: dict[str, str], limited: str
) -> None:
    assert limiting_settings(PlatformFacts(settings=settings), label) == limited


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "gbit", "busbw"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 8, 400, 380.5),
        ("NVIDIA H200", 8, 4, 400, 191.1),
        ("A100-SXM4-80GB", 8, 4, 100, 47.9),
        ("B200", 8, 8, 400, 380.5),
        ("GH200 120GB", 4, 4, 200, 95.9),
        ("V100-SXM3", 16, 1, 100, 12.0),
    ],
)
def test_rings_reach_what_the_nics_carry(
    gpu: str, gpus: int, nics: int, gbit: float, busbw: float
) -> None:
    node = usual_node(gpu, gpus=gpus, nics=nics, gbit_per_s=gbit)
    found = predict(node, nodes=4, version=(2, 28, 9), settings={"NCCL_ALGO": "Ring"})
    assert found.communicator.ppn == gpus
    assert f" with {nics} NIC{'' if nics == 1 else 's'} of {gbit} " in node.source
    assert found.sizes[-1].busbw_gb_per_s == pytest.approx(busbw, abs=0.1)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "words"),
    [
        ("H100", 8, 3, "3 NICs cannot be shared evenly by 8 GPUs"),
        ("NVIDIA H100 PCIe", 8, 8, "no usual node of 8 x NVIDIA H100 PCIe"),
        ("NVIDIA L40S", 4, 4, "no usual node of 4 x NVIDIA L40S"),
        ("GB200", 4, 4, "no usual node of 4 x GB200"),
        ("GH200", 1, 1, "no usual node of 1 x GH200"),
    ],
)
def test_nodes_that_are_not_usual(gpu: str, gpus: int, nics: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        usual_node(gpu, gpus=gpus, nics=nics, gbit_per_s=400)


def test_no_ceiling_of_a_usual_node_is_below_what_a_machine_of_its_kind_reached() -> None:
    data = CEILINGS.read()
    machines = {machine.name: machine for machine in data.machine}
    checked = set()
    # The fastest of the runs that have one ceiling.
    fastest = {
        (row.machine, row.gpus, row.nodes, row.collective, row.algorithm): row
        for row in sorted(data.published, key=lambda row: row.busbw)
    }
    for row in fastest.values():
        machine = machines[row.machine]
        model = re.search(r"\bG?[ABHV]\d{2,3}(?: PCIe)?\b", machine.name)
        if not model or not is_whole_board(model[0], row.gpus or machine.gpus):
            continue
        nics = machine.nics if row.nodes > 1 else 0
        try:
            node = usual_node(model[0], gpus=machine.gpus, nics=nics, gbit_per_s=machine.nic_gbit)
        except InputError:
            continue
        algorithm = {"NCCL_ALGO": row.algorithm} if row.algorithm else {}
        settings = {**machine.settings, **algorithm}
        found = expect(node, collective=row.collective, nodes=row.nodes, settings=settings)
        assert found.busbw_gb_per_s >= row.busbw, row
        checked.add(machine.name)
    assert len(checked) > 15


def test_no_ceiling_of_a_usual_node_is_below_a_curve_of_the_reference_set() -> None:
    checked = set()
    for curve in published_curves():
        each, rate = curve.gpus // curve.nodes, curve.nic_gbps_per_gpu or 0.0
        whole = is_whole_board(curve.gpu, curve.gpus / curve.nodes)
        if not whole or not curve.collective.tuned or not (rate or curve.nodes == 1):
            continue
        node = usual_node(
            curve.gpu, gpus=each, nics=each if curve.nodes > 1 else 0, gbit_per_s=rate
        )
        found = expect(node, collective=curve.collective, nodes=curve.nodes)
        most = max(curve.busbw_at(size) or 0 for size, _ in (*curve.points, (1 << 33, 0)))
        assert 0 < most <= found.busbw_gb_per_s, curve.system
        checked.add(curve.system)
    assert len(checked) > 12


def curve(points: tuple[tuple[int, float], ...], **facts: object) -> ReferenceCurve:
    plain: dict[str, object] = {
        "system": "ours",
        "gpu": "H100",
        "gpus": 8,
        "nodes": 1,
        "collective": Collective.ALLREDUCE,
        "source": "run.txt",
        "read": "own",
    }
    return ReferenceCurve(**{**plain, **facts}, points=points)  # type: ignore[arg-type]


def test_every_published_figure_has_a_source_and_a_known_gpu() -> None:
    curves = published_curves()
    assert len(curves) == 130
    assert all(item.source.startswith("https://") for item in curves)
    assert all(gpu_class(item.gpu) for item in curves)
    rates = [item.busbw_at(size) for item in curves for size, _ in item.points]
    # The fastest published is 839 GB/s of an NVL72 rack.
    assert max(rate for rate in rates if rate) == pytest.approx(839, abs=1)


def test_the_figures_are_those_that_the_sources_state() -> None:
    found = {
        (item.system, item.nodes, item.nccl): item.busbw_at(8 << 30)
        for item in published_curves()
        if item.collective is Collective.ALLREDUCE and item.fault is None
    }
    assert found["OCI BM.GPU.H100.8", 2, "2.23.4"] == pytest.approx(470, abs=1)
    assert found["CoreWeave H100", 12, None] == pytest.approx(386.56, abs=0.1)


def test_between_sizes_times_are_interpolated_and_beyond_them_nothing_is_known() -> None:
    item = curve(((1 << 20, 100.0), (4 << 20, 250.0), (64 << 20, 4000.0)))
    assert item.busbw_at(1 << 20) == pytest.approx((1 << 20) / 100e3 * 1.75)
    assert item.busbw_at(2 << 20) == pytest.approx((2 << 20) / 150e3 * 1.75)
    assert item.busbw_at(16 << 20) is None, "too far from both neighbours"
    assert item.busbw_at(128 << 20) is None
    assert item.busbw_at(1 << 10) is None


def test_from_1_gib_on_the_nearest_size_stands_for_others() -> None:
    item = curve(((1 << 29, 3000.0), (2 << 30, 8000.0)))
    assert item.busbw_at(8 << 30) == item.busbw_at(2 << 30)
    assert item.busbw_at(1 << 30) == item.busbw_at(2 << 30)
    stated = curve((), busbw_gb_per_s=400.0)
    assert stated.busbw_at(1 << 30) == 400.0
    assert stated.busbw_at(1 << 29) is None


def test_own_curves_are_kept_once(tmp_path: Path) -> None:
    file = tmp_path / "more" / "ours.jsonl"
    own = curve(((1 << 20, 100.0),), nic_gbps_per_gpu=400.0)
    assert add_curves(file, [own, own]) == 1
    assert add_curves(file, [own]) == 0
    assert read_curves(file) == read_curves(file.parent) == [own]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}", "missing required field"),
        ('{"system": 3}', "Expected `str`"),
        ("not json", "malformed"),
        (
            '{"system":"a","gpu":"H100","gpus":8,"nodes":9,"collective":"allreduce","source":"x",'
            '"read":"own","points":[[8,1.0]]}',
            "8 GPUs on 9 nodes",
        ),
        (
            '{"system":"a","gpu":"H100","gpus":8,"nodes":1,"collective":"allreduce","source":"x",'
            '"read":"own","points":[[8,0]]}',
            "not above 0",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "ours.jsonl"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(InputError, match=words) as raised:
        read_curves(file)
    assert raised.value.where == f"{file}:2"
