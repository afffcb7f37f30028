# SPDX-License-Identifier: Apache-2.0
"""The acceptance run without a GPU: limits, processes that outlive a part, table, exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import acceptance_builds
import acceptance_parts
import net_loopback
import pytest
import shared_gpu
from acceptance import parse
from acceptance_runs import PartError, Row, SkippedError, exit_status, summary, table

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
run = Acceptance(folder, folder / "results.json", 20, {"nccl": "2.28.9"})
for function in (fails, hangs, leaves, skips, raises, passes):
    run.run(Part(function.__name__, "x", 0.5, function))
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
        timeout=60,
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
    assert rows["hangs"]["detail"].startswith("not over after 0 s")
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


def test_the_table_states_reasons_in_one_line() -> None:
    rows = [
        Row("bench", "results", "passed", 12.34, "all right"),
        Row("verify", "rules", "skipped", 0, "no mpirun |\nhere"),
    ]
    assert table(rows).splitlines()[2:] == [
        "| bench | results | passed: all right | 12.3 |",
        "| verify | rules | skipped: no mpirun / here | 0.0 |",
    ]
    assert summary(rows, 12.6) == "1 passed, 1 skipped in 13 s"


def test_parts_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(parse([]).parts) == 11
    assert parse(["--parts", "kill,auto"]).parts == ["kill", "auto"]
    with pytest.raises(SystemExit):
        parse(["--parts", "kil"])
    assert "'kil' is none of bench, tuner" in capsys.readouterr().err


def steps(tmp_path: Path, *outcomes: str) -> str:
    path = tmp_path / "steps.json"
    entries = [{"name": f"step {at}", "outcome": each} for at, each in enumerate(outcomes)]
    path.write_text(json.dumps({"steps": entries}))
    return acceptance_parts.steps_of(path)


def test_steps_that_did_not_pass_are_named(tmp_path: Path) -> None:
    assert steps(tmp_path, "passed", "passed") == "2 passed"
    assert steps(tmp_path, "passed", "native") == (
        "1 passed, 1 native (step 1: not with NCCL alone)"
    )
    with pytest.raises(PartError, match="out of time: 1 passed, 1 not run"):
        steps(tmp_path, "passed", "not run")
    with pytest.raises(PartError, match="no results"):
        acceptance_parts.steps_of(tmp_path / "missing.json")


def test_what_cannot_be_compiled_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nccl = tmp_path / "libnccl.so.2"
    without = acceptance_builds.nccl_tests(tmp_path, nccl, None, None)
    with pytest.raises(SkippedError, match="--nccl-tests-source"):
        without.path(1)
    build = acceptance_builds.nccl_tests(tmp_path, nccl, None, tmp_path)
    with pytest.raises(SkippedError, match=r"without .*mpicc of Open MPI, make, a GPU"):
        build.path(1)
    given = acceptance_builds.nccl_tests(tmp_path, nccl, tmp_path, None)
    assert given.path(1) == tmp_path / "all_reduce_perf"


def test_a_build_that_fails_shows_its_output(tmp_path: Path) -> None:
    build = acceptance_builds.Build("x", tmp_path / "x", tmp_path / "log")
    build.start(["sh", "-c", "echo no such header; exit 2"])
    with pytest.raises(PartError, match="exit status 2: no such header"):
        build.path(10)
    assert build.running() == []


def test_ranks_that_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "NCCL_MAX_CTAS"):
        monkeypatch.delenv(name, raising=False)
    assert [shared_gpu.node_variables(rank, 4, 2)["NCCL_HOSTID"] for rank in range(4)] == [
        "node0",
        "node0",
        "node1",
        "node1",
    ]
    assert shared_gpu.one_node_variables(4)["NCCL_MAX_CTAS"] == "2"
    assert shared_gpu.visible_gpu(3, 1) == {}
    assert shared_gpu.visible_gpu(3, 2) == {"CUDA_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setenv("NCCL_MAX_CTAS", "3")
    assert shared_gpu.visible_gpu(3, 2) == {"CUDA_VISIBLE_DEVICES": "7"}
    assert shared_gpu.one_node_variables(4)["NCCL_MAX_CTAS"] == "3"


@pytest.mark.parametrize(("ranks_per_gpu", "gpu"), [(1, "none"), (2, "1")])
def test_a_rank_under_open_mpi_takes_its_gpu(ranks_per_gpu: int, gpu: str) -> None:
    show = ["sh", "-c", "echo $NCCL_HOSTID ${NCCL_TESTS_DEVICE-none}"]
    command = net_loopback.mpirun(4, 9, "", show, ranks_per_gpu)
    rank = command[command.index("bash") :]
    environment = {"PATH": os.environ["PATH"], "OMPI_COMM_WORLD_RANK": "3"}
    done = subprocess.run(rank, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["node3", gpu]
