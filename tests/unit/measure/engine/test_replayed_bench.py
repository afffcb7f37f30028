# SPDX-License-Identifier: Apache-2.0
"""Tests the replayed bench with our real tuner plugin."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nccltune.measure.adaptive.nccl_tables import ask_tables
from nccltune.measure.bench.conversation import (
    BenchPoint,
    ExecutedChoice,
    Measure,
    Predicted,
    TableRequest,
    TunerInputs,
)
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.replayed_bench import open_bench
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, StudyError

PLATFORM = {"name": "lab", "gpu": "G", "gpus": 4, "nodes": 4, "nccl_version": "2.28.9"}
TREE, RING8 = parse_choice("tree/ll"), parse_choice("ring/simple/8")
TIMES: list[tuple[AnyChoice, int]] = [(DEFAULT, 100), (TREE, 50), (RING8, 70)]


def sample(time_us: float, choice: AnyChoice = DEFAULT, **more: Any) -> dict[str, Any]:
    source = {"tool": "t"}
    known = {"study": "lab", "collective": "allreduce", "bytes": 1024, "source": source}
    return {**known, "choice": choice, "time_us": time_us, **more}


SAMPLES = [
    sample(time_us + extra, choice, bytes=size, wrong=0)
    for size in (1024, 4096)
    for choice, time_us in TIMES
    for extra in range(5)
]


class Recorded:
    """A recording in a temporary folder, and its replayed bench."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(SAMPLES)
        self.platform()

    def platform(self, **changes: Any) -> None:
        found = {key: value for key, value in (PLATFORM | changes).items() if value is not None}
        (self.folder / "platform.json").write_bytes(msgspec.json.encode(found))

    def write(self, lines: list[dict[str, Any]], name: str = "samples.jsonl") -> None:
        (self.folder / name).write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))

    def bench(self, rules: str | None = None) -> Bench:
        config = self.folder / "tuner.conf" if rules is not None else None
        if config is not None:
            config.write_text(rules or "")
        return open_bench(Launch(replay=self.folder, config=config))

    def points(
        self, *choices: AnyChoice, rules: str | None = None, **more: Any
    ) -> list[BenchPoint]:
        with self.bench(rules) as bench:
            return [point for part in bench.measure(request(*choices, **more)) for point in part]

    def refusal(self) -> str:
        with pytest.raises(StudyError) as caught, self.bench():
            pass
        assert caught.value.hint
        return str(caught.value)


def request(*choices: AnyChoice, **more: Any) -> Measure:
    found = {"collective": Collective.ALLREDUCE, "bytes": [1024], "default_repeats": 1} | more
    return Measure(id=0, choices=list(choices or (DEFAULT,)), **found)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def test_hello_describes_the_recording(recorded: Recorded) -> None:
    with recorded.bench() as bench:
        hello = bench.hello
    assert (hello.backend, hello.replay) == ("replay", "lab")
    assert (hello.nccl.version, hello.nccl.came_from) == ("2.28.9", "recording")
    assert hello.tuner.interface == 5
    assert (hello.nodes, hello.ranks) == (4, 4)
    assert [gpu.name for gpu in hello.gpus] == ["G"] * 4
    assert hello.can.collectives == ["allreduce"]
    can = hello.can
    assert not any((can.registered, can.graph, can.group_calls, can.chunk))


