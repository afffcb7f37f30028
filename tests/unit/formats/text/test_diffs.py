# SPDX-License-Identifier: Apache-2.0
"""A diff of two tables is read as two texts."""

from pathlib import Path

import pytest

from nccltune.app.compare import SidesCompared, compare_paths
from nccltune.app.importing import StatedFacts, studied
from nccltune.formats.text.diffs import is_added, is_diff, sides_of_diff
from nccltune.study.files import Study

NAMES = " #  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
OLD = "-  1048576  262144  float  sum  -1  210.0  4.99  9.36  0\n"
NEW = "+  1048576  262144  float  sum  -1  110.0  9.53  17.87  0\n"
TABLE = (
    "@@ -1,4 +1,4 @@\n ## All-reduce, 8 GPUs\n \n | size | time (us) |\n |---|---|\n"
    "-| 1024 | 20 |\n+| 1024 | 10 |\n | 2048 | 30 |\n-| 4096 | 40 |\n+| 4096 | 20 |\n"
)
GIT = "diff --git a/r.txt b/r.txt\nindex 1..2 100644\n--- a/r.txt\n+++ b/r.txt\n"


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (NAMES + OLD + NEW, [(210.0, 110.0)]),
        (f"-{NAMES[1:]}{OLD}+{NAMES[1:]}{NEW}", [(210.0, 110.0)]),
        (TABLE, [(20.0, 10.0), (30.0, 30.0), (40.0, 20.0)]),
        (GIT + TABLE, [(20.0, 10.0), (30.0, 30.0), (40.0, 20.0)]),
        (f"{GIT}@@ -1,2 +1,2 @@\n{NAMES}{OLD}{NEW}", [(210.0, 110.0)]),
        ("--- a/r.txt\n+++ b/r.txt\n" + NAMES + OLD + NEW, [(210.0, 110.0)]),
    ],
)
def test_both_sides_of_a_diff_are_compared(
    tmp_path: Path, text: str, times: list[tuple[float, float]]
) -> None:
    path = tmp_path / "change.diff"
    path.write_text(text, encoding="utf-8")
    found = compare_paths([path], assumed_noise=0.05, collective="allreduce")
    assert isinstance(found, SidesCompared)
    shown = [(point.first_us, point.second_us) for point in found.tests[0].points]
    assert shown == [pytest.approx(pair) for pair in times]


@pytest.mark.parametrize(
    "text",
    [
        "- size 1024 takes 20 us, 2048 takes 30\n- size 4096 takes 40 us\n",
        "--- a\n+++ b\n",
        "-1 2 3\n-4 5 6\n",
        NAMES + OLD,
        "+ NCCL_ALGO=Ring\n- first\n",
        "+ size 1024\n+ 8 GPUs\n",
        "+ mpirun -np 8 -N 8 ./all_reduce_perf\n- hosts: node-01 8 GPUs, node-02 8 GPUs\n",
    ],
)
def test_lists_and_traces_are_no_diff(text: str) -> None:
    assert not is_diff(text)
    assert not is_added(text)


def test_a_table_that_a_diff_adds_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "added.diff"
    rows = "".join(f"+  {1 << i}  {1 << i - 2}  float  sum  -1  20.0  {(1 << i) / 2e4:.2f}  "
                   f"{(1 << i) * 1.875 / 2e4:.2f}  0\n" for i in (20, 21))  # fmt: skip
    path.write_text(
        f"README.md:70\n```diff\n@@ -0,0 +1,3 @@\n+{NAMES}{rows}```\n", encoding="utf-8"
    )
    with studied(path, StatedFacts(nodes=2), split=True) as given:
        (study,) = map(Study, given.studies)
        samples = list(study.samples())
    assert [(item.bytes, item.time_us) for item in samples] == [(1 << 20, 20.0), (1 << 21, 20.0)]


def test_common_lines_are_on_both_sides() -> None:
    blocks = [(1, [" both", "-1 2 3", "+4 5 6", " after"])]
    assert list(sides_of_diff(blocks)) == [
        (1, ["## old lines"]),
        (1, [" both"]),
        (2, ["1 2 3"]),
        (4, [" after"]),
        (3, ["## new lines"]),
        (3, [" both"]),
        (3, ["4 5 6"]),
        (4, [" after"]),
    ]
