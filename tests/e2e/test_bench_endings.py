# SPDX-License-Identifier: Apache-2.0
"""Ends of the bench, and several ranks on the GPUs that a file stands in for."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.programs import alive, completed
from tests.waiting import wait_until

from .bench_runs import (
    BENCH,
    FAKE_NCCL,
    HELLO,
    LIMIT_S,
    NEEDS_FAKES,
    QUIT,
    SLOW,
    Process,
    Run,
    environment,
    listens,
    measure,
    on_fakes,
    slow_measure,
)

pytestmark = NEEDS_FAKES


def test_a_reader_that_goes_ends_all() -> None:
    with Run(3) as run:
        run.hello()
        run.first.send(measure(bytes=[1024, 2048, 4096], rounds=100_000))
        assert run.first.receive() is not None
        assert run.first.popen.stdout is not None
        run.first.popen.stdout.close()
        status, talk = run.first.end()
        assert status == 4
        assert "error: standard output cannot be written" in talk
        assert run.end() == [4, 4, 4]


def failure(*options: str, **variables: str) -> tuple[int, str]:
    """Exit status and standard error of a run that does not begin."""
    done = subprocess.run(
        [BENCH, *options],
        input=b"",
        capture_output=True,
        check=False,
        env=environment(**variables),
        timeout=60,
    )
    error, hint = done.stderr.decode().strip().split("\n")
    assert error.startswith("error: ")
    assert hint.startswith("hint:  ")
    for line in done.stdout.splitlines():
        assert json.loads(line)["kind"] == "start"
        assert json.loads(line)["text"] in error
    return done.returncode, error


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    meeting = ("--rank", "0", "--size", "2", "--rendezvous", "127.0.0.1:1")
    cases = [
        (("--ncc", "x"), "'--ncc' is not an option"),
        (("--tuner", str(tmp_path / "no.so")), "the tuner plugin was not found"),
        (("--rank", "1"), "--rank without --size"),
        (("--rank", "0", "--size", "2"), "none is given"),
        (meeting, "NCCLTUNE_TOKEN is not set"),
    ]
    for options, text in cases:
        status, error = failure(*options)
        assert status == 2, error
        assert text in error
    status, error = failure(*meeting, NCCLTUNE_TOKEN="secret")
    assert status == 2
    assert "NCCLTUNE_TOKEN is not 32 hexadecimal digits" in error
    assert "secret" not in error


def test_help_and_version() -> None:
    shown = completed([BENCH, "--help"], check=True).stdout
    assert shown.startswith("nccltune-bench: ")
    version = completed([BENCH, "--version"], check=True)
    assert version.stdout.startswith("nccltune-bench ")


SIZE = 4


def ends(run: Run, rank: int) -> None:
    """All ranks but the killed one end with status 4 in time; the killed one by SIGKILL."""
    expected = [4] * SIZE
    expected[rank] = -signal.SIGKILL
    assert run.end() == expected


STUCK_BYTES = 8192


@pytest.mark.parametrize("place", ["before a step", "in a step", "after a step"])
@pytest.mark.parametrize("rank", range(SIZE))
def test_kill_in_a_sweep(rank: int, place: str) -> None:
    # No call of the step in question ends by itself, so that the sweep cannot be over before.
    stuck = 4096 if place == "before a step" else STUCK_BYTES
    with Run(SIZE, FAKE_NCCL_HANG=f"{(rank + 1) % SIZE}:{stuck}") as run:
        run.hello()
        run.first.send(measure(bytes=[4096, STUCK_BYTES], iterations=20, rounds=1000))
        if stuck != 4096:
            answer = run.first.receive()
            assert answer is not None
            assert (answer["op"], answer["bytes"]) == ("point", 4096)
        if place == "in a step":
            time.sleep(0.3)
        run.kill(rank)
        answers = run.first.rest()
        ends(run, rank)
    if rank == 0:
        return
    # What was in flight has the reason; before a step the loss may be seen ahead of the request.
    (last,) = answers
    if last["op"] == "error" and place == "before a step":
        fault = last
    else:
        assert (last["op"], last["bytes"]) == ("point", stuck)
        fault = last["error"]
    assert (fault["kind"], fault["rank"]) == ("died", rank)
    assert f"process {rank} was lost" in fault["text"]


@pytest.mark.parametrize("rank", range(SIZE))
def test_kill_between_requests(rank: int) -> None:
    with Run(SIZE) as run:
        run.hello()
        run.kill(rank)
        answers = run.first.rest()
        ends(run, rank)
    if rank != 0:
        assert [(answer["op"], answer["kind"], answer["rank"]) for answer in answers] == [
            ("error", "died", rank)
        ]


@pytest.mark.parametrize("rank", range(SIZE))
def test_kill_in_the_rendezvous(rank: int) -> None:
    with Run(SIZE, "--start-timeout", "3") as run:
        time.sleep(0.01 * rank)
        run.kill(rank)
        ends(run, rank)


def test_a_process_that_hangs_is_dead() -> None:
    with Run(SIZE, **SLOW) as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        run.kill(2, signal.SIGSTOP)
        answers = run.first.rest()
        for rank in (0, 1, 3):
            assert run.ranks[rank].popen.wait(LIMIT_S) == 4
        run.kill(2, signal.SIGCONT)
        assert run.ranks[2].popen.wait(LIMIT_S) == 4
    assert "nothing was received for 5 s" in answers[-1]["error"]["text"]


@pytest.mark.parametrize(
    ("rank", "number"),
    [(0, signal.SIGTERM), (0, signal.SIGINT), (0, signal.SIGHUP), (3, signal.SIGTERM)],
)
def test_a_signal_to_any_rank_ends_all(rank: int, number: int) -> None:
    with Run(SIZE, **SLOW) as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        run.kill(rank, number)
        answers = run.first.rest()
        others = 4 if rank else 128 + number
        assert run.end() == [others, others, others, 128 + number]
    last, told = answers[-1], f"ended by {signal.Signals(number).name}"
    if rank:
        assert f"process {rank} was lost: it was {told}" in last["error"]["text"]
    else:
        assert (last["kind"], last["text"]) == ("signal", told)


def test_a_signal_in_the_rendezvous_ends_the_process() -> None:
    with Run(2) as run:
        run.ranks[1].close()
        wait_until(lambda: listens(run.port))
        run.kill(0, signal.SIGTERM)
        answers = run.first.rest()
        status, _ = run.first.end()
    # Its guest may have come and gone before the signal did.
    expected = ((128 + signal.SIGTERM, "start"), (4, "start"), (4, "died"))
    assert (status, answers[-1]["kind"]) in expected


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = Run(2)
    finally:
        signal.signal(signal.SIGHUP, before)
    with run:
        run.hello()
        run.kill(0, signal.SIGHUP)
        run.kill(1, signal.SIGHUP)
        run.first.send(measure())
        answer = run.first.receive()
        assert answer is not None
        assert answer["op"] == "point"
        assert run.end() == [0, 0]


def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    # The pipe stays open here, so that the end of input is not what ends it; a shell gives what
    # it starts in the background /dev/null for input, unless that comes by another number.
    pid_file = tmp_path / "pid"
    script = f'exec 3<&0; "$@" <&3 & echo $! > {pid_file}; wait'
    parent = Process(
        ["sh", "-c", script, "sh", str(BENCH), FAKE_NCCL, "--gpus-per-process=2"], on_fakes(**SLOW)
    )
    try:
        parent.send({"op": "hello", "schema_version": 1}, slow_measure())
        answer = parent.receive()
        assert answer is not None
        assert answer["op"] == "hello", answer
        bench = int(pid_file.read_text())
        assert Path(f"/proc/{bench}/exe").samefile(BENCH)
        parent.popen.kill()
        parent.popen.wait()
        wait_until(lambda: not alive(bench))
    finally:
        parent.close()


RANKS = 3
TREE_LL = {"algorithm": "tree", "protocol": "ll"}


def test_a_whole_run() -> None:
    with Run(RANKS) as run:
        run.first.send(HELLO, measure(choices=["default", TREE_LL], iterations=2), QUIT)
        hello, *answers = run.first.rest()
        assert run.end() == [0] * RANKS
    assert (hello["backend"], hello["ranks"], hello["processes"]) == ("nccl", RANKS, RANKS)
    assert hello["nccl"]["from"] == "flag"
    assert [answer["op"] for answer in answers] == ["point", "point", "done", "quit"]
    for point in answers[:2]:
        assert "error" not in point
        assert len(point["times_us"]) == RANKS
        assert (point["applied"], point["wrong"]) == (True, 0)
        if point["choice"] == TREE_LL:
            assert {name: point["ran"][name] for name in TREE_LL} == TREE_LL


def test_a_stuck_collective_is_named_and_ends_all() -> None:
    with Run(RANKS, FAKE_NCCL_HANG="1:4096") as run:
        run.hello()
        run.first.send(measure(bytes=[4096], timeout_s=0.5))
        answers = run.first.rest()
        assert run.end() == [4] * RANKS
    assert answers[-1]["error"]["kind"] == "timeout"
    assert "allreduce of 4096 bytes with NCCL's default is stuck" in answers[-1]["error"]["text"]


def test_no_gpu_is_exit_status_3() -> None:
    with Run(RANKS, SOFT_CUDA_INIT="100") as run:
        answers = run.first.rest()
        assert run.end() == [3] * RANKS
    assert [(answer["op"], answer["kind"]) for answer in answers] == [("error", "start")]
    assert answers[0]["text"].startswith("no GPU: the NVIDIA driver cannot be initialised")


def test_two_processes_on_one_gpu_are_named() -> None:
    with Run(2, "--local-rank", "0") as run:
        answers = run.first.rest()
        assert run.end() == [2, 2]
    assert answers[0]["text"] == "ranks 0 and 1 are on the same GPU"
