# SPDX-License-Identifier: Apache-2.0
import resource
from pathlib import Path
from typing import cast

import pytest

from nccltune.app.sweep import decide
from nccltune.measure.adaptive.nccl_tables import ask_tables
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.bench.conversation import Abilities
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.communicator import PlanRun, SweepOutcome, SweepStatus
from nccltune.measure.engine.point_record import PointRecord
from nccltune.measure.experiments.choices import SweepScope, make_plan
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError, StudyError
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from tests.unit.builders import choice
from tests.unit.measure.fakes import FakeBench, hello
from tests.unit.measure.platforms import K, M

WANTED = SweepScope([Collective.ALLREDUCE], K, 64 * M)


def times(size: int, of: AnyChoice) -> float:
    """Return times: tree/ll is twice as fast as the default, which runs ring/ll, up to 64 KiB; then
    half as fast."""
    ring = 20 + size / 1e3
    tree = ring / 2 if size <= 64 * K else ring * 2
    return tree if of == choice("tree/ll") else ring


class Watching:
    def __init__(self) -> None:
        self.seen: list[SweepStatus] = []

    def update(self, status: SweepStatus, plan: Plan) -> None:  # noqa: ARG002
        self.seen.append(status)


def sweep(
    path: Path, bench: FakeBench, wanted: SweepScope = WANTED, watcher: Watching | None = None
) -> SweepOutcome:
    real = cast(Bench, bench)
    plan = make_plan(
        ask_tables(real, wanted.collectives, wanted.low, wanted.high, wanted.kinds),
        wanted,
        Scale(bench.hello.nodes, bench.hello.ranks),
        decide,
        chunks=False,
    )
    record = PointRecord(Study.create(path), bench.hello)
    return PlanRun(
        plan, real, record, watcher or Watching(), budget_s=wanted.budget_s, seed=wanted.seed
    ).run()


def keys(path: Path) -> list[tuple[object, ...]]:
    return [
        (sample.bytes, sample.choice, sample.round, sample.repeat)
        for sample in Study(path).samples()
    ]


def test_every_point_is_in_the_study_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.measure.engine.communicator._UPDATE_EVERY_S", 0.0)
    bench = FakeBench(times)
    watcher = Watching()
    outcome = sweep(tmp_path, bench, watcher=watcher)
    found = keys(tmp_path)
    assert outcome.reason == "done"
    assert len(found) == len(set(found)) == outcome.points == bench.points
    assert len(watcher.seen) == outcome.points
    assert watcher.seen[0].left_s > 0
    assert watcher.seen[-1].points == outcome.points


def test_a_first_round_is_checked_and_later_rounds_are_not(tmp_path: Path) -> None:
    bench = FakeBench(times)
    sweep(tmp_path, bench)
    for request in bench.requests:
        assert request.check == (request.first_round == 0)
        assert request.warmup == 1
        assert request.rounds == 1
        assert 1 <= request.iterations <= 50
    by_size: dict[int, set[int]] = {}
    for sample in Study(tmp_path).samples():
        by_size.setdefault(sample.bytes, set()).add(sample.iterations or 0)
    assert all(len(counts) == 1 for counts in by_size.values())


@pytest.mark.parametrize("cut", [0, 1, 2, 17, 60, 80])
def test_an_interrupted_sweep_goes_on_at_the_point_where_it_stopped(
    tmp_path: Path, cut: int
) -> None:
    def stop(points: int) -> None:
        if points == cut:
            raise KeyboardInterrupt

    whole = FakeBench(times)
    sweep(tmp_path / "whole", whole)
    assert whole.points > 80
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "cut", FakeBench(times, before=stop))
    rest = FakeBench(times)
    outcome = sweep(tmp_path / "cut", rest)
    assert rest.points == whole.points - cut
    assert outcome.known == cut
    assert sorted(map(str, keys(tmp_path / "cut"))) == sorted(map(str, keys(tmp_path / "whole")))
    before = [sample.time_us for sample in Study(tmp_path / "whole").samples()]
    after = [sample.time_us for sample in Study(tmp_path / "cut").samples()]
    assert sorted(after) == pytest.approx(sorted(before), rel=0.001)


def test_a_finished_sweep_measures_nothing_again(tmp_path: Path) -> None:
    sweep(tmp_path, FakeBench(times))
    again = FakeBench(times)
    outcome = sweep(tmp_path, again)
    assert again.points == outcome.points == 0
    assert outcome.reason == "done"


