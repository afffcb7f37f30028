# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench under the launchers that are installed here, and under the variables of others."""

import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nccltune.launch.find import find
from nccltune.launch.flavor import Launcher
from nccltune.model.choice import TUNED_RUN, Algorithm, Choice, Protocol
from nccltune.study.files import Study
from tests.programs import completed
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
    bench_processes,
    free_port,
    measure,
    on_fakes,
    slow_measure,
)
from .command_line import intel_mpi, launcher_here, line, running

pytestmark = NEEDS_FAKES
SIZE = 4


def _version(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    done = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=60)
    return done.stdout.decode(errors="replace")


def open_mpi() -> list[str]:
    """How Open MPI starts the processes, with the environment they need."""
    for program in ("mpirun.openmpi", "mpirun"):
        if "Open MPI" in _version(program):
            return [program, "-n", str(SIZE), "--oversubscribe", "-x", "NCCLTUNE_TOKEN"]
    pytest.skip("Open MPI is not installed (Debian: openmpi-bin)")


def hydra() -> list[str]:
    """How MPICH's hydra starts the processes."""
    for program in ("mpiexec.hydra", "mpirun.mpich", "mpirun"):
        if "HYDRA" in _version(program):
            return [program, "-n", str(SIZE), "-genvlist", "NCCLTUNE_TOKEN"]
    pytest.skip("MPICH is not installed (Debian: mpich)")


Started = tuple[Process, int]


@pytest.fixture(params=[open_mpi, hydra], ids=lambda launcher: launcher.__name__)
def started(request: pytest.FixtureRequest) -> Iterator[Callable[..., Started]]:
    """Starts a run under the launcher; whatever it leaves behind is ended."""
    launcher = request.param()
    opened: list[Started] = []

    def start(**slow: str) -> Started:
        port = free_port()
        variables = on_fakes(
            NCCLTUNE_TOKEN=secrets.token_hex(16),
            OMPI_ALLOW_RUN_AS_ROOT="1",
            OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            **slow,
        )
        arguments = [*launcher, str(BENCH), "--rendezvous", f"127.0.0.1:{port}"]
        process = Process([*arguments, FAKE_NCCL], variables)
        opened.append((process, port))
        return process, port

    yield start
    for process, port in opened:
        process.close()
        for pid in bench_processes(port).values():
            os.kill(pid, signal.SIGKILL)


def nothing_left(port: int) -> None:
    """No process of the run remains."""
    wait_until(lambda: not bench_processes(port))


def test_a_whole_run(started: Callable[..., Started]) -> None:
    mpirun, port = started()
    mpirun.send(HELLO, measure(rounds=5), QUIT)
    answers = mpirun.rest()
    assert [answer["op"] for answer in answers] == ["hello", *["point"] * 5, "done", "quit"]
    assert answers[0]["processes"] == SIZE
    status, talk = mpirun.end()
    assert status == 0, talk
    nothing_left(port)


