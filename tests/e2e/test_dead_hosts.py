# SPDX-License-Identifier: Apache-2.0
"""A host that dies or hangs in the middle of a job: state, rows, and what is left running.

Two hosts are emulated on this machine, each with the launcher's own daemon and the processes under
it. A host dies when all of it is killed at once, and hangs when all of it is stopped.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

from .bench_runs import FAKE_NCCL, FAKES, NEEDS_FAKES
from .command_line import line
from .launched import PROGRAM, RunningLaunch, alive_at
from .test_launch import Site, places, site
from .test_slurm import launched_on, processes, queue, two_nodes

__all__ = ["places", "site"]
HOSTS = ("nodea", "nodeb")


def of_host(host: str, folder: Path) -> set[int]:
    """Every process of an emulated host of one test: daemon, ssh's stand-in, program."""
    return {
        pid
        for pid in alive_at(folder)
        if f"FAKE_HOST={host}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    }


@pytest.fixture
def job(site: Site, places: Path, request: pytest.FixtureRequest) -> Iterator[RunningLaunch]:
    """A job of two hosts with two processes each, of which two rows have come."""
    variables = {**site.variables, "LAUNCHED_SLOW": "60", **getattr(request, "param", {})}
    words = ("--launcher", site.launcher.value, "--set", f"hosts={','.join(HOSTS)}", "--gpus", 2)
    running = RunningLaunch(places.parent, variables, *words, program=PROGRAM)
    running.until("  2048  ")
    yield running
    running.process.kill()
    running.process.communicate()
    for pid in alive_at(places):
        os.kill(pid, signal.SIGKILL)


def kill_host(host: str, folder: Path, number: signal.Signals) -> None:
    victims = of_host(host, folder)
    assert len(victims) >= 3, "two processes and a daemon at least"
    # Stopped before it is killed: no part of a host outlives another and reports it.
    for step in dict.fromkeys((signal.SIGSTOP, number)):
        for pid in victims:
            os.kill(pid, step)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_dies(job: RunningLaunch, host: str) -> None:
    kill_host(host, job.places, signal.SIGKILL)
    code, result, talk = job.end()
    assert (code, result["state"]) == (4, "failed"), talk
    assert job.sizes() == [1024, 2048]
    assert result["why"].startswith("a node went away")
    nothing_left(job)


@pytest.mark.parametrize("job", [{"LAUNCHED_HALF": "1", "LAUNCHED_SLOW": "0"}], indirect=True)
def test_a_row_that_a_death_cut_is_none(job: RunningLaunch) -> None:
    wait_until((job.places / "cut").exists)
    kill_host("nodea", job.places, signal.SIGKILL)
    code, result, talk = job.end()
    assert (code, result["state"]) == (4, "failed"), talk
    assert job.sizes() == [1024, 2048]


def test_ctrl_c_with_a_host_that_hangs(job: RunningLaunch) -> None:
    host, other = HOSTS
    kill_host(host, job.places, signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    code, result, talk = job.end()
    assert (code, result["state"]) == (128 + signal.SIGINT, "stopped"), talk
    assert job.sizes() == [1024, 2048]
    # Nobody can end what hangs over there; it ends by itself when it wakes.
    wait_until(lambda: not of_host(other, job.places))
    for pid in of_host(host, job.places):
        os.kill(pid, signal.SIGCONT)
    nothing_left(job)


def nothing_left(job: RunningLaunch) -> None:
    wait_until(lambda: not alive_at(job.places))


# Open MPI takes both addresses for this machine, and needs no daemon for the second.
@NEEDS_FAKES
@pytest.mark.parametrize("site", ["hydra", "intel"], indirect=True)
def test_a_host_that_dies_in_a_sweep(site: Site, places: Path) -> None:
    study = places.parent / "study"
    hosts = ("127.0.0.1", "127.0.0.2")
    under = ["--launcher", site.launcher.value, "--set", f"hosts={','.join(hosts)}"]
    under += ["--gpus", "1"]
    plan = [FAKE_NCCL, "--exhaustive", "--rounds", "1000", "--sizes", "1K-4K"]
    fakes = {"LD_LIBRARY_PATH": str(FAKES), "SOFT_CUDA_OWN_GPUS": "1"}
    sweep = subprocess.Popen(
        line("sweep", "-o", study, *under, *plan),
        env={**os.environ, **site.variables, **fakes, "PLACES": str(places)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: (study / "samples.jsonl").exists())
        kill_host(hosts[1], places, signal.SIGKILL)
        _, talk = sweep.communicate(timeout=200)
        assert sweep.returncode == 4, talk
        assert "are kept in" in talk
        assert "nccltune sweep" in talk, "the command that goes on"
        assert (study / "samples.jsonl").read_text().count("\n") > 0
        wait_until(lambda: not alive_at(places))
    finally:
        sweep.kill()
        sweep.communicate()
        for pid in alive_at(places):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    # Slurm takes a node for dead that has not answered for so long, but looks only now and then.
    with two_nodes(tmp_path_factory.mktemp("slurm"), SLURMD_TIMEOUT="2") as variables:
        yield variables


def of_node(node: str, slurm: dict[str, str], places: Path) -> set[int]:
    """slurmd of a node, the daemons of its steps and the processes of the job there."""
    daemons, tasks = set(), set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            variables = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if f"slurmd\0-N\0{node}\0-f\0{slurm['SLURM_CONF']}".encode() in words:
            daemons.add(int(folder.name))
        if {f"PLACES={places}".encode(), f"SLURMD_NODENAME={node}".encode()} <= set(variables):
            tasks.add(int(folder.name))
            if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
                daemons.add(parent)
    assert tasks, f"nothing runs on {node}"
    return daemons | tasks


def test_a_node_that_goes_away_is_told(tmp_path: Path, slurm: dict[str, str]) -> None:
    launched = launched_on(tmp_path, {**slurm, "LAUNCHED_SLOW": "60"})
    outputs = (launched.study / "launch").glob
    wait_until(lambda: any("  2048  " in path.read_text() for path in outputs("*/output.txt")))
    gone = of_node("b", slurm, launched.places)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in gone:
            os.kill(pid, number)
    code, said, talk = launched.end()
    assert (code, said["state"]) == (4, "failed"), talk
    assert "NODE_FAIL" in said["why"], talk
    assert launched.sizes() == [1024, 2048]
    wait_until(lambda: not (processes(launched) or queue(slurm)))
