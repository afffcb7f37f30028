# SPDX-License-Identifier: Apache-2.0
"""The doctor inside `auto`: its line, its stored result, failures and time limits."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccltune.app import examiner
from nccltune.app.examiner import ChecksLine, Examiner
from nccltune.doctor.evidence import collect as collecting
from nccltune.doctor.facts import Facts
from nccltune.doctor.result import Examination
from nccltune.launch.find import InstalledLauncher
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.measure.bench.conversation import BenchGpu, Nccl
from nccltune.measure.bench.identity import this_host_hash
from nccltune.measure.bench.pods import Pods
from nccltune.measure.bench.process import Launch
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.doctor.rule_cases import facts_of
from tests.unit.measure.fakes import hello

Examine = Callable[..., ChecksLine]
PLATFORM = Platform(name="here", settings={"NCCL_ALGO": "Ring"})
SETTING = {"kind": "environment", "where": "environment", "in_force": True}
FACTS: dict[str, Any] = {
    "settings": [{"name": "NCCL_ALGO", "value": "Ring", **SETTING}],
    "cpu.governors": ["performance"],
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long enough that the load of this machine does not change the result."""
    monkeypatch.setattr(examiner, "GRACE_S", 60.0)


FOUND = "NCCL_ALGO=Ring (environment): it switches off every algorithm that it does not name"


def of_hosts(*hosts: str) -> Any:
    gpus = [BenchGpu(rank, "NVIDIA H200", host) for rank, host in enumerate(hosts)]
    return hello(gpus=gpus, nccl=Nccl("2.28.9", "/x/libnccl.so.2"))


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Return what examines this node by `collect` and writes to a study."""

    def examine(
        collect: Callable[..., Facts] = lambda **_: facts_of("n1", FACTS),
        *,
        hosts: tuple[str, ...] = (),
        launch: Launch | None = None,
    ) -> ChecksLine:
        monkeypatch.setattr(collecting, "collect", collect)
        with Examiner(launch or Launch()) as checks:
            checks.begin()
            study = Study.create(tmp_path / "study")
            of = of_hosts(*(hosts or (this_host_hash(),) * 2))
            return checks.checks_line(study, PLATFORM, of)

    return examine


def kept(tmp_path: Path) -> Examination:
    study = Study(tmp_path / "study")
    return study.read_json(study.doctor_path, Examination)


def test_the_line_names_the_finding_and_the_study_keeps_all(
    tmp_path: Path, examined: Examine
) -> None:
    line = examined()
    assert re.match(rf"ok \d+ · finding 1: {re.escape(FOUND)}", line.words)
    assert line.is_wrong
    assert kept(tmp_path).source == "nccltune auto on n1"
    assert kept(tmp_path).nodes[0].title == "NCCL 2.28.9"


def test_only_the_head_node_of_several_hosts_is_examined(examined: Examine) -> None:
    line = examined(hosts=(this_host_hash(), "another"))
    assert re.match(r"of the head node alone, n1: ok \d+ · finding 1: ", line.words)


def test_a_machine_that_does_not_measure_is_not_examined(tmp_path: Path, examined: Examine) -> None:
    line = examined(hosts=("another", this_host_hash()))
    assert line.words == (
        "not examined, others measure: nccltune doctor on their nodes · "
        "set here: NCCL_ALGO=Ring (only these algorithms can be chosen)"
    )
    assert not Study(tmp_path / "study").doctor_path.exists()


@pytest.mark.parametrize("is_replay", [True, False])
def test_nothing_is_read_for_a_recording_or_for_pods(
    is_replay: bool, tmp_path: Path, examined: Examine
) -> None:
    looked: list[object] = []

    def collect(**_: object) -> Facts:
        looked.append(None)
        return facts_of("n1", FACTS)

    pods = Pods.__new__(Pods)
    under = WithLauncher(InstalledLauncher(Flavor(Launcher.KUBERNETES)), 1, 8, pods=pods)
    launch = Launch(replay=tmp_path) if is_replay else Launch(with_launcher=under)
    line = examined(collect, launch=launch)
    assert line.words.startswith("not examined")
    assert not looked


def test_a_failed_examination_is_reported_and_raises_nothing(
    tmp_path: Path, examined: Examine
) -> None:
    def collect(**_: object) -> Facts:
        raise PermissionError(13, "Permission denied", "/proc/secret")

    line = examined(collect)
    assert line.words == (
        "cannot tell: [Errno 13] Permission denied: '/proc/secret' · "
        "set here: NCCL_ALGO=Ring (only these algorithms can be chosen)"
    )
    assert not Study(tmp_path / "study").doctor_path.exists()


def test_a_study_that_cannot_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, examined: Examine
) -> None:
    def refuse(*_: object) -> None:
        raise StudyError("cannot be written: No space left on device", where="doctor.json")

    monkeypatch.setattr(Study, "write_json", refuse)
    line = examined()
    assert line.words.startswith("cannot tell: doctor.json: cannot be written: No space left")


def test_a_slow_examination_is_stopped_and_keeps_what_it_read(
    monkeypatch: pytest.MonkeyPatch, examined: Examine
) -> None:
    monkeypatch.setattr(examiner, "GRACE_S", 0.0)
    monkeypatch.setattr(examiner, "END_S", 60.0)

    def collect(*, stop: threading.Event) -> Facts:
        assert stop.wait(60)
        return facts_of("n1", FACTS)

    assert FOUND in examined(collect).words


def test_an_examination_that_does_not_stop_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, examined: Examine
) -> None:
    monkeypatch.setattr(examiner, "GRACE_S", 0.0)
    monkeypatch.setattr(examiner, "END_S", 0.0)
    let_go = threading.Event()

    def collect(**_: object) -> Facts:
        let_go.wait(60)
        return facts_of("n1", FACTS)

    line = examined(collect)
    let_go.set()
    assert line.words.startswith("cannot tell: this node did not answer in time: nccltune doctor")


def test_an_examination_that_the_user_asked_for_is_kept(tmp_path: Path, examined: Examine) -> None:
    study = Study.create(tmp_path / "study")
    theirs = Examination(source="collected/", nodes=(), rules=())
    study.write_json(study.doctor_path, theirs)
    assert FOUND in examined().words
    assert kept(tmp_path) == theirs
    study.doctor_path.unlink()
    examined()
    examined(lambda **_: facts_of("n2", FACTS))
    assert kept(tmp_path).nodes[0].name == "n2"
