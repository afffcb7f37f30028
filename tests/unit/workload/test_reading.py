# SPDX-License-Identifier: Apache-2.0
"""Formats by content, files without a recording, and memory."""

import gzip
import io
import itertools
import json
import pickle
import random
import re
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.workload import table
from nccltune.workload.call import CommCall, CommGroup, Operation
from nccltune.workload.reading import read_workload
from nccltune.workload.table import WorkloadTable
from tests.unit.workload.recordings import (
    dump,
    entry,
    event,
    execution_trace,
    inspected,
    log_call,
    nccl_kernel,
    pickled,
    read,
    reasons,
    trace,
)

CALL = {"collective_name": "broadcast", "dtype": "Int", "in_msg_nelems": 1, "out_msg_nelems": 1}
FORMATS = {
    "NCCL log": log_call("AllReduce", 1),
    "PyTorch profiler trace": trace([nccl_kernel("allreduce", 1, 1.0, 2.0)]),
    "PyTorch execution trace": execution_trace(CALL),
    "Flight Recorder dump": json.dumps(dump(entry("nccl:all_reduce", [[1]], [[1]]))),
    "NCCL Inspector": inspected("coll_perf", "AllReduce", 1),
}
UNSIZED = trace([event("ncclKernel_AllReduce_RING_LL_Sum_float", "kernel", 0.0, 8.0)]).encode()


def _archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("trace.json"))
    return file.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("title", FORMATS)
def test_the_format_is_found_by_content(tmp_path: Path, title: str, packed: bool) -> None:
    content = FORMATS[title].encode()
    found = read(tmp_path / "any.txt", gzip.compress(content) if packed else content)
    assert found.formats == {title: 1}


@pytest.mark.parametrize(
    ("content", "words", "hint"),
    [
        (b"", "is empty", ""),
        (b"nothing here\n", "no recording of a job's communication", "trace of the PyTorch"),
        (b"n0:7:7 [0] NCCL INFO Using network IB\n", "log without a call", "INIT,COLL"),
        (trace([]).encode(), "trace without a call", "while the job communicates"),
        (b'{"schema_version":1,"study":"a","nccl_version":"2"}\n', "of a study", "--workload"),
        (UNSIZED, "of which the trace has no size", "PyTorch 2.2 or later"),
        (_archive(), "is an archive", "tar -xf"),
        (gzip.compress(b"x" * 4096)[:12], "is cut off", "copy the whole file"),
        (FORMATS["PyTorch profiler trace"][:180].encode(), "is cut off", "copy the whole file"),
        (pickled(dump())[:-1], "is a pickle that is cut off", "copy the whole file"),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 64, "is compressed (zstd)", "unpack it first"),
    ],
    # Not of the content: gzip writes the time.
    ids=[
        "empty",
        "text",
        "log",
        "trace",
        "study",
        "unsized",
        "archive",
        "packed",
        "cut",
        "pickle",
        "zstd",
    ],
)
def test_other_files_are_refused_with_a_way_out(
    tmp_path: Path, content: bytes, words: str, hint: str
) -> None:
    path = tmp_path / "file"
    with pytest.raises(InputError) as caught:
        read(path, content)
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.where == "file"


