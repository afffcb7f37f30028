# SPDX-License-Identifier: Apache-2.0
"""Small recordings of a job in each format, made by hand after the programs that write them."""

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nccltune.workload.reading import read_workload
from nccltune.workload.table import Workload, WorkloadRow

LOG_START = (
    "n0:7:7 [0] NCCL INFO ncclCommInitRank comm 0xa0 rank 0 nranks 8 cudaDev 0 busId 1 "
    "commId 0x51 - Init START\n"
    "n0:7:7 [0] NCCL INFO comm 0xa0 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0\n"
)


def log_call(function: str, count: int, *, dtype: int = 7, process: str = "n0:7") -> str:
    """Return the line of a call on the communicator 0xa0 of 8 ranks."""
    return (
        f"{process}:9 [0] NCCL INFO {function}: opCount 1f sendbuff 0x7f00 recvbuff (nil) count "
        f"{count} datatype {dtype} op 0 root 0 comm 0xa0 [nranks=8] stream 0x5f1\n"
    )


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """Return a complete event of a PyTorch profiler trace."""
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}


def nccl_kernel(name: str, elements: int, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """Return a kernel of NCCL on the tensor-parallel communicator of 4 ranks, in bfloat16."""
    more = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": 4,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Description": "mesh_tp",
        "Process Group Ranks": "[0, 1, 2, 3]",
    }
    return event("ncclDevKernel_X(ncclDevKernelArgs)", "kernel", ts, dur, **(more | args))


def trace(events: Iterable[dict[str, Any]], rank: int | None = 0) -> str:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 8}}
    return json.dumps({"schemaVersion": 1, **info, "traceEvents": list(events)}, indent=1)


def entry(name: str, inputs: list[list[int]], outputs: list[list[int]], **more: Any) -> Any:
    """Return an entry of a Flight Recorder dump, of the process group `dp` in float."""
    return {
        "record_id": 0,
        "process_group": ["5", "dp"],
        "profiling_name": name,
        "input_sizes": inputs,
        "input_dtypes": ["Float"] * len(inputs),
        "output_sizes": outputs,
        "output_dtypes": ["Float"] * len(outputs),
        "state": "completed",
        "duration_ms": None,
        "frames": [{"name": "step", "filename": "train.py", "line": 3}],
        **more,
    }


def dump(*entries: Any) -> dict[str, Any]:
    """Return a Flight Recorder dump. The process group `dp` has 16 ranks."""
    ranks = str(list(range(16)))
    groups = {"5": {"name": "5", "desc": "dp", "ranks": ranks}}
    # nlohmann::json sorts the keys, so the entries come first.
    return {"entries": list(entries), "pg_config": groups, "version": "2.10"}


def pickled(value: object) -> bytes:
    """Return a pickle in the protocol that PyTorch writes."""
    return pickle.dumps(value, protocol=2)


def inspected(kind: str, function: str, size: int, **more: Any) -> str:
    """Return a line of NCCL's Inspector."""
    header = {"id": "0xbeef", "comm_name": "unknown", "rank": 2, "n_ranks": 8, "nnodes": 2}
    prefix = kind.removesuffix("_perf")
    perf = {
        prefix: function,
        f"{prefix}_msg_size_bytes": size,
        f"{prefix}_exec_time_us": 50,
        f"{prefix}_timing_source": "kernel_gpu",
    } | more
    metadata = {"inspector_output_format_version": "v4.0", "hostname": "n0", "pid": 7}
    return json.dumps({"header": header, "metadata": metadata, kind: perf}) + "\n"


def execution_trace(*calls: dict[str, Any], size: int | None = 4) -> str:
    """Return an execution trace with these attributes of calls."""
    groups = json.dumps([{"pg_name": "0", "pg_desc": "default_pg", "group_size": 4}])
    first = {"id": 3, "name": "## process_group:init ##", "inputs": {"values": [groups]}}
    nodes = [
        {
            "id": 9,
            "name": "record_param_comms",
            "inputs": {"values": [[[1, 2, 0, 53120, 4, "cuda:1"]]]},
            "attrs": [
                {"name": name, "type": "string", "value": value}
                for name, value in (call | ({"pg_size": size} if size else {})).items()
            ],
        }
        for call in calls
    ]
    return json.dumps({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [first, *nodes]})


def read(path: Path, content: str | bytes) -> Workload:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_workload([path])


def sizes(workload: Workload) -> dict[str, int]:
    """Return the size of each operation of a workload with one row for each."""
    assert len({row.operation for row in workload.rows}) == len(workload.rows)
    return {row.operation.value: row.bytes for row in workload.rows}


def only(workload: Workload) -> WorkloadRow:
    (row,) = workload.rows
    return row


def reasons(workload: Workload) -> str:
    return "\n".join(f"{item.reason} ({item.number})" for item in workload.unread)