@pytest.mark.parametrize("rank", range(SIZE))
def test_the_death_of_a_rank_ends_all(started: Callable[..., Started], rank: int) -> None:
    mpirun, port = started(**SLOW)
    mpirun.send(HELLO, slow_measure())
    assert mpirun.receive() is not None
    assert mpirun.receive() is not None
    os.kill(bench_processes(port)[rank], signal.SIGKILL)
    # hydra adds a notice of its own to the output of rank 0, on standard output.
    assert mpirun.popen.stdout is not None
    mpirun.popen.stdout.read()
    status, _ = mpirun.end()
    assert status != 0
    nothing_left(port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_end_of_the_launcher_ends_all(started: Callable[..., Started], number: int) -> None:
    mpirun, port = started(**SLOW)
    mpirun.send(HELLO, slow_measure())
    assert mpirun.receive() is not None
    assert mpirun.receive() is not None
    assert len(bench_processes(port)) == SIZE
    mpirun.popen.send_signal(number)
    mpirun.popen.wait(LIMIT_S)
    nothing_left(port)


# What srun and torchrun set, on processes that nobody but the test starts.
@pytest.mark.parametrize("launcher", ["slurm", "torchrun"])
def test_the_variables_of_a_launcher_that_is_not_here(launcher: str) -> None:
    port = free_port()
    token = secrets.token_hex(16)
    ranks = []
    for rank in range(2):
        variables = on_fakes(NCCLTUNE_TOKEN=token)
        arguments = [str(BENCH), FAKE_NCCL]
        if launcher == "slurm":
            variables |= {
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": "2",
                "SLURM_LOCALID": str(rank),
            }
            arguments += ["--rendezvous", f"127.0.0.1:{port}"]
        else:
            # torchrun's agent holds MASTER_PORT with a store of its own.
            variables |= {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port - 1),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
        ranks.append(Process(arguments, variables))
    try:
        ranks[0].send(HELLO, measure(), QUIT)
        answers = ranks[0].rest()
        assert [answer["op"] for answer in answers] == ["hello", "point", "done", "quit"]
        assert [rank.end()[0] for rank in ranks] == [0, 0]
        assert ranks[1].popen.stdout is not None
        assert ranks[1].popen.stdout.read() == b"", "only rank 0 writes"
    finally:
        for rank_process in ranks:
            rank_process.close()


ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture(params=["local", "openmpi", "hydra", "intel"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    name: str = request.param
    if name == "local":
        return ["--gpus", "2", FAKE_NCCL]
    if name == "intel":
        name = "hydra"
        monkeypatch.setenv("PATH", f"{intel_mpi()}{os.pathsep}{os.environ['PATH']}")
        assert find(Launcher.HYDRA).flavor.is_intel
    return ["--launcher", launcher_here(name), "--gpus", "2", FAKE_NCCL]


def benches(study: Path) -> list[str]:
    """The command lines of bench processes that work for a study's run."""
    return [
        " ".join(one.words)
        for one in running()
        if "nccltune-bench" in one.words[0] and one.variables.get("NCCLTUNE_TEST") == str(study)
    ]


def test_a_sweep_and_its_proof(tmp_path: Path, options: list[str]) -> None:
    study = tmp_path / "study"
    scope = ["--collectives", "allreduce", "--sizes", "4K-8K"]
    rule = Choice(Algorithm.RING, Protocol.SIMPLE)
    for words in (
        line("sweep", "-o", study, "--json", *scope, "--budget", "5", *options),
        line("verify", study, "--json", "--budget", "20", *options),
    ):
        done = completed(words, env=on_fakes(**ROOT), timeout=120)
        assert done.returncode == 0, done.stderr
        (study / "tuner.conf").write_text(
            f"allreduce,4096,8192,{rule.label.replace('/', ',')},-1,1,2\n"
        )
    assert json.loads((study / "sweep.json").read_text())["reason"] in ("done", "budget")
    assert json.loads(done.stdout)["points"] > 0
    # Later passes run the default where the rule was not faster.
    ran = [sample.ran for sample in Study(study).samples() if sample.choice == TUNED_RUN]
    assert rule in [one.without_channels() for one in ran if isinstance(one, Choice)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_a_sweep_is_the_end_of_its_processes(
    tmp_path: Path, options: list[str], number: signal.Signals
) -> None:
    study = tmp_path / "study"
    words = line(
        "sweep", "-o", study, *options, "--exhaustive", "--rounds", "1000", "--sizes", "1K-4K"
    )
    sweep = subprocess.Popen(
        words,
        env=on_fakes(**ROOT, NCCLTUNE_TEST=str(study)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (study / "samples.jsonl").exists())
        # hydra and Open MPI hand on the whole environment to processes of this machine.
        assert len(benches(study)) == 2
        sweep.send_signal(number)
        assert sweep.wait(60) == (128 + number if number == signal.SIGTERM else -number)
        wait_until(lambda: not benches(study))
    finally:
        sweep.kill()
        sweep.wait()
    assert (study / "samples.jsonl").read_text().count("\n") > 0
