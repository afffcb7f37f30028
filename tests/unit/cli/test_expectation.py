# SPDX-License-Identifier: Apache-2.0
"""A topology in a study: import, what verbs derive from it, ceilings of posted machines."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.measured import expectations
from tests.unit.formats.maker import Made, Point
from tests.unit.runs import Cli

PAIR = """\
<system version="1">
  <cpu host_hash="0x77b9" numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="89" rank="0" gdr="1"/>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="89" rank="1" gdr="1"/>
      </pci>
    </pci>
  </cpu>
</system>
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a topology and a run of two GPUs at 22 GB/s."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.xml").write_text(PAIR, encoding="utf-8")
    points = tuple(
        Point(1 << power, 10 + (1 << power) / 22e3, 11 + (1 << power) / 22e3)
        for power in range(16, 29)
    )
    (tmp_path / "run.txt").write_text(Made(points, ranks=2).text(), encoding="utf-8")
    return tmp_path


def test_a_topology_in_a_study_gives_the_expected_bandwidth(here: Path, cli: Cli) -> None:
    out = cli("import", "topo.xml", "run.txt", "-o", "s").out
    assert "topology    topo.xml" in out
    assert "1 file, 1 table" in out
    kept = (here / "s" / "topology.xml").read_text(encoding="utf-8")
    # What identifies the host is removed.
    assert kept == PAIR.replace(' host_hash="0x77b9"', "")
    findings = cli("analyze", "s", "--json").document["findings"]
    (sentence,) = [item["sentence"] for item in findings if item["kind"] == "as_expected"]
    assert sentence.startswith("all-reduce, 1 node, 2 ranks: the links allow 26.5 ")
    assert "got 22 GB/s (83 %): the platform is fine. GPU0" in sentence
    assert "0000:01:00.0 (28.8 GB/s) is full with" in sentence
    assert "the platform is fine" in " ".join(cli("report", "s", "--terminal").out.split())
    cli("report", "s")
    assert "the platform is fine" in (here / "s" / "report.html").read_text(encoding="utf-8")
    for name, is_held in (("NCCL_ALGO=Ring", True), ("NCCL_PROTO=LL", False)):
        posted = f"{name} ./all_reduce_perf -g 2\n" + (here / "run.txt").read_text("utf-8")
        (here / "forced.txt").write_text(posted, encoding="utf-8")
        cli("import", "topo.xml", "forced.txt", "-o", name)
        assert (f"{name}: the links allow 26.5" in cli("analyze", name).out) == is_held


def test_a_topology_is_imported_alone_and_a_second_one_is_ignored(here: Path, cli: Cli) -> None:
    assert "nccltune topo show s" in cli("import", "topo.xml", "-o", "s").err
    assert Study(here / "s").topology_path == here / "s" / "topology.xml"
    (here / "other.xml").write_text(PAIR.replace("175", "25"), encoding="utf-8")
    assert "another topology, which stays" in cli("import", "other.xml", "-o", "s").out
    assert 'familyid="175"' in (here / "s" / "topology.xml").read_text(encoding="utf-8")
    assert "imported before" in cli("import", "topo.xml", "-o", "s").out


def test_a_calibration_in_the_study_is_used(here: Path, cli: Cli) -> None:
    cli("import", "topo.xml", "run.txt", "-o", "s")
    figure = {"value": 0.5, "source": "measured here"}
    calibration = {"name": "here", "relative_to": "wire", "values": {"p2p_write": figure}}
    (here / "s" / "calibration.json").write_text(json.dumps(calibration), encoding="utf-8")
    assert "the links allow 14.4 GB/s, got 22 GB/s: more than the links" in cli("analyze", "s").out
    (here / "s" / "calibration.json").write_text("{}", encoding="utf-8")
    assert "is not a calibration file" in cli("analyze", "s").err


