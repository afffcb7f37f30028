# SPDX-License-Identifier: Apache-2.0
"""Running: output followed and kept, states reported, and nothing left, under stand-ins for
Slurm."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nccltune.launch.batch import SlurmBatchJob
from nccltune.launch.find import slurm_mpi
from nccltune.launch.follow import Follower, placement_differences
from nccltune.launch.job import Job
from nccltune.launch.keep import import_output
from nccltune.launch.placement import block
from nccltune.launch.run import run
from nccltune.launch.state import RunEnd, RunState, end_by_output
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError, PlatformError
from tests.programs import alive, write_program
from tests.unit.formats.maker import Made, points
from tests.waiting import wait_until

DEVICE = "#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device  0 [0000:06:00] NVIDIA H200\n"
ROW = "        1024           256     float     sum      -1    11.02    0.09    0.14       0\n"


def follower_of(text: str, piece: int = 7) -> Follower:
    follower = Follower()
    data = text.encode()
    for start in range(0, len(data), piece):
        follower.feed(data[start : start + piece])
    follower.finish()
    return follower


# --- lines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[0] ", "0: "])
def test_rows_and_ranks_behind_prefixes(tag: str) -> None:
    told: list[str] = []
    follower = Follower(told.append)
    for rank, host in enumerate(["a", "a", "b", "b"]):
        follower.feed((tag + DEVICE.format(rank=rank, pid=rank + 10, host=host)).encode())
    follower.feed((tag + ROW + tag + ROW[:40]).encode())
    follower.finish()
    assert follower.rows == 1, "a row that was cut is none"
    assert [line.strip() for line in told] == [ROW.strip()]
    assert placement_differences(block(2, 2, 1), follower) == []
    assert placement_differences(block(1, 4, 1), follower) == [
        "processes ran 2 on a, 2 on b; 4 were promised"
    ]
    assert placement_differences(block(2, 8, 1), follower)[0] == "4 ranks took part, not 16"


def test_a_program_without_mpi() -> None:
    text = "".join(
        f"[1,{rank}]<stdout>:{DEVICE.format(rank=0, pid=rank, host='a')}[1,{rank}]<stdout>:{ROW}"
        for rank in range(4)
    )
    (finding,) = placement_differences(block(1, 4, 1), follower_of(text))
    assert finding.startswith("4 processes each ran a test of their own (1 ranks): the program was")


def test_last_words_are_neither_table_nor_pushed_out_by_the_launcher() -> None:
    text = "[1,3]<stderr>:out of memory\n[1,0]<stdout>:# Using\n[1,0]<stdout>:" + ROW
    follower = follower_of(text + "-----\n" + "mpirun warns\n" * 50)
    assert follower.last_words[0] == "out of memory"
    assert set(follower.last_words[1:]) == {"mpirun warns"}


# --- a process -----------------------------------------------------------------------------------


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="cannot be started"):
        run([str(tmp_path / "none")], tmp_path / "out", Follower())


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [
        ("print('x')", RunState.DONE, ""),
        ("raise SystemExit(7)", RunState.FAILED, "ended with status 7"),
        ("import os; os.kill(os.getpid(), 9)", RunState.FAILED, "was killed by SIGKILL"),
    ],
)
def test_ends(tmp_path: Path, code: str, state: RunState, why: str) -> None:
    end = run([sys.executable, "-c", code], tmp_path / "out", Follower())
    assert end.state is state
    assert end.why.endswith(why)


def test_what_a_job_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    # A child in a session of its own, which keeps the output open.
    script = "setsid sleep 3600 & echo $! > pid; echo started"
    end = run(["sh", "-c", f"cd {tmp_path}; {script}"], tmp_path / "out", Follower())
    assert end.state is RunState.DONE
    assert not alive(int((tmp_path / "pid").read_text()))
    assert (tmp_path / "out").read_text() == "started\n"


def test_a_job_that_ignores_signals_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "nccltune.launch.run.GRACE_S", ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2))
    )
    script = "trap '' INT TERM; echo started; while :; do sleep 0.1; done"
    follower = Follower(None)
    interrupt_when(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() != "")
    end = run(["sh", "-c", script], tmp_path / "out", follower)
    assert (end.state, end.signal) == (RunState.STOPPED, signal.SIGINT)


def interrupt_when(ready: Callable[[], bool]) -> None:
    """Ctrl-C for this process as soon as `ready()` is true."""

    def wait() -> None:
        wait_until(ready)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


# --- Slurm ---------------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
for word; do case "$word" in --output=*) echo "${word#--output=}" > "$SITE/output" ;; esac; done
[ -e "$SITE/refuse" ] && { echo "sbatch: error: Invalid generic resource (gres)" >&2; exit 1; }
echo 0 > "$SITE/asked"
echo "42;cluster"
"""
# A state a question, the last one for ever; `gone`: the queue has forgotten the job.
SQUEUE = """#!/bin/sh
[ -e "$SITE/cancelled" ] && { echo "CANCELLED|None"; exit 0; }
asked=$(($(cat "$SITE/asked") + 1))
echo $asked > "$SITE/asked"
line=$(sed -n "${asked}p" "$SITE/states")
[ -n "$line" ] || line=$(tail -n 1 "$SITE/states")
[ "$line" = gone ] && { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
case "$line" in RUNNING*|COMPLETED*) cat "$SITE/text" > "$(cat "$SITE/output")" ;; esac
echo "$line"
"""
SACCT = """#!/bin/sh
[ -e "$SITE/accounting" ] || exit 1
cat "$SITE/accounting"
"""
SCANCEL = """#!/bin/sh
echo "$1" > "$SITE/cancelled"
"""
SRUN = """#!/bin/sh
printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n\\tcray_shasta\\n\\tpmix\\n' >&2
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """An environment with stand-ins for Slurm's commands."""
    folder = tmp_path / "bin"
    programs = {
        "sbatch": SBATCH,
        "squeue": SQUEUE,
        "sacct": SACCT,
        "scancel": SCANCEL,
        "srun": SRUN,
    }
    for name, text in programs.items():
        write_program(folder / name, text)
    (tmp_path / "text").write_text("0: " + ROW)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SITE": str(tmp_path)}


