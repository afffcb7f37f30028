# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo`: output, files and exit codes, of `what-if` too."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runs import Cli
from tests.unit.topology.samples import FOLDER, MATRIX, P4D, skeleton_xml
from tests.unit.topology.samples import L40S as L40S_SHAPE


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


def test_show_of_a_nic_with_two_ports(tmp_path: Path, cli: Cli) -> None:
    text = Path(path("switch-l40s")).read_text()
    (tmp_path / "t.xml").write_text(text.replace("</nic>", '<net name="b" dev="9"/></nic>', 1))
    assert "LOC  ports of one NIC" in out_of(cli, "show", str(tmp_path / "t.xml"))


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


DATA = Path(__file__).parents[2] / "data" / "topologies"
EXAMPLES = Path(__file__).parents[3] / "examples"
L40S = EXAMPLES / "l40s-one-switch"
H200 = EXAMPLES / "h200x4-1-node"


def test_the_screen_for_l40s_without_gdr_read(cli: Cli) -> None:
    figures = str(L40S / "calibration.json")
    out = cli(
        "topo", "what-if", L40S, "--nodes", "2", "--gdr-read", "off", "--calibration", figures
    ).out
    assert "calibration: l40s-one-switch" in out
    now, off = (next(line for line in out.splitlines() if line.startswith(name))
                for name in ("now", "GPUDirect reads off"))  # fmt: skip
    assert "19.7" in now
    assert "read requests" in now
    assert "+8%" in off
    assert "-> CPU0" in off
    assert "cost  GPUDirect reads off: 42.6 GB/s more through host memory" in out
    assert "nccltune ab NCCL_NET_GDR_READ=0 --launcher NAME --nodes 2 --gpus 4 -- " in out


def test_json_is_numbers(cli: Cli) -> None:
    answer = cli(
        "topo", "what-if", DATA / "dgx.xml", "--nodes", "4", "--to-nodes", "1024", "--json"
    ).document
    assert answer["schema_version"] == 1
    (more,) = answer["answers"]
    assert (more["nodes"], more["hardware"], more["settings"]) == (1024, False, {})
    assert more["gain"] == pytest.approx(1.0)
    assert set(more["expected"]["load_by_kind"]) == {"network"}
    assert more["expected"]["algorithm"] == "ring"
    assert answer["now"]["sure"] is True


def test_nccls_own_choice_is_named_if_it_is_another(cli: Cli) -> None:
    file = str(DATA / "nccl-paths" / "random-3.xml")
    out = cli("topo", "what-if", file).out
    assert "note  NCCL's own model takes tree/simple at 8 GiB and gives it 31.5 GB/s" in out
    assert "own model" not in cli("topo", "what-if", DATA / "h200x4-dump.xml").out
    assert (
        cli("topo", "what-if", file, "--env", "NCCL_ALGO=ring", "--json").document["nccl_choice"]
        is None
    )
    assert cli("topo", "what-if", file, "--json").document["nccl_choice"] == "tree/simple"


def test_several_changes_are_answered_alone_and_together(cli: Cli) -> None:
    arguments = ["--nodes", "2", "--gdr-read", "off", "--move-nic", "mlx5_1=CPU1"]
    out = cli("topo", "what-if", L40S / "topo.xml", "NCCL_CROSS_NIC=0", *arguments).out
    for words in ("GPUDirect reads off", "mlx5_1 at CPU1", "NCCL_CROSS_NIC=0", "all of these"):
        assert any(line.startswith(words) for line in out.splitlines())


def test_changes_that_do_not_help_are_reported(cli: Cli) -> None:
    out = cli("topo", "what-if", DATA / "h200x4-dump.xml", "--env", "NCCL_NVLS_ENABLE=0").out
    assert "nothing asked here raises the ceiling" not in out
    arguments = ["--env", "NCCL_NVLS_ENABLE=0", "--algorithm", "tree"]
    out = cli("topo", "what-if", DATA / "h200x4-dump.xml", *arguments).out
    assert "nothing asked here raises the ceiling" in out


