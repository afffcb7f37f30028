# SPDX-License-Identifier: Apache-2.0
"""A topology in a study: its import, and what `analyze` and `report` derive from it."""

import json
from pathlib import Path

import msgspec
import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.study.files import Study
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
        (Collective.ALLREDUCE, Scale(1, 2)),
        (Collective.ALLREDUCE, Scale(1, 2)),
        # Sends and receives, nodes of different size, and nodes without a NIC between them.
        (Collective.SENDRECV, Scale(1, 2)),
        (Collective.ALLREDUCE, Scale(2, 3)),
        (Collective.ALLREDUCE, Scale(2, 4)),
    ]
    answer = expectations(topology, platform, asked)
    (found,) = answer.expectations
    assert (found.collective, found.scale) == (Collective.ALLREDUCE, Scale(1, 2))
    assert 24 < found.busbw_gb_per_s <= 28.8
    (silent,) = answer.silent
    assert "no NIC" in silent
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
