# SPDX-License-Identifier: Apache-2.0
"""Dumps of PyTorch's Flight Recorder."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nccltune.model.errors import InputError
from nccltune.workload.call import CommGroup
from nccltune.workload.reading import read_workload
from tests.unit.workload.recordings import dump, entry, only, pickled, read, reasons, sizes

CALLS = dump(
    entry("nccl:all_reduce", [[256]], [[256]], duration_ms=2.0),
    entry("nccl:all_reduce", [[16, 16]], [[16, 16]], duration_ms=4.0),
    entry("nccl:_all_gather_base", [[16]], [[16, 16]]),
    entry("nccl:reduce_scatter", [[16]] * 16, [[16]]),
    entry("nccl:send 0->1", [[4]], [[4]], is_p2p=True),
    entry("nccl:send 0->2", [[4]], [[4]], is_p2p=True),
    entry("nccl:coalesced", [], []),
)


@pytest.mark.parametrize("content", [pickled(CALLS), json.dumps(CALLS)])
def test_both_forms_of_a_dump(tmp_path: Path, content: bytes | str) -> None:
    found = read(tmp_path / "nccl_trace_rank_3", content)
    expected = {"allreduce": 1024, "allgather": 1024, "reducescatter": 1024, "send": 16}
    assert sizes(found) == expected
    calls = {row.operation.value: (row.calls, row.mean_us) for row in found.rows}
    assert calls["allreduce"] == (2, 3000.0)
    assert calls["send"] == (2, None)
    # PyTorch writes the groups after the entries that name them.
    assert found.groups == [CommGroup("dp", 16)]
    assert not found.unread


def test_each_dump_is_a_rank(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(CALLS))
    assert read_workload([tmp_path]).recorders == 3


def test_a_dump_of_the_last_calls_of_several_backends(tmp_path: Path) -> None:
    entries = [
        entry(name, [[4]], [[4]], record_id=number)
        for number, name in ((97, "nccl:all_reduce"), (98, "gloo:all_reduce"), (99, "nccl:reduce"))
    ]
    found = read(tmp_path / "d", json.dumps(dump(*entries)))
    assert sizes(found) == {"allreduce": 16, "reduce": 16}
    assert "calls of gloo, which are none of NCCL's (1)" in reasons(found)
    assert "calls that PyTorch recorded before are not in the dump (97)" in reasons(found)


def state(last: int, done: int, function: str = "nccl:all_reduce", group: str = "5") -> list[Any]:
    """Return the calls 1 to `last` of a rank; those after `done` are not complete."""
    return [
        entry(
            function if number == last else "nccl:all_reduce", [[4]], [[4]], record_id=number - 1,
            collective_seq_id=number, process_group=[group, "dp"],
            state="completed" if number <= done else "started",
        )
        for number in range(1, last + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "notes"),
    [
        ([state(10, 9), state(10, 9), state(9, 9)],
         ["call 10 of dp: rank 0 waits in it, rank 2 had not made it at the end of the "
          "recording"]),
        # The processor of a rank may be further, while the GPUs are in the same call.
        ([state(12, 9), state(10, 9), state(11, 9)], []),
        ([state(10, 10), state(10, 10), state(9, 9)], []),
        ([state(10, 9), state(10, 9, group="6")], []),
        # Calls in a coalesced one have no state of their own.
        ([[*state(1, 0), *state(1, 1, "nccl:coalesced")], state(1, 1)], []),
        ([[entry("nccl:send 0->1", [[4]], [[4]], is_p2p=True, collective_seq_id=1,
                 state="started")], state(1, 1)], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [pickled, lambda value: json.dumps(value).encode()])
def test_a_call_that_a_rank_has_not_made(
    tmp_path: Path, ranks: list[list[Any]], notes: list[str], form: Callable[[object], bytes]
) -> None:
    for rank, entries in enumerate(ranks):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(form(dump(*entries)))
    assert read_workload([tmp_path]).remarks == notes


def test_unknown_entries_are_counted(tmp_path: Path) -> None:
    entries = [entry("nccl:teleport", [[4]], [[4]]), entry("nccl:all_reduce", [], [])]
    entries += [["no", "entry"], entry("nccl:all_reduce", [[4]], [[4]])]
    found = read(tmp_path / "d", json.dumps(dump(*entries)))
    assert only(found).bytes == 16
    for words in (
        "'nccl:teleport' is not a collective that is known (1)",
        "all-reduce without its numbers of elements (1)",
        "an entry that is not one of the Flight Recorder, or is cut off (1)",
    ):
        assert words in reasons(found)


class _Call:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "content",
    [
        pickled(dump(_Call(print, ("called",)))),
        pickle.dumps(dump(_Call(print, ("called",))), protocol=4),
        b"\x80\x02cos\nsystem\n(S'true'\ntR.",
        b"\x80\x02(K\x01K\x02ios\nsystem\n.",
        pickled(CALLS)[:-40],
        b"\x80\x02" + b"\xff" * 64,
        b"\x80\x02]r\xff\xff\xff\x7f" + b"." * 3,
        b"\x80\x04\x8e" + b"\xff" * 8,
        pickled({"no": "entries"}),
    ],
)
def test_pickles_that_are_no_dump_are_refused(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="is a pickle|no dump"):
        read(tmp_path / "dump", content)
    assert "called" not in capsys.readouterr().out
