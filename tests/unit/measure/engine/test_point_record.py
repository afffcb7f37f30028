# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import (
    BenchPoint,
    ExecutedChoice,
    PointError,
    PointKey,
    TunerInputs,
)
from nccltune.measure.engine.point_record import FailedPoint, PointRecord, TableLine
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.study.files import Study, locked
from tests.unit.builders import choice
from tests.unit.measure.fakes import hello

TREE = choice("tree/ll")


def record(path: Path, **changes: object) -> PointRecord:
    return PointRecord(Study.create(path), hello(**changes))


def pair(of: AnyChoice, *, repeat: int = 0, **more: object) -> tuple[PointKey, BenchPoint]:
    key = PointKey(Collective.ALLREDUCE, 1024, of, 3, repeat)
    point = BenchPoint(bytes=1024, choice=of, round=3, repeat=repeat, **more)  # type: ignore[arg-type]
    return key, point


def test_what_was_measured_is_known_again(tmp_path: Path) -> None:
    ran = ExecutedChoice("tree", "ll", channels=2)
    points = [
        pair(DEFAULT, time_us=10.0, iterations=20),
        pair(DEFAULT, repeat=1, time_us=11.0, iterations=20),
        pair(TREE, time_us=9.0, iterations=20, ran=ran, wrong=0),
    ]
    record(tmp_path).append(points)
    assert record(tmp_path).known() == dict(points)
    (sample, *_) = Study(tmp_path).samples()
    assert (sample.dtype, sample.redop, sample.nodes, sample.ranks) == ("float", "sum", 4, 4)
    assert (sample.source.tool, sample.source.host_hash) == ("nccltune-bench", "abc")
    assert sample.at is not None


def test_kinds_of_calls_are_told_apart(tmp_path: Path) -> None:
    kinds = [PLAIN, CallKind(registered=True), CallKind(group_calls=60), CallKind(True, 4)]
    points = []
    for kind in kinds:
        key, point = pair(TREE, time_us=9.0, seen=TunerInputs(3, kind.registered))
        lost, failed = pair(DEFAULT, error=PointError("memory", "does not fit"))
        points += [(key._replace(calls=kind), point), (lost._replace(calls=kind), failed)]
    record(tmp_path).append(points)
    assert set(record(tmp_path).known()) == {key for key, _ in points}
    assert [item.pipe_ops for item in Study(tmp_path).samples()] == [3] * len(kinds)


def test_every_sample_of_a_replay_names_it(tmp_path: Path) -> None:
    record(tmp_path, replay="there").append([pair(TREE, time_us=9.0)])
    assert [sample.source.tool for sample in Study(tmp_path).samples()] == ["nccltune-bench replay"]
    assert record(tmp_path).known() == {}


def test_imported_samples_are_not_taken_for_its_own(tmp_path: Path) -> None:
    record(tmp_path).append([pair(TREE, time_us=9.0, iterations=20)])
    path = Study(tmp_path).samples_path
    (sample,) = Study(tmp_path).samples()
    source = replace(sample.source, file_hash="0123456789abcdef")
    path.write_bytes(msgspec.json.encode(replace(sample, source=source)) + b"\n")
    assert len(list(Study(tmp_path).samples())) == 1
    assert record(tmp_path).known() == {}


def test_failures_are_remembered_but_for_a_death(tmp_path: Path) -> None:
    stuck = pair(TREE, error=PointError("timeout", "rank 1 is stuck", 1))
    dead = pair(choice("ring/ll"), error=PointError("died", "rank 1 died", 1))
    assert stuck[1].is_kept
    assert not dead[1].is_kept
    record(tmp_path).append([stuck, dead])
    known = record(tmp_path).known()
    assert list(known) == [stuck[0]]
    assert known[stuck[0]].error == PointError("timeout", "rank 1 is stuck")
    assert not Study(tmp_path).samples_path.exists()


