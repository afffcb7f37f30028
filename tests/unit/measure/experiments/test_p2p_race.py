# SPDX-License-Identifier: Apache-2.0
import math
from pathlib import Path

import msgspec
import pytest

from nccltune.measure.engine.gains import ProcessGain
from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.scheduler import ExperimentStatus
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.experiments.p2p.experiment import RaceExperiment, RaceScope
from nccltune.measure.experiments.p2p.race import PROOF_PAIRS, combined_winners
from nccltune.measure.experiments.p2p.settings import BUFFER, CHUNK, MIN_CHANNELS
from nccltune.measure.experiments.p2p.verdict import RaceVerdict, RangeEffect
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.measure.experiments.p2p_machine import (
    K,
    M,
    Machine,
    StopError,
    driver,
    nothing_matters,
    stop_at,
)

WANTED = RaceScope(4 * K, 256 * M)
BEST = Settings.of({MIN_CHANNELS: 64, CHUNK: 256 * K})


def race(
    path: Path,
    machine: Machine,
    wanted: RaceScope = WANTED,
    seen: list[ExperimentStatus] | None = None,
) -> RaceVerdict:
    return driver(RaceExperiment, ProcessRecord(Study.create(path)), machine, wanted, seen).run()


def ranges(verdict: RaceVerdict, collective: Collective, effect: str) -> list[RangeEffect]:
    assert verdict.champion is not None
    return [
        item
        for item in verdict.champion.ranges
        if (item.collective, item.effect) == (collective, effect)
    ]


def around(gain: ProcessGain, value: float, within: float = 0.02) -> bool:
    return gain.low <= gain.gain <= gain.high and math.isclose(gain.gain, value, rel_tol=within)


def test_the_winners_are_found_joined_and_proven(tmp_path: Path) -> None:
    machine = Machine()
    verdict = race(tmp_path, machine)
    assert verdict.reason == "done"
    assert Settings.of(verdict.settings) == BEST
    (faster,) = ranges(verdict, Collective.SENDRECV, "faster")
    assert (faster.from_bytes, faster.to_bytes) == (4 * M, 128 * M)
    assert around(faster.gain, 1.5 * 1.15)
    assert faster.gain.processes == PROOF_PAIRS
    assert faster.gain.known
    assert not ranges(verdict, Collective.SENDRECV, "slower")
    assert not ranges(verdict, Collective.ALLREDUCE, "slower")
    assert ranges(verdict, Collective.ALLTOALL, "faster")
    parts = {next(iter(part.settings)): part for part in verdict.parts}
    assert set(parts) == {MIN_CHANNELS, CHUNK}
    assert verdict.champion is not None
    assert verdict.champion.memory_bytes is not None
    assert verdict.default_memory_bytes is not None
    assert verdict.champion.memory_bytes == 2 * verdict.default_memory_bytes
    # Far fewer than a grid of all values of all settings, and most are defaults.
    assert verdict.processes < 90
    assert machine.started.count(DEFAULT) >= len(machine.started) / 3


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_recommended_where_nothing_matters(tmp_path: Path, seed: int) -> None:
    machine = Machine(nothing_matters, noise=0.01, luck=0.02, seed=seed)
    verdict = race(tmp_path, machine, WANTED._replace(seed=seed))
    assert verdict.settings == {}
    assert "beat" in verdict.why


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_drift_of_the_machine_is_no_gain(tmp_path: Path, drift: float) -> None:
    verdict = race(tmp_path, Machine(nothing_matters, drift=drift))
    assert verdict.settings == {}
    other = race(tmp_path / "other", Machine(drift=drift))
    assert Settings.of(other.settings) == BEST


def test_a_default_runs_before_and_after_every_pair(tmp_path: Path) -> None:
    machine = Machine()
    race(tmp_path, machine)
    candidates = 0
    for settings in machine.started:
        candidates = 0 if settings == DEFAULT else candidates + 1
        assert candidates <= 2
    assert machine.started[-1] == DEFAULT


def test_what_costs_more_elsewhere_than_it_gains_is_not_recommended(tmp_path: Path) -> None:
    def model(settings: Settings, collective: Collective, size: int) -> float:
        small_buffer = settings.numbers.get(BUFFER, 4 * M) < 4 * M
        factor = 1.0
        if small_buffer:
            factor = 2.0 if collective is Collective.ALLREDUCE else 1 / 1.1
        return (8 + size / 150e3) * factor

    verdict = race(tmp_path, Machine(model))
    assert verdict.settings == {}
    assert "costs all-reduce more (0.50x) than send/recv gains (1.10x)" in verdict.why


def test_a_cost_elsewhere_that_is_worth_it_is_reported(tmp_path: Path) -> None:
    def model(settings: Settings, collective: Collective, size: int) -> float:
        more = settings.numbers.get(MIN_CHANNELS) == 64
        factor = 1.0
        if more:
            factor = 1 / 1.5 if collective is Collective.SENDRECV else 1.0
            if size <= 16 * K:
                factor = 1.1
        return (8 + size / 150e3) * factor

    verdict = race(tmp_path, Machine(model))
    assert verdict.settings == {MIN_CHANNELS: 64}
    (slower,) = ranges(verdict, Collective.SENDRECV, "slower")
    assert (slower.from_bytes, slower.to_bytes) == (4 * K, 16 * K)
    assert around(slower.gain, 1 / 1.1)
    assert ranges(verdict, Collective.ALLREDUCE, "slower")


def test_a_setting_that_adds_nothing_is_left_out(tmp_path: Path) -> None:
    def model(settings: Settings, collective: Collective, size: int) -> float:
        values = settings.numbers
        fast = values.get(MIN_CHANNELS) == 64 or values.get(BUFFER) == 16 * M
        return (8 + size / 150e3) / (1.3 if fast else 1.0)

    verdict = race(tmp_path, Machine(model))
    assert len(verdict.settings) == 1


