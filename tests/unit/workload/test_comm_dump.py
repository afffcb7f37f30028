# SPDX-License-Identifier: Apache-2.0
"""Dumps of communicators by NCCLX."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.model.errors import InputError
from nccltune.workload.call import CommGroup
from tests.unit.workload.recordings import only, read, reasons, sizes


def dumped(*calls: tuple[str, str, int, float], **comm: str) -> dict[str, Any]:
    names = ("opName", "dataType", "count", "latencyMs")
    past = [dict(zip(names, call, strict=True)) for call in calls]
    own = {"commHash": "1f", "commDesc": "fsdp", "nRanks": "8", "nNodes": "2"} | comm
    return own | {"CT_pastColls": json.dumps(past), "CT_pendingColls": "[]"}


def test_calls_of_a_dump(tmp_path: Path) -> None:
    calls = [("AllReduce", "ncclBfloat16", 512, 0.05), ("AllGather", "commFloat", 512, -1)]
    dump = dumped(*calls, ("AllReduce", "ncclFp8E4M3", 1024, 0.07))
    for text in (dump, {"1f": dump}):
        found = read(tmp_path / "rank0.json", json.dumps(text))
        assert sizes(found) == {"allreduce": 1024, "allgather": 16384}
        assert found.groups == [CommGroup("fsdp", 8, 2)]
        times = {row.operation.value: row.mean_us for row in found.rows}
        assert times == {"allreduce": pytest.approx(60.0), "allgather": None}


def test_what_a_dump_does_not_state(tmp_path: Path) -> None:
    calls = [(name, "ncclInt8", 64, 0.1) for name in ("AllGather", "AllReduce", "Other")]
    found = read(tmp_path / "x.json", json.dumps(dumped(*calls, nRanks="")))
    assert only(found).bytes == 64
    assert "no number of ranks" in reasons(found)
    assert "without a size" in reasons(found)
    with pytest.raises(InputError, match="no whole JSON"):
        read(tmp_path / "cut.json", json.dumps(dumped(*calls))[:-1])
