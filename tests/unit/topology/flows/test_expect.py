# SPDX-License-Identifier: Apache-2.0
"""Ceilings against measurements: our own, L40S of NVIDIA/nccl#1202, and published ones."""

import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.calibration import Figure, defaults, read_calibration
from nccltune.topology.flows.expect import UNMEASURED, expect, is_measured
from nccltune.topology.nccl_model.routes import FlowKind
from tests.programs import load_script
from tests.unit.topology.samples import FOLDER, sample

EXAMPLES = Path(__file__).parents[4] / "examples"
L40S = EXAMPLES / "l40s-one-switch"
STORY = json.loads((L40S / "expected.json").read_text())
MEASURED_TREE = 251.8
"""Bus bandwidth in GB/s: nccl-tests' all-reduce of 1 GiB on 4 H200, NVLS off (ring: 356.2)."""
NO_NVLS = {"NCCL_NVLS_ENABLE": "0"}


@pytest.mark.parametrize("case", STORY["cases"], ids=lambda case: case["name"])
def test_the_l40s_story_is_within_5_percent(case):
    found = expect(
        load_topology(L40S / "topo.xml"),
        nodes=case["nodes"],
        ranks_per_node=case["ranks_per_node"],
        settings=case["settings"],
        calibration=read_calibration(L40S / "calibration.json"),
    )
    assert found.busbw_gb_per_s == pytest.approx(case["gb_per_s"], rel=0.05)
    if case.get("or_less"):
        assert found.busbw_gb_per_s < case["gb_per_s"]
    assert found.algorithm is Algorithm.RING


def test_one_figure_of_the_l40s_is_measured_and_no_number_of_the_story_is_a_constant():
    """The order of the four results is the same for any bandwidth of the GPU's port."""
    calibration = read_calibration(L40S / "calibration.json")
    assert len({figure.value for name, figure in calibration.values.items()
                if name in ("p2p_write", "gdr_write", "gdr_read", "gpu_to_host")}) == 1  # fmt: skip
    figures = {
        name: type(figure)(0.66, "test") if figure.value == 0.764 else figure
        for name, figure in calibration.values.items()
    }
    slower = calibration.with_figures("slower", figures)
    one, one_each, several, off = (
        expect(
            load_topology(L40S / "topo.xml"),
            nodes=nodes,
            ranks_per_node=gpus,
            settings=settings,
            calibration=slower,
        ).busbw_gb_per_s
        for nodes, gpus, settings in (
            (1, 4, {}),
            (2, 1, {}),
            (2, 4, {}),
            (2, 4, {"NCCL_NET_GDR_READ": "0"}),
        )
    )
    assert several < min(one_each, off) <= max(one_each, off) < one == pytest.approx(28.8 * 0.66)


def test_the_reason_of_the_l40s_is_in_words():
    found = expect(
        load_topology(L40S), nodes=2, calibration=read_calibration(L40S / "calibration.json")
    )
    assert found.bottleneck.endswith("-> GPU3")
    assert set(found.load_by_kind) == {FlowKind.P2P_WRITE, FlowKind.READ_REQUEST}
    assert "GPU writes GPU" in found.sentence
    assert "read requests" in found.sentence
    assert found.nccl_busbw_gb_per_s == pytest.approx(24.0)
    assert found.used == pytest.approx(1.0)


def test_h200_is_not_far_above_what_was_measured():
    found = expect(sample("h200x4-dump"), settings=NO_NVLS)
    assert found.bottleneck == "GPU0 -> NVS"
    assert found.load_by_kind == {FlowKind.NVLINK: pytest.approx(394.2)}
    assert found.nccl_busbw_gb_per_s == pytest.approx(360.0)
    assert (found.algorithm, found.channels) == (Algorithm.RING, 24)
    assert MEASURED_TREE < found.alternatives[Algorithm.TREE] < 1.15 * MEASURED_TREE


def test_an_unavailable_algorithm_is_noted():
    found = expect(sample("switch-l40s"), settings={"NCCL_ALGO": "NVLS"})
    assert found.algorithm is Algorithm.RING
    assert any("is not available here" in note for note in found.notes)


def test_nvls_tree_needs_two_channels_as_nccl_does():
    """One NIC of 10 Gbit/s gives NVLS one channel, and 2.28 takes no NVLSTree then."""
    topology = load_topology(EXAMPLES / "h200x4-1-node")
    asked = expect(topology, nodes=2, settings={"NCCL_ALGO": "nvls_tree"})
    assert Algorithm.NVLS_TREE not in {asked.algorithm, *asked.alternatives}
    assert any("nvls_tree is not available here: this is" in note for note in asked.notes)
    assert expect(topology, nodes=2, nccl_version=(2, 27, 7)).algorithm is Algorithm.NVLS_TREE


