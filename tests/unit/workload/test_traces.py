# SPDX-License-Identifier: Apache-2.0
"""Traces of PyTorch (Kineto) and of Chakra."""

import base64
import gzip
import io
import random
import tracemalloc
import zlib
from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.workload import kineto
from nccltune.workload.call import CommGroup, Operation, Unread
from nccltune.workload.chakra import read_chakra
from nccltune.workload.pytorch_names import call_of
from nccltune.workload.reading import read_workload
from nccltune.workload.table import WorkloadTable
from tests.unit.workload.recordings import (
    LOG_START,
    event,
    execution_trace,
    inspected,
    log_call,
    nccl_kernel,
    only,
    read,
    reasons,
    sizes,
    trace,
)


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


@pytest.mark.parametrize(("parts", "kind"), [("[]", "alltoall"), ("[3, 5]", "alltoallv")])
def test_an_all_to_all_without_sizes_of_parts_is_even(
    tmp_path: Path, parts: str, kind: str
) -> None:
    """PyTorch 2.11 names both `all_to_allv`."""
    more = {"In split size": parts, "Out split size": parts}
    kernel = nccl_kernel("all_to_allv", 8, 1.0, 2.0, **more)
    node = {"collective_name": "all_to_allv", "in_msg_nelems": 8, "out_msg_nelems": 8}
    node |= {"dtype": "Int", "in_split_size": parts, "out_split_size": parts}
    for text in (trace([kernel]), execution_trace(node)):
        assert only(read(tmp_path / "t", text)).operation == kind


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
    assert (only(found).calls, only(found).time_us) == (2, pytest.approx(7e3))
    assert found.step_us == pytest.approx(1e4)
    assert "calls outside the recorded steps are left out (2)" in reasons(found)
    assert sum(item.time_us for item in found.unread) == 82e3


def test_calls_of_the_host_outside_the_steps_are_left_out(tmp_path: Path) -> None:
    args = nccl_kernel("allreduce", 512, 0, 0)["args"]
    calls = [event("record_param_comms", "cpu_op", at, 2.0, **args) for at in (1e3, 101e3)]
    found = read(tmp_path / "t", trace([*calls, STEP]))
    assert only(found).calls == 1
    assert "calls outside the recorded steps are left out (1)" in reasons(found)


def test_a_call_is_of_the_step_in_which_the_host_makes_it(tmp_path: Path) -> None:
    """Kernels that run one step (10 ms on the host) and more later, every 20 ms."""
    args = nccl_kernel("allreduce", 512, 0, 0)["args"]
    events = []
    for number in range(3):
        start, call = 1e5 + 1e4 * number, args | {"External id": 7 + number}
        events += [event(f"ProfilerStep#{number}", "user_annotation", start, 1e4)]
        events += [event("record_param_comms", "cpu_op", start + 1e3, 2.0, **call)]
        events += [nccl_kernel("allreduce", 512, 1.2e5 + 2e4 * number, 5e3, **call)]
    found = read(tmp_path / "t", trace(reversed(events)))
    assert (only(found).calls, only(found).time_us, found.steps) == (3, 15e3, 3)
    assert (found.step_us, found.unread) == (pytest.approx(2e4), [])


