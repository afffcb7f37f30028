# SPDX-License-Identifier: Apache-2.0
"""The bench as several processes, on the tests' fake GPUs: none is ever left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nccltune.measure.bench.conversation import Measure, TableRequest
from nccltune.measure.bench.process import Bench, Launch
from nccltune.model.choice import DEFAULT, Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from tests.e2e.bench_runs import FAKES, NEEDS_FAKES
from tests.e2e.command_line import alive, children

pytestmark = NEEDS_FAKES
LIMIT_S = 15.0


def bench() -> Bench:
    settings = {"LD_LIBRARY_PATH": str(FAKES)}
    return Bench(Launch(gpus=4, nccl=FAKES / "libnccl.so.2"), settings=settings)


def request(rounds: int) -> Measure:
    tree = parse_choice("tree/ll")
    assert isinstance(tree, Choice)
    return Measure(
        id=0,
        collective=Collective.ALLREDUCE,
        bytes=[1024, 65536],
        choices=[DEFAULT, tree],
        rounds=rounds,
    )


def wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes of the bench are left"
        time.sleep(0.02)


def test_four_processes_answer_as_one() -> None:
    with bench() as running:
        assert (running.hello.nodes, running.hello.ranks) == (1, 4)
        points = [point for part in running.measure(request(2)) for point in part]
        table = TableRequest(id=0, collective=Collective.ALLREDUCE, bytes=[1024])
        costs = running.tables(table)[0].costs
        assert {"ring/ll", "ring/simple", "tree/ll", "tree/simple"} <= costs.keys()
        pids = [pid for pid in children(os.getpid()) if alive(pid)]
    assert len(points) == 2 * 2 * 3
    assert all(len(point.times_us) == 4 for point in points)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_ends_all_and_loses_no_point(rank: int) -> None:
    seen = 0
    pids: list[int] = []

    def run() -> None:
        nonlocal seen
        before = set(children(os.getpid()))
        with bench() as running:
            pids.extend(sorted(set(children(os.getpid())) - before))
            for part in running.measure(request(100_000)):
                if not seen:
                    os.kill(pids[rank], 9)
                seen += sum(point.ok for point in part)

    started = time.monotonic()
    with pytest.raises(LaunchError):
        run()
    assert time.monotonic() - started < 3 * LIMIT_S
    assert seen > 0
    assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)


def test_a_killed_starter_takes_all_with_it(tmp_path: Path) -> None:
    starter = tmp_path / "starter.py"
    starter.write_text(
        "import time\n"
        "from tests.e2e.test_sweep_processes import bench, request\n"
        "with bench() as running:\n"
        "    for part in running.measure(request(100_000)):\n"
        "        print('measuring', flush=True)\n"
    )
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    process = subprocess.Popen(
        [sys.executable, str(starter)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"measuring\n"
    pids = children(process.pid)
    process.kill()
    process.communicate()
    assert len(pids) == 4
    wait_for_end(pids)
