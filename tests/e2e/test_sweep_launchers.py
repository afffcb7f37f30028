# SPDX-License-Identifier: Apache-2.0
"""A sweep, its proof and its end without a launcher and with every one that is installed here."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from nccltune.launch.find import find
from nccltune.launch.flavor import Launcher
from nccltune.model.choice import TUNED_RUN, Algorithm, Choice, Protocol
from nccltune.study.files import Study
from tests.programs import completed
from tests.waiting import wait_until

from .bench_runs import FAKE_NCCL, NEEDS_FAKES, on_fakes
from .command_line import intel_mpi, launcher_here, line, running

pytestmark = NEEDS_FAKES
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