def test_an_assumed_bandwidth_makes_the_answer_unsure():
    found = expect(sample("flat-vm"))
    assert not found.sure
    assert any("Gen3" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "nodes", "at_most"),
    [("nvlink-pairs", 1, True), ("flat-vm", 1, False), ("flat-vm", 2, True), ("dgx", 2, True)],
)
def test_a_guess_at_other_links_than_the_full_one_cannot_raise_the_ceiling(name, nodes, at_most):
    found = expect(sample(name), nodes=nodes)
    assert (found.at_most, found.sure) == (at_most, name == "dgx")


@pytest.mark.parametrize(
    ("name", "options", "busbw"),
    [
        ("rccl", {}, 180),
        ("rccl", {"settings": {"NCCL_ALGO": "tree"}}, 180),
        ("rccl", {"settings": {"NCCL_P2P_DISABLE": "1"}}, None),
        ("rccl", {"nodes": 2}, None),
        ("nvlink-pairs", {}, 56),
        ("nvlink-pairs", {"ranks_per_node": 4}, None),
        ("dgx", {}, None),
        ("switch-l40s", {}, None),
    ],
)
def test_send_and_receive_has_a_ceiling_on_nvlinks_between_two_gpus(name, options, busbw):
    asked = {"collective": Collective.SENDRECV, "ranks_per_node": 2} | options
    if busbw is None:
        with pytest.raises(InputError, match="no ceiling for send/recv: it consists of send and"):
            expect(sample(name), **asked)
    else:
        found = expect(sample(name), **asked)
        assert (found.busbw_gb_per_s, found.bottleneck) == (pytest.approx(busbw), "GPU0 -> GPU1")
        gather = expect(
            sample(name), **asked | {"collective": Collective.ALLGATHER, "settings": {}}
        )
        assert gather.busbw_gb_per_s == pytest.approx(busbw)


def test_few_channels_use_few_nics():
    ring = {"NCCL_ALGO": "ring"}
    found = expect(sample("dgx"), nodes=2, settings=ring | {"NCCL_MAX_NCHANNELS": "2"})
    assert found.channels == 2
    assert found.busbw_gb_per_s == pytest.approx(
        expect(sample("dgx"), nodes=2, settings=ring).busbw_gb_per_s / 4, rel=0.01
    )


def test_the_algorithm_is_the_one_that_allows_most():
    """NCCL's own bandwidth is given for rings alone: its choice is not modelled."""
    two = expect(sample("dgx"), nodes=2)
    assert (two.algorithm, two.nccl_busbw_gb_per_s) == (Algorithm.NVLS_TREE, None)
    assert two.busbw_gb_per_s > max(two.alternatives.values())
    assert expect(sample("dgx"), nodes=4).nccl_busbw_gb_per_s == pytest.approx(384.0)
    off = expect(sample("dgx"), nodes=2, settings={"NCCL_NVLS_ENABLE": "0"})
    assert Algorithm.NVLS_TREE not in {off.algorithm, *off.alternatives}
    named = expect(sample("dgx"), nodes=2, settings={"NCCL_ALGO": "NVLSTree"})
    assert named.algorithm is Algorithm.NVLS_TREE


def test_a_nic_without_a_speed_is_no_base_for_a_figure():
    text = (FOLDER / "dgx.xml").read_text()
    topology = read_topology(text.replace('speed="400000"', 'speed="0"', 1).encode(), "x.xml")
    assert expect(topology).busbw_gb_per_s > 400
    with pytest.raises(InputError, match="does not name the speed of NIC mlx5_0,"):
        expect(topology, nodes=2)


def test_a_switch_that_a_virtual_machine_made_up_limits_nothing():
    text = (FOLDER / "switch-l40s.xml").read_text()
    slow = text.replace("16.0 GT/s PCIe", "2.5 GT/s PCIe", 1).replace('"16"', '"1"', 1)
    found = expect(read_topology(slow.encode(), "x.xml"), settings={"NCCL_P2P_DISABLE": "1"})
    assert found.busbw_gb_per_s > 20
    assert not found.sure


