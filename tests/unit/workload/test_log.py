# SPDX-License-Identifier: Apache-2.0
"""NCCL's log of calls, and execution traces of PyTorch."""

from pathlib import Path
from typing import Any

import pytest

from nccltune.model.errors import InputError
from nccltune.workload.call import CommGroup
from tests.unit.workload.recordings import (
    LOG_START,
    execution_trace,
    log_call,
    only,
    read,
    reasons,
    sizes,
)


def test_sizes_are_those_of_the_tuner(tmp_path: Path) -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll", "Send", "Recv")
    found = read(tmp_path / "log", LOG_START + "".join(log_call(name, 256) for name in functions))
    assert sizes(found) == {
        "allreduce": 1024,
        "allgather": 8192,
        "reducescatter": 8192,
        "broadcast": 1024,
        "alltoall": 8192,
        "send": 1024,
        "recv": 1024,
    }


def test_a_launcher_prefix_and_a_type(tmp_path: Path) -> None:
    found = read(tmp_path / "log", "[1,0]<stdout>:" + log_call("AllReduce", 100, dtype=9))
    assert only(found).bytes == 200


def test_nodes_and_ids_come_from_the_start_of_the_communicator(tmp_path: Path) -> None:
    other = LOG_START.replace("n0:7:7", "n1:8:8").replace("0xa0 rank 0", "0xa0 rank 4")
    calls = log_call("AllReduce", 1) + log_call("AllReduce", 1, process="n1:8")
    found = read(tmp_path / "log", LOG_START + other + calls)
    assert (found.groups, found.communicators) == ([CommGroup("", 8, 2)], [1])
    assert (found.recorders, only(found).calls, only(found).timed) == (2, 2, 0)


def test_without_the_start_the_nodes_are_unknown(tmp_path: Path) -> None:
    assert read(tmp_path / "log", log_call("AllReduce", 1)).groups == [CommGroup("", 8, 0)]


def test_a_line_that_is_cut_off_is_counted(tmp_path: Path) -> None:
    cut = log_call("AllReduce", 7)[:90] + " comm \n"
    found = read(tmp_path / "log", log_call("AllReduce", 1) + cut)
    assert only(found).calls == 1
    assert "is not as NCCL 2.18 to 2.32 writes it (1)" in reasons(found)


def test_rccl_names_one_buffer_more(tmp_path: Path) -> None:
    line = log_call("AllGather", 256).replace(" count", " acc (nil) count")
    assert only(read(tmp_path / "log", line)).bytes == 8192


def _call(name: str, **more: Any) -> dict[str, Any]:
    values = {"collective_name": name, "dtype": "Long", "pg_name": "0", "pg_desc": "dp"}
    return values | {"in_msg_nelems": 10, "out_msg_nelems": 10, **more}


@pytest.mark.parametrize("size", [4, None])
def test_calls_and_ranks(tmp_path: Path, size: int | None) -> None:
    text = execution_trace(_call("broadcast"), _call("wait"), _call("init"), size=size)
    found = read(tmp_path / "et.json", text)
    row = only(found)
    assert (row.bytes, row.calls, row.timed) == (80, 1, 0)
    assert found.groups == [CommGroup("dp", 4)]
    assert not found.unread


def test_nodes_without_sizes_are_counted(tmp_path: Path) -> None:
    bare = {"rf_id": 19}
    text = execution_trace(_call("broadcast"), _call("allreduce", in_msg_nelems="many"), {}, bare)
    found = read(tmp_path / "et.json", text)
    assert only(found).calls == 1
    assert "all-reduce without its numbers of elements (1)" in reasons(found)
    assert "without their attributes, as PyTorch wrote them before 2.2 (2)" in reasons(found)
    with pytest.raises(InputError) as error:
        read(tmp_path / "old.json", execution_trace(bare))
    assert "PyTorch 2.2 or later" in str(error.value.hint)
