# SPDX-License-Identifier: Apache-2.0
"""The acceptance run without a GPU: limits, processes that outlive a part, table, exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from acceptance_runs import Row, exit_status

GPU = Path(__file__).parents[2] / "gpu"
# A process of its own: what is left over is looked for below it.
PROGRAM = """\
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from acceptance_runs import *

def fails(run):
    run.run(["sh", "-c", "echo line; echo FAILED one check >&2; exit 1"])
def hangs(run):
    run.run(["sh", "-c", "setsid sleep 61 & exec sleep 61"])
def leaves(run):
    run.run(["sh", "-c", "setsid sleep 62 & exit 0"])
def skips(run):
    raise SkippedError("no such thing | here")
def raises(run):
    return [][1]
def passes(run):
    run.figures = "1 us"
    return run.run(["echo", "all right"]).strip()

adopt_orphans()
folder = Path(sys.argv[2])
run = Acceptance(folder, folder / "results.json", 200, {"nccl": "2.28.9"})
for function in (fails, hangs, leaves, skips, raises, passes):
    run.run(Part(function.__name__, "x", 4, function))
run.end = time.monotonic()
run.run(Part("late", "x", 9, passes))
sys.exit(run.exit_status())
"""


def still_running(seconds: int) -> list[str]:
    words = f"sleep\0{seconds}\0".encode()
    return [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists() and path.read_bytes() == words
    ]


def test_each_part_has_a_row_and_nothing_outlives_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(GPU), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    rows = {row["name"]: row for row in found["parts"]}
    assert found["nccl"] == "2.28.9"
    assert {name: row["result"] for name, row in rows.items()} == {
        "fails": "failed",
        "hangs": "failed",
        "leaves": "failed",
        "skips": "skipped",
        "raises": "failed",
        "passes": "passed",
        "late": "not run",
    }
    assert rows["fails"]["detail"] == "exit status 1; FAILED one check"
    assert "line" in rows["fails"]["output"]
    assert rows["hangs"]["detail"].startswith("not over after 4 s")
    assert rows["leaves"]["detail"] == "left running: sleep"
    assert rows["raises"]["detail"].startswith("IndexError")
    assert (rows["passes"]["detail"], rows["passes"]["figures"]) == ("all right", "1 us")
    assert still_running(61) == []
    assert still_running(62) == []


@pytest.mark.parametrize(
    ("results", "status"),
    [
        (["passed"], 0),
        (["passed", "skipped"], 0),
        (["passed", "failed"], 1),
        (["passed", "not run"], 1),
        (["skipped"], 1),
        ([], 1),
    ],
)
def test_exit_status(results: list[str], status: int) -> None:
    assert exit_status([Row("x", "y", result) for result in results]) == status