class Tried:
    """One job of the stand-in."""

    def __init__(self, site: dict[str, str], *states: str) -> None:
        self.folder = Path(site["SITE"])
        (self.folder / "states").write_text("\n".join(states) + "\n")
        self.told: list[str] = []
        self.follower = Follower()
        output = self.folder / "output.txt"
        self.batch = SlurmBatchJob(output, self.follower, self.told.append, site, poll_s=0.01)
        self.words = [
            str(self.folder / "bin" / "sbatch"),
            "--parsable",
            f"--output={output}",
            "job.sbatch",
        ]


def test_a_slurm_job_to_its_end(site: dict[str, str]) -> None:
    tried = Tried(site, "PENDING|Priority", "PENDING|Resources", "RUNNING|None", "COMPLETED|None")
    assert tried.batch.run(tried.words).state is RunState.DONE
    assert tried.told == [
        "job 42;cluster is submitted",
        "job 42;cluster is pending (Priority)",
        "job 42;cluster is pending (Resources)",
        "job 42;cluster is running",
        "job 42;cluster is completed",
    ]
    assert tried.follower.rows == 1


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("TIMEOUT|TimeLimit", "its time limit was reached (TIMEOUT)"),
        ("NODE_FAIL|NodeDown", "a node went away (NODE_FAIL)"),
        ("CANCELLED by 0|None", "it was cancelled (CANCELLED)"),
    ],
)
def test_a_slurm_job_that_fails(site: dict[str, str], state: str, why: str) -> None:
    end = (tried := Tried(site, "RUNNING|None", state)).batch.run(tried.words)
    assert (end.state, end.why) == (RunState.FAILED, why)
    assert tried.follower.rows == 1, "what it printed before is kept"


def test_accounting_knows_what_the_queue_forgot(site: dict[str, str]) -> None:
    tried = Tried(site, "RUNNING|None", "gone")
    (tried.folder / "accounting").write_text("COMPLETED\n")
    assert tried.batch.run(tried.words).state is RunState.DONE


def test_a_job_that_nobody_knows_any_more_is_lost(site: dict[str, str]) -> None:
    end = (tried := Tried(site, "RUNNING|None", "gone")).batch.run(tried.words)
    assert end.state is RunState.LOST
    assert "it was running before: it may still run" in end.why


def test_a_job_that_does_not_start_is_cancelled(site: dict[str, str]) -> None:
    tried = Tried(site, "PENDING|QOSMaxNodePerUserLimit")
    end = tried.batch.run(tried.words, start_within_s=0.1)
    assert end.state is RunState.PENDING
    assert "(QOSMaxNodePerUserLimit)" in end.why
    assert (tried.folder / "cancelled").read_text() == "42\n"


