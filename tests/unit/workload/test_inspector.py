# SPDX-License-Identifier: Apache-2.0
"""JSON lines of NCCL's Inspector."""

import json
from pathlib import Path

import pytest

from nccltune.workload.call import CommGroup
from tests.unit.workload.recordings import inspected, only, read, reasons, sizes


def test_sizes_are_those_of_the_tuner(tmp_path: Path) -> None:
    lines = [
        inspected("coll_perf", name, 16384) for name in ("AllReduce", "AllGather", "ReduceScatter")
    ]
    found = read(tmp_path / "x.log", "".join([*lines, inspected("p2p_perf", "Send", 512)]))
    expected = {"allreduce": 16384, "allgather": 131072, "reducescatter": 131072, "send": 512}
    assert sizes(found) == expected
    assert found.groups == [CommGroup("", 8, 2)]
    assert all(row.mean_us == 50.0 for row in found.rows)


@pytest.mark.parametrize(
    ("function", "source", "time_us"),
    [
        ("AllReduce", "kernel_gpu", 50.0),
        ("AllReduce", "kernel_cpu", 50.0),
        ("AllReduce", "collective_cpu", None),
        ("AllReduce", "unknown", None),
        ("Broadcast", "kernel_gpu", None),
    ],
)
def test_only_times_of_kernels_count(
    tmp_path: Path, function: str, source: str, time_us: float | None
) -> None:
    line = inspected("coll_perf", function, 16384, coll_timing_source=source)
    assert only(read(tmp_path / "x", line)).mean_us == time_us


def test_dropped_calls_are_counted(tmp_path: Path) -> None:
    line = json.loads(inspected("coll_perf", "AllReduce", 4096))
    drops = {"coll_dropped_since_last_dump": 40, "p2p_dropped_since_last_dump": 2}
    stats = {"header": line["header"], "metadata": line["metadata"], "dump_stats": drops}
    found = read(tmp_path / "x", f"{json.dumps(stats)}\n{json.dumps(line)}\n{{cut")
    assert only(found).calls == 1
    assert "dropped are missing (42)" in reasons(found)
    assert "is cut off (1)" in reasons(found)
    assert "below 8 KiB" not in reasons(found)


def test_the_communicator_of_several_lines(tmp_path: Path) -> None:
    """v4.3 and later: a line names the communicator of as many lines as it states."""
    whole = json.loads(inspected("coll_perf", "AllGather", 4096))
    counts = {"coll_records": 2, "p2p_records": 0, "proxy_records": 1}
    marker = {"header": whole["header"], "metadata": whole["metadata"], "dump_stats": counts}
    call = {"coll_perf": whole["coll_perf"]}
    proxy = {"proxy_trace": {"record_type": "proxy_op", "trans_size_bytes": 4096}}
    flat = call | whole["header"] | whole["metadata"]
    lines = [call, marker, call, proxy, call, call, marker, call, flat]
    found = read(tmp_path / "x", "\n".join(map(json.dumps, lines)))
    assert (only(found).calls, sizes(found)) == (4, {"allgather": 8 * 4096})
    assert found.recorders == 1
    assert found.groups == [CommGroup("", 8, 2)]
    assert "communicator of a call (dump_stats) is missing (2)" in reasons(found)


def test_small_messages_that_are_not_recorded(tmp_path: Path) -> None:
    found = read(tmp_path / "x", inspected("coll_perf", "AllReduce", 8192))
    assert "no message is below 8 KiB" in reasons(found)
