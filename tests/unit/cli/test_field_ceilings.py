# SPDX-License-Identifier: Apache-2.0
"""Ceilings of machines that people posted, beside what they measured."""

from pathlib import Path
from typing import Any

import pytest

from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.measured import expectations
from tests.unit.runs import Cli

FIELD = Path(__file__).parents[2] / "data" / "field"
H100 = FIELD / "node-01-h100-two-nodes"
TRAY = FIELD / "node-03-gb200-two-trays" / "tray.xml"
MATRIX = FIELD / "node-21-topo-m-of-an-hgx" / "topo.txt"


def now(cli: Cli, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = cli("topo", "what-if", *arguments, "--json").document["now"]
    return found


@pytest.mark.parametrize(
    ("file", "options", "least", "sure"),
    [
        ("node-01-h100-two-nodes/topo.xml", ["--nodes", "2"], 487, True),
        ("node-01-h100-two-nodes/topo.xml", ["--nodes", "4"], 391, True),
        ("node-03-gb200-two-trays/tray.xml", ["--nodes", "2"], 842, False),
        ("node-03-gb200-two-trays/tray.xml", ["--nodes", "18"], 847, False),
        ("node-05-pro6000-dual-turin/topo8.xml", ["--p2p-level", "SYS"], 37.6, False),
        ("node-05-pro6000-dual-turin/topo7.xml", ["--p2p-level", "SYS"], 41.7, False),
        ("node-06-5090-through-host-memory/topo8.xml", [], 28, False),
        ("node-06-5090-through-host-memory/topo4.xml", [], 35, False),
    ],
)
def test_no_ceiling_is_below_what_people_measured(
    file: str, options: list[str], least: float, sure: bool, cli: Cli
) -> None:
    environment = [f"NCCL_P2P_LEVEL={options[1]}"] if options[:1] == ["--p2p-level"] else []
    arguments = ["--env", *environment] if environment else options
    found = now(cli, FIELD / file, *arguments)
    assert least <= found["busbw_gb_per_s"] <= 1.3 * least
    assert found["sure"] is sure
    assert sure or found["notes"]


def test_two_healthy_nodes_of_8_h100_are_fine(tmp_path: Path, cli: Cli) -> None:
    study = str(tmp_path / "study")
    files = [str(H100 / "topo.xml"), str(H100 / "all_reduce_2n.txt")]
    cli("import", *files, "-o", study)
    out = " ".join(cli("analyze", study).out.split())
    assert "the links allow 526 GB/s, got 470 GB/s (89.4 %): the platform is fine" in out
    assert "not of this machine" not in out


def test_nvlink_between_trays_is_said_to_be_assumed(cli: Cli) -> None:
    out = " ".join(cli("topo", "what-if", TRAY, "--nodes", "2").out.split())
    assert "853?" in out
    assert "the 2 nodes are trays of one rack, in one NVLink domain (MNNVL)" in out
    off = now(cli, TRAY, "--nodes", "2", "--env", "NCCL_MNNVL_ENABLE=0")
    assert off["busbw_gb_per_s"] < 400
    assert not any("rack" in note for note in off["notes"])


def test_the_domains_of_the_run_decide() -> None:
    """NCCL's log shows into how many domains of one fabric and clique it joined the nodes."""
    topology, asked = load_topology(TRAY), [(Collective.ALLREDUCE, Scale(nodes=2, ranks=8))]

    def ceiling(domains: int | None) -> tuple[float, bool]:
        platform = Platform(name="x", nvlink_domains=domains)
        (found,) = expectations(topology, platform, asked).expectations
        return found.busbw_gb_per_s, found.sure

    assumed, known = ceiling(None), ceiling(1)
    assert (assumed[0], assumed[1], known[1]) == (known[0], False, True)
    assert ceiling(0)[0] < known[0] / 2
    several = expectations(topology, Platform(name="x", nvlink_domains=2), asked)
    assert several.expectations == []
    assert "joined its nodes into 2 domains (fabric and clique)" in several.silent[0]


def test_several_racks_have_no_figure(cli: Cli) -> None:
    err = cli("topo", "what-if", TRAY, "--nodes", "19", code=2).err
    assert "76 GPUs need several racks" in err
    assert "NCCL_MNNVL_ENABLE=0" in err


def test_a_tray_is_known_by_its_links_without_a_device_id(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "tray.xml"
    file.write_text(TRAY.read_text().replace('device="0x2941"', 'device="0xffff"'))
    assert now(cli, file, "--nodes", "2")["busbw_gb_per_s"] > 842


def test_a_guessed_rate_is_not_held_against_another(cli: Cli) -> None:
    file = FIELD / "node-05-pro6000-dual-turin" / "topo8.xml"
    out = cli("topo", "what-if", file, "NCCL_P2P_LEVEL=SYS").out
    assert "%" not in out
    assert "what the links between CPUs carry is unknown" in out
    assert "no recommendation" in out


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("1", "an NVLink carries another rate in each generation"),
        ("2", "does not name the speed of NIC mlx5_0 (and 3 more)"),
    ],
)
def test_a_matrix_alone_is_no_base_for_a_figure(nodes: str, words: str, cli: Cli) -> None:
    err = cli("topo", "what-if", MATRIX, "--nodes", nodes, code=2).err
    assert words in err
    assert "8.0" not in err
    assert "NCCL_TOPO_DUMP_FILE" in err