def test_each_choice_draws_from_its_own_timings(recorded: Recorded) -> None:
    choices = (DEFAULT, TREE, RING8, TUNED_RUN)
    rules = "allreduce,0,2000,tree,ll,-1,4,4\n"
    points = recorded.points(*choices, rules=rules, bytes=[1024, 4096], rounds=3, seed=5)
    drawn = {(p.bytes, str(p.choice), (p.time_us or 0) // 10 * 10) for p in points}
    assert drawn == {
        (size, str(choice), time_us)
        for size, tuned in ((1024, 50), (4096, 100))
        for choice, time_us in zip(choices, (100, 50, 70, tuned), strict=True)
    }
    assert all(point.applied and point.ok for point in points)


def test_what_ran_is_the_decision_of_the_plugin(recorded: Recorded) -> None:
    rules = "allreduce,0,2000,ring,simple,8,4,4\n"
    default, tree, tuned = recorded.points(DEFAULT, TREE, TUNED_RUN, rules=rules)
    assert default.ran is None
    assert tree.ran == ExecutedChoice("tree", "ll")
    assert tuned.ran == ExecutedChoice("ring", "simple", 8)


def test_a_choice_that_the_platform_cannot_run_is_not_applied(recorded: Recorded) -> None:
    (point,) = recorded.points(parse_choice("nvls/simple"))
    assert not point.applied
    assert point.error is None
    assert (point.time_us or 0) >= 100


def test_calls_that_were_not_recorded_are_unsupported(recorded: Recorded) -> None:
    refused = [
        *recorded.points(parse_choice("ring/simple/4")),
        *recorded.points(TREE, bytes=[512, 8192]),
        *recorded.points(load=True),
        *recorded.points(registered=True),
    ]
    assert len(refused) == 5
    assert all(p.time_us is None and p.error and p.error.kind == "unsupported" for p in refused)


def test_groups_are_replayed_as_recorded_and_their_pipe_ops_reach_the_rules(
    recorded: Recorded,
) -> None:
    group = {"group_calls": 60, "pipe_ops": 3}
    lines = [sample(100), sample(90, TREE), sample(500, **group), sample(400, TREE, **group)]
    recorded.write([*lines, sample(9000, pipe_ops=9)])
    rules = "allreduce,0,2000,tree,ll,-1,4,4,3\n"
    plain = recorded.points(DEFAULT, TUNED_RUN, rules=rules, rounds=9)
    assert {point.time_us for point in plain} == {100}
    grouped = recorded.points(DEFAULT, TUNED_RUN, rules=rules, group_calls=60)
    assert [point.time_us for point in grouped] == [500, 400]
    assert [point.seen for point in grouped] == [TunerInputs(pipe_ops=3, registered=False)] * 2
    asked = {"id": 0, "collective": Collective.ALLREDUCE, "bytes": [1024]}
    with recorded.bench() as bench:
        assert bench.hello.can.group_calls
        (row,) = bench.tables(TableRequest(**asked, group_calls=60))
        assert row.seen == TunerInputs(pipe_ops=3, registered=False)
        (row,) = bench.tables(TableRequest(**asked, group_calls=60, registered=True))
    assert row.error is not None
    assert row.error.text == "the recording holds no groups of 60 calls with registered buffers"


def test_known_properties_of_recorded_calls_must_match(recorded: Recorded) -> None:
    halves = {"dtype": "half"}
    lines = [sample(1), sample(2, **halves), sample(3, **halves, redop="max")]
    rooted = [sample(7, collective="reduce", root=0), sample(8, collective="broadcast", root=-1)]
    recorded.write([*lines, sample(4, registered=True), sample(5, graph=True), *rooted])

    def drawn(**more: Any) -> float | None:
        (point,) = recorded.points(**more)
        return point.time_us

    assert drawn() == 1
    assert drawn(**halves) == 2
    assert drawn(**halves, redop="max") == 3
    assert drawn(registered=True) == 4
    assert drawn(graph=True) == 5
    assert drawn(registered=True, graph=True) is None
    assert drawn(collective=Collective.REDUCE) == 7
    assert drawn(collective=Collective.REDUCE, root=1) is None
    assert drawn(collective=Collective.BROADCAST) == 8


def test_wrong_results_and_runs_under_rules_or_other_settings_are_not_drawn(
    recorded: Recorded,
) -> None:
    trial = {"tool": "t", "purpose": "ab"}
    others = [sample(99, wrong=3), sample(98, TUNED_RUN), sample(97, source=trial)]
    recorded.write([sample(10), *others, sample(96, bytes=0)])
    assert {point.time_us for point in recorded.points(rounds=50)} == {10}


def test_a_collective_without_tuner_runs_its_default(recorded: Recorded) -> None:
    recorded.write([*SAMPLES, sample(30, collective="sendrecv")])
    (point,) = recorded.points(TUNED_RUN, collective=Collective.SENDRECV)
    assert (point.time_us, point.wrong) == (30, None)


def test_results_are_checked_if_the_recorded_ones_were(recorded: Recorded) -> None:
    assert [point.wrong for point in recorded.points()] == [0]
    assert [point.wrong for point in recorded.points(check=False)] == [None]


def test_a_request_has_one_answer_and_seed_round_and_repeat_draw_anew(recorded: Recorded) -> None:
    first = recorded.points(rounds=60)
    assert recorded.points(rounds=60) == first
    assert recorded.points(first_round=7) == [first[7]]
    assert len({point.time_us for point in first}) == 5
    repeats = recorded.points(default_repeats=60)
    assert [point.repeat for point in repeats] == list(range(60))
    assert len({point.time_us for point in repeats}) == 5
    assert len({recorded.points(seed=seed)[0].time_us for seed in range(30)}) > 2


def test_timings_of_a_size_are_equally_likely_and_default_and_tuned_independent(
    recorded: Recorded,
) -> None:
    points = recorded.points(DEFAULT, TUNED_RUN, rules="", rounds=1000)
    counts = Counter(point.time_us for point in points)
    assert len(counts) == 5
    chi_square = sum((count - 400) ** 2 / 400 for count in counts.values())
    assert chi_square < 18.5, "4 degrees of freedom, p = 0.001"
    same = sum(a.time_us == b.time_us for a, b in zip(points[::2], points[1::2], strict=True))
    assert 130 < same < 270, "one in five by chance"


def test_between_sizes_the_median_is_interpolated_and_the_nearer_size_gives_the_spread(
    recorded: Recorded,
) -> None:
    low, high = [9.0, 10.0, 12.0], [500.0, 1000.0, 3000.0]
    recorded.write(
        [sample(us, bytes=1000) for us in low] + [sample(us, bytes=100_000) for us in high]
    )
    points = recorded.points(bytes=[4000, 40_000], rounds=60)
    for size, medians in ((4000, 10 * 4), (40_000, 10 * 40)):
        # The time grows as the size does.
        spread = {round((p.time_us or 0) / medians, 3) for p in points if p.bytes == size}
        assert spread == ({0.9, 1.0, 1.2} if size == 4000 else {0.5, 1.0, 3.0})


def table_of(recorded: Recorded, size: int) -> Any:
    with recorded.bench() as bench:
        rows = bench.tables(TableRequest(id=0, collective=Collective.ALLREDUCE, bytes=[size]))
    return rows[0] if rows else None


def test_predictions_are_those_of_the_recording(recorded: Recorded) -> None:
    assert table_of(recorded, 1024).costs == {"tree/ll": None, "ring/simple": None}
    known = {"schema_version": 1, "collective": "allreduce", "nodes": 4, "ranks": 4}
    recorded.write(
        [
            {**known, "bytes": 1024, "costs": {"tree/ll": 10, "ring/ll": 20}},
            {**known, "bytes": 16384, "costs": {"tree/ll": 40, "ring/simple": 5}},
            {**known, "bytes": 1 << 20, "nodes": 1, "costs": {"tree/ll": 999}},
        ],
        "tables.jsonl",
    )
    exact = table_of(recorded, 1024)
    assert exact.costs == {"tree/ll": 10, "ring/ll": 20}
    assert exact.predicted == Predicted("tree", "ll")
    between = table_of(recorded, 4096)
    assert between.costs.keys() == {"tree/ll"}
    assert between.costs["tree/ll"] == pytest.approx(20)
    for outside in (1023, 16385):
        assert table_of(recorded, outside).predicted is None


def test_a_recording_with_nothing_but_defaults_offers_no_choice(recorded: Recorded) -> None:
    recorded.write([sample(1)])
    assert table_of(recorded, 1024) is None
    with recorded.bench() as bench, pytest.raises(InputError, match="NCCL's default only"):
        ask_tables(bench, [Collective.ALLREDUCE], 1024, 1024)


def test_studies_that_cannot_be_replayed_are_refused(recorded: Recorded) -> None:
    recorded.platform(nccl_version=None)
    assert "does not state its NCCL version" in recorded.refusal()
    recorded.write([sample(1, source={"tool": "t", "nccl_version": "2.30.7"})])
    with recorded.bench() as bench:
        assert (bench.hello.nccl.version, bench.hello.tuner.interface) == ("2.30.7", 6)
    recorded.platform(gpus=1, nodes=1)
    assert "nothing to choose" in recorded.refusal()
    recorded.platform(gpus=None)
    assert "does not state the number of nodes and ranks" in recorded.refusal()
    recorded.write([sample(1, nodes=1, ranks=8), sample(1, nodes=2, ranks=16)])
    assert "at several scales (nodes/ranks): 1/8 2/16" in recorded.refusal()
    recorded.write([sample(1, TUNED_RUN)])
    assert "holds no timing that can be replayed" in recorded.refusal()
