# SPDX-License-Identifier: Apache-2.0
"""Execution traces of PyTorch."""

from pathlib import Path
from typing import Any

import pytest

from nccltune.workload.call import CommGroup
from tests.unit.workload.recordings import execution_trace, only, read, reasons


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