def test_an_unknown_pcie_speed_counts_as_the_most_that_the_gpu_has():
    text = (FOLDER / "switch-l40s.xml").read_text()
    found = expect(read_topology(text.replace("16.0 GT/s PCIe", "").encode(), "x.xml"))
    assert found.busbw_gb_per_s == pytest.approx(0.92 * 28.8)
    assert not found.sure
    assert any("at most Gen4 x16" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "nvlink-pairs", "nodes": 2}, "names no NIC"),
        ({"name": "skeleton-no-class"}, "names no GPU"),
        ({"nodes": 0}, "is not between"),
        ({"ranks_per_node": 1}, "no peer to communicate with"),
        ({"ranks_per_node": 5}, "names 4 GPUs"),
        ({"collective": Collective.ALLTOALL}, "send and receive"),
        ({"nodes": 2, "settings": {"NCCL_IB_HCA": "bnxt"}}, "leaves none"),
        ({"settings": {"NCCL_CROSS_NIC": "3"}}, "not 0, 1 or 2"),
        ({"settings": {"NCCL_MAX_NCHANNELS": "many"}}, "not a whole number"),
    ],
)
def test_requests_without_an_answer_are_errors(arguments, words):
    given = {"name": "switch-l40s"} | arguments
    with pytest.raises(InputError, match=words):
        expect(sample(given.pop("name")), **given)


ROOT = Path(__file__).parents[4]


CEILINGS = load_script(ROOT / "benchmarks" / "ceilings.py")
DATA = CEILINGS.read()
ROOM = 1.3
"""A ceiling is at most this many times the best published figure."""


def name(row) -> str:
    return f"{row.machine}, {row.nodes} x {row.gpus or 'all'}, {row.algorithm or row.collective}"


@pytest.mark.parametrize("row", DATA.published, ids=name)
def test_no_ceiling_is_below_what_was_measured(row) -> None:
    found = CEILINGS.ceiling(DATA, row)
    if isinstance(found, InputError):
        assert "several racks" in found.message
        return
    assert found.busbw_gb_per_s >= row.busbw
    if row.best:
        assert found.busbw_gb_per_s <= ROOM * row.busbw


def test_every_machine_has_a_figure() -> None:
    assert {row.machine for row in DATA.published} == {one.name for one in DATA.machine}


def test_the_kinds_of_ceilings_that_are_measured_follow_from_the_published_figures() -> None:
    kinds = CEILINGS.measured_kinds(DATA)
    assert all(is_measured(kind) for kind in kinds)
    file = resources.files("nccltune.topology.flows").joinpath("measured_kinds.json")
    assert json.loads(file.read_text("utf-8")) == kinds


@pytest.mark.parametrize(
    "machine", [one for one in DATA.machine if one.nics], ids=lambda machine: machine.name
)
def test_a_ceiling_that_no_figure_confirms_is_not_sure(machine) -> None:
    found = expect(CEILINGS.topology(machine), nodes=2, settings=machine.settings)
    assert (UNMEASURED in found.notes) == (not is_measured(found.kind))
    assert found.sure == (not found.notes)


def test_a_calibration_of_ones_own_is_a_measurement() -> None:
    machine = next(one for one in DATA.machine if one.name.startswith("DGX-1"))
    own = defaults().with_figures("own", {"nvlink": Figure(0.97, "own", samples=8)})
    assert not expect(CEILINGS.topology(machine), nodes=2).sure
    assert expect(CEILINGS.topology(machine), nodes=2, calibration=own).sure


def test_a_nic_that_is_faster_than_its_pcie_link_makes_the_ceiling_unsure() -> None:
    machine = next(one for one in DATA.machine if one.name == "8 H100, 8 x 400G")
    slower = replace(machine, nic_pcie=4)
    found = expect(CEILINGS.topology(slower), nodes=4)
    assert found.busbw_gb_per_s < 8 * 28.8 + 0.1
    assert any("the ports of this NIC carry 50 GB/s" in note for note in found.notes)
    assert not found.sure


def test_versions_without_nvls_and_without_domains_have_rings() -> None:
    dgx, tray = (
        next(one for one in DATA.machine if one.name == name)
        for name in ("8 H100, 8 x 400G", "GB200 tray of NVL72")
    )
    old = expect(CEILINGS.topology(dgx), nccl_version=(2, 16, 5))
    assert old.algorithm is Algorithm.RING
    assert Algorithm.NVLS not in old.alternatives
    apart = expect(CEILINGS.topology(tray), nodes=2, nccl_version=(2, 19, 4))
    assert apart.busbw_gb_per_s <= 2 * 200


def test_each_rate_of_a_wire_has_a_source() -> None:
    tables = tomllib.loads(
        resources.files("nccltune.topology.hardware").joinpath("bandwidths.toml").read_text("utf-8")
    )
    for row in (*tables["nvlink_wire"], *tables["xgmi"]):
        assert row["source"].partition(":")[0] in ("measured", "documented")


def test_the_page_of_results_has_these_rows(capsys: pytest.CaptureFixture[str]) -> None:
    CEILINGS.main([])
    assert capsys.readouterr().out in (ROOT / "benchmarks/results/ceilings.md").read_text("utf-8")