def test_ctrl_c_cancels_a_slurm_job(site: dict[str, str]) -> None:
    tried = Tried(site, "RUNNING|None")
    interrupt_when(lambda: tried.follower.rows > 0)
    end = tried.batch.run(tried.words)
    assert (end.state, end.signal) == (RunState.STOPPED, signal.SIGINT)
    assert end.why == "by SIGINT; job 42 is over (cancelled)"
    assert (tried.folder / "cancelled").read_text() == "42\n"
    assert tried.follower.rows == 1


def test_a_job_that_sbatch_refuses(site: dict[str, str]) -> None:
    tried = Tried(site, "PENDING|None")
    (tried.folder / "refuse").touch()
    with pytest.raises(LaunchError, match="Invalid generic resource") as error:
        tried.batch.run(tried.words)
    assert "gpus = false" in (error.value.hint or "")


def test_pmix_comes_before_pmi2(site: dict[str, str]) -> None:
    assert slurm_mpi(site) == "pmix"
    assert slurm_mpi({"PATH": "/nonexistent"}) is None


# --- what a status does not show ------------------------------------------------------------------

LOST = [
    ("ORTE was unable to reliably start one or more daemons.", "a node went away: "),
    ("A daemon failed to report back after being spawned. This could", "a node went away: "),
    ("PRTE has lost communication with a remote daemon.", "a node went away: "),
    (
        "[mpiexec@vm] control_cb (pm/pmiserv/pmiserv_cb.c:206): assert (!closed) failed",
        "a node went away: ",
    ),
    ("[mpiexec@vm] Error: Downstream from host b exited abnormally", "a node went away (b): "),
    ("srun: error: Node failure on b", "a node went away (b): "),
]
JOB = Job(program=["all_reduce_perf"])
MADE = Made(points(1024, 2048, 4096))


@pytest.mark.parametrize(("line", "why"), LOST)
@pytest.mark.parametrize(
    "end", [RunEnd(RunState.DONE), RunEnd(RunState.FAILED, "mpirun ended with status 9")]
)
def test_a_node_that_the_launcher_lost(line: str, why: str, end: RunEnd) -> None:
    rank = "[1,0]<stdout>:" + DEVICE.format(rank=0, pid=1, host="a")
    seen = end_by_output(end, JOB, follower_of(f"{rank}{line}\n"), None)
    assert seen.state is RunState.FAILED
    assert seen.why.startswith(why)
    assert "status" in seen.why
    never = end_by_output(end, JOB, follower_of(f"{line}\n"), None)
    assert never.why.startswith("the launcher has no daemon on a node: ssh to each node must work")
    # The output of the program is not that of the launcher.
    assert follower_of(f"[1,0]<stdout>:{line}\n").lost is None


def test_a_status_of_0_in_the_middle_of_a_table(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    for made, state in ((MADE.with_(footer=False), RunState.FAILED), (MADE, RunState.DONE)):
        output.write_text(made.text())
        imported = import_output(tmp_path / "study", output, None)
        follower = follower_of(made.text(), 1 << 10)
        assert end_by_output(RunEnd(RunState.DONE), JOB, follower, imported).state is state


@pytest.mark.parametrize(
    "made",
    [
        MADE,
        MADE.with_(era="old"),
        MADE.with_(era="2.13"),
        MADE.with_(stamps=True),
        MADE.with_(per_iteration=True, cpu_time=True),
        MADE.with_(collective=Collective.BROADCAST),
        MADE.with_(dtype="fp8_e4m3", itemsize=1),
    ],
)
def test_every_row_of_every_nccl_tests_is_one(made: Made) -> None:
    assert follower_of(made.text(), 1 << 10).rows == 3


def test_a_test_that_prints_no_table() -> None:
    end = end_by_output(RunEnd(RunState.DONE), JOB, follower_of("usage: all_reduce_perf\n"), None)
    assert (end.state, "printed no table" in end.why) == (RunState.FAILED, True)
    other = Job(program=["hostname"])
    assert end_by_output(RunEnd(RunState.DONE), other, follower_of("a\n"), None) == RunEnd(
        RunState.DONE
    )
    stopped = RunEnd(RunState.STOPPED, "by SIGINT", 2)
    assert end_by_output(stopped, JOB, follower_of(LOST[0][0] + "\n"), None) == stopped


@pytest.mark.parametrize(
    "tail",
    [
        "[mpiexec@vm] control_cb (a.c:1): assert (!closed) failed",
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES =",
        "slurmstepd: error: *** STEP 5.0 ON a CANCELLED AT 2026 ***",
    ],
)
def test_a_row_that_a_launcher_talks_into_is_none(tail: str) -> None:
    for length in range(20, len(ROW) - 1):
        assert follower_of(ROW + ROW[:length] + tail + "\n", 1 << 10).rows == 1, ROW[:length]