@pytest.mark.parametrize(
    ("gpu", "gb_per_s"), [("NVIDIA H100 80GB HBM3", 490.6), ("NVIDIA B200", 852.6), (None, None)]
)
def test_the_gpu_of_a_study_makes_a_matrix_a_base_within_a_node(
    gpu: str | None, gb_per_s: float | None
) -> None:
    platform = Platform(name="here", gpu=gpu)
    asked = [(Collective.ALLREDUCE, Scale(1, 8)), (Collective.ALLREDUCE, Scale(2, 16))]
    answer = expectations(load_topology(MATRIX), platform, asked)
    found = [one.busbw_gb_per_s for one in answer.expectations]
    assert found == ([] if gb_per_s is None else [pytest.approx(gb_per_s, abs=0.1)])
    assert any("speed of NIC" in sentence for sentence in answer.silent)


@pytest.mark.parametrize(("links", "gb_per_s"), [("NV12", 262.8), ("NV6", 135.0)])
def test_some_links_identify_the_gpu(links: str, gb_per_s: float, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(MATRIX.read_text().replace("NV18", links))
    assert now(cli, file)["busbw_gb_per_s"] == pytest.approx(gb_per_s)


def test_lost_tabs_of_a_pasted_matrix_are_restored(tmp_path: Path, cli: Cli) -> None:
    text = MATRIX.read_text().replace("NV18", "NV12")
    file = tmp_path / "topo.txt"
    file.write_text(text)
    whole = now(cli, file)
    file.write_text(text.replace("NV12\tNV12", "NV12NV12", 3).replace("PIX\tSYS", "PIXSYS"))
    assert now(cli, file)["busbw_gb_per_s"] == whole["busbw_gb_per_s"]
    file.write_text(text.replace("\t", " "))
    assert now(cli, file)["busbw_gb_per_s"] == whole["busbw_gb_per_s"]


def test_trays_of_one_file_are_one_domain_for_sure(tmp_path: Path, cli: Cli) -> None:
    """NCCL's dump of a job on several trays has all of them, each with a host_hash of its own."""
    text = TRAY.read_text()
    start, end = text.index("  <cpu"), text.index("</system>")
    again = text[start:end].replace('host_hash="0x51a2', 'host_hash="0x61b3')
    file = tmp_path / "two.xml"
    file.write_text(text[:end] + again + text[end:])
    both = now(cli, file)
    assert (both["sure"], both["ranks_per_node"]) == (True, 8)
    alone = now(cli, TRAY, "--nodes", "2")
    assert both["busbw_gb_per_s"] == pytest.approx(alone["busbw_gb_per_s"])
