# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo`: output, files and exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runs import Cli
from tests.unit.topology.samples import FOLDER, MATRIX, P4D, skeleton_xml


def path(name: str) -> str:
    return str(FOLDER / f"{name}.xml")


def out_of(cli: Cli, *words: str, code: int = 0) -> str:
    return cli(*(() if words[0] == "lint" else ("topo",)), *words, code=code).out


def parsed(cli: Cli, *words: str, code: int = 0) -> Any:
    return json.loads(out_of(cli, *words, "--json", code=code))


def test_show(cli: Cli) -> None:
    out = out_of(cli, "show", path("switch-l40s"))
    lines = out.splitlines()
    assert lines[0] == "4 GPUs (sm89) · no NVLink · 2 NIC ports · 2 CPUs"
    assert "├─ GPU1 0000:42:00.0 sm89    24.0 GB/s   Gen4 x16" in out
    assert "between CPUs" in out
    assert "GPU0    X     PIX   PIX   PIX   PIX     PIX" in out
    assert "GDR  GPU0 with NET mlx5_0 (and 3 more): receives and sends directly" in out


def test_show_with_settings_and_version(cli: Cli) -> None:
    out = out_of(cli, "show", path("switch-l40s"), "--env", "NCCL_P2P_DISABLE=1",
                 "--env", "NCCL_NET_GDR_READ=0")  # fmt: skip
    assert "GPU0    X     PHB   PHB   PHB" in out
    assert "no P2P (PIX is beyond LOC), so through the CPU" in out
    assert "sends through host memory (NCCL_NET_GDR_READ=0)" in out
    old = out_of(cli, "show", path("flat-vm"), "--nccl-version", "2.28.9")
    assert "16.0 GB/s" in old
    assert "24.0 GB/s" not in old


def test_show_json(cli: Cli) -> None:
    found = parsed(cli, "show", path("superchip"))
    assert found["topology"]["dialect"] == "nccl"
    assert {link["name"] for link in found["links"]} >= {"GPU0 -> CPU0", "GPU0 -> CPU0 (C2C)"}
    (way,) = [
        one for one in found["paths"]
        if (one["source"], one["target"]) == ("GPU0", "NET mlx5_0")
    ]  # fmt: skip
    assert (way["kind"], way["gb_per_s"]) == ("P2C", 48.0)
    assert len(found["paths"]) == 16


def test_show_reads_a_folder_with_a_matrix(tmp_path: Path, cli: Cli) -> None:
    assert "NCCL_TOPO_DUMP_FILE=topo.xml" in cli("topo", "show", tmp_path, code=2).err
    (tmp_path / "topo.txt").write_text(MATRIX)
    assert out_of(cli, "show", str(tmp_path)).startswith("2 GPUs · no NVLink · 1 NIC port")


def test_show_without_a_file_reads_this_machine(cli: Cli) -> None:
    assert "CPU" in out_of(cli, "show").splitlines()[0]


def test_lint(cli: Cli) -> None:
    out = out_of(cli, "lint", path("virtual-switches"), code=1)
    assert f"{path('virtual-switches')}:3: error: 0000:03:00.0" in out
    assert "hint:" in out
    assert out.splitlines()[-1] == "1 file, 2 errors, 2 warnings, 0 notes"
    assert out_of(cli, "lint", path("dgx")) == "1 file, nothing wrong\n"


def test_lint_json(cli: Cli) -> None:
    found = parsed(cli, "lint", path("dgx"), path("flat-vm-graph"), code=1)
    assert found["topologies"]["files"] == [path("dgx"), path("flat-vm-graph")]
    assert [issue["id"] for issue in found["topologies"]["issues"]] == ["graph-gpus", "graph-gpus"]
    assert found["topologies"]["issues"][0]["severity"] == "error"


def test_one_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a.xml").write_text("<system>\n<cpu")
    (tmp_path / "b.xml").write_text(Path(path("dgx")).read_text())
    found = parsed(cli, "lint", str(tmp_path), code=1)
    assert [(issue["id"], issue["line"]) for issue in found["topologies"]["issues"]] == [
        ("unreadable", 2)
    ]
    cli("lint", tmp_path / "a.xml", code=2)


def test_convert_from_a_matrix(tmp_path: Path, cli: Cli) -> None:
    matrix = tmp_path / "topo.txt"
    matrix.write_text(MATRIX)
    file = tmp_path / "vm.xml"
    ids = ("--gpu-ids", "05:00.0,06:00.0", "--nic-ids", "mlx5_0=07:00.0")
    assert cli("topo", "convert", matrix, "--pcie", "4", *ids, "-o", file).out == ""
    text = file.read_text()
    assert text.count('link_speed="16.0 GT/s PCIe" link_width="16"') == 4
    out = out_of(cli, "lint", str(file))
    assert "note: leaves NVLink to detection" in out
    assert out.endswith("1 file, nothing wrong (1 note)\n")
    assert "GPU0 0000:05:00.0" in out_of(cli, "show", str(file))


def test_convert_repairs_a_dump_and_names_omitted_devices(tmp_path: Path, cli: Cli) -> None:
    out = out_of(cli, "convert", path("virtual-switches"), "--pcie", "5")
    assert "2.5 GT/s" not in out
    matrix = tmp_path / "topo.txt"
    matrix.write_text(MATRIX)
    words = ["topo", "convert", str(matrix), "--pcie", "4", "--gpu-ids", "05:00.0,06:00.0"]
    assert "left out for want of a bus id" in cli(*words).err


def test_a_file_that_leaves_nvlink_out_is_not_shown_as_without(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "p4d.xml"
    file.write_text(skeleton_xml(**P4D))  # type: ignore[arg-type]
    out = out_of(cli, "show", str(file))
    assert "NVLink through NVSwitches (assumed)" in out
    assert "note  assumed: GPUs are taken as A100-SXM4" in out
    assert "no NVLink" not in out
    shown = parsed(cli, "show", str(file))
    assert shown["nvlink_left_to_detection"] is True
    assert shown["assumed"]
    nvlinks = [link for link in shown["links"] if link["kind"] == "NVL"]
    assert len(nvlinks) == 16
    assert not any(link["sure"] for link in nvlinks)


def test_a_file_without_gpus_lists_devices_and_switches(cli: Cli) -> None:
    out = out_of(cli, "show", path("skeleton-no-class"))
    assert "the file names no GPU" in out
    assert "device 0000:4f:00.0" in out
    assert "switch 0000:45:00.0" in out
    assert "switch 0000:4f:00.0" not in out


@pytest.mark.parametrize(("nodes", "ending"), [("01", " · 2 CPUs"), ("00", " · 1 CPU"), ("  ", "")])
def test_the_headline_counts_numa_nodes_that_the_matrix_names(
    nodes: str, ending: str, tmp_path: Path, cli: Cli
) -> None:
    rows = ["GPU0\tX\tSYS\t0-7\t" + nodes[0], "GPU1\tSYS\tX\t8-15\t" + nodes[1]]
    file = tmp_path / "topo.txt"
    file.write_text("\n".join(["\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity", *rows]))
    line = cli("topo", "show", file).out.splitlines()[0]
    assert line == f"2 GPUs · no NVLink · 0 NIC ports{ending}"
