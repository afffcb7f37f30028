# SPDX-License-Identifier: Apache-2.0
"""Failures that rows and device lists of nccl-tests show."""

import json
from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers.result_rows import lone_ranks, wrong_rows
from tests.unit.doctor.evidence.node import folder_facts, put
from tests.unit.doctor.evidence.test_files_of_people import TEST
from tests.unit.formats.json_maker import made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("10.49      0    100.0   10.49   10.49      0", "10.49      0  100.0  10.49  10.49   96"),
        ("10.49      0    100.0   10.49   10.49      0", "10.49     96  100.0  10.49  10.49  N/A"),
    ],
)
def test_wrong_elements_in_a_table(old: str, new: str, tmp_path: Path) -> None:
    text = TEST.replace(old, new, 1).replace(": 0 OK", ": 4 FAILED")
    (row,) = wrong_rows(text)
    assert (row.text[:13], row.line) == ("1048576 bytes", 10)
    assert "96" in row.text
    put(tmp_path, "n1/job.out", "".join(f"[1,0]<stdout>:{line}\n" for line in text.splitlines()))
    (facts,) = folder_facts(tmp_path)
    assert [one["kind"] for one in facts.named("failures")] == ["wrong", "wrong"]
    assert wrong_rows(TEST) == ()


RANK = "[1,0]<stdout>:#  Rank %2d Group  0 Pid %6d on h1 device  0 [0x1b] NVIDIA A100\n"
PAIR = RANK % (0, 1101) + RANK % (1, 1101)
TWO = RANK % (0, 1101) + RANK % (1, 1102)
ROW = "        1024           256     float     sum    12.1    0.08    0.08  0e+00\n"
AVG = "# Avg bus bandwidth    : 3.94\n"
MPI = "mpirun -np 2 \\\n -H a,b ./all_reduce_perf -g 2\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Using devices\n" + RANK % (0, 1101) + RANK % (0, 1102), [(2, 2)]),
        (PAIR + "h1:1101:1109 [0] NCCL INFO Init\n" + PAIR.replace("1101", "77"), [(1, 2)]),
        (PAIR + PAIR.replace("h1", "h2"), [(1, 2)]),
        (MPI + AVG + "#\n" + AVG.replace("4", "5"), [(3, 2)]),
        ("$ srun -N 2 all_gather_perf\n" + PAIR + ROW + PAIR.replace("h1", "h2"), [(2, 2)]),
        (RANK % (0, 1101) + RANK % (1, 1102), []),
        (PAIR + PAIR, []),
        (PAIR + AVG + PAIR.replace("1101", "77") + AVG, []),
        (PAIR + ROW + PAIR.replace("1101", "77"), []),
        (PAIR + "$ ./all_reduce_perf -g 2\n" + PAIR.replace("1101", "77"), []),
        (MPI + AVG + "and with another NIC:\n" + AVG, []),
        (MPI + AVG + MPI + AVG, []),
        (MPI + "Warning: Permanently added 'b' (RSA)\n" + AVG + AVG, [(4, 2)]),
        ("for i in 1 2\ndo\n" + MPI + "done\n" + AVG + AVG, []),
        (MPI + TWO + AVG + TWO.replace("11", "22") + AVG, []),
        (MPI + TWO + TWO.replace("h1", "h2"), [(3, 2)]),
        (MPI + "First:\n" + AVG + "Then:\n" + AVG, []),
        ("for i in 1 2; do mpirun -np 2 all_reduce_perf; done\n" + AVG + AVG, []),
        ("mpirun -np 1 all_reduce_perf -g 2\n" + AVG + AVG, []),
        ("mpirun -np 2 sh -c 'all_reduce_perf; all_gather_perf'\n" + AVG + AVG, []),
        (AVG + AVG, []),
    ],
)
def test_processes_that_run_alone(text: str, found: list[tuple[int, int]]) -> None:
    assert [(one.line, one.times) for one in lone_ranks(text)] == found


def test_singletons_of_open_mpi_run_alone(tmp_path: Path) -> None:
    put(tmp_path, "n1/job.out", "No PMIx server was reachable, but a PMI1/2 was detected.\n" + AVG)
    (facts,) = folder_facts(tmp_path)
    assert [one["kind"] for one in facts.named("failures")] == ["lone_ranks"]


def test_copies_are_found_where_only_summaries_are_pasted(tmp_path: Path) -> None:
    put(tmp_path, "n1/job.out", MPI + AVG + "#\n" + AVG)
    (facts,) = folder_facts(tmp_path)
    assert "lone_ranks" in [one["kind"] for one in facts.named("failures")]


@pytest.mark.parametrize(("end", "sizes"), [("", [0]), (AVG, None)])
def test_a_test_that_printed_its_summary_ended(
    end: str, sizes: list[int] | None, tmp_path: Path
) -> None:
    put(tmp_path, "n1/job.out", "# nThread 1 nGpus 2\n# Using devices\n" + PAIR + end)
    (facts,) = folder_facts(tmp_path)
    found = [one["sizes"] for one in facts.named("tests")] if "tests" in facts else None
    assert found == sizes


def test_wrong_elements_in_json(tmp_path: Path) -> None:
    text = json.dumps(made())
    put(tmp_path, "n1/sound.json", text)
    put(tmp_path, "n2/wrong.json", text.replace('"nwrong": 0', '"nwrong": 96', 1))
    sound, wrong = folder_facts(tmp_path)
    assert (sound.named("failures"), len(sound.named("tests"))) == ([], 1)
    assert [one["text"] for one in wrong.named("failures")] == ["96 wrong elements"]


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The rows have been copied without the lines that name the collective."""
    rows = "\n".join(line for line in TEST.split("\n") if "#wrong" in line or "float" in line)
    put(tmp_path, "n1/rows.txt", rows)
    (facts,) = folder_facts(tmp_path)
    (unused,) = facts.unused
    assert unused.file == "n1/rows.txt (its table of nccl-tests)"
    assert "names the collective" in unused.why
