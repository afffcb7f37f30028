# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a process of nccltune-bench: all end in time, and nothing is left running."""

import random
import signal
import time
from pathlib import Path

import pytest

from .bench_runs import (
    BENCH,
    FOUR_NODES,
    LIMIT_S,
    Process,
    Run,
    environment,
    eventually,
    measure,
    slow_measure,
)

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
