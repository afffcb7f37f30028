# SPDX-License-Identifier: Apache-2.0
"""The comparison of chunks beside traffic, on machines whose times are known."""

from pathlib import Path

import pytest

from nccltune.measure.engine.gains import NeighbourGains
from nccltune.measure.engine.process_record import ProcessRecord, ProcessRun
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.settings_processes import Starter
from nccltune.measure.engine.workload import RACED
from nccltune.measure.experiments.copies.fairness import FairnessOutcome, FairnessVerdict, decide
from nccltune.measure.experiments.copies.fairness_experiment import (
    FairnessExperiment,
    FairnessScope,
)
from nccltune.measure.experiments.copies.preload import BESIDE_TRAFFIC
from nccltune.measure.experiments.copies.rounds import RoundsBesideTraffic
from nccltune.measure.experiments.copies.settings import CHUNK, COPY_ENGINE, chunks
from nccltune.measure.experiments.copies.threshold import Effect
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.measure.experiments.p2p_machine import K, M, Machine

WANTED = FairnessScope(256 * K, 16 * M)
ALL = [DEFAULT, COPY_ENGINE, *chunks()]


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.study.files.os.fsync", lambda _: None)


def waits(settings: Settings, collective: Collective, size: int) -> float:
    """Return the wait: half of the time of one copy."""
    exact = 8 + size / 150e3
    if settings == DEFAULT:
        return exact
    return exact + settings.numbers.get(CHUNK, 256 * M) / 2 / 390e3


def even(settings: Settings, collective: Collective, size: int) -> float:
    return 8 + size / 150e3


def free(settings: Settings) -> float:
    return 900.0 if settings == DEFAULT else 690.0


def costly(settings: Settings) -> float:
    """Return the cost: 4 % for 64 MiB, twice as much for each halving."""
    chunk = settings.numbers.get(CHUNK)
    return free(settings) * (1 if chunk is None else 1 + 0.04 * 64 * M / chunk)


def driver(
    path: Path, machine: Machine, wanted: FairnessScope = WANTED, start: Starter | None = None
) -> FairnessExperiment:
    clock = iter(range(100_000))
    return FairnessExperiment(
        start or machine.start,
        machine.first(),
        ProcessRecord(Study.create(path), BESIDE_TRAFFIC),
        wanted,
        now=lambda: next(clock),
    )


def compare(path: Path, machine: Machine, wanted: FairnessScope = WANTED) -> FairnessVerdict:
    return driver(path, machine, wanted).run()


def test_rounds_go_forwards_and_backwards(tmp_path: Path) -> None:
    machine = Machine(waits, traffic=free)
    verdict = compare(tmp_path, machine)
    assert machine.started == [*ALL, *ALL[::-1]] * 3
    assert verdict.processes == 1 + 36
    assert [one.chunk for one in verdict.candidates] == [None, 0, 64 * M, 32 * M, 16 * M, 8 * M]
    assert {one.processes for one in verdict.candidates} == {6}


def test_a_chunk_that_costs_nothing_is_recommended(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(waits, traffic=free))
    assert verdict.outcome is FairnessOutcome.CHUNK
    assert verdict.settings == {CHUNK: 8 * M}
    assert verdict.decided
    native, whole, *cut = verdict.candidates
    assert native.messages is None
    assert whole.messages is None
    assert whole.sizes[0].time_us == pytest.approx(waits(COPY_ENGINE, RACED, 256 * K), rel=0.02)
    assert whole.sizes[0].spread is not None
    assert whole.traffic_alone_us == pytest.approx(690, rel=0.01)
    assert whole.traffic_us == pytest.approx(759, rel=0.01)
    gains = [one.messages.gain for one in cut if one.messages is not None]
    assert gains == sorted(gains)
    assert {one.messages_effect for one in cut} == {Effect.FASTER}
    assert {one.traffic_effect for one in cut} <= {Effect.SAME, Effect.FASTER}


def test_a_chunk_that_costs_traffic_is_the_users_choice(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(waits, traffic=costly))
    assert verdict.outcome is FairnessOutcome.TRADE
    assert verdict.settings == {}
    assert verdict.decided
    assert verdict.trade == [{CHUNK: chunk} for chunk in (64 * M, 32 * M, 16 * M, 8 * M)]
    assert f"with {CHUNK}={64 * M} messages beside traffic are" in verdict.why
    assert "traffic alone runs at 96" in verdict.why
    assert f"with {CHUNK}={8 * M}" in verdict.why


def test_of_several_the_free_one_is_recommended(tmp_path: Path) -> None:
    def traffic(settings: Settings) -> float:
        return free(settings) * (1.1 if settings.numbers.get(CHUNK, 64 * M) < 32 * M else 1.0)

    assert compare(tmp_path, Machine(waits, traffic=traffic)).settings == {CHUNK: 32 * M}


