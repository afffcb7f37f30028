# SPDX-License-Identifier: Apache-2.0
"""The topology that NCCL is asked to write, and the copy in the study."""

from pathlib import Path

import pytest

from nccltune.measure.bench.hardware import dump_settings, keep_topology, topology_dump
from nccltune.measure.bench.process import Launch
from nccltune.study.files import Study

XML = '<system version="1">\n  <cpu numaid="0" host_hash="0x12"/>\n</system>\n'


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_TOPO_DUMP_FILE", raising=False)


def test_what_nccl_writes_is_kept_without_the_host(tmp_path: Path) -> None:
    study, launch = Study.create(tmp_path / "study"), Launch()
    with topology_dump(launch) as file:
        assert file is not None
        assert dump_settings(file) == {"NCCL_TOPO_DUMP_FILE": str(file)}
        keep_topology(study, launch, file)
        assert study.topology_path is None
        file.write_text(XML)
        keep_topology(study, launch, file)
    assert not file.parent.exists()
    assert (study.path / "topology.xml").read_text() == XML.replace(' host_hash="0x12"', "")


def test_what_a_study_has_stays(tmp_path: Path) -> None:
    study, launch = Study.create(tmp_path / "study"), Launch()
    (study.path / "topo.txt").write_text("before")
    with topology_dump(launch) as file:
        assert file is not None
        file.write_text(XML)
        keep_topology(study, launch, file)
    assert study.topology_path == study.path / "topo.txt"


def test_a_replay_has_the_hardware_of_its_recording(tmp_path: Path) -> None:
    recording, study = Study.create(tmp_path / "recording"), Study.create(tmp_path / "study")
    launch = Launch(replay=recording.path)
    with topology_dump(launch) as file:
        assert file is None
        keep_topology(study, launch, file)
        assert study.topology_path is None
        (recording.path / "topology.xml").write_text(XML)
        keep_topology(study, launch, file)
    assert (study.path / "topology.xml").is_file()


def test_what_somebody_has_nccl_write_is_kept_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, theirs = Study.create(tmp_path / "study"), tmp_path / "theirs.xml"
    monkeypatch.setenv("NCCL_TOPO_DUMP_FILE", str(theirs))
    with topology_dump(Launch()) as file:
        assert dump_settings(file) == {"NCCL_TOPO_DUMP_FILE": str(theirs)}
        theirs.write_text(XML)
        keep_topology(study, Launch(), file)
    assert theirs.read_text() == XML
    assert (study.path / "topology.xml").is_file()


def test_an_empty_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TOPO_DUMP_FILE", "")
    with topology_dump(Launch()) as file:
        assert file is not None
        assert file.parent.is_dir()
    assert not file.parent.exists()


def test_nothing_is_asked_of_parts_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with topology_dump(Launch(emulate_nodes=4)) as file:
        assert dump_settings(file) == {}
    monkeypatch.setenv("NCCL_TOPO_DUMP_FILE", "/elsewhere")
    with topology_dump(Launch(emulate_nodes=4)) as file:
        assert dump_settings(file) == {}
