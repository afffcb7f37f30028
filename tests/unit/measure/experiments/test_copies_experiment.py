# SPDX-License-Identifier: Apache-2.0
"""The comparison of NCCL with copy engines, on machines whose curves are known."""

import itertools
import math
from pathlib import Path

import msgspec
import pytest

from nccltune.analyze.stats import Interval
from nccltune.measure.bench.process import Launch
from nccltune.measure.engine.scheduler import ExperimentStatus
from nccltune.measure.experiments.copies.experiment import CopiesExperiment, CopiesScope
from nccltune.measure.experiments.copies.processes import count_messages, on_gpus, preloaded, replay
from nccltune.measure.experiments.copies.record import SENDRECV, UNDER_LOAD, ProcessRecord
from nccltune.measure.experiments.copies.settings import (
    DEFAULT_FROM,
    FROM,
    ON,
    Carrier,
    check_environment,
)
from nccltune.measure.experiments.copies.verdict import (
    CopiesVerdict,
    Effect,
    MessageSizeGain,
    effect_of,
    find_threshold,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError, StudyError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.measure.experiments.copies_machine import (
    K,
    M,
    Machine,
    Model,
    StopError,
    driver,
    stop_at,
)

WANTED = CopiesScope(64 * K, 64 * M)


def crossing(at: int) -> Model:
    """Return times: a copy engine is slower than NCCL below `at` bytes and faster from there on."""

    def model(carrier: Carrier, size: int) -> float:
        native = 8 + size / 150e3
        if carrier is Carrier.NATIVE:
            return native
        return native * 1.3 if size < at else native / 1.3

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
    pair = [Carrier.NATIVE, Carrier.COPY_ENGINE]
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

    def model(carrier: Carrier, size: int) -> float:
        return (8 + size / 150e3) * (1.0 if carrier is Carrier.NATIVE else 1.02)

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
    def model(carrier: Carrier, size: int) -> float:
        return (8 + size / 150e3) * (1.0 if carrier is Carrier.NATIVE else time)

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
    machine = Machine(crossing(1 * M), refused=lambda carrier: carrier is Carrier.COPY_ENGINE)
    verdict = compare(tmp_path, machine)
    assert verdict.settings == {ON: 0}
    assert "did not run here: NCCL: unhandled system error" in verdict.why
    assert machine.started.count(Carrier.COPY_ENGINE) == 1
    assert compare(tmp_path, Machine(crossing(1 * M))).settings == {FROM: 1 * M}


def test_wrong_contents_are_off(tmp_path: Path) -> None:
    machine = Machine(crossing(1 * M), wrong=lambda carrier: carrier is Carrier.COPY_ENGINE)
    verdict = compare(tmp_path, machine)
    assert verdict.settings == {ON: 0}
    assert "came out wrong" in verdict.why


def test_a_nccl_that_does_not_run_stops_it(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="came out wrong"):
        compare(tmp_path, Machine(wrong=lambda carrier: carrier is Carrier.NATIVE))


@pytest.mark.parametrize("cut", [0, 5, 100, 200, 301, 390])
def test_an_interrupted_comparison_goes_on_where_it_stopped(tmp_path: Path, cut: int) -> None:
    with pytest.raises(StopError):
        compare(tmp_path, Machine(crossing(4 * M), before=stop_at(cut)))
    runs = ProcessRecord(Study(tmp_path), SENDRECV)
    finished = [run for run in runs.finished() if not run.line.probe]
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


def test_a_size_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    verdict = compare(tmp_path, Machine(crossing(4 * M), too_large=32 * M))
    assert verdict.settings == {FROM: 4 * M}
    assert verdict.points[-1].bytes == 32 * M


def test_a_recorded_comparison_runs_again_without_the_machine(tmp_path: Path) -> None:
    recorded = compare(tmp_path / "recorded", Machine(crossing(4 * M)))
    study = Study(tmp_path / "recorded")
    study.write_json(study.platform_path, Platform(name="recorded", gpu="NVIDIA H200"))
    start = replay(study.path, 1, SENDRECV)
    runs = ProcessRecord(Study.create(tmp_path / "again"), SENDRECV)
    with start(Carrier.NATIVE, 0) as first:
        assert first.hello.replay == "recorded"
        verdict = CopiesExperiment(start, first, runs, WANTED).run()
    assert verdict.replay == "recorded"
    assert verdict.settings == recorded.settings
    with pytest.raises(StudyError, match="no recorded comparison .* under load"):
        replay(study.path, 1, UNDER_LOAD)


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
    verdict = compare(tmp_path, Machine(crossing(4 * M)), WANTED, seen)
    assert len(seen) == verdict.processes - 1
    assert {status.what for status in seen} == {"native", "copy engine"}
    assert seen[-1].gain is None or seen[-1].gain > 1
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


LIBRARY = Path("/opt/lib/libnccltune-sendrecv.so")


def test_messages_are_summed_over_processes() -> None:
    text = (
        "nccltune sendrecv: process 1: copy engine, pushed: 14 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: copy engine, pushed: 6 messages, 20841021 bytes\n"
        "nccltune sendrecv: process 2: NCCL: small: 7 messages, 1 bytes\n"
        "something else\n"
    )
    assert count_messages(text) == {"copy engine, pushed": 20, "NCCL: small": 7}
    assert count_messages("") == {}


def test_what_is_preloaded_already_stays_behind() -> None:
    assert preloaded(LIBRARY, None, {}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    both = preloaded(LIBRARY, "/x/libnccl.so.2", {"LD_PRELOAD": "/lib/libjemalloc.so"})
    assert both == {
        "LD_PRELOAD": f"{LIBRARY}:/lib/libjemalloc.so",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
        "NCCLTUNE_SENDRECV_NCCL": "/x/libnccl.so.2",
    }
    assert preloaded(LIBRARY, None, {"CUDA_DEVICE_MAX_CONNECTIONS": "16"}) == {
        "LD_PRELOAD": str(LIBRARY),
        "CUDA_DEVICE_MAX_CONNECTIONS": "16",
    }


def test_a_missing_library_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such library") as error:
        on_gpus(Launch(), tmp_path / "none.so")
    assert error.value.hint is not None
    assert "‹library›" in error.value.hint


def test_variables_of_compared_settings_are_errors() -> None:
    check_environment({"NCCLTUNE_SENDRECV_EAGER": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "32"})
    check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "16"})
    with pytest.raises(InputError, match="MAX_CONNECTIONS=2 is set: NCCL then carries everything"):
        check_environment({"CUDA_DEVICE_MAX_CONNECTIONS": "2"})
    with pytest.raises(InputError, match="CHUNK=1M is set"):
        check_environment({"NCCLTUNE_SENDRECV_CHUNK": "1M"})


