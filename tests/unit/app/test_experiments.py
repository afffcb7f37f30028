# SPDX-License-Identifier: Apache-2.0
"""Use cases that start processes, on recordings of simulated machines and with fake binaries."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccltune.app.ab import ab_test, kept_settings, trial_of
from nccltune.app.sendrecv_sweep import compare_copies, keep_threshold, plan_copies
from nccltune.formats.tuner_config.nccl_conf import read_conf
from nccltune.measure.bench.identity import platform_of
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.scheduler import ExperimentStatus, StatusCallback
from nccltune.measure.experiments.ab.experiment import TrialScope
from nccltune.measure.experiments.copies.experiment import CopiesExperiment, CopiesScope
from nccltune.measure.experiments.copies.record import (
    SENDRECV,
    UNDER_LOAD,
    ProcessRecord,
    RecordKind,
)
from nccltune.measure.experiments.copies.settings import CHUNK, FROM, ON, POLICY
from nccltune.model.errors import StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from nccltune.study.names import SENDRECV_CONF
from tests.unit.measure.experiments import test_ab
from tests.unit.measure.experiments.copies_machine import K, M, Machine
from tests.unit.measure.experiments.test_copies_experiment import crossing
from tests.unit.measure.fakes import hello

COPIES = CopiesScope(64 * K, 64 * M)


class Progress:
    """Record what is reported; interrupt at process number `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.platform: Platform | None = None
        self.seen: list[ExperimentStatus] = []
        self.kept: str | None = None
        self.open = 0
        self._stop_at = stop_at

    def started(self, platform: Platform, library: str | None) -> None:  # noqa: ARG002
        self.platform = platform

    @contextlib.contextmanager
    def watching(self) -> Iterator[StatusCallback]:
        self.open += 1
        try:
            yield self._update
        finally:
            self.open -= 1

    def stopped(self, kept: str) -> None:
        assert self.open == 0, "the status is still shown"
        self.kept = kept

    def _update(self, status: ExperimentStatus) -> None:
        assert self.open == 1
        self.seen.append(status)
        if status.process == self._stop_at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a study with a comparison on a simulated machine."""
    path = tmp_path_factory.mktemp("recordings") / "machine"
    study = Study.create(path)
    study.write_json(study.platform_path, Platform(name="machine", gpu="NVIDIA H200"))
    machine = Machine(crossing(4 * M))
    record = ProcessRecord(study, SENDRECV)
    CopiesExperiment(machine.start, machine.first(), record, COPIES).run()
    return path


def test_an_interruption_leaves_a_verdict_and_the_same_call_resumes(
    recording: Path, tmp_path: Path
) -> None:
    launch, path, progress = Launch(replay=recording), tmp_path / "s", Progress(stop_at=5)
    with pytest.raises(KeyboardInterrupt):
        compare_copies(path, launch, COPIES, progress, command="again")
    assert progress.kept == "all timings so far"
    written = json.loads((path / "sendrecv.json").read_text())
    assert (written["reason"], written["decided"], written["command"]) == (
        "interrupted",
        False,
        "again",
    )
    assert not (path / "sendrecv.conf").exists()
    verdict = compare_copies(path, launch, COPIES)
    assert (verdict.reason, verdict.known) == ("done", 4)
    assert verdict.settings == {FROM: 4 * M}
    assert f"{FROM}={4 * M}" in (path / "sendrecv.conf").read_text().splitlines()
    plan = plan_copies(path, launch, COPIES)
    assert (plan.pairs, plan.processes) == (6, 12)


def test_a_file_is_no_study_to_measure_into(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(StudyError, match="is a file"):
        compare_copies(path, Launch(replay=recording), COPIES)


def test_an_ab_test_keeps_what_helps_and_builds_on_it(tmp_path: Path) -> None:
    path, machine = tmp_path / "s", test_ab.Machine(lambda _: 0.8)
    trial = trial_of(path, dict(test_ab.TRIED), ["simulated"])
    progress = Progress()
    verdict = ab_test(path, machine, trial, TrialScope(8), progress, min_gain=0.03)
    assert verdict.decision == "keep"
    assert len(progress.seen) == 16
    assert {status.what for status in progress.seen} == {"with it", "without it"}
    assert kept_settings(path) == {"NCCL_X": "1"}
    # The next test has it on both sides; a test of the same setting compares it anew.
    assert trial_of(path, {"NCCL_Y": "2"}, []).baseline == {"NCCL_X": "1"}
    assert trial_of(path, {"NCCL_X": "2"}, []).baseline == {}


def test_an_interrupted_ab_test_reports_how_many_rounds_it_has(tmp_path: Path) -> None:
    path, progress = tmp_path / "s", Progress(stop_at=6)
    trial = trial_of(path, dict(test_ab.TRIED), ["simulated"])
    with pytest.raises(KeyboardInterrupt):
        ab_test(path, test_ab.Machine(), trial, TrialScope(8), progress, min_gain=0.03)
    assert progress.kept == "all timings so far (2 whole rounds)"
    assert kept_settings(path) == {}


PLATFORM = platform_of(hello(), "study", environment={}, today="2026-11-22")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study")


def end(study: Study, kept: RecordKind, settings: dict[str, int | str], why: str) -> None:
    """Store the result of a comparison and write its settings."""
    study.write_json(study.path / kept.result, {"settings": settings, "why": why, "noise": 0.02})
    keep_threshold(study, PLATFORM, settings)


def add_chunk(study: Study) -> None:
    with (study.path / SENDRECV_CONF).open("a") as file:
        file.write(f"{CHUNK}={8 << 20}\n")


def comments(study: Study) -> str:
    lines = (study.path / SENDRECV_CONF).read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("#"))


def test_a_threshold_takes_the_place_of_another_and_leaves_a_chunk(study: Study) -> None:
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    add_chunk(study)
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(4 << 20), CHUNK: str(8 << 20)}
    assert "# by size\n" in comments(study)
    end(study, UNDER_LOAD, {FROM: 1 << 20}, "computing")
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(1 << 20), CHUNK: str(8 << 20)}
    assert "# While the GPUs compute: computing\n" in comments(study)
    assert "by size" not in comments(study)


def test_a_chunk_is_removed_where_copy_engines_are_switched_off(study: Study) -> None:
    add_chunk(study)
    end(study, SENDRECV, {ON: 0}, "never faster")
    assert read_conf(study.path / SENDRECV_CONF) == {ON: "0"}


def test_the_chunk_of_a_policy_is_removed_with_the_policy(study: Study) -> None:
    (study.path / SENDRECV_CONF).write_text(f"{POLICY}=vccl\n{CHUNK}=16777216\n")
    end(study, SENDRECV, {FROM: 4 << 20}, "by size")
    assert read_conf(study.path / SENDRECV_CONF) == {FROM: str(4 << 20)}