def test_a_kernel_of_coalesced_calls_has_the_sizes_of_its_group(tmp_path: Path) -> None:
    """As PyTorch 2.11 traces `batch_isend_irecv`; the last group has no annotation on the GPU."""
    events, thread = [], {"tid": 3}
    for number in range(3):
        at = 1e3 * number
        for part, name in enumerate(("send", "recv")):
            args = nccl_kernel(name, 512 << number, 0, 0)["args"] | {
                "External id": 10 * number + part
            }
            events += [event("record_param_comms", "cpu_op", at + part, 1.0, **args) | thread]
        if number == 0:  # A call whose kernel is not in the trace is of no group.
            early = event("record_param_comms", "cpu_op", at - 9, 1.0, **args | {"External id": 50})
            events += [early | thread, event("nccl:x", "user_annotation", at - 8, 1.0) | thread]
        cover = {"External id": 10 * number + 5}
        events += [event("nccl:coalesced", "user_annotation", at + 2, 9.0, **cover) | thread]
        late = 5e3 + at
        for start in (late, late + 50.0) if number == 1 else (late,):
            events += [event("ncclDevKernel_SendRecv(x)", "kernel", start, 30.0) | {"tid": 16}]
        if number < 2:
            cover_gpu = event("nccl:coalesced", "gpu_user_annotation", late - 1, 99.0, **cover)
            events += [cover_gpu | {"tid": 16}]
    events += [nccl_kernel("broadcast", 8, 9e3, 1.0, **{"External id": [7]})]
    found = read(tmp_path / "t", trace(reversed(events)))
    rows = {(row.operation.value, row.bytes): (row.calls, row.time_us) for row in found.rows}
    assert rows.pop(("broadcast", 16)) == (1, 1.0)
    assert rows == {
        (name, size): (1, pytest.approx(time_us))
        for name in ("send", "recv")
        for size, time_us in ((1024, 15.0), (2048, 40.0))
    }
    assert f"{kineto.UNSIZED} (1)" in reasons(found)


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


def test_communication_without_nccl_is_listed(tmp_path: Path) -> None:
    names = ["void vllm::cross_device_reduce_1stage<half, 2>()", "multimem_all_reduce_kernel<x>"]
    names += ["triton_poi_fused_all_reduce_add_0", "void scatter_gather_elementwise_kernel<1>()"]
    events = [event(name, "kernel", 1e2 * at, 3.0) for at, name in enumerate(names)]
    found = read(tmp_path / "t", trace([nccl_kernel("allreduce", 8, 1.0, 2.0), *events]))
    assert only(found).calls == 1
    assert [(item.number, item.time_us) for item in found.unread] == [(2, 6.0)]


def test_what_is_no_call_is_listed_once_with_its_reason(tmp_path: Path) -> None:
    events = [nccl_kernel(name, 1, 1.0, 2.0) for name in ("allreduce", "barrier", "mystery")]
    found = read(tmp_path / "t", trace(events))
    assert only(found).calls == 1
    assert sorted((item.reason, item.number, item.time_us) for item in found.unread) == [
        ("'mystery' is not a collective that is known", 1, 2.0),
        ("barriers, which carry no data, are not counted", 1, 2.0),
    ]


PACKED = (
    "c-p0uQESsc9Kd^Rvn0nRBMhyA8hkKAvY2%3SgR-t8>=`}(zk_jTrbx(E=fa@7A8LUHT)KS93MsWWv_k#ujy=?c2P"
    "P52f6$&|NH&!e|L`|r)#=alkUT{nDnWSFM(uehNkb3K0c4ImWGD{kT!{-JIyBcyofqOLQ#c(1WHeeptyf(HsDj+w"
    "hdLTs<N)ib)%ZTDrD&3rml24?EU%M?t4m-7m6zH7#*o-ckZ!f-GZVUBN7hLAp8n|B|<LhA=hc~zkpDbwgW=ELppj"
    "*qkwwo!1Juh^zEUKx;<kLS+Cw4qmz>v&I9u!j2I3BX{0#S`d$`CmB*|(K^CpE0m?1|ReT!vQ4)@SVPlo4J&W0$Nn"
    "_txvRa-|!P<Z#8TdX*E<)NWjKgU+c0bV8CxM0e@C*gmr<VZi{sclvdblKgjFUc%mR+|^3hjB<>y|!O2Qi<sN#-t&"
    "Z!T5*hm^Gmxwwxbdbf~1-(LOzLRnI?nv=q|2~H9Qlv`i(9O6uM_1gXl%2&HLzMAI0y!i!hdBOV&5IE^}*0N0l$D("
    "9Z;r`Tc-8_Zw=8cSMj!=Cn6i$U=mTyU*nlF$gE@p}Awy-9N@kPM)MB<X^ny*%V+1i5ZZZH~nBkCZ>^}mA>1mH;ES"
    "I@l&EPn=qAZ?A;bn$e|P6cNk!Dn;#QB7}LdjsU%RyW)AtwTYS_%4njHv{wcEaJ4AW+@*CP!e%M19sOsPNh6^x&t>"
    "-XpJ$uK`)o`H)=VI<N"
)
TRACE = zlib.decompress(base64.b85decode(PACKED))
"""Made by Google's protobuf library with the public `et_def.proto`: metadata, a call on the host
and its kernel, kernels of an all-gather and a reduce-scatter with the arguments that PyTorch 2.4
records (4 ranks), a send, two nodes of a generator without arguments, a kernel with both sides of
its all-gather, a barrier, and an addition."""


