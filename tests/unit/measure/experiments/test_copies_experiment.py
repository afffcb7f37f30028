# SPDX-License-Identifier: Apache-2.0
"""The comparison of NCCL with copy engines, on machines whose curves are known."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.replay import replay
from nccltune.measure.engine.scheduler import ExperimentStatus
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.experiments.copies.experiment import CopiesExperiment, CopiesScope
from nccltune.measure.experiments.copies.order import POLICY_STARTS, PROOF_PAIRS
from nccltune.measure.experiments.copies.preload import SENDRECV
from nccltune.measure.experiments.copies.settings import (
    BUFFER,
    CHANNELS,
    CHUNK,
    COPY_ENGINE,
    DEFAULT_FROM,
    FROM,
    ON,
    POLICY,
    STEPS,
    policies,
)
from nccltune.measure.experiments.copies.threshold import Effect
from nccltune.measure.experiments.copies.verdict import CopiesVerdict
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.measure.experiments.p2p_machine import (
    K,
    M,
    Machine,
    Model,
    StopError,
    driver,
    stop_at,
)

WANTED = CopiesScope(64 * K, 64 * M)


def crossing(at: int, policy: Callable[[Settings], float] = lambda _: 1.0) -> Model:
    """Return times: a copy engine is slower than NCCL below `at` bytes and faster from there on.

    Policies are faster than that by a factor.
    """

    def model(settings: Settings, collective: Collective, size: int) -> float:
        native = 8 + size / 150e3
        if settings == DEFAULT:
            return native
        time_us = native * 1.3 if size < at else native / 1.3
        return time_us / policy(settings) if settings.words else time_us

    return model


def compare(
    path: Path,
    machine: Machine,
    wanted: CopiesScope = WANTED,
    seen: list[ExperimentStatus] | None = None,
) -> CopiesVerdict:
    record = ProcessRecord(Study.create(path), SENDRECV)
    return driver(CopiesExperiment, record, machine, wanted, seen).run()


@pytest.mark.parametrize("at", [128 * K, 1 * M, 2 * M, 4 * M, 64 * M])
@pytest.mark.parametrize("seed", range(2))
def test_a_known_crossing_is_found(tmp_path: Path, at: int, seed: int) -> None:
    machine = Machine(crossing(at), seed=seed)
    verdict = compare(tmp_path, machine, WANTED._replace(seed=seed))
    assert verdict.reason == "done"
    assert verdict.settings == {FROM: at}
    assert verdict.from_bytes == at
    for point in verdict.points:
        assert point.taken == ("copy engine" if point.bytes >= at else "native")
        assert point.effect is (Effect.FASTER if point.bytes >= at else Effect.SLOWER)
        true = 1.3 if point.bytes >= at else 1 / 1.3
        assert point.gain.gain == pytest.approx(true, rel=0.02)
        assert point.gain.processes == WANTED.pairs
    # A probe, and six pairs of neighbours in alternating order.
    pair = [DEFAULT, COPY_ENGINE]
    assert machine.started == [*pair, *pair[::-1]] * 3
    assert verdict.processes == 13


def test_always_faster_is_the_smallest_size_measured(tmp_path: Path) -> None:
    assert compare(tmp_path, Machine(crossing(0))).settings == {FROM: 64 * K}


def test_never_faster_is_off(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(crossing(1 << 40)))
    assert verdict.settings == {ON: 0}
    assert verdict.from_bytes is None
    assert verdict.decided
    assert {point.taken for point in verdict.points} == {"native"}


def test_what_noise_hides_leaves_the_default(tmp_path: Path) -> None:
    """The noise is twice the gain or cost of a copy engine."""

    def model(settings: Settings, collective: Collective, size: int) -> float:
        return (8 + size / 150e3) * (1.0 if settings == DEFAULT else 1.02)

    kept = 0
    for seed in range(12):
        machine = Machine(model, luck=0.06, noise=0.03, seed=seed)
        verdict = compare(tmp_path / str(seed), machine, WANTED._replace(seed=seed))
        kept += verdict.settings == {FROM: DEFAULT_FROM}
    assert kept >= 11


@pytest.mark.parametrize(("luck", "noise"), [(0.004, 0.003), (0.02, 0.01), (0.06, 0.03)])
@pytest.mark.parametrize("time", [1.04, 1 / 1.04])
def test_at_any_noise_the_threshold_moves_in_the_right_direction(
    tmp_path: Path, luck: float, noise: float, time: float
) -> None:
    def model(settings: Settings, collective: Collective, size: int) -> float:
        return (8 + size / 150e3) * (1.0 if settings == DEFAULT else time)

    for seed in range(10):
        machine = Machine(model, luck=luck, noise=noise, seed=seed)
        verdict = compare(tmp_path / str(seed), machine, WANTED._replace(seed=seed))
        found = verdict.from_bytes or 1 << 40
        assert found >= DEFAULT_FROM if time > 1 else found <= DEFAULT_FROM


def test_no_difference_is_not_slower(tmp_path: Path) -> None:
    """Where copy engines cost nothing they carry everything, because this leaves SMs to kernels."""
    verdict = compare(tmp_path, Machine(lambda *_: 20.0))
    assert verdict.settings == {FROM: 64 * K}
    assert {point.effect for point in verdict.points} <= {Effect.SAME, Effect.FASTER}


@pytest.mark.parametrize("drift", [0.01, -0.01])
def test_a_drift_of_the_machine_decides_nothing(tmp_path: Path, drift: float) -> None:
    verdict = compare(tmp_path, Machine(crossing(4 * M), drift=drift))
    assert verdict.settings == {FROM: 4 * M}


def test_what_does_not_run_is_off_and_tried_again(tmp_path: Path) -> None:
    machine = Machine(crossing(1 * M), refused=lambda settings: settings == COPY_ENGINE)
    verdict = compare(tmp_path, machine)
    assert verdict.settings == {ON: 0}
    assert "did not run here: NCCL: unhandled system error" in verdict.why
    assert machine.started.count(COPY_ENGINE) == 1
    assert compare(tmp_path, Machine(crossing(1 * M))).settings == {FROM: 1 * M}


def test_wrong_contents_are_off(tmp_path: Path) -> None:
    machine = Machine(crossing(1 * M), wrong=lambda settings: settings == COPY_ENGINE)
    verdict = compare(tmp_path, machine)
    assert verdict.settings == {ON: 0}
    assert "came out wrong" in verdict.why


def test_a_nccl_that_does_not_run_stops_it(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="came out wrong"):
        compare(tmp_path, Machine(wrong=lambda settings: settings == DEFAULT))


def test_policies_are_reported_and_not_recommended_where_they_are_no_faster(tmp_path: Path) -> None:
    machine = Machine(crossing(1 * M, lambda _: 0.9))
    verdict = compare(tmp_path, machine, WANTED._replace(policies=True))
    assert verdict.settings == {FROM: 1 * M}
    assert verdict.proof is None
    assert [point.settings for point in verdict.policies] != []
    assert len(verdict.policies) == len(policies())
    for point in verdict.policies:
        assert point.over_native.processes == POLICY_STARTS
        assert point.over_copy_engine == pytest.approx(0.9, rel=0.02)
        assert machine.started.count(Settings.of(point.settings)) == POLICY_STARTS


def test_a_policy_that_is_faster_is_proven_and_left_to_its_user(tmp_path: Path) -> None:
    def policy(settings: Settings) -> float:
        return 1.15 if settings.numbers.get(STEPS) == 4 else 0.95

    machine = Machine(crossing(1 * M, policy))
    verdict = compare(tmp_path, machine, WANTED._replace(policies=True))
    # A program may not allow a send to wait.
    assert verdict.settings == {FROM: 1 * M}
    assert f"set {POLICY}=vccl {STEPS}=4 only for programs that allow that" in verdict.why
    assert verdict.proof is not None
    assert verdict.proof.processes == PROOF_PAIRS
    assert verdict.proof.gain == pytest.approx(1.15, rel=0.02)
    again = compare(tmp_path, Machine(crossing(1 * M)), WANTED._replace(policies=True))
    assert (again.processes, again.settings) == (0, verdict.settings)


def test_policies_that_fail_are_named_and_do_not_stop_it(tmp_path: Path) -> None:
    def refused(settings: Settings) -> bool:
        return settings.numbers.get(CHANNELS) == 4

    machine = Machine(crossing(1 * M), refused=refused)
    verdict = compare(tmp_path, machine, WANTED._replace(policies=True))
    assert verdict.settings == {FROM: 1 * M}
    (failed,) = verdict.failed
    assert f"{CHANNELS}=4" in failed


def test_the_policies_vary_one_setting_each_within_their_buffer() -> None:
    default, *varied = (item.recorded for item in policies())
    assert default == {ON: 1, FROM: 4 * K, POLICY: "vccl"}
    assert len({tuple(item.items()) for item in varied}) == len(varied) == 8
    for item in varied:
        (setting,) = set(item) - set(default) - {BUFFER}
        assert setting in (CHUNK, STEPS, CHANNELS)
        assert item.get(CHUNK, 0) <= item.get(BUFFER, 64 * M)


@pytest.mark.parametrize("cut", [0, 5, 100, 200, 301, 390])
def test_an_interrupted_comparison_goes_on_where_it_stopped(tmp_path: Path, cut: int) -> None:
    with pytest.raises(StopError):
        compare(tmp_path, Machine(crossing(4 * M), before=stop_at(cut)))
    runs = ProcessRecord(Study(tmp_path), SENDRECV)
    finished = [run for run in runs.finished() if not run.probe]
    assert len(runs.samples.read()) == cut
    verdict = compare(tmp_path, Machine(crossing(4 * M)))
    assert verdict.settings == {FROM: 4 * M}
    assert verdict.known == len(finished)
    # At most the interrupted process and the other one of its pair run twice.
    assert verdict.processes + verdict.known <= 13 + 3
    numbers = [run.process for run in runs.lines.read()]
    assert len(set(numbers)) == len(numbers)
    again = compare(tmp_path, Machine(crossing(4 * M)))
    assert (again.processes, again.settings) == (0, verdict.settings)


def test_more_pairs_use_those_that_are_there(tmp_path: Path) -> None:
    compare(tmp_path, Machine(crossing(4 * M)))
    more = compare(tmp_path, Machine(crossing(4 * M)), WANTED._replace(pairs=8))
    assert more.known == 12
    assert more.processes == 4
    assert more.points[0].gain.processes == 8


def test_a_budget_that_is_spent_decides_nothing_yet(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(crossing(4 * M)), WANTED._replace(budget_s=6))
    assert verdict.reason == "budget"
    assert not verdict.decided
    assert verdict.settings == {}
    assert verdict.seconds <= 6
    assert compare(tmp_path, Machine(crossing(4 * M))).settings == {FROM: 4 * M}


def test_a_budget_spent_on_policies_leaves_the_threshold(tmp_path: Path) -> None:
    wanted = WANTED._replace(policies=True, budget_s=20)
    verdict = compare(tmp_path, Machine(crossing(4 * M)), wanted)
    assert verdict.reason == "budget"
    assert verdict.settings == {FROM: 4 * M}


def test_a_size_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(crossing(4 * M), too_large=32 * M))
    assert verdict.settings == {FROM: 4 * M}
    assert verdict.points[-1].bytes == 32 * M


def test_a_recorded_comparison_runs_again_without_the_machine(tmp_path: Path) -> None:
    wanted = WANTED._replace(policies=True)
    recorded = compare(tmp_path / "recorded", Machine(crossing(4 * M)), wanted)
    study = Study(tmp_path / "recorded")
    study.write_json(study.platform_path, Platform(name="recorded", gpu="NVIDIA H200"))
    start = replay(study.path, 1, SENDRECV)
    runs = ProcessRecord(Study.create(tmp_path / "again"), SENDRECV)
    with start(DEFAULT, 0) as first:
        assert first.hello.replay == "recorded"
        verdict = CopiesExperiment(start, first, runs, wanted).run()
    assert verdict.replay == "recorded"
    assert verdict.settings == recorded.settings
    assert len(verdict.policies) == len(recorded.policies)
    with pytest.raises(StudyError, match=r"no recorded race .*send/recv"):
        replay(study.path, 1)


def test_what_is_kept_is_apart_and_complete(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(crossing(4 * M)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sendrecv-runs.jsonl",
        "sendrecv-samples.jsonl",
    ]
    samples = ProcessRecord(Study(tmp_path), SENDRECV).samples.read()
    assert {sample.collective for sample in samples} == {Collective.SENDRECV}
    assert {sample.load for sample in samples} == {None}
    assert len(samples) == verdict.processes * len(verdict.points) * 3
    text = msgspec.json.encode(verdict)
    assert msgspec.json.decode(text, type=CopiesVerdict) == verdict
    assert b"NaN" not in text
    assert b"Infinity" not in text


def test_a_watcher_hears_of_every_process(tmp_path: Path) -> None:
    seen: list[ExperimentStatus] = []
    wanted = WANTED._replace(policies=True)
    verdict = compare(tmp_path, Machine(crossing(4 * M)), wanted, seen)
    assert len(seen) == verdict.processes - 1
    assert {status.stage for status in seen} == {"pairs", "policies"}
    assert all(status.left_s >= 0 for status in seen)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (CopiesScope(1 * K, 64 * M), "sizes must be from 4 KiB to 1 GiB"),
        (CopiesScope(64 * K, 1 * M), "must have the default threshold, 2 MiB"),
        (CopiesScope(64 * K, 64 * M, pairs=3), "4 pairs at least"),
    ],
)
def test_a_scope_that_can_decide_nothing_is_refused(
    tmp_path: Path, wanted: CopiesScope, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        compare(tmp_path, Machine(), wanted)


def test_several_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="one node; this bench is on 2"):
        compare(tmp_path, Machine(nodes=2))