def test_registered_and_grouped_calls_are_measured_beside_plain_ones(tmp_path: Path) -> None:
    sweep(tmp_path, FakeBench(times))
    plain = keys(tmp_path)
    wanted = WANTED._replace(registered=True, group_calls=60)
    bench = FakeBench(times)
    outcome = sweep(tmp_path, bench, wanted)
    # The plain calls are known from the first sweep.
    assert outcome.known == len(plain)
    assert {(ask.registered, ask.group_calls) for ask in bench.requests} == {(True, 60)}
    assert all(size % (60 * 4) == 0 for ask in bench.requests for size in ask.bytes)
    samples = [item for item in Study(tmp_path).samples() if item.group_calls > 1]
    assert {(item.registered, item.group_calls, item.pipe_ops) for item in samples} == {
        (True, 60, 3)
    }
    again = FakeBench(times)
    assert sweep(tmp_path, again, wanted).known == outcome.known + outcome.points
    assert again.points == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"registered": True}, "this bench cannot make calls with registered buffers"),
        ({"group_calls": 2}, "this bench cannot make groups of calls"),
    ],
)
def test_calls_that_the_bench_cannot_make_are_refused(
    tmp_path: Path, changes: dict[str, int], words: str
) -> None:
    bench = FakeBench(times, hello_=hello(can=Abilities(collectives=["allreduce"])))
    with pytest.raises(InputError, match=words):
        sweep(tmp_path, bench, WANTED._replace(**changes))
    assert bench.points == 0


@pytest.mark.parametrize("budget", [0.0001, 0.02, 0.1])
def test_a_budget_is_kept(tmp_path: Path, budget: float) -> None:
    bench = FakeBench(times, hello_=hello(replay="there"))
    wanted = WANTED._replace(budget_s=budget)
    outcome = sweep(tmp_path, bench, wanted)
    assert outcome.reason == "budget"
    assert outcome.seconds <= budget * 1.1
    more = sweep(tmp_path, FakeBench(times, hello_=hello(replay="there")))
    assert more.reason == "done"
    assert more.known == outcome.points


def test_no_request_takes_long_if_it_can_be_split(tmp_path: Path) -> None:
    def slow(size: int, of: AnyChoice) -> float:
        return 60_000.0 if of == DEFAULT else 61_000.0

    bench = FakeBench(slow)
    sweep(tmp_path, bench)
    assert {len(request.bytes) for request in bench.requests if request.first_round} == {1}


def test_what_cannot_be_measured_is_reported_and_not_tried_again(tmp_path: Path) -> None:
    def partly(size: int, of: AnyChoice) -> float | None:
        return None if of == choice("ring/ll") else times(size, of)

    outcome = sweep(tmp_path, FakeBench(partly))
    failed = {key.bytes for key, _ in outcome.failures}
    assert {key.choice for key, _ in outcome.failures} == {choice("ring/ll")}
    assert len(failed) == len(outcome.failures)
    again = FakeBench(partly)
    assert len(sweep(tmp_path, again).failures) == len(outcome.failures)
    assert again.points == 0


def test_the_full_grid(tmp_path: Path) -> None:
    bench = FakeBench(times)
    outcome = sweep(tmp_path, bench, WANTED._replace(high=M, rounds=2))
    assert outcome.points == 11 * 4 * 2
    assert sweep(tmp_path, FakeBench(times), WANTED._replace(high=M, rounds=3)).points == 44


def test_a_collective_that_the_bench_cannot_measure(tmp_path: Path) -> None:
    wanted = WANTED._replace(collectives=[Collective.REDUCE])
    with pytest.raises(InputError, match="reduce cannot be measured here"):
        sweep(tmp_path, FakeBench(times), wanted)


def test_an_nccl_that_offers_nothing(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="offers no choice"):
        sweep(tmp_path, FakeBench(times, labels=()))


def test_a_combination_of_a_newer_nccl_is_left_alone(tmp_path: Path) -> None:
    bench = FakeBench(times, labels=("ring/ll", "spiral/ll512"))
    (found,) = ask_tables(cast(Bench, bench), WANTED.collectives, WANTED.low, WANTED.high)
    assert found.legal == [choice("ring/ll")]


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    sweep(tmp_path / "whole", FakeBench(times))
    limit = Study(tmp_path / "whole").samples_path.stat().st_size // 2
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StudyError, match="cannot be written") as caught:
            sweep(tmp_path / "full", FakeBench(times))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "free space" in (caught.value.hint or "")
    kept = len(keys(tmp_path / "full"))
    rest = FakeBench(times)
    outcome = sweep(tmp_path / "full", rest)
    assert outcome.known == kept > 0
    assert sorted(map(str, keys(tmp_path / "full"))) == sorted(map(str, keys(tmp_path / "whole")))