def test_only_what_the_file_describes_is_expected() -> None:
    topology = read_topology(PAIR.encode(), "topo.xml")
    platform = Platform(name="here", nccl_version="2.28.9")
    asked = [
        (Collective.ALLREDUCE, Scale(1, 2), None),
        (Collective.ALLREDUCE, Scale(1, 2), None),
        (Collective.ALLREDUCE, Scale(1, 2), "NCCL_ALGO=Tree"),
        # Sends and receives, nodes of different size, and nodes without a NIC between them.
        (Collective.SENDRECV, Scale(1, 2), None),
        (Collective.ALLREDUCE, Scale(2, 3), None),
        (Collective.ALLREDUCE, Scale(2, 4), None),
    ]
    answer = expectations(topology, platform, asked)
    found, tree = answer.expectations
    assert (tree.limits, tree.algorithm) == ("NCCL_ALGO=Tree", "tree")
    assert (found.collective, found.scale) == (Collective.ALLREDUCE, Scale(1, 2))
    assert 24 < found.busbw_gb_per_s <= 28.8
    peers, nodes = answer.silent
    assert "no ceiling for send/recv" in peers
    assert "no NIC" in nodes
    emulated = msgspec.structs.replace(platform, emulated_nodes=True)
    assert expectations(topology, emulated, asked) == ([], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<system version='1'></system>", "has no <cpu>"),
        (PAIR[:400], "bad.xml:"),
        ("<graphs version='1'/>", "is a graph file"),
        ("<html></html>", "nothing in it is known"),
    ],
)
def test_files_that_are_no_topology_are_refused_with_the_reason(
    here: Path, cli: Cli, text: str, message: str
) -> None:
    (here / "bad.xml").write_text(text, encoding="utf-8")
    assert message in cli("import", "bad.xml", "-o", "s", code=2).err
    assert not (here / "s").exists()


def test_a_topology_that_cannot_answer_is_a_warning(here: Path, cli: Cli) -> None:
    cli("import", "run.txt", "-o", "s")
    (here / "s" / "topology.xml").write_text("<system", encoding="utf-8")
    seen = cli("analyze", "s")
    assert "warning    s/topology.xml:1" in seen.err
    assert "expected" not in seen.out
    lone = PAIR.replace('<gpu dev="1" sm="89" rank="1" gdr="1"/>', "")
    (here / "s" / "topology.xml").write_text(lone, encoding="utf-8")
    assert "warning    s/topology.xml:" in cli("analyze", "s").err


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
    topology, asked = load_topology(TRAY), [(Collective.ALLREDUCE, Scale(nodes=2, ranks=8), None)]

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
        ("1", "add what nvidia-smi -L prints to the end of the file, or have NCCL write"),
        ("2", "does not name the speed of NIC mlx5_0 (and 3 more)"),
    ],
)
def test_a_matrix_alone_is_no_base_for_a_figure(nodes: str, words: str, cli: Cli) -> None:
    err = cli("topo", "what-if", MATRIX, "--nodes", nodes, code=2).err
    assert words in err
    assert "8.0" not in err
    assert "NCCL_TOPO_DUMP_FILE" in err


def test_a_text_that_names_its_gpus_is_a_base_within_a_node(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "env.txt"
    listed = "".join(f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: GPU-{at}0f)\n" for at in range(8))
    file.write_text("Flags: fpu vme de pse\n" * 9999 + listed + MATRIX.read_text())
    assert now(cli, file, "--nodes", "1")["busbw_gb_per_s"] == pytest.approx(490.6, abs=0.1)


@pytest.mark.parametrize(
    ("gpu", "gb_per_s"), [("NVIDIA H100 80GB HBM3", 490.6), ("NVIDIA B200", 852.6), (None, None)]
)
def test_the_gpu_of_a_study_makes_a_matrix_a_base_within_a_node(
    gpu: str | None, gb_per_s: float | None
) -> None:
    platform = Platform(name="here", gpu=gpu)
    asked = [(Collective.ALLREDUCE, Scale(n, 8 * n), None) for n in (1, 2)]
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