def test_settings_that_fail_or_compute_wrongly_are_dropped_and_named(tmp_path: Path) -> None:
    def refused(settings: Settings) -> bool:
        return settings.numbers.get(CHUNK) == 256 * K

    def wrong(settings: Settings) -> bool:
        return settings.numbers.get(MIN_CHANNELS) == 64

    machine = Machine(refused=refused, wrong=wrong)
    verdict = race(tmp_path, machine)
    assert verdict.settings == {}
    assert verdict.failed["NCCL_P2P_NVL_CHUNKSIZE=262144"] == "NCCL: unhandled system error"
    assert "7 elements of" in verdict.failed["NCCL_MIN_P2P_NCHANNELS=64"]
    assert machine.started.count(Settings.of({CHUNK: 256 * K})) == 1


def test_a_size_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    verdict = race(tmp_path, Machine(too_large=64 * M))
    assert Settings.of(verdict.settings) == BEST
    (faster,) = ranges(verdict, Collective.SENDRECV, "faster")
    assert faster.to_bytes == 64 * M


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine on which a race ran to its end."""
    machine = Machine()
    race(tmp_path_factory.mktemp("whole"), machine)
    return machine


@pytest.mark.parametrize("cut", [0, 10, 300, 1000, 4000])
def test_an_interrupted_race_goes_on_where_it_stopped(
    tmp_path: Path, whole: Machine, cut: int
) -> None:
    assert whole.measured > 4000
    with pytest.raises(StopError):
        race(tmp_path / "cut", Machine(before=stop_at(cut)))
    finished = [run for run in ProcessRecord(Study(tmp_path / "cut")).finished() if not run.probe]
    rest = Machine()
    verdict = race(tmp_path / "cut", rest)
    assert Settings.of(verdict.settings) == BEST
    assert verdict.known == len(finished)
    numbers = [run.process for run in ProcessRecord(Study(tmp_path / "cut")).lines.read()]
    assert len(set(numbers)) == len(numbers)
    # At most the interrupted process runs twice, and a new default before the next one.
    assert verdict.processes + verdict.known <= len(whole.started) + 4
    again = race(tmp_path / "cut", Machine())
    assert (again.processes, again.settings) == (0, verdict.settings)


def test_the_budget_ends_a_race_before_the_process_that_would_break_it(tmp_path: Path) -> None:
    machine = Machine()
    first = race(tmp_path, machine, WANTED._replace(budget_s=5))
    assert first.reason == "budget"
    assert first.settings == {}
    assert "not finished" in first.why
    assert first.seconds <= 5
    last = race(tmp_path, Machine(), WANTED)
    assert last.known == first.processes - 1
    assert Settings.of(last.settings) == BEST


def test_the_sweeps_samples_stay_as_they_are(tmp_path: Path) -> None:
    race(tmp_path, Machine())
    assert not Study(tmp_path).samples_path.exists()
    samples = ProcessRecord(Study(tmp_path)).samples.read()
    assert {sample.collective.value for sample in samples} == {"sendrecv", "alltoall", "allreduce"}
    assert all(sample.iterations for sample in samples)
    assert all(
        len({s.iterations for s in samples if s.bytes == size and s.process > 0}) == 1
        for size in (4 * K, 256 * M)
    )


def test_a_watcher_hears_of_every_process(tmp_path: Path) -> None:
    seen: list[ExperimentStatus] = []
    verdict = race(tmp_path, Machine(), seen=seen)
    assert len(seen) == verdict.processes - 1
    assert {status.stage for status in seen} >= {"alone", "together", "proof"}
    assert all(status.left_s >= 0 for status in seen)
    leading = [status.gain for status in seen if status.what == BEST.label]
    assert any(gain is not None and gain > 1.1 for gain in leading)


def test_a_recorded_race_can_be_run_again_without_the_machine(tmp_path: Path) -> None:
    recorded = race(tmp_path / "recorded", Machine())
    study = Study(tmp_path / "recorded")
    study.write_json(study.platform_path, Platform(name="recorded", gpu="NVIDIA H200"))
    start = replay(study.path, seed=1)
    runs = ProcessRecord(Study.create(tmp_path / "again"))
    with start(DEFAULT, 0) as first:
        assert first.hello.replay == "recorded"
        assert first.hello.ranks == 4
        verdict = RaceExperiment(start, first, runs, WANTED).run()
    assert verdict.replay == "recorded"
    assert verdict.settings == recorded.settings
    assert verdict.seconds == pytest.approx(
        verdict.processes * recorded.seconds / recorded.processes, rel=0.2
    )
    with (
        pytest.raises(LaunchError, match="was not recorded"),
        start(Settings.of({BUFFER: 32 * M}), 1),
    ):
        pass


def test_verdicts_are_plain_json(tmp_path: Path) -> None:
    verdict = race(tmp_path, Machine())
    text = msgspec.json.encode(verdict)
    assert msgspec.json.decode(text, type=RaceVerdict) == verdict
    assert b"Infinity" not in text
    assert b"NaN" not in text


def test_joins_are_the_whole_first_then_pairs() -> None:
    one, two, three = (
        Settings.of({name: value})
        for name, value in ((MIN_CHANNELS, 64), (CHUNK, 256 * K), (BUFFER, 8 * M))
    )
    found = combined_winners([one, two, three])
    assert found[0].numbers == {MIN_CHANNELS: 64, CHUNK: 256 * K, BUFFER: 8 * M}
    assert len(found) == 4
    assert combined_winners([one]) == []
    clash = Settings.of({BUFFER: 1 * M})
    assert combined_winners([two, clash]) == []
