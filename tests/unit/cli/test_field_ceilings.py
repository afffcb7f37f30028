# SPDX-License-Identifier: Apache-2.0
"""Ceilings of machines that people posted, beside what they measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.cli import run

FIELD = Path(__file__).parents[2] / "data" / "field"
H100 = FIELD / "node-01-h100-two-nodes"
TRAY = FIELD / "node-03-gb200-two-trays" / "tray.xml"
MATRIX = FIELD / "node-21-topo-m-of-an-hgx" / "topo.txt"


def now(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["topo", "what-if", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["now"]
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
    file: str, options: list[str], least: float, sure: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = [f"NCCL_P2P_LEVEL={options[1]}"] if options[:1] == ["--p2p-level"] else []
    arguments = ["--env", *environment] if environment else options
    found = now(capsys, str(FIELD / file), *arguments)
    assert least <= found["busbw_gb_per_s"] <= 1.3 * least
    assert found["sure"] is sure
    assert sure or found["notes"]


def test_two_healthy_nodes_of_8_h100_are_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = str(tmp_path / "study")
    files = [str(H100 / "topo.xml"), str(H100 / "all_reduce_2n.txt")]
    assert run(["import", *files, "-o", study]) == 0
    assert run(["analyze", study]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the links allow 526 GB/s, got 470 GB/s (89.4 %): the platform is fine" in out
    assert "not of this machine" not in out


def test_nvlink_between_trays_is_said_to_be_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topo", "what-if", str(TRAY), "--nodes", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "853?" in out
    assert "the 2 nodes are trays of one rack, in one NVLink domain (MNNVL)" in out
    off = now(capsys, str(TRAY), "--nodes", "2", "--env", "NCCL_MNNVL_ENABLE=0")
    assert off["busbw_gb_per_s"] < 400
    assert not any("rack" in note for note in off["notes"])


def test_several_racks_have_no_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topo", "what-if", str(TRAY), "--nodes", "19"]) == 2
    err = capsys.readouterr().err
    assert "76 GPUs need several racks" in err
    assert "NCCL_MNNVL_ENABLE=0" in err


def test_a_tray_is_known_by_its_links_without_a_device_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tray.xml"
    file.write_text(TRAY.read_text().replace('device="0x2941"', 'device="0xffff"'))
    assert now(capsys, str(file), "--nodes", "2")["busbw_gb_per_s"] > 842


def test_a_guessed_rate_is_not_held_against_another(capsys: pytest.CaptureFixture[str]) -> None:
    file = FIELD / "node-05-pro6000-dual-turin" / "topo8.xml"
    assert run(["topo", "what-if", str(file), "NCCL_P2P_LEVEL=SYS"]) == 0
    out = capsys.readouterr().out
    assert "%" not in out
    assert "what the links between CPUs carry is unknown" in out
    assert "no recommendation" in out


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("1", "NVLinks of Blackwell carry twice as much as those of Hopper"),
        ("2", "does not name the speed of NIC mlx5_0 (and 3 more)"),
    ],
)
def test_a_matrix_alone_is_no_base_for_a_figure(
    nodes: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topo", "what-if", str(MATRIX), "--nodes", nodes]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "8.0" not in err
    assert "NCCL_TOPO_DUMP_FILE" in err
