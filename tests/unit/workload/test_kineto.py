# SPDX-License-Identifier: Apache-2.0
"""Traces of the PyTorch profiler."""

import gzip
import random
from pathlib import Path

import pytest

from nccltune.workload import kineto
from nccltune.workload.call import CommGroup, Operation
from nccltune.workload.reading import read_workload
from tests.unit.workload.recordings import event, nccl_kernel, only, read, reasons, sizes, trace


def test_kernels_have_sizes_and_times(tmp_path: Path) -> None:
    events = [nccl_kernel("allreduce", 512, 10.0, 30.0), nccl_kernel("allreduce", 512, 90.0, 50.0)]
    found = read(tmp_path / "t.json", trace(events))
    row = only(found)
    assert (row.bytes, row.calls, row.timed, row.time_us) == (1024, 2, 2, 80.0)
    assert found.groups == [CommGroup("mesh_tp", 4)]


def test_a_trace_may_be_compressed(tmp_path: Path) -> None:
    content = gzip.compress(trace([nccl_kernel("allreduce", 512, 1.0, 2.0)]).encode())
    assert only(read(tmp_path / "t.json.gz", content)).bytes == 1024


def test_other_kernels_hide_communication(tmp_path: Path) -> None:
    events = [
        event("gemm", "kernel", 35.0, 20.0),
        event("gemm", "kernel", 20.0, 10.0),
        event("gemm", "kernel", 22.0, 3.0),
        event("aten::mm", "cpu_op", 0.0, 100.0),
        nccl_kernel("allreduce", 512, 10.0, 30.0),
    ]
    row = only(read(tmp_path / "t.json", trace(events)))
    # Of 10 to 40, 20 to 30 and 35 to 40 are hidden.
    assert row.exposed_us == pytest.approx(15.0)


def test_waits_are_no_communication(tmp_path: Path) -> None:
    args = nccl_kernel("allreduce", 512, 0, 0)["args"]
    wait = {"Collective name": "wait", "In msg nelems": 0, "Out msg nelems": 0, "dtype": "Byte"}
    events = [
        event("record_param_comms", "cpu_op", 1.0, 2.0, **args),
        event("record_param_comms", "cpu_op", 4.0, 2.0, **wait),
    ]
    found = read(tmp_path / "t.json", trace(events))
    assert (only(found).calls, only(found).timed) == (1, 0)
    assert "no kernel of NCCL has a size" in reasons(found)


def test_a_call_is_not_counted_on_the_host_and_on_the_gpu(tmp_path: Path) -> None:
    kernel = nccl_kernel("allreduce", 512, 5.0, 6.0)
    events = [event("record_param_comms", "cpu_op", 1.0, 2.0, **kernel["args"]), kernel]
    assert only(read(tmp_path / "t.json", trace(events))).calls == 1


def test_traces_without_metadata_have_annotations(tmp_path: Path) -> None:
    dims = {"Input Dims": [[8, 1024]], "Input type": ["float"]}
    events = [
        event("record_param_comms", "cpu_op", 1.0, 2.0),
        event("nccl:all_to_all", "user_annotation", 1.0, 2.0, **dims),
        event("ncclKernel_SendRecv(ncclWork*)", "kernel", 3.0, 4000.0),
    ]
    found = read(tmp_path / "t.json", trace(events))
    assert sizes(found) == {"alltoall": 32768}
    assert "kernels of NCCL of which the trace has no size" in reasons(found)
    assert sum(item.time_us for item in found.unread) == 4000.0


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "operation", "size"),
    [
        ("_allgather_base", 64, 256, Operation.ALLGATHER, 512),
        ("all_gather_into_tensor_coalesced", 64, 256, Operation.ALLGATHER, 512),
        ("_reduce_scatter_base", 256, 64, Operation.REDUCESCATTER, 512),
        ("all_to_allv", 256, 200, Operation.ALLTOALLV, 512),
        ("send", 256, 0, Operation.SEND, 512),
        ("recvAnySource", 0, 256, Operation.RECV, 512),
        ("broadcast_oop", 256, 256, Operation.BROADCAST, 512),
        ("gather", 64, 0, Operation.GATHER, 512),
        ("allreduce_barrier", 1, 1, Operation.ALLREDUCE, 2),
    ],
)
def test_sizes_are_those_of_the_tuner(
    tmp_path: Path, name: str, inputs: int, outputs: int, operation: Operation, size: int
) -> None:
    more = {"In msg nelems": inputs, "Out msg nelems": outputs}
    row = only(read(tmp_path / "t", trace([nccl_kernel(name, 0, 1.0, 2.0, **more)])))
    assert (row.operation, row.bytes) == (operation, size)