def test_a_clouds_file_is_not_sure_and_recommends_nothing(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "p4d.xml"
    file.write_text(skeleton_xml(**P4D))  # type: ignore[arg-type]
    out = cli("topo", "what-if", file, "--algorithm", "ring").out
    (now,) = [line for line in out.splitlines() if line.startswith("now ")]
    assert "263?" in now
    assert "note  assumed: GPUs are taken as A100-SXM4" in out
    assert "no recommendation" in out
    assert "prove" not in out
    answer = cli("topo", "what-if", file, "--nodes", "2", "--algorithm", "ring", "--json").document
    assert answer["now"]["sure"] is False
    assert {tuple(one["confirm"]) for one in answer["answers"]} == {()}


def test_a_file_with_unknown_gpus_is_refused(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "unknown.xml"
    file.write_text(skeleton_xml(**P4D | {"switches": 2}))  # type: ignore[arg-type]
    err = cli("topo", "what-if", file, code=2).err
    assert "leaves NVLink to detection" in err
    assert "lspci -nn" in err


@pytest.mark.parametrize("sample", ["switch-l40s", "broadcom"])
@pytest.mark.parametrize("width", ["-1", "255", "0", "", "Unknown"])
@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_width_that_is_not_known_is_no_crash(
    sample: str, width: str, nodes: str, tmp_path: Path, cli: Cli
) -> None:
    text = (DATA / f"{sample}.xml").read_text()
    file = tmp_path / "x.xml"
    file.write_text(text.replace('link_width="16"', f'link_width="{width}"', 1))
    assert ("NCCL books -" in cli("topo", "what-if", file, "--nodes", nodes).out) is (width == "-1")


def test_a_link_of_width_minus_one_on_the_way_is_refused_with_its_place(
    tmp_path: Path, cli: Cli
) -> None:
    lines = (DATA / "switch-l40s.xml").read_text().splitlines()
    number = next(place for place, line in enumerate(lines) if 'class="0x030200"' in line)
    lines[number] = lines[number].replace('link_width="16"', 'link_width="-1"')
    file = tmp_path / "x.xml"
    file.write_text("\n".join(lines))
    err = cli("topo", "what-if", file, code=2).err
    assert f"x.xml:{number + 1}: " in err
    assert "Gen4 x-1: NCCL books -1.5 GB/s" in err


def test_a_note_names_the_row_that_it_belongs_to(tmp_path: Path, cli: Cli) -> None:
    """Host memory is estimated where the bounce through it fills it; the platform's own figure does
    not rest on it."""
    lines = cli(
        "topo", "what-if", DATA / "dgx.xml", "--nodes", "4", "--gdr-read", "off"
    ).out.splitlines()
    unmeasured, note = [line for line in lines if line.startswith("note")]
    assert unmeasured.startswith("note  GPUDirect reads off: assumed: the model holds here, too.")
    assert note.startswith(
        "note  GPUDirect reads off: assumed: 141 GB/s each way for host memory of Sapph"
    )
    (now,) = [line for line in lines if line.startswith("now ")]
    assert "400 " in now
    (off,) = [line for line in lines if line.startswith("GPUDirect reads off")]
    assert "282?" in off
    assert "%" not in off, "a sure and an estimated figure are not compared"
    assert "no recommendation for GPUDirect reads off: its figure is not sure" in lines


def test_a_narrow_terminal_gets_lines_instead_of_columns(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    monkeypatch.setattr(
        "nccltune.cli.topo.what_if.stdout",
        lambda: Console(width=40, force_terminal=True, color_system=None, highlight=False),
    )
    file = tmp_path / "l40s.xml"
    file.write_text(skeleton_xml(**L40S_SHAPE | {"nics": 0}))  # type: ignore[arg-type]
    lines = cli("topo", "what-if", file).out.splitlines()
    assert "now: 25.5? GB/s by ring" in lines
    # A number keeps its unit.
    assert "  full link GPU0 -> PCI ffff:ff:01.0" in lines
    assert max(len(line) for line in lines if "prove" not in line and "  nccl" not in line) <= 40