@pytest.mark.parametrize("title", ["NCCL log", "PyTorch profiler trace"])
def test_a_compressed_file_that_is_cut_off_keeps_its_calls(tmp_path: Path, title: str) -> None:
    numbers = random.Random(7).sample(range(1, 1 << 30), 4000)
    content = "".join(log_call("AllReduce", number) for number in numbers)
    if title != "NCCL log":
        content = trace([nccl_kernel("allreduce", number, 1.0, 2.0) for number in numbers])
    packed = gzip.compress(content.encode())
    found = read(tmp_path / "file.gz", packed[: len(packed) // 2])
    assert found.formats == {title: 1}
    assert 1500 < sum(row.calls for row in found.rows) < 2500
    assert "the compressed file is cut off or damaged" in reasons(found)
    assert not found.refused


def test_what_may_falsify_the_sums_is_said(tmp_path: Path) -> None:
    step = event("ProfilerStep#1", "user_annotation", 0.0, 1e5)
    kernel = nccl_kernel("allreduce", 512, 1.0, 2.0)
    for rank, events in enumerate(([step, kernel], [kernel])):
        (tmp_path / f"{rank}.json").write_text(trace(events, rank))
    (tmp_path / "nccl.log").write_text(FORMATS["NCCL log"])
    twice, steps = read_workload([tmp_path]).remarks
    assert "in several formats (PyTorch profiler trace, NCCL log) are counted in each" in twice
    assert "the steps are not used: 1 of 3 ranks recorded any" in steps
    assert read_workload([tmp_path / "0.json"]).remarks == []


def test_a_folder_lists_what_was_not_readable(tmp_path: Path) -> None:
    for number, content in enumerate([*FORMATS.values(), "something else\n"]):
        (tmp_path / str(number)).write_text(content)
    found = read_workload([tmp_path])
    assert found.formats == dict.fromkeys(FORMATS, 1)
    (refused,) = found.refused
    assert "no recording" in refused.reason


def test_damaged_recordings_raise_no_other_error(tmp_path: Path) -> None:
    random_ = random.Random(45)
    pieces = (b"null", b"-1", b"1e999", b"[]", b"{}", b'"', b"\0", b"\xff", b"9" * 30, b"")
    recordings = [text.encode() for text in FORMATS.values()]
    recordings.append(pickled(dump(entry("nccl:all_reduce", [[1]], [[1]]))))
    results: list[bool | None] = []
    for _ in range(200):
        damaged = bytearray(random_.choice(recordings))
        # Values after a colon are replaced as a whole, so that many stay valid JSON.
        values = [item.span() for item in re.finditer(rb"(?<=: )[\w.\"]+", damaged)]
        at, end = random_.choice([*values, (random_.randrange(len(damaged)), len(damaged))])
        damaged[at:end] = random_.choice(pieces)
        try:
            results.append(bool(read(tmp_path / "f", bytes(damaged)).rows))
        except InputError as error:
            results.append(None if error.hint else False)
    assert set(results) == {True, None}


def _big_trace() -> Iterator[bytes]:
    dims = json.dumps(event("aten::mm", "cpu_op", 1.0, 2.0, **{"Input Dims": [[8, 1024]] * 160}))
    kernel = json.dumps(nccl_kernel("allreduce", 512, 1.0, 2.0))
    yield b'{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": ['
    for _ in range(40):
        yield f"{dims},\n".encode() * 400
        yield f"{kernel},\n".encode() * 10
    yield f"{kernel}]}}".encode()


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("wb") as file:
        file.writelines(_big_trace())
    size = path.stat().st_size
    tracemalloc.start()
    try:
        found = read_workload([path])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.rows[0].calls == 401
    assert size > 25 << 20
    assert peak < 8 << 20


def test_the_number_of_rows_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 10)
    added = WorkloadTable()
    calls = (
        CommCall("0", "c", CommGroup("", 2), Operation.ALLTOALLV, size)
        for size in itertools.chain(range(1000, 1100), range(5000, 5100))
    )
    assert added.add(calls, "f") == 200
    rows = added.workload().rows
    assert len(rows) < 20
    assert sum(row.calls for row in rows) == 200


def test_files_of_one_name_in_several_folders_are_of_several_ranks(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
        paths.append(tmp_path / f"rank{rank}" / "et.json")
        paths[-1].write_text(FORMATS["PyTorch execution trace"])
    assert read_workload(paths).recorders == read_workload([tmp_path]).recorders == 2


@pytest.mark.parametrize("sizes", [[[1 << 62] * 20], [[1] * 1000] * 1000])
def test_sizes_that_no_call_has_are_not_read(tmp_path: Path, sizes: list[list[int]]) -> None:
    entries = dump(entry("nccl:all_reduce", sizes, sizes), entry("nccl:all_reduce", [[1]], [[1]]))
    (tmp_path / "dump_0").write_bytes(pickle.dumps(entries))
    found = read_workload([tmp_path / "dump_0"])
    assert [(row.bytes, row.calls) for row in found.rows] == [(4, 1)]
    assert len(found.unread) == 1
