# SPDX-License-Identifier: Apache-2.0
"""A host that dies or hangs in the middle of a job: state, rows, and what is left running.

Two hosts are emulated on this machine, each with the launcher's own daemon and the processes under
it. A host dies when all of it is killed at once, and hangs when all of it is stopped.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .bench_runs import FAKE_NCCL, FAKES, NEEDS_FAKES, eventually
from .test_launch import MAIN, PROGRAM, Site, _alive, places, site
from .test_slurm import SCRIPT, Launched, queue

__all__ = ["places", "site"]
HOSTS = ("nodea", "nodeb")


def of_host(host: str, folder: Path) -> set[int]:
    """Every process of an emulated host of one test: daemon, ssh's stand-in, program."""
    return {
        pid
        for pid in _alive(folder)
        if f"FAKE_HOST={host}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    }


class Job:
    """A running job of two hosts with two processes each, of which two rows have come."""

    def __init__(self, site: Site, places: Path, **variables: str) -> None:
        self.places = places
        self.study = places.parent / "study"
        command = [sys.executable, "-c", MAIN, "launch", "run", "--launcher", site.launcher.value]
        job = ["--set", f"hosts={','.join(HOSTS)}", "--gpus", "2", "-o", str(self.study), "--json"]
        self.process = subprocess.Popen(
            [*command, *job, "--", str(PROGRAM)],
            env={**site.variables, "PLACES": str(places), "LAUNCHED_SLOW": "1", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=places.parent,
        )
        self._talk = ""

    def until(self, text: str) -> None:
        """Wait until rows are there."""
        assert self.process.stderr is not None
        while text not in self._talk:
            line = self.process.stderr.readline()
            assert line, self._talk
            self._talk += line

    def end(self) -> tuple[dict[str, Any], str]:
        """Its standard output and standard error."""
        out, talk = self.process.communicate(timeout=60)
        return json.loads(out), self._talk + talk

    def sizes(self) -> list[int]:
        lines = (self.study / "samples.jsonl").read_text().splitlines()
        return sorted({json.loads(line)["bytes"] for line in lines})


@pytest.fixture
def job(site: Site, places: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    running = Job(site, places, **getattr(request, "param", {}))
    yield running
    running.process.kill()
    running.process.communicate()
    for pid in _alive(places):
        os.kill(pid, signal.SIGKILL)


def kill_host(host: str, folder: Path, number: signal.Signals) -> None:
    victims = of_host(host, folder)
    assert len(victims) >= 3, "two processes and a daemon at least"
    # Stopped before it is killed: no part of a host outlives another and reports it.
    for step in dict.fromkeys((signal.SIGSTOP, number)):
        for pid in victims:
            os.kill(pid, step)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_dies(job: Job, host: str) -> None:
    job.until("  2048  ")
    kill_host(host, job.places, signal.SIGKILL)
    result, talk = job.end()
    assert job.process.returncode == 4, talk
    assert result["state"] == "failed"
    assert job.sizes()[:2] == [1024, 2048]
    assert 8192 not in job.sizes()
    assert result["why"].startswith("a node went away")
    nothing_left(job)


@pytest.mark.parametrize("job", [{"LAUNCHED_HALF": "1"}], indirect=True)
def test_a_row_that_a_death_cut_is_none(job: Job) -> None:
    job.until("  2048  ")
    kill_host("nodea", job.places, signal.SIGKILL)
    result, talk = job.end()
    assert job.process.returncode == 4, talk
    assert result["state"] == "failed"
    assert job.sizes() == [1024, 2048]
    assert "  4096  " not in talk


def test_ctrl_c_with_a_host_that_hangs(job: Job) -> None:
    host, other = HOSTS
    job.until("  2048  ")
    kill_host(host, job.places, signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    result, talk = job.end()
    assert job.process.returncode == 128 + signal.SIGINT, talk
    assert result["state"] == "stopped"
    assert job.sizes()[:2] == [1024, 2048]
    # Nobody can end what hangs over there; it ends by itself when it wakes.
    for _ in eventually():
        if not of_host(other, job.places):
            break
    for pid in of_host(host, job.places):
        os.kill(pid, signal.SIGCONT)
    nothing_left(job)


def nothing_left(job: Job) -> None:
    for _ in eventually():
        if not _alive(job.places):
            break


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
        [sys.executable, "-c", MAIN, "sweep", "-o", str(study), *under, *plan],
        env={**os.environ, **site.variables, **fakes, "PLACES": str(places)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in eventually():
            if (study / "samples.jsonl").exists():
                break
        kill_host(hosts[1], places, signal.SIGKILL)
        _, talk = sweep.communicate(timeout=60)
        assert sweep.returncode == 4, talk
        assert "are kept in" in talk
        assert "nccltune sweep" in talk, "the command that goes on"
        assert (study / "samples.jsonl").read_text().count("\n") > 0
        for _ in eventually():
            if not _alive(places):
                break
    finally:
        sweep.kill()
        sweep.communicate()
        for pid in _alive(places):
            os.kill(pid, signal.SIGKILL)


FEW_S = "2"
"""Slurm takes a node for dead that has not answered for so long, but looks only now and then."""


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("slurm")
    done = subprocess.run(
        [SCRIPT, "start", folder, "4"],
        env=os.environ | {"SLURMD_TIMEOUT": FEW_S},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode == 3:
        pytest.skip(f"no Slurm here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    yield {**os.environ, "SLURM_CONF": done.stdout.strip().rpartition("=")[2]}
    subprocess.run([SCRIPT, "stop", folder], check=False, timeout=60)


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


@pytest.mark.parametrize("node", ["b"])
def test_a_node_that_goes_away_is_told(tmp_path: Path, slurm: dict[str, str], node: str) -> None:
    launched = Launched(tmp_path, {**slurm, "LAUNCHED_SLOW": "60"})
    for _ in eventually():
        outputs = list((launched.study / "launch").glob("*/output.txt"))
        if outputs and "  1024  " in outputs[0].read_text():
            break
    gone = of_node(node, slurm, launched.places)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in gone:
            os.kill(pid, number)
    code, said, talk = launched.end()
    assert code == 4, talk
    assert said["state"] == "failed"
    assert "NODE_FAIL" in said["why"], talk
    assert launched.sizes() == [1024]
    pids = [json.loads(path.read_text())["pid"] for path in launched.places.glob("[0-7]")]
    for _ in eventually():
        if not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids) and not queue(slurm):
            break
