# SPDX-License-Identifier: Apache-2.0
"""Lines of pairs are rows of a table."""

import pytest

from nccltune.formats.importing.detect import kind_of
from nccltune.formats.reading.file_report import FileKind
from nccltune.formats.reading.pairs import pairs_of
from tests.unit.formats.reading_tools import csv_file, text

TIMES = {1024: 20.1, 65536: 25.0, 1048576: 80.0}
FORMS = {
    "equals": lambda size, us: f"[rank0] all_reduce size={size} time_us={us}",
    "colons": lambda size, us: f"all-reduce: size: {size}, time (us): {us}, note: ok",
    "units": lambda size, us: f"all_reduce bytes={size} latency={us}us gpu=H100",
    "seconds": lambda size,
    us: f"allreduce - Size (bytes): {size}, Elapsed time (s): {us / 1e6:.9f}",
    "words before =": lambda size,
    us: f"[rank0] all_reduce: size = {size} bytes, avg time = {us} us, rounds = 20",
    "bars": lambda size, us: f"all_reduce | bytes: {size} | avg_time_us: {us}",
}


@pytest.mark.parametrize("name", FORMS)
def test_lines_of_pairs_are_rows(name: str) -> None:
    lines = [FORMS[name](size, us) for size, us in TIMES.items()]
    data = "started\n" + "\n".join(lines) + "\ndone\n"
    assert kind_of(data.encode()) is FileKind.NCCL_TESTS_TEXT
    read = text(data, ranks=8)
    assert {size: time for size, _, time in read.times} == pytest.approx(TIMES)
    assert {sample.collective.value for sample in read.samples} == {"allreduce"}


def test_pairs_that_name_their_choice_are_a_raw_csv() -> None:
    data = "".join(
        f"algo={algo} proto=ll collective=allreduce bytes=1024 latency={us}us nodes=2 ranks=16\n"
        for algo, us in (("ring", 20.1), ("tree", 15.1))
    )
    assert kind_of(data.encode()) is FileKind.RAW_CSV
    assert [sample.time_us for sample in csv_file(data).samples] == [20.1, 15.1]


def test_the_unit_tells_which_pairs_are_times() -> None:
    line = "size = 512, world_size = 2, our time = 0.0130ms,their time = 11.9us"
    assert pairs_of(line) == (
        "",
        ["size", "world_size", "our time (ms)", "their time (us)"],
        ["512", "2", "0.0130", "11.9"],
    )


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_ALGO=Ring NCCL_BUFFSIZE=4194304",
        "mpirun -x NCCL_BUFFSIZE=1 ./all_reduce_perf -b 8 size=1 time",
        "h:1:2 [0] NCCL INFO size=1024 time_us=20",
        "size: 1024",
        "buffer size: 4 MiB, window: 3",
        "test_size = 512, ours time = 0.0130ms",
        "bytes = 512, ours time = 7, theirs = 8",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5",
    ],
)
def test_other_pairs_stay(line: str) -> None:
    assert pairs_of(line) is None
