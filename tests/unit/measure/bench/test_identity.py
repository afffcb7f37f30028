# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.measure.bench.conversation import Nccl
from nccltune.measure.bench.identity import (
    check_same_platform,
    dump_settings,
    keep_topology,
    platform_of,
    topology_dump,
)
from nccltune.measure.bench.process import Launch
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.measure.fakes import hello

ENVIRONMENT = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_DEBUG": "INFO",
    "NCCL_HOSTID": "7",
    "NCCL_TESTS_DEVICE": "0",
    "NCCL_TOPO_DUMP_FILE": "topo.xml",
    "NCCL_TUNER_CONFIG_FILE": "/x",
    "NCCL_VERSION": "2.28.3-1",
    "PATH": "/bin",
}


def platform(**changes: object) -> Platform:
    found = platform_of(
        hello(), "study", environment=ENVIRONMENT, today="2026-11-21", emulated_nodes=4
    )
    return replace(found, **changes)


def test_a_platform_is_what_the_bench_reports() -> None:
    found = platform()
    assert (found.gpu, found.gpus, found.nodes) == ("NVIDIA H200", 4, 4)
    assert found.emulated_nodes
    assert found.nccl_version == "2.28.9"
    assert found.settings == {"NCCL_SOCKET_IFNAME": "lo"}
    assert found.replay is None


@pytest.mark.parametrize(("text", "version"), [("580.159.04\n", "580.159.04"), ("", None)])
def test_the_driver_is_the_kernels(
    text: str, version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "version"
    monkeypatch.setattr("nccltune.measure.bench.process.DRIVER_VERSION", path)
    assert platform().driver_version is None
    path.write_text(text)
    assert platform().driver_version == version


def test_a_replay_is_the_recorded_platform_and_names_it() -> None:
    recorded = platform(name="there", network="Socket lo")
    found = platform_of(
        hello(replay="there", nccl=Nccl("2.27.1")),
        "study",
        environment={"NCCL_ALGO": "ring"},
        today="2026-11-22",
        recording=recorded,
    )
    assert (found.name, found.replay, found.network) == ("study", "there", "Socket lo")
    assert found.settings == recorded.settings
    assert found.nccl_version == "2.27.1"
    assert "replay" in found.notes[0]


def study(path: Path, of: Platform) -> Study:
    made = Study.create(path / "study")
    made.write_json(made.platform_path, of)
    return made


def test_the_same_platform_may_go_on(tmp_path: Path) -> None:
    check_same_platform(
        study(tmp_path, platform()), platform(recorded_at="2026-12-24", notes=["x"])
    )
    check_same_platform(Study(tmp_path / "new"), platform())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "NVIDIA B200"}, "GPU NVIDIA H200 there, NVIDIA B200 here"),
        ({"nccl_version": "2.32.3"}, "NCCL 2.28.9 there, 2.32.3 here"),
        ({"nodes": 2}, "number of nodes 4 there, 2 here"),
        ({"emulated_nodes": False}, "emulated nodes yes there, no here"),
        ({"replay": "x"}, "replay of unknown there, x here"),
        ({"settings": {}}, "NCCL settings NCCL_SOCKET_IFNAME=lo there, none here"),
    ],
)
def test_another_platform_is_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(StudyError, match="another platform") as caught:
        check_same_platform(study(tmp_path, platform()), platform(**changes))
    assert words in caught.value.message
    assert "-o" in (caught.value.hint or "")


def test_measurements_of_an_unknown_platform_are_refused(tmp_path: Path) -> None:
    (tmp_path / "samples.jsonl").write_text("")
    with pytest.raises(StudyError, match="does not name their platform"):
        check_same_platform(Study(tmp_path), platform())


def test_one_node_of_its_own_is_not_emulated() -> None:
    found = platform_of(
        hello(), "study", environment=ENVIRONMENT, today="2026-11-27", emulated_nodes=1
    )
    assert not found.emulated_nodes
    assert found.stand_in is None


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
