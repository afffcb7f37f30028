# SPDX-License-Identifier: Apache-2.0
"""Jobs: files, flags over them, and what contradicts itself."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nccltune.cli.launch.render import command
from nccltune.launch.find import flavor_of
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, job_from, read_toml
from nccltune.launch.options import meanings
from nccltune.model.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "jobs").glob("*.toml"))


def job(**members: Any) -> dict[str, Any]:
    return {"program": ["all_reduce_perf", "-b", "8"], **members}


def test_the_four_examples_are_jobs() -> None:
    ranks = {path.stem: job_from(read_toml(path), str(path)).placement for path in EXAMPLES}
    assert {name: (p.processes, p.gpus_per_process, p.ranks) for name, p in ranks.items()} == {
        "1x8": (1, 8, 8),
        "2x8-per-gpu": (16, 1, 16),
        "2x8-per-node": (2, 8, 16),
        "2x8-per-node-nvls": (2, 8, 16),
    }


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "program"),
        (job(program=[]), "program names no binary"),
        (job(nodes=0), "nodes is 0; at least 1"),
        (job(nodse=2), "no key is called 'nodse'"),
        (job(nodes=2, hosts=["a"]), "hosts names 1 for 2 nodes"),
        (job(hosts=["a", "a"]), "hosts names one twice"),
        (job(hosts=["a:8"]), "'a:8' is no host"),
        (job(hosts=["-x"]), "'-x' is no host"),
        (job(program=["x_perf", "-g", "8"]), "-g, which follows from"),
        (job(program=["x_perf", "-g8"]), "-g, which follows from"),
        (job(program=["x_perf", "--ngpus=8"]), "--ngpus, which follows from"),
        (job(interface="eth0", environment={"NCCL_SOCKET_IFNAME": "x"}), "both set it"),
        (job(environment={"A B": "x"}), "'A B' is no name of a variable"),
        (job(environment={"A": "x"}, inherit=["A"]), "A is inherited and given"),
        (job(name="Big_Name"), "small letters"),
        (job(kubernetes={"kind": "Pod"}), "kind"),
    ],
)
def test_what_cannot_be(raw: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        job_from(raw, "job.toml")
    assert says in str(error.value)
    assert error.value.where == "job.toml"


def test_flags_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('program = ["all_reduce_perf"]\nnodes = 2\n[slurm]\npartition = "a"\n')
    words = [str(path), "--launcher", "slurm:23.02", "--gpus", "4"]
    more = ["--set", "partition=b", "--set", "slurm.gpus=false", "--env", "NCCL_DEBUG=WARN"]
    done = CliRunner().invoke(command, [*words, *more, "--", "all_gather_perf", "-b", "1M"])
    assert done.exit_code == 0, done.exception
    assert "#SBATCH --partition=b\n" in done.output
    assert "--gpus-per-node" not in done.output
    assert "#SBATCH --ntasks-per-node=4\n" in done.output
    assert "export NCCL_DEBUG=WARN\n" in done.output
    assert "all_gather_perf -b 1M -g 1" in done.output


@pytest.mark.parametrize(
    ("launcher", "options", "nodes", "told"),
    [
        ("slurm", [], 3, True),
        ("slurm", ["--nodes", "2"], 2, False),
        ("slurm", ["--set", "hosts=a,b"], 2, False),
        ("slurm:23.02", ["--set", "nodes=1"], 1, False),
        ("openmpi:5", [], 1, False),
    ],
)
def test_in_an_allocation_its_nodes_are_the_default(
    monkeypatch: pytest.MonkeyPatch, launcher: str, options: list[str], nodes: int, told: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    words = ["--launcher", launcher, *options, "--", "all_reduce_perf"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.exception
    said = f"--nodes={nodes} " if "slurm" in launcher else f"-np {8 * nodes} "
    assert said in done.stdout.replace("\\\n", " ").replace("    ", "") + " "
    line = "nodes      3, as job 17 of Slurm has (SLURM_JOB_NUM_NODES)\n"
    assert (line in done.stderr) == told


def test_every_argument_of_the_examples_is_explained() -> None:
    for path in EXAMPLES:
        for words, meaning in meanings(job_from(read_toml(path), str(path))):
            assert meaning != "as the job has it", words


def test_arguments_are_explained_as_the_program_reads_them() -> None:
    words = ["numactl", "-l", "all_reduce_perf", "-b8", "--maxb=1G", "-n", "20", "stray", "-Q"]
    told = dict(meanings(Job(program=words)))
    assert told["numactl -l all_reduce_perf"] == "the program"
    assert told["-b8"] == "the smallest size"
    assert told["--maxb=1G"].startswith("the largest size")
    assert told["-n 20"].startswith("calls that are timed")
    assert told["stray"] == told["-Q"] == "as the job has it"
    assert "processes = 'per-gpu'" in told["-g 1"]
    bench = dict(meanings(Job(program=["nccltune-bench", "--rendezvous=b:1"])))
    assert bench["--rendezvous=b:1"].startswith("HOST:PORT")
    assert bench["--gpus-per-process 1"].startswith("GPUs that each process drives; it follows")


@pytest.mark.parametrize(
    ("text", "flavor"),
    [
        ("mpirun (Open MPI) 4.1.4\n", Flavor(Launcher.OPENMPI, (4, 1, 4))),
        ("mpirun.openmpi (OpenRTE) 4.1.4\n", Flavor(Launcher.OPENMPI, (4, 1, 4))),
        ("mpirun (Open MPI) 5.0.11\n", Flavor(Launcher.OPENMPI, (5, 0, 11))),
        ("HYDRA build details:\n    Version:      4.0.2\n", Flavor(Launcher.HYDRA, (4, 0, 2))),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
            "Copyright 2003-2026, Intel Corporation.\n",
            Flavor(Launcher.HYDRA, (2021, 18, 1)),
        ),
        ("slurm 22.05.8\n", Flavor(Launcher.SLURM, (22, 5, 8))),
        ("bash 5.2\n", None),
    ],
)
def test_versions(text: str, flavor: Flavor | None) -> None:
    assert flavor_of(text) == flavor


def test_whose_hydra() -> None:
    intel, mpich = Flavor(Launcher.HYDRA, (2021, 18, 1)), Flavor(Launcher.HYDRA, (4, 0, 2))
    assert (intel.is_intel, intel.words) == (True, "Intel MPI 2021.18.1")
    assert (mpich.is_intel, mpich.words) == (False, "hydra 4.0.2")
    assert not Flavor(Launcher.HYDRA).is_intel
    assert not Flavor(Launcher.OPENMPI, (2021,)).is_intel
