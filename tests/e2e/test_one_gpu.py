# SPDX-License-Identifier: Apache-2.0
"""Several ranks on one GPU, on the fake GPUs of the native tests."""

import json
from pathlib import Path

from nccltune.measure.bench.mps import CONTROL, PIPES
from tests.programs import python_program

from .bench_runs import FAKE_NCCL, NEEDS_FAKES, environment, on_fakes
from .command_line import nccltune

pytestmark = NEEDS_FAKES
SHARED = ("--gpus", "1", "--ranks-per-gpu", "4")
SCOPE = ("--collectives", "allreduce", "--sizes", "1K-4K", "--budget", "3")


def sweep(study: Path, *words: str, code: int = 0, **variables: str) -> str:
    env = on_fakes(**variables)
    more = (FAKE_NCCL, *SCOPE, *words)
    return nccltune("sweep", "-o", study, *more, cwd=study.parent, code=code, env=env).stderr


def test_a_sweep_names_the_ranks_that_share_a_gpu(tmp_path: Path) -> None:
    study = tmp_path / "study"
    messages = sweep(study, *SHARED)
    assert "1 x GPU in software · 4 ranks on it, without MPS" in messages
    assert "take turns of about 2 ms" in messages
    platform = json.loads((study / "platform.json").read_text())
    assert (platform["gpus"], platform["ranks_per_gpu"], platform["mps"]) == (1, 4, False)
    assert platform["emulated_nodes"]
    assert "NCCL_MAX_CTAS" not in platform["settings"], "each rank is a node"
    samples = [json.loads(line) for line in (study / "samples.jsonl").read_text().splitlines()]
    assert samples
    assert {sample["ranks"] for sample in samples} == {4}
    # Rules of such a study are not offered without a warning.
    (study / "tuner.conf").write_text("allreduce,0,1024,tree,ll,-1,4,4\n")
    warned = nccltune("env", study, cwd=tmp_path).stderr
    assert "4 ranks on each GPU: real nodes may need others" in warned
    other = sweep(study, "--gpus", "4", code=2)
    assert "ranks on a GPU 4 there, 1 here" in other


def test_ranks_of_one_node_need_a_newer_nccl(tmp_path: Path) -> None:
    messages = sweep(tmp_path / "study", *SHARED, "--emulate-nodes", "2", code=2)
    assert "NCCL 2.28.9 does not let ranks of one node share a GPU" in messages
    assert not (tmp_path / "study").exists()


def test_a_daemon_is_started_for_the_ranks_and_ends(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = python_program(
        tmp_path / "bin" / CONTROL,
        f"""\
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["{PIPES}"])
if sys.argv[1:] != ["-f"]:
    (pipes / "quit").touch()
    sys.exit()
pathlib.Path({str(seen)!r}).write_text(f"{{os.getpid()}} {{pipes}}")
(pipes / "control").touch()
while not (pipes / "quit").exists():
    time.sleep(0.01)
""",
    )
    study = tmp_path / "study"
    path = f"{program.parent}:{environment()['PATH']}"
    messages = sweep(study, *SHARED, "--mps", PATH=path, **{PIPES: str(tmp_path / "none")})
    assert "1 x GPU in software · 4 ranks on it, MPS" in messages
    assert json.loads((study / "platform.json").read_text())["mps"] is True
    number, pipes = seen.read_text().split()
    assert not Path(f"/proc/{number}").exists()
    assert not Path(pipes).parent.exists()