@pytest.mark.parametrize("seed", range(4))
def test_what_gains_nothing_leaves_the_default(tmp_path: Path, seed: int) -> None:
    verdict = compare(tmp_path, Machine(even, traffic=free, luck=0.02, noise=0.01, seed=seed))
    assert verdict.outcome is FairnessOutcome.DEFAULT
    assert (verdict.settings, verdict.trade) == ({}, [])
    assert "the default stays" in verdict.why


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_drift_of_the_machine_decides_nothing(tmp_path: Path, drift: float) -> None:
    verdict = compare(tmp_path, Machine(even, traffic=free, drift=drift))
    assert verdict.outcome is FairnessOutcome.DEFAULT


def test_a_chunk_that_fails_is_named_and_does_not_stop_it(tmp_path: Path) -> None:
    def refused(settings: Settings) -> bool:
        return settings.numbers.get(CHUNK) == 8 * M

    verdict = compare(tmp_path, Machine(waits, traffic=free, refused=refused))
    assert verdict.settings == {CHUNK: 16 * M}
    (failed,) = verdict.failed
    assert f"{CHUNK}={8 * M}" in failed


def test_without_copy_engines_nothing_is_decided(tmp_path: Path) -> None:
    machine = Machine(waits, traffic=free, refused=lambda settings: settings == COPY_ENGINE)
    verdict = compare(tmp_path, machine)
    assert not verdict.decided
    assert "copy engines did not run here" in verdict.why
    assert machine.started == [DEFAULT, COPY_ENGINE]
    assert compare(tmp_path, Machine(waits, traffic=free)).settings == {CHUNK: 8 * M}


class StopError(Exception):
    pass


@pytest.mark.parametrize("cut", [0, 5, 30, 100, 121, 300])
def test_an_interrupted_comparison_goes_on_where_it_stopped(tmp_path: Path, cut: int) -> None:
    def stop(number: int) -> None:
        if number == cut:
            raise StopError

    with pytest.raises(StopError):
        compare(tmp_path, Machine(waits, traffic=free, before=stop))
    finished = [
        run for run in ProcessRecord(Study(tmp_path), BESIDE_TRAFFIC).finished() if not run.probe
    ]
    verdict = compare(tmp_path, Machine(waits, traffic=free))
    assert verdict.settings == {CHUNK: 8 * M}
    assert verdict.known == len(finished)
    # At most the interrupted round runs twice, and NCCL again before the rest.
    assert verdict.processes + verdict.known <= 37 + 12
    again = compare(tmp_path, Machine(waits, traffic=free))
    assert (again.processes, again.settings) == (0, verdict.settings)


def test_more_rounds_use_those_that_are_there(tmp_path: Path) -> None:
    compare(tmp_path, Machine(waits, traffic=free))
    more = compare(tmp_path, Machine(waits, traffic=free), WANTED._replace(rounds=8))
    assert (more.known, more.processes) == (36, 12)


def test_a_budget_that_is_spent_decides_nothing_yet(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(waits, traffic=free), WANTED._replace(budget_s=9))
    assert (verdict.reason, verdict.decided) == ("budget", False)
    assert verdict.candidates == [] or verdict.candidates[0].processes < 6


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    study = tmp_path / "study"
    compare(study, Machine(waits, traffic=costly))
    Study(study).write_json(Study(study).platform_path, Platform(name="x"))
    start = replay(study, 1, BESIDE_TRAFFIC)
    with start(DEFAULT, 0) as first:
        runs = ProcessRecord(Study.create(tmp_path / "again"), BESIDE_TRAFFIC)
        verdict = FairnessExperiment(start, first, runs, WANTED).run()
    assert verdict.outcome is FairnessOutcome.TRADE
    assert verdict.trade[0] == {CHUNK: 64 * M}
    empty = Study.create(tmp_path / "empty")
    empty.write_json(empty.platform_path, Platform(name="x"))
    with pytest.raises(StudyError, match="no recorded comparison of chunks beside traffic"):
        replay(empty.path, 1, BESIDE_TRAFFIC)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (WANTED._replace(rounds=3), "4 rounds at least"),
        (WANTED._replace(low=1 * K), "4 KiB to 1 GiB"),
    ],
)
def test_what_could_decide_nothing_is_refused(
    tmp_path: Path, wanted: FairnessScope, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        compare(tmp_path, Machine(waits, traffic=free), wanted)


def test_a_bench_without_traffic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="cannot send messages"):
        compare(tmp_path, Machine(waits))


def test_rounds_are_of_one_session_and_without_a_gap() -> None:
    results = NeighbourGains([(RACED, 1 * M)])
    rounds = RoundsBesideTraffic(results, chunks(), rounds=2)
    # The second round is split: NCCL runs again before the rest of it.
    order = [*ALL, *ALL[:2:-1], DEFAULT, *ALL[2::-1], *ALL, *ALL[::-1]]
    for process, settings in enumerate(order):
        results.add(ProcessRun(process, 1 if process < 9 else 2, settings, {(RACED, 1 * M): 10.0}))
    assert [min(run.process for run in one.values()) for one in rounds.complete()] == [0, 13]
    assert rounds.compared
    assert decide(rounds, 0.02).outcome is FairnessOutcome.DEFAULT
