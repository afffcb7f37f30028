# SPDX-License-Identifier: Apache-2.0
"""The scheduler with tasks that only record what happens to them, and programs that hang."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nccltune.measure.engine.program import run_program
from nccltune.measure.engine.scheduler import (
    FIRST_GUESS_S,
    Budget,
    CallTask,
    ProcessTimes,
    Scheduler,
    TaskSource,
    sequential_source,
)
from nccltune.model.errors import PlatformError
from tests.programs import alive, python_program
from tests.waiting import wait_until

FREE = Budget(None, lambda: 0.0)


class Steps:
    """A task of several steps of one second each."""

    def __init__(self, name: str, log: list[str], steps: int = 1) -> None:
        self.name = name
        self.expected_s = float(steps)
        self._log = log
        self._left = steps

    def start(self) -> None:
        self._log.append(f"{self.name} starts")

    def advance(self) -> bool:
        self._left -= 1
        self._log.append(f"{self.name} {'ends' if not self._left else 'goes on'}")
        return not self._left


def source(*batches: Sequence[Steps]) -> TaskSource:
    return sequential_source(iter(batches))


def test_a_source_is_asked_again_when_all_its_tasks_have_ended() -> None:
    log: list[str] = []

    def batches() -> Iterator[list[Steps]]:
        log.append("asked")
        yield [Steps("a", log, 2), Steps("b", log)]
        log.append("asked")
        yield []
        log.append("asked")
        yield [Steps("c", log)]
        log.append("asked")

    assert Scheduler(FREE).run([sequential_source(batches())]) == "done"
    assert log == [
        "asked",
        "a starts",
        "a goes on",
        "a ends",
        "b starts",
        "b ends",
        "asked",
        "asked",
        "c starts",
        "c ends",
        "asked",
    ]


def test_a_task_starts_ahead_and_sources_do_not_wait_for_each_other() -> None:
    log: list[str] = []
    one = source([Steps("a", log, 2)], [Steps("b", log)])
    other = source([Steps("c", log)])
    assert Scheduler(FREE, ahead=2).run([one, other]) == "done"
    assert log[:2] == ["a starts", "c starts"]
    # b belongs to the source of a, and c still runs when a has ended.
    assert log.index("a ends") < log.index("b starts") < log.index("c ends")


@pytest.mark.parametrize("limit_s", [0.0, 1.0, 2.0, 3.5, 4.0, 9.0])
def test_no_task_starts_that_the_budget_does_not_afford(limit_s: float) -> None:
    log: list[str] = []
    spent_s = 0.0

    def run() -> None:
        nonlocal spent_s
        spent_s += 1.0
        log.append("ran")

    tasks = [[CallTask(1.0, run)] for _ in range(6)]
    reason = Scheduler(Budget(limit_s, lambda: spent_s)).run([sequential_source(iter(tasks))])
    assert len(log) == min(6, int(limit_s))
    assert reason == ("done" if limit_s >= 6 else "budget")


def test_tasks_that_run_count_and_are_finished_when_the_budget_is_spent() -> None:
    log: list[str] = []
    tasks = [Steps(name, log, 2) for name in "abc"]
    assert Scheduler(Budget(4.0, lambda: 0.0), ahead=3).run([source(tasks)]) == "budget"
    assert [line for line in log if "starts" in line] == ["a starts", "b starts"]
    assert [line for line in log if "ends" in line] == ["a ends", "b ends"]


def test_a_slow_machine_affords_less() -> None:
    budget = Budget(10.0, lambda: 4.0, pace=lambda: 2.0)
    assert budget.affords(3.0)
    assert not budget.affords(3.1)


def test_what_a_task_raises_ends_the_run() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        Scheduler(FREE).run([sequential_source(iter([[CallTask(1, fail)], [Steps("a", log)]]))])
    assert log == []


def test_the_next_process_is_expected_to_take_the_mean_of_all_sessions() -> None:
    times = ProcessTimes([])
    assert times.expected_s == FIRST_GUESS_S
    times.add(3.0)
    assert (times.expected_s, times.processes, times.spent_s) == (3.0, 1, 3.0)
    resumed = ProcessTimes([3.0, 5.0])
    resumed.add(10.0)
    assert (resumed.expected_s, resumed.processes, resumed.spent_s) == (6.0, 1, 10.0)


def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    program = python_program(tmp_path / "p", "import sys; print('out'); sys.exit('the reason')")
    ended = run_program([str(program)], os.environ, 30)
    assert (ended.status, ended.output, ended.succeeded) == (1, b"out\n", False)
    assert ended.sentence() == "ended with status 1; its last line: the reason"
    with pytest.raises(PlatformError, match="cannot be started: No such file"):
        run_program([str(tmp_path / "missing")], os.environ, 30)


def test_a_program_that_is_stuck_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"
    text = (
        "import subprocess, sys, time\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(child)!r}, 'w').write(str(c.pid))\n"
        "print('half', flush=True)\n"
        "time.sleep(3600)\n"
    )
    ended = run_program([str(python_program(tmp_path / "p", text))], os.environ, 5)
    assert ended.status is None
    assert ended.sentence() == "took too long and was killed; its last line: half"
    wait_until(lambda: not alive(int(child.read_text())), "a child is left")
