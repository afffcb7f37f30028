# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench on a recording: the conversation, and what ends its processes, one or several."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .bench_runs import (
    BENCH,
    FOUR_NODES,
    LIMIT_S,
    QUIT,
    Answer,
    Process,
    Run,
    environment,
    eventually,
    measure,
    slow_measure,
)

TREE_LL = {"algorithm": "tree", "protocol": "ll"}
RING_SIMPLE = {"algorithm": "ring", "protocol": "simple"}


def points(size: int, request: dict[str, Any], *options: str, **variables: str) -> list[Answer]:
    """What one measure request yields in a run of `size` processes that ends well."""
    with Run(size, *options, **variables) as run:
        run.hello()
        run.first.send(request, QUIT)
        answers = run.first.rest()
        assert run.end() == [0] * size
    assert [answer["op"] for answer in answers[-2:]] == ["done", "quit"]
    assert answers[-2]["points"] == len(answers) - 2
    return answers[:-2]


def test_hello_tells_what_is_replayed() -> None:
    with Run(1) as run:
        hello = run.hello()
    assert hello["schema_version"] == 1
    assert hello["backend"] == "replay"
    assert hello["replay"] == "h200x4-as-4-nodes"
    assert hello["nccl"] == {"version": "2.28.9", "path": None, "from": "recording"}
    assert hello["tuner"]["path"].endswith("lib/libnccl-tuner-nccltune.so")
    assert (hello["tuner"]["control"], hello["tuner"]["interface"]) == (2, 5)
    assert (hello["nodes"], hello["ranks"]) == (4, 4)
    assert [gpu["name"] for gpu in hello["gpus"]] == ["NVIDIA H200"] * 4
    assert hello["can"]["collectives"] == ["allgather", "reducescatter", "allreduce"]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_any_number_of_processes_gives_the_same_points(size: int) -> None:
    request = measure(
        bytes=[1024, 3000, 1 << 20],
        choices=["default", "tuned", TREE_LL, RING_SIMPLE],
        rounds=3,
        default_repeats=2,
        seed=11,
    )
    many = points(size, request)
    assert many == points(1, request)
    assert len(many) == 3 * 3 * 5
    for point in many:
        assert point["source"] == "replay"
        assert len(point["times_us"]) == 4
        assert point["time_us"] == max(point["times_us"])


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
    study = ("--replay", str(FOUR_NODES))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "samples.jsonl").write_text('{"collective":\n{}\n')
    cases = [
        (("--replai", "x"), "'--replai' is not an option"),
        (("--replay", str(tmp_path / "none")), "No such file or directory"),
        (("--replay", str(damaged)), "samples.jsonl:1: is damaged"),
        ((*study, "--tuner", str(tmp_path / "no.so")), "the tuner plugin was not found"),
        ((*study, "--scale", "2/16"), "was not recorded at 2/16 but at 4/4"),
        ((*study, "--emulate-nodes", "1"), "was recorded on 4 nodes, 4 ranks, not on 1 nodes"),
        ((*study, "--rank", "1"), "--rank without --size"),
        ((*study, "--rank", "0", "--size", "2"), "none is given"),
        (
            (*study, "--rank", "0", "--size", "2", "--rendezvous", "127.0.0.1:1"),
            "NCCLTUNE_TOKEN is not set",
        ),
    ]
    for options, text in cases:
        status, error = failure(*options)
        assert status == 2, error
        assert text in error
    status, error = failure(
        *study,
        *("--rank", "0", "--size", "2", "--rendezvous", "127.0.0.1:1"),
        NCCLTUNE_TOKEN="secret",
    )
    assert status == 2
    assert "NCCLTUNE_TOKEN is not 32 hexadecimal digits" in error
    assert "secret" not in error


def test_help_and_version() -> None:
    shown = subprocess.run([BENCH, "--help"], capture_output=True, check=True, text=True).stdout
    assert shown.startswith("nccltune-bench: ")
    version = subprocess.run([BENCH, "--version"], capture_output=True, check=True, text=True)
    assert version.stdout.startswith("nccltune-bench ")


SIZE = 4


def ends(run: Run, rank: int) -> None:
    """All ranks but the killed one end with status 4 in time; the killed one by SIGKILL."""
    expected = [4] * SIZE
    expected[rank] = -signal.SIGKILL
    assert run.end() == expected


@pytest.mark.parametrize("moment", range(10))
def test_kill_at_a_random_moment_of_a_sweep(moment: int) -> None:
    chance = random.Random(moment)
    rank = moment % SIZE
    with Run(SIZE, "--pace", "1") as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        time.sleep(chance.uniform(0, 0.7))
        run.kill(rank)
        answers = run.first.rest()
        ends(run, rank)
    if rank == 0:
        return
    # Every point before the one in flight is there, and that one has the reason.
    assert all("error" not in answer for answer in answers[:-1])
    assert answers[-1]["op"] == "point"
    assert answers[-1]["error"]["kind"] == "died"
    assert answers[-1]["error"]["rank"] == rank
    assert f"process {rank} was lost" in answers[-1]["error"]["text"]


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
    with Run(SIZE, "--pace", "1") as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        run.kill(2, signal.SIGSTOP)
        answers = run.first.rest()
        begun = time.monotonic()
        for rank in (0, 1, 3):
            assert run.ranks[rank].popen.wait(LIMIT_S) == 4
        run.kill(2, signal.SIGCONT)
        assert run.ranks[2].popen.wait(LIMIT_S - (time.monotonic() - begun)) == 4
    assert "nothing was received for 5 s" in answers[-1]["error"]["text"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_all(number: int) -> None:
    with Run(SIZE, "--pace", "1") as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        run.kill(0, number)
        answers = run.first.rest()
        assert run.end() == [128 + number] * SIZE
    assert answers[-1]["kind"] == "signal"
    assert answers[-1]["text"] == f"ended by {signal.Signals(number).name}"


def test_a_signal_to_any_rank_ends_all() -> None:
    with Run(SIZE, "--pace", "1") as run:
        run.hello()
        run.first.send(slow_measure())
        assert run.first.receive() is not None
        run.kill(3, signal.SIGTERM)
        answers = run.first.rest()
        assert run.end() == [4, 4, 4, 128 + signal.SIGTERM]
    assert "process 3 was lost: it was ended by SIGTERM" in answers[-1]["error"]["text"]


def test_a_signal_in_the_rendezvous_ends_the_process() -> None:
    with Run(2) as run:
        run.ranks[1].close()
        time.sleep(0.2)
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
        ["sh", "-c", script, "sh", str(BENCH), "--replay", str(FOUR_NODES), "--pace", "1"],
        environment(),
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
        for _ in eventually():
            if not Path(f"/proc/{bench}").exists() or (
                Path(f"/proc/{bench}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            ):
                break
    finally:
        parent.close()