def test_a_timing_of_something_else_is_kept_as_what_it_was(tmp_path: Path) -> None:
    eight = choice("tree/ll/8")
    points = [
        pair(TREE, time_us=9.0, applied=False, ran=ExecutedChoice("ring", "ll")),
        pair(eight, time_us=9.5, applied=False, ran=ExecutedChoice("tree", "ll", channels=4)),
    ]
    record(tmp_path).append(points)
    kept = [(sample.choice, sample.repeat) for sample in Study(tmp_path).samples()]
    assert kept == [(DEFAULT, 2), (TREE, 2)]
    known = record(tmp_path).known()
    assert not known[points[0][0]].ok
    assert not known[points[1][0]].ok


def test_wrong_results_are_kept_and_not_used(tmp_path: Path) -> None:
    point = pair(TREE, time_us=1.0, wrong=3)
    record(tmp_path).append([point])
    assert not record(tmp_path).known()[point[0]].ok


def test_what_others_measured_answers_nothing(tmp_path: Path) -> None:
    record(tmp_path).append([pair(TREE, time_us=9.0)])
    study = Study(tmp_path)
    (ours,) = study.samples()
    foreign = [replace(ours, round=4, source=replace(ours.source, tool=x)) for x in ("nccl-tests",)]
    foreign += [replace(ours, round=5, ranks=8)]
    foreign += [replace(ours, round=6, in_place=True)]
    foreign += [replace(ours, round=7, dtype="half")]
    study.append_lines(study.samples_path, foreign)
    assert [key.round for key in record(tmp_path).known()] == [3]


def test_failures_of_another_scale_are_others(tmp_path: Path) -> None:
    record(tmp_path).append([pair(TREE, error=PointError("memory"))])
    assert record(tmp_path, ranks=8).known() == {}


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    made = record(tmp_path)
    (tmp_path / "sweep.jsonl").write_text("{}\n")
    with pytest.raises(StudyError, match=r"sweep.jsonl:1: is damaged"):
        made.known()


def test_a_failure_cut_short_by_the_end_is_no_damage(tmp_path: Path) -> None:
    made = record(tmp_path)
    point = pair(TREE, error=PointError("memory"))
    made.append([point])
    with (tmp_path / "sweep.jsonl").open("ab") as file:
        file.write(b'{"schema_version":1,"coll')
    assert list(made.known()) == [point[0]]
    made.append([pair(DEFAULT, error=PointError("memory"))])
    assert len(made.known()) == 2


def test_two_sweeps_do_not_share_a_study(tmp_path: Path) -> None:
    study = Study.create(tmp_path)
    with locked(study), pytest.raises(StudyError, match="another sweep"), locked(study):
        pass
    with locked(study):
        pass


def test_a_failure_names_its_kind(tmp_path: Path) -> None:
    made = record(tmp_path)
    made.append([pair(TREE, time_us=9.0, applied=False)])
    line = (tmp_path / "sweep.jsonl").read_bytes()
    assert msgspec.json.decode(line, type=FailedPoint).kind == "not run"


def test_tables_are_kept_once_for_each_scale(tmp_path: Path) -> None:
    tables = {1024: {"ring/ll": 7.5, "tree/ll": 9.0}, 2048: {"ring/ll": 8.0}}
    record(tmp_path).keep_tables({Collective.ALLREDUCE: {1024: tables[1024]}})
    both = {Collective.ALLREDUCE: tables, Collective.ALLGATHER: {1024: {"ring/ll": 5.0}}}
    record(tmp_path).keep_tables(both)
    record(tmp_path, nodes=2).keep_tables({Collective.ALLREDUCE: tables})
    lines = list(Study(tmp_path).read_lines(tmp_path / "tables.jsonl", TableLine))
    (other,) = [line for line in lines if line.collective is Collective.ALLGATHER]
    assert (other.nodes, other.bytes, other.costs) == (4, 1024, {"ring/ll": 5.0})
    lines.remove(other)
    assert [(line.nodes, line.bytes) for line in lines] == [
        (4, 1024),
        (4, 2048),
        (2, 1024),
        (2, 2048),
    ]
    assert {line.bytes: line.costs for line in lines} == tables
