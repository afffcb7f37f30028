# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch run` with a real Slurm of two nodes on this machine (slurm.sh starts it)."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_words
from tests.programs import completed
from tests.waiting import wait_until

from .bench_runs import FAKE_NCCL, FAKES, NEEDS_FAKES
from .command_line import line
from .launched import PROGRAM, RunningLaunch
from .page_snippets import ROOT, reader_folder, run, snippets
from .page_snippets import check as check_snippet

SCRIPT = Path(__file__).parent / "slurm.sh"
JOB = """
program = ["{program}"]
nodes = 2
gpus_per_node = 4
[slurm]
gpus = false
mpi = "pmi2"
"""


@contextmanager
def two_nodes(folder: Path, **variables: str) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands find a Slurm of two nodes."""
    done = completed([SCRIPT, "start", folder, "4"], env=os.environ | variables, timeout=120)
    if done.returncode == 3:
        pytest.skip(f"no Slurm here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    yield {**os.environ, "SLURM_CONF": done.stdout.strip().rpartition("=")[2]}
    subprocess.run([SCRIPT, "stop", folder], check=False, timeout=60)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with two_nodes(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def launched_on(folder: Path, slurm: dict[str, str], *options: str) -> RunningLaunch:
    """A job of two nodes with four processes each."""
    (folder / "job.toml").write_text(JOB.format(program=PROGRAM))
    return RunningLaunch(folder, slurm, folder / "job.toml", "--launcher", "slurm", *options)


def processes(launched: RunningLaunch) -> list[int]:
    told = (json.loads(path.read_text())["pid"] for path in launched.places.glob("[0-7]"))
    return [pid for pid in told if Path(f"/proc/{pid}/cmdline").exists()]


def queue(environment: dict[str, str]) -> str:
    return completed(["squeue", "-h"], env=environment, check=True, timeout=120).stdout


def test_a_job_runs_to_its_end_where_it_was_promised(tmp_path: Path, slurm: dict[str, str]) -> None:
    launched = launched_on(tmp_path, slurm)
    code, said, talk = launched.end()
    assert code == 0, talk
    assert said["state"] == "done"
    assert launched.sizes() == [1024, 2048, 4096, 8192]
    local = {
        int(path.name): json.loads(path.read_text())["local"] for path in launched.places.iterdir()
    }
    assert [local[rank] for rank in sorted(local)] == [0, 1, 2, 3] * 2
    (run,) = (launched.study / "launch").iterdir()
    assert "srun" in (run / "job.sbatch").read_text()
    assert queue(slurm) == ""


def test_an_interrupted_job_is_cancelled_and_its_rows_are_kept(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    launched = launched_on(tmp_path, {**slurm, "LAUNCHED_SLOW": "60"})
    wait_until(lambda: len(processes(launched)) == 8)
    output = next(iter((launched.study / "launch").glob("*/output.txt")))
    wait_until(lambda: "2048" in output.read_text())
    launched.process.send_signal(signal.SIGINT)
    code, said, talk = launched.end()
    assert code == 128 + signal.SIGINT, talk
    assert said["state"] == "stopped"
    assert launched.sizes() == [1024, 2048]
    wait_until(lambda: queue(slurm) == "")
    wait_until(lambda: not processes(launched))


def test_a_job_that_can_never_start_is_told_with_its_reason(
    tmp_path: Path, slurm: dict[str, str]
) -> None:
    launched = launched_on(tmp_path, slurm, "--nodes", "3", "--start-within", "2")
    code, said, talk = launched.end()
    assert code == 4
    assert said["state"] == "pending"
    assert "PartitionConfig" in talk
    assert queue(slurm) == ""


@pytest.mark.parametrize(
    "options",
    [
        "-N 2",
        "-N 2 -n 2",
        "-N 8 -n 2",
        "-N 1 -n 3",
        "-N 2 --ntasks-per-node=3",
        "-n 4 --ntasks-per-node=2",
        "-N 2 -n 8 --ntasks-per-node=2",
    ],
)
def test_srun_starts_what_the_linter_predicts(options: str, slurm: dict[str, str]) -> None:
    words = ["srun", *options.split(), "--mpi=none", "sh", "-c", "echo $SLURMD_NODENAME"]
    done = completed(words, env=slurm, check=True, timeout=60)
    (found,) = from_words(words, LaunchContext())
    ((prediction, _),) = check(found.line, found.site).predictions
    assert prediction.placement is not None
    predicted = [node.processes for node in prediction.placement.nodes]
    assert sorted(Counter(done.stdout.split()).values()) == sorted(predicted)


def test_the_task_prolog_of_the_guide_reaches_tasks_without_an_environment(
    tmp_path: Path, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reader_folder(tmp_path)
    monkeypatch.setenv("DESTDIR", str(tmp_path / "node"))
    (folder / "site").mkdir()
    (folder / "site" / "nccl.conf").write_text("NCCL_TUNER_PLUGIN=/p.so\nNCCLTUNE_CONFIG_HASH=1f\n")
    guide = snippets(ROOT / "docs" / "guides" / "deploying.md")
    (block,) = [one for one in guide if "> site/task-prolog.sh" in one.shell]
    check_snippet(run(block.shell, folder), None)
    prolog = f"--task-prolog={tmp_path}/node/etc/nccltune/task-prolog.sh"

    def tasks(export: str) -> list[str]:
        words = ["srun", "-N", "2", "--mpi=none", f"--export={export}", prolog, "/usr/bin/env"]
        done = completed(words, env=slurm, check=True, timeout=60)
        return sorted(line for line in done.stdout.splitlines() if line.startswith("NCCL"))

    assert tasks("NONE") == ["NCCLTUNE_CONFIG_HASH=1f"] * 2 + ["NCCL_TUNER_PLUGIN=/p.so"] * 2
    assert tasks("NCCL_TUNER_PLUGIN=none") == ["NCCL_TUNER_PLUGIN=none"] * 2


@NEEDS_FAKES
def test_a_sweep_in_an_allocation(tmp_path: Path, slurm: dict[str, str]) -> None:
    sweep = ["sweep", "-o", tmp_path / "study", "--collectives", "allreduce", "--sizes", "4K-8K"]
    under = ["--launcher", "slurm", "--gpus", "1", "--budget", "5", FAKE_NCCL]
    done = completed(
        ["salloc", "-N", "2", "--exclusive", *line(*sweep, *under)],
        env=slurm | {"LD_LIBRARY_PATH": str(FAKES), "SOFT_CUDA_OWN_GPUS": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "nodes      2, as job " in done.stderr
    summary = json.loads((tmp_path / "study" / "sweep.json").read_text())
    assert summary["reason"] in ("done", "budget")
    assert summary["points"] > 0
    wait_until(lambda: queue(slurm) == "")


def test_every_node_of_an_allocation_is_checked(tmp_path: Path, slurm: dict[str, str]) -> None:
    rules = tmp_path / "tuner.conf"
    rules.write_text("# nccltune: schema=1\nallreduce,2048,32768,tree,ll,-1,4,4\n")
    for words, codes in (
        (["check", rules, "--budget", "0", "--gpus", "2", "--max-age", "9d"], (1,)),
        # Other processes of this machine may have NCCL.
        (["status"], (0, 1)),
    ):
        under = [*words, "--launcher", "slurm", "--json"]
        done = completed(
            ["salloc", "-N", "2", "--exclusive", *line(*under)],
            cwd=tmp_path,
            env=slurm | {"SLURM_MPI_TYPE": "pmi2", "NCCLTUNE_CONFIG": str(rules)},
            timeout=120,
        )
        assert done.returncode in codes, done.stderr
        told = json.loads(done.stdout)
        if words[0] == "check":
            assert [node["host"] for node in told["nodes"]] == ["a", "b"]
            assert {node["config_hash"] for node in told["nodes"]} == {told["config_hash"]}
            # The date is not known on any of them.
            assert [[one["name"] for one in node["differs"]] for node in told["nodes"]] == (
                [["age"]] * 2
            )
            assert told["missing"] == 0
        else:
            assert told["unread"] == []
            assert told["host"].count(",") == 1
    wait_until(lambda: queue(slurm) == "")
    assert not list(tmp_path.glob(".nccltune-*"))


def test_a_command_is_verified_in_an_allocation(tmp_path: Path, slurm: dict[str, str]) -> None:
    study = tmp_path / "study"
    study.mkdir()
    (study / "platform.json").write_text('{"name": "study"}')
    (study / "tuner.conf").write_text("# nccltune: schema=1\nallreduce,2048,32768,tree,ll,-1,4,4\n")
    verify = ["verify", study, "--launcher", "slurm", "--gpus", "2", "--json", "--"]
    program = [sys.executable, PROGRAM.with_name("stock_program.py")]
    paths = os.pathsep.join([str(PROGRAM.parents[2]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["salloc", "-N", "2", "--exclusive", *line(*verify, *program)],
        # Debian's srun lists PMIx and has no library for it.
        env=slurm | {"PYTHONPATH": paths, "SLURM_MPI_TYPE": "pmi2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    assert told["after"]["tuner"] == "nccltune", done.stderr
    assert (told["before"]["tuner"], told["after"]["applying"]) == (None, 1)
    wait_until(lambda: queue(slurm) == "")