def test_steps_of_all_ranks_count(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [event(f"ProfilerStep#{n}", "user_annotation", 0.0, 1e5) for n in range(3)]
        events.append(nccl_kernel("allreduce", 512, 1.0, 2.0))
        (tmp_path / f"{rank}.json").write_text(trace(events, rank))
    found = read_workload([tmp_path])
    assert (found.recorders, found.steps, found.step_us, found.unit) == (2, 6, 1e5, "a step")


def test_steps_that_a_rank_lacks_are_not_used(tmp_path: Path) -> None:
    step = event("ProfilerStep#1", "user_annotation", 0.0, 1e5)
    for rank, steps in ((0, [step]), (1, [])):
        text = trace([*steps, nccl_kernel("allreduce", 512, 1.0, 2.0)], rank)
        (tmp_path / f"{rank}.json").write_text(text)
    found = read_workload([tmp_path])
    assert (found.steps, found.units, found.unit) == (0, 2, "a rank")


def test_unknown_collectives_and_types_are_counted(tmp_path: Path) -> None:
    events = [
        nccl_kernel("allreduce", 8, 1.0, 2.0),
        nccl_kernel("all_reduce_of_2030", 8, 1.0, 2.0),
        nccl_kernel("allreduce", 8, 1.0, 2.0, dtype="Posit16"),
    ]
    found = read(tmp_path / "t", trace(events))
    assert only(found).calls == 1
    assert "'all_reduce_of_2030' is not a collective that is known (1)" in reasons(found)
    assert "a type of unknown size (1)" in reasons(found)


def test_a_trace_that_is_cut_off_keeps_its_calls(tmp_path: Path) -> None:
    text = trace([nccl_kernel("allreduce", 8, 1.0, 2.0)] * 5)
    found = read(tmp_path / "t", text[: len(text) * 4 // 5])
    assert only(found).calls == 3
    assert "the file is cut off" in reasons(found)


STEP = event("ProfilerStep#5", "user_annotation", 1e5, 1e4)


@pytest.mark.parametrize(("last", "calls", "steps"), [(115e3, 1, 1), (105e3, 2, 0)])
def test_a_step_that_is_cut_off_is_left_out(
    tmp_path: Path, last: float, calls: int, steps: int
) -> None:
    more = event("ProfilerStep#6", "user_annotation", 11e4, 1e4)
    sent = [nccl_kernel("allreduce", 512, at, 1e3) for at in (102e3, last, 118e3)]
    text = trace([STEP, more, *sent])
    assert read(tmp_path / "w", text).steps == 2
    found = read(tmp_path / "t", text[: text.rindex('"Collective name"')])
    assert (only(found).calls, found.steps) == (calls, steps)
    assert f"a step that may be cut off ({2 - steps})" in reasons(found)


def test_calls_outside_the_steps_are_left_out(tmp_path: Path) -> None:
    events = [
        nccl_kernel("broadcast", 1 << 28, 1e3, 8e4),
        STEP,
        nccl_kernel("allreduce", 512, 101e3, 2e3),
        nccl_kernel("allreduce", 512, 109e3, 5e3),
        nccl_kernel("allreduce", 512, 110e3, 2e3),
    ]
    found = read(tmp_path / "t", trace(events))
    # Of the call that runs on after the step, the part in the step counts.
    assert (only(found).calls, only(found).time_us) == (2, pytest.approx(3e3))
    assert "calls outside the recorded steps are left out (2)" in reasons(found)
    assert sum(item.time_us for item in found.unread) == 82e3


def test_calls_of_the_host_outside_the_steps_are_left_out(tmp_path: Path) -> None:
    args = nccl_kernel("allreduce", 512, 0, 0)["args"]
    calls = [event("record_param_comms", "cpu_op", at, 2.0, **args) for at in (1e3, 101e3)]
    found = read(tmp_path / "t", trace([*calls, STEP]))
    assert only(found).calls == 1
    assert "calls outside the recorded steps are left out (1)" in reasons(found)


def test_steps_without_a_call_are_not_used(tmp_path: Path) -> None:
    found = read(tmp_path / "t", trace([STEP, nccl_kernel("allreduce", 512, 1.0, 2.0)]))
    assert (only(found).calls, found.steps) == (1, 0)
    assert "no call is in a recorded step: the steps are not used (1)" in reasons(found)
    assert "left out" not in reasons(found)


def test_kernels_at_once_share_the_time(tmp_path: Path) -> None:
    other = {"Process Group Name": "5", "Process Group Description": "dp"}
    events = [
        nccl_kernel("allreduce", 512, 10.0, 90.0),
        nccl_kernel("allreduce", 512, 40.0, 90.0, **other),
        event("gemm", "kernel", 90.0, 20.0),
    ]
    first, second = read(tmp_path / "t", trace(events)).rows
    # Both run from 40 to 100, so that together they run from 10 to 130, with gemm from 90 to 110.
    assert (first.group.name, first.time_us, second.time_us) == ("dp", 60.0, 60.0)
    assert (first.exposed_us, second.exposed_us) == (45.0, 55.0)


@pytest.mark.parametrize("seed", range(20))
def test_exposed_time_is_that_of_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(kineto, "_EDGES", 1 + seed)
    chosen = random.Random(seed)
    nccl, others = (
        [(chosen.randrange(300), chosen.randrange(12)) for _ in range(number)] for number in (8, 60)
    )
    events = [event("gemm", "kernel", float(at), float(took)) for at, took in others]
    events += [nccl_kernel("allreduce", 512, float(at), float(took)) for at, took in nccl]
    row = only(read(tmp_path / "t", trace(events)))
    busy, hidden = (
        {moment for at, took in spans for moment in range(at, at + took)}
        for spans in (nccl, others)
    )
    assert row.time_us == pytest.approx(len(busy))
    assert row.exposed_us == pytest.approx(len(busy - hidden))


def test_what_is_no_call_is_listed_once_with_its_reason(tmp_path: Path) -> None:
    events = [nccl_kernel(name, 1, 1.0, 2.0) for name in ("allreduce", "barrier", "mystery")]
    found = read(tmp_path / "t", trace(events))
    assert only(found).calls == 1
    assert sorted((item.reason, item.number, item.time_us) for item in found.unread) == [
        ("'mystery' is not a collective that is known", 1, 2.0),
        ("barriers, which carry no data, are not counted", 1, 2.0),
    ]
