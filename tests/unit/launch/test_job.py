# SPDX-License-Identifier: Apache-2.0
"""Jobs: files, flags over them, what contradicts itself, and the page of all keys."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from nccltune.app.job import JobRequest, job_of, launcher_flavor, read_keys
from nccltune.cli.launch.render import command
from nccltune.launch.find import flavor_of
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions, SlurmOptions, job_from, read_toml
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


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-files.md"
TABLES = {"# Job files": Job, "## `[slurm]`": SlurmOptions, "## `[kubernetes]`": KubernetesOptions}


def rows(title: str) -> dict[str, str]:
    """The column of defaults by key, of the table under a title."""
    _, _, section = PAGE.read_text().partition(f"{title}\n")
    found = {}
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("| `"):
            _, keys, _, default, *_ = line.split("|")
            found.update(dict.fromkeys(re.findall(r"`(\w+)`", keys), default.strip()))
    return found


@pytest.mark.parametrize("title", TABLES)
def test_every_key_is_there_and_no_other(title: str) -> None:
    tables = {"slurm", "kubernetes"}
    names = {field.name for field in msgspec.structs.fields(TABLES[title])} - tables
    assert set(rows(title)) == names


@pytest.mark.parametrize("title", TABLES)
def test_defaults_are_those_of_the_code(title: str) -> None:
    shown = rows(title)
    for field in msgspec.structs.fields(TABLES[title]):
        if isinstance(field.default, bool):
            assert shown[field.name] == f"`{str(field.default).lower()}`"
        elif isinstance(field.default, str):
            assert shown[field.name] == f"`{field.default}`"


PROGRAM = ("all_reduce_perf", "-b", "8")


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("slurm.gpus=false", {"slurm": {"gpus": False}}),
        ("partition=batch", {"slurm": {"partition": "batch"}}),
        ("slurm.time=00:10:00", {"slurm": {"time": "00:10:00"}}),
        ("time=2026-11-24", {"slurm": {"time": "2026-11-24"}}),
        ("image=a/b:1", {"kubernetes": {"image": "a/b:1"}}),
        ("kubernetes.shm=32Gi", {"kubernetes": {"shm": "32Gi"}}),
        ("kubernetes.resources.rdma/ib=1", {"kubernetes": {"resources": {"rdma/ib": 1}}}),
        ("hosts=a, b,", {"hosts": ["a", "b"]}),
        ('hosts=["a"]', {"hosts": ["a"]}),
        ("nvls=false", {"nvls": False}),
        ("interface=eth0=x", {"interface": "eth0=x"}),
    ],
)
def test_a_key_finds_its_table(setting: str, found: dict[str, Any]) -> None:
    assert read_keys([setting]) == found


@pytest.mark.parametrize(
    ("setting", "message"),
    [("hosts", "KEY=VALUE"), ("mpi=pmix", "slurm and kubernetes both have it")],
)
def test_settings_that_are_no_key_are_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_keys([setting])


def test_hosts_are_the_number_of_nodes_unless_it_is_named() -> None:
    job, names_nodes = job_of(JobRequest(PROGRAM, settings=["hosts=a,b"]))
    assert (job.nodes, job.hosts, names_nodes) == (2, ["a", "b"], True)
    job, _ = job_of(JobRequest(PROGRAM, nodes=1, gpus=4, settings=["hosts=a,b"]))
    assert (job.nodes, job.gpus_per_node) == (1, 4)
    assert not job_of(JobRequest(PROGRAM))[1]


@pytest.mark.parametrize("line", ["#SBATCH -N 2", "#PBS -l select=2", "apiVersion: batch/v1"])
def test_a_script_of_a_scheduler_is_no_program(tmp_path: Path, line: str) -> None:
    script = tmp_path / "job"
    script.write_text(f"#!/bin/bash\n{line}\nsrun all_reduce_perf\n")
    with pytest.raises(InputError, match="neither a program nor a job file") as caught:
        job_of(JobRequest([str(script)]))
    assert f"nccltune lint {script} checks it" in (caught.value.hint or "")
    script.write_text("#!/bin/bash\nexec all_reduce_perf\n")
    assert job_of(JobRequest([str(script)]))[0].program == [str(script)]


def test_variables_are_set_or_inherited() -> None:
    job, _ = job_of(JobRequest(PROGRAM, variables=["NCCL_DEBUG=INFO", "LD_LIBRARY_PATH"]))
    assert job.environment == {"NCCL_DEBUG": "INFO"}
    assert job.inherit == ["LD_LIBRARY_PATH"]


def test_a_launcher_may_have_a_version() -> None:
    assert launcher_flavor("openmpi:5") == Flavor(Launcher.OPENMPI, (5,))
    with pytest.raises(InputError) as error:
        launcher_flavor("openmpi-5")
    assert error.value.hint == "did you mean 'openmpi:5'?"