def test_kernels_are_calls_and_what_is_ambiguous_is_said(tmp_path: Path) -> None:
    found = read(tmp_path / "rank0.et", TRACE)
    assert found.formats == {"Chakra trace": 1}
    tensor, pipeline, other = CommGroup("mesh_tp", 4), CommGroup("mesh_pp", 2), CommGroup("", 0)
    assert {
        (row.group, row.operation.value, row.bytes, row.time_us, row.timed) for row in found.rows
    } == {
        (tensor, "allreduce", 1024, 30.0, 1),
        (tensor, "allgather", 4096, 40.0, 1),
        (tensor, "reducescatter", 4096, 0.0, 0),
        (pipeline, "send", 256, 12.0, 1),
        (other, "allreduce", 4096, 0.0, 0),
        (other, "allgather", 8192, 5.0, 1),
    }
    assert sum(row.calls for row in found.rows) == 6
    assert reasons(found) == "all-gather whose size may be that of one rank or of all (1)"


@pytest.mark.parametrize("tail", [b"", b"\xff", b"\xff" * 12, b"\x80\x80\x80\x80\x01"])
def test_a_file_that_is_cut_off_or_damaged_keeps_its_calls(tmp_path: Path, tail: bytes) -> None:
    found = read(tmp_path / "rank0.et", TRACE[:-9] + tail)
    assert sum(row.calls for row in found.rows) == 6
    assert "cut off or damaged" in reasons(found)


def test_damage_raises_no_other_error(tmp_path: Path) -> None:
    random_ = random.Random(45)
    read_any = [0, 0]
    for _ in range(300):
        damaged = bytearray(TRACE)
        for _ in range(random_.randrange(1, 4)):
            damaged[random_.randrange(len(damaged))] = random_.choice((0, 1, 0x5B, 0x80, 0xFF))
        try:
            read_any[bool(read(tmp_path / "f", bytes(damaged)).rows)] += 1
        except InputError:
            read_any[0] += 1
    assert min(read_any) > 0


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (b"\x80\x80\x40" + b"\x08\x00" * (1 << 19), []),
        (b"\x80\x80\x80\x01" + b"\x08\x00" * (1 << 20), ["a message of more than 1 MiB"]),
    ],
    ids=["most", "more"],
)
def test_a_large_node_takes_no_more_than_its_bytes(node: bytes, said: list[str]) -> None:
    file = io.BytesIO(node)
    tracemalloc.start()
    try:
        found = list(read_chakra(file, "x.et"))
        assert tracemalloc.get_traced_memory()[1] < 2 * len(node)
    finally:
        tracemalloc.stop()
    assert [item.reason for item in found if isinstance(item, Unread)] == said


@pytest.mark.parametrize(("ranks", "is_read"), [((1 << 31) - 1, True), (1 << 31, False)])
def test_a_group_has_as_many_ranks_as_nccl_counts(ranks: int, is_read: bool) -> None:
    call = call_of("x", "c", CommGroup("", ranks), "allreduce", 8, 8, "byte")
    assert WorkloadTable().add([call] * 3, "x") == 3 * is_read


@pytest.mark.parametrize(
    "content",
    [
        trace([nccl_kernel("allreduce", 10**30, 1.0, 2.0)]),
        trace([nccl_kernel("allreduce", 8, 1e308, 1e308)]),
        trace([nccl_kernel("allreduce", 8, 1.0, 1e17)]),
        inspected("coll_perf", "AllGather", 2 * 10**18),
        inspected("coll_perf", "AllReduce", 8, coll_exec_time_us=1e300),
        LOG_START + log_call("AllReduce", 9 * 10**18),
    ],
    ids=range(6),
)
def test_what_no_call_can_have_is_not_read(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"time (that )?cannot be right"):
        read(tmp_path / "t", content)
