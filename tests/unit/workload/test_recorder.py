# SPDX-License-Identifier: Apache-2.0
"""Files of nccltune's recorder."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nccltune.model.errors import InputError
from nccltune.workload.call import CommGroup, Operation
from nccltune.workload.reading import read_workload
from nccltune.workload.sampled import error, quantile_us, variance
from nccltune.workload.table import WorkloadRow
from tests.unit.workload.recordings import read, reasons, sizes


def row(function: str, size: int, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"function": function, "count": count, "bytes": size, "type": "ncclFloat32", **more}


def communicator(calls: list[Any], tasks: list[Any], **more: Any) -> dict[str, Any]:
    facts = {"name": "mesh_tp", "id": "00000000000000a0", "communicators": 1, "nodes": 2}
    facts |= {"ranks": 8, "rank": 3, "device": 1, "interface": 6, "lost_calls": 0, "lost_bytes": 0}
    return {**facts, "calls": calls, "tasks": tasks, **more}


def record(*communicators: Any, **more: Any) -> str:
    facts = {"nccltune_record": 1, "host": "n0", "pid": 7, "nccl": "2.30.7", "started": 1}
    facts |= {"written": 2, "ended": True, "lost_communicators": 0, "lost_calls": 0}
    return json.dumps({**facts, "lost_bytes": 0, "communicators": communicators, **more})


def counts(found: Any) -> dict[tuple[str, int], int]:
    return {(item.operation, item.bytes): item.calls for item in found.rows}


def test_calls_are_those_of_the_program_in_sizes_of_the_tuner(tmp_path: Path) -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Recv")
    calls = [row(function, 1024, 3) for function in functions]
    # A broadcast has no task since NCCL 2.29, and tasks are no further calls.
    tasks = [row(name, 1024, 3, algorithm="RING", channels=2) for name in functions[:3]]
    found = read(tmp_path / "n0-7.json", record(communicator(calls, tasks)))
    assert sizes(found) == {
        "allreduce": 1024, "allgather": 8192, "reducescatter": 8192, "broadcast": 1024,
        "send": 1024, "recv": 1024,
    }  # fmt: skip
    assert set(counts(found).values()) == {3}
    assert found.groups == [CommGroup("mesh_tp", 8, 2)]
    assert found.formats == {"nccltune recorder": 1}
    assert not reasons(found)
    assert found.untimed == 18


def test_before_nccl_2_28_tasks_are_the_calls(tmp_path: Path) -> None:
    text = record(communicator([], [row("AllReduce", 64, 5)], interface=4))
    assert counts(read(tmp_path / "x", text)) == {("allreduce", 64): 5}


@pytest.mark.parametrize(("replays", "counted"), [(1, 2), (40, 40)])
def test_replays_of_graphs_that_are_reported_count(
    tmp_path: Path, replays: int, counted: int
) -> None:
    calls = [row("AllReduce", 64, 2, captured=True), row("AllReduce", 128, 3)]
    tasks = [row("AllReduce", 64, replays), row("AllReduce", 128, 30)]
    found = read(tmp_path / "x", record(communicator(calls, tasks)))
    assert counts(found) == {("allreduce", 64): counted, ("allreduce", 128): 3}
    assert "only replays that use the network are counted (2)" in reasons(found)


def test_what_the_recorder_lost_is_stated(tmp_path: Path) -> None:
    rounded = {"function": "Send", "count": 4, "bytes_from": 4096, "total_bytes": 20000}
    calls = [rounded, row("Mystery", 1, 6)]
    text = record(communicator(calls, [], lost_calls=3), lost_calls=2, ended=False)
    found = read(tmp_path / "x", text)
    assert counts(found) == {("send", 5000): 4}
    stated = reasons(found)
    assert "had no place in the recorder are missing (5)" in stated
    assert "mean of their sizes: too many sizes (4)" in stated
    assert "Mystery is not a collective that is known (6)" in stated
    assert "the process had not ended" in stated


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes": -4},
        {"count": -1},
        {"count": 1 << 64},
        {"bytes": 64.5},
        {"bytes": "64"},
        {"count": 1.5},
        {"bytes": None},
    ],
)
def test_rows_that_cannot_be_right_are_not_read(tmp_path: Path, wrong: dict[str, Any]) -> None:
    calls = [row("AllReduce", 64, 3), row("AllReduce", 128, 5) | wrong]
    found = read(tmp_path / "x", record(communicator(calls, [])))
    assert counts(found) == {("allreduce", 64): 3}
    assert "count or bytes cannot be right (1)" in reasons(found)


def test_ranks_are_the_devices_of_processes(tmp_path: Path) -> None:
    # One process has two devices, another one the same host name and process id.
    sends = [row("Send", 8)]
    both = [communicator(sends, [], device=d, rank=d, name=n) for d in (0, 1) for n in "ab"]
    (tmp_path / "n0-7.json").write_text(record(*both), encoding="utf-8")
    other = record(communicator(sends, [], device=0))
    (tmp_path / "n0-7-2.json").write_text(other, encoding="utf-8")
    (tmp_path / ".write").touch()
    found = read_workload([tmp_path])
    assert found.recorders == 3
    assert sum(item.calls for item in found.rows) == 5


def job(folder: Path, identifier: str, ranks: range, calls: int, **more: Any) -> None:
    """Write the files of a job, two ranks for each communicator of this identifier."""
    for rank in ranks:
        facts = {"id": f"{identifier}{rank // 2}", "ranks": 2, "rank": rank % 2, "device": None}
        world = communicator([], [], id=identifier, ranks=4, rank=rank, name="", device=None)
        own = communicator([row("AllReduce", 64, calls)], [], **facts)
        (folder / f"n0-{identifier}{rank}.json").write_text(record(own, world, **more))


@pytest.mark.parametrize("start", [100, 900])
def test_of_several_jobs_the_newest_is_read(tmp_path: Path, start: int) -> None:
    # A job of four ranks with two communicators of two, and one that began before or after it.
    job(tmp_path, "a", range(4), 5, started=500)
    job(tmp_path, "b", range(4), 9, started=start)
    found = read_workload([tmp_path])
    assert counts(found) == {("allreduce", 64): 4 * (9 if start == 900 else 5)}
    assert (found.recorders, found.formats) == (4, {"nccltune recorder": 4})
    (remark,) = found.remarks
    assert "of 2 jobs" in remark
    # A job that has not called anything yet is none to choose.
    idle = record(communicator([], [], id="c", ranks=1, rank=0), started=990)
    (tmp_path / "idle.json").write_text(idle)
    assert counts(read_workload([tmp_path])) == counts(found)
    for name in "ab":
        assert f"n0-{name}0.json and 3 more files, started 1970-01-01 00:" in remark
    alone = read_workload([tmp_path / f"n0-a{rank}.json" for rank in range(4)])
    assert counts(alone) == {("allreduce", 64): 20}
    assert not alone.remarks


def test_ranks_that_are_missing_or_twice_are_named(tmp_path: Path) -> None:
    job(tmp_path, "a", range(3), 5)
    (remark,) = read_workload([tmp_path]).remarks
    assert remark.startswith("1 of 4 ranks of communicator a are in no file (such as rank 3), nor")
    job(tmp_path, "a", range(4), 5)
    (tmp_path / "copy.json").write_bytes((tmp_path / "n0-a3.json").read_bytes())
    (remark,) = read_workload([tmp_path]).remarks
    assert remark.startswith("rank 1 of communicator a1 is in 2 files (")
    assert "and so are 1 more" in remark
    # What the recorder lost, or added up, may have been the missing rank.
    for more in ({"lost_communicators": 1}, {}):
        facts = {"communicators": 2} if not more else {}
        found = read(tmp_path / "x", record(communicator([row("Send", 8)], [], **facts), **more))
        assert bool(found.remarks) == bool(facts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (record(nccltune_record=2), "is of version 2"),
        (record(communicator([row("Send", 8)], []))[:-9], "no whole file"),
        ('{"nccltune_record": 1}', "no whole file"),
        (record(), "without a call"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "x", text)


def timed(total_ns: int, *bins: list[int]) -> dict[str, Any]:
    return {"algorithm": "RING", "timed": {"total_ns": total_ns, "bins": [*bins]}}


def test_a_sample_of_tasks_has_the_times_of_all_calls(tmp_path: Path) -> None:
    calls = [row("AllReduce", 64, 100), row("AllReduce", 128, 9), row("Broadcast", 8, 5)]
    calls.append(row("Send", 8, 1))
    tasks = [
        row("AllReduce", 64, 60, **timed(30_000, [16, 2])),
        row("AllReduce", 64, 40, **timed(70_000, [16, 1], [20, 3])),  # by another algorithm
        row("AllReduce", 128, 9),
        row("Send", 8, 1, **timed(9_000, [9, 3])),  # more than there are calls
        row("Send", 16, 1, **timed(9_000, [96, 1])),  # no such bin
    ]
    text = record(communicator(calls, tasks), timed_one_in=16, untimed="that is\x1b why")
    found = read(tmp_path / "x", text)
    first, second, *others = sorted(found.rows, key=lambda item: -item.calls)
    assert (first.calls, first.timed, first.mean_us) == (100, 6, 100 / 6)
    assert first.bins == {16: 3, 20: 3}
    assert all(not item.timed and not item.bins for item in (second, *others))
    assert found.untimed == 15
    assert "times are missing: that is" in reasons(found)


def test_the_interval_of_a_sample_holds_the_time_of_all_calls() -> None:
    random, held = Random(4), 0
    for _ in range(400):
        times = [random.lognormvariate(3, 0.5) + 200 * (random.random() < 0.1) for _ in range(900)]
        sample = random.sample(times, 60)
        one = WorkloadRow(CommGroup("", 2), Operation.SEND, 8, 900, 60, sum(sample))
        for us in sample:
            octave = int(us * 1e3).bit_length() - 1
            number = (octave - 9) * 4 + (int(us * 1e3) >> octave - 2) % 4
            one.bins[number] = one.bins.get(number, 0) + 1
        held += abs(900 * (one.mean_us or 0.0) - sum(times)) < error(variance(one))
        median = sorted(sample)[29]
        assert 0.85 < quantile_us(one.bins, 0.5) / median < 1.15
    assert 0.9 < held / 400 < 0.98
    whole = WorkloadRow(CommGroup("", 2), Operation.SEND, 8, 3, 3, 60.0, bins={20: 3})
    assert variance(whole) == 0.0
    single = WorkloadRow(CommGroup("", 2), Operation.SEND, 8, 30, 1, 18.432, bins={20: 1})
    assert error(variance(single)) == pytest.approx(1.96 * 30 * 18.432 * (29 / 30) ** 0.5)