K, M = 1 << 10, 1 << 20
DEFAULT = 2 * M
FLOOR = math.log1p(0.02)
LETTERS = {"f": Effect.FASTER, "=": Effect.SAME, "s": Effect.SLOWER, "?": Effect.UNCLEAR}
NOT_SLOWER = (Effect.FASTER, Effect.SAME)


def sizes(letters: str, first: int = 512 * K) -> list[MessageSizeGain]:
    """Return the sizes with the effects of `letters`, one letter per size, by powers of two."""
    return [MessageSizeGain(first << at, LETTERS[letter]) for at, letter in enumerate(letters)]


@pytest.mark.parametrize(
    ("letters", "from_bytes"),
    [
        # The sizes are 512K 1M 2M 4M 8M. The default is 2M.
        ("sssff", 4 * M),
        ("sssss", None),
        ("fffff", 512 * K),
        ("=====", 512 * K),
        ("sfff=", 1 * M),
        ("s=fff", 1 * M),
        ("ssfff", 2 * M),
        ("s?fff", 2 * M),
        ("s?f?f", 2 * M),
        ("????f", 2 * M),
        ("?????", 2 * M),
        ("ss?ff", 2 * M),
        ("sss?f", 4 * M),
        ("fsffs", None),
        ("ffsff", 4 * M),
        ("fffsf", 8 * M),
        ("sf?ss", None),
    ],
)
def test_thresholds(letters: str, from_bytes: int | None) -> None:
    assert find_threshold(sizes(letters), DEFAULT).from_bytes == from_bytes


def test_a_threshold_is_never_more_than_what_is_proven() -> None:
    for letters in itertools.product("f=s?", repeat=5):
        known = sizes("".join(letters))
        found = find_threshold(known, DEFAULT)
        slower = [size.bytes for size in known if size.effect is Effect.SLOWER]
        if found.from_bytes is None:
            assert slower
            assert slower[-1] == known[-1].bytes
            continue
        above = [size for size in known if size.bytes >= found.from_bytes]
        assert not any(size.effect is Effect.SLOWER for size in above), letters
        if found.from_bytes < DEFAULT:
            assert all(size.effect in NOT_SLOWER for size in above), letters
            below = [size for size in known if size.bytes < found.from_bytes]
            assert not below or below[-1].effect not in NOT_SLOWER, letters
        elif found.from_bytes > DEFAULT:
            assert max(slower) * 2 == found.from_bytes, letters
        assert found.why


def test_a_default_between_two_sizes_stays_where_these_decide_nothing() -> None:
    found = find_threshold(sizes("sff", first=3 * M // 2), DEFAULT)
    assert found.from_bytes == DEFAULT
    assert "the default stays" in found.why
    assert find_threshold(sizes("fff", first=3 * M // 2), DEFAULT).from_bytes == 3 * M // 2


def test_the_reason_names_what_a_threshold_cannot_express() -> None:
    why = find_threshold(sizes("sfffs"), DEFAULT).why
    assert "slower at 8 MiB, the largest size, though faster between 1 MiB and 4 MiB" in why
    assert "and faster at none" in find_threshold(sizes("sssss"), DEFAULT).why


def interval(value: float, half: float) -> Interval:
    return Interval(value, value - half, value + half, 6, known=True)


@pytest.mark.parametrize(
    ("value", "half", "sure_half", "effect"),
    [
        (0.10, 0.02, 0.04, Effect.FASTER),
        (0.01, 0.005, 0.009, Effect.SAME),
        (0.00, 0.01, 0.02, Effect.SAME),
        (-0.01, 0.005, 0.009, Effect.SAME),
        (-0.10, 0.02, 0.04, Effect.SLOWER),
        (-0.10, 0.05, 0.11, Effect.UNCLEAR),
        (-0.018, 0.005, 0.009, Effect.UNCLEAR),
        (0.05, 0.10, 0.20, Effect.UNCLEAR),
    ],
)
def test_effects(value: float, half: float, sure_half: float, effect: Effect) -> None:
    assert effect_of(interval(value, half), interval(value, sure_half), FLOOR) is effect
