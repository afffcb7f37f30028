# SPDX-License-Identifier: Apache-2.0
"""Scripts, manifests, outputs, garbage; and what our own renderers write."""

import json
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nccltune.cli import run
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.program import read_program
from nccltune.launch.render import render
from nccltune.launch_lint.check import LaunchCheck, check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.manifest import documents_of, from_manifests, judge_manifests
from nccltune.launch_lint.options import HYDRA, INTEL, OPENMPI_4, OPENMPI_5, SLURM, TABLES
from nccltune.launch_lint.output import judge_output
from nccltune.launch_lint.read import read
from nccltune.launch_lint.source import from_text
from nccltune.launch_lint.words import split
from nccltune.model.errors import InputError
from tests.unit.launch_lint.judged import only

SBATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
export NCCL_DEBUG=INFO  # a word
ARGS="-g 1"
MAX=10G
srun --mpi=pmix \\
    all_reduce_perf -b 1G -e $MAX -f 2 -g 1
"""
MPIJOB = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: test}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
          - name: launcher
            env: [{name: NCCL_DEBUG, value: INFO}]
            command: [mpirun, -N, "8", -n, "2", all_reduce_perf, -g, "1"]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            resources: {limits: {nvidia.com/gpu: 8}}
"""


def _ids(verdict: LaunchCheck) -> list[str]:
    return [held.finding.id for held in verdict.findings]


def test_a_script_brings_its_nodes_and_variables() -> None:
    verdict = only(SBATCH)
    ((prediction, _),) = verdict.predictions
    assert [node.processes for node in prediction.placement.nodes] == [8, 8]
    assert _ids(verdict) == ["end-not-reached"]


def test_a_manifest_brings_workers_slots_and_gpus() -> None:
    (found,) = from_manifests(documents_of(MPIJOB, "job.yaml"), LaunchContext(), "job.yaml")
    assert (found.site.nodes, found.site.slots, found.site.gpus_per_node) == (2, 8, 8)
    verdict = check(found.line, found.site)
    assert _ids(verdict)[:2] == ["total-below-per-node", "env-not-exported"]
    assert verdict.fixed == "mpirun -N 8 -n 16 -x NCCL_DEBUG all_reduce_perf -g 1"


def test_a_script_inside_a_manifest() -> None:
    text = MPIJOB.replace(
        '[mpirun, -N, "8", -n, "2", all_reduce_perf, -g, "1"]',
        '[bash, -c, "set -e; mpirun -N 8 -n 16 -x NCCL_DEBUG all_reduce_perf -g 1 | tee o"]',
    )
    (found,) = from_manifests(documents_of(text, "job.yaml"), LaunchContext(), "job.yaml")
    assert not check(found.line, found.site).is_wrong


@pytest.mark.parametrize(
    "flavor",
    [
        Flavor(Launcher.OPENMPI, (4, 1, 4)),
        Flavor(Launcher.OPENMPI, (5, 0, 11)),
        Flavor(Launcher.HYDRA, (4, 0, 2)),
        Flavor(Launcher.HYDRA, (2021, 18, 1)),
        Flavor(Launcher.HYDRA),
        Flavor(Launcher.SLURM, (23, 2)),
        Flavor(Launcher.KUBERNETES),
    ],
    ids=lambda flavor: flavor.words,
)
@pytest.mark.parametrize("processes", ["per-gpu", "per-node"])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_what_we_render_is_right(flavor: Flavor, processes: str, nodes: int) -> None:
    job = Job(
        program=["all_reduce_perf", "-b", "8", "-e", "1G", "-f", "2"],
        nodes=nodes,
        processes=processes,  # type: ignore[arg-type]
        nvls=False,
        kubernetes=KubernetesOptions(image="image"),
        hosts=["a", "b", "c"] if flavor.launcher in (Launcher.OPENMPI, Launcher.HYDRA) else [],
    )
    rendered = render(job, flavor)
    wanted = {
        Launcher.OPENMPI: (OPENMPI_5,) if flavor.version[:1] == (5,) else (OPENMPI_4,),
        Launcher.HYDRA: (INTEL,) if flavor.is_intel else (HYDRA,),
        Launcher.SLURM: (SLURM,),
        Launcher.KUBERNETES: (OPENMPI_4,),
    }[flavor.launcher]
    if flavor.launcher is Launcher.KUBERNETES:
        documents = documents_of(rendered.text, "job.yaml")
        assert judge_manifests(documents) == []
        (found,) = from_manifests(documents, LaunchContext(), "job.yaml")
    elif rendered.files:
        (found,) = from_text(next(iter(rendered.files.values())), LaunchContext())
    else:
        (found,) = from_text(shlex.join(rendered.words), LaunchContext())
    verdict = check(found.line, found.site, wanted)
    assert not verdict.is_wrong, verdict.findings
    ((prediction, _),) = verdict.predictions
    assert [node.processes for node in prediction.placement.nodes] == [
        node.processes for node in rendered.placement.nodes
    ]
    assert prediction.placement.gpus_per_process == rendered.placement.gpus_per_process


def _table(rank: int, pid: int) -> str:
    return (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20"
        " agg iters: 1 validation: 1 graph: 0\n# Using devices\n"
        f"#  Rank  {rank} Group  0 Pid {pid} on node device  0 [00:04:00] NVIDIA H200\n"
        "# Avg bus bandwidth    : 0\n"
    )


def test_tables_of_processes_that_do_not_know_of_each_other() -> None:
    (finding,) = judge_output(_table(0, 1) + _table(0, 2))
    assert (finding.id, finding.severity.value) == ("no-mpi-build", "error")
    assert [one.id for one in judge_output(_table(0, 1))] == ["one-rank"]
    both = _table(0, 1).replace("# Avg", "#  Rank  1 Group  0 Pid 2 on node device  1 [0] H\n# Avg")
    assert judge_output(both) == []
    assert judge_output(both + both) == []


WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), min_size=1, max_size=8)
OPTION = st.sampled_from(sorted({f"-{name}" for table in TABLES.values() for name in table}))


@given(st.lists(WORD, min_size=1, max_size=6), st.sampled_from(["mpirun", "srun", "mpiexec.hydra"]))
@example(["--", "-program"], "mpirun")
def test_what_is_read_is_written_with_the_same_meaning(words: list[str], launcher: str) -> None:
    text = shlex.join([launcher, "-n", "2", *words])
    if ":" in words:
        return
    (line,) = split(text)
    for command in read(line).values():
        assert shlex.split(command.text) == shlex.split(text)


@given(st.text(max_size=60) | st.lists(WORD | OPTION, max_size=12).map(" ".join))
def test_garbage_is_an_input_error_or_a_verdict(text: str) -> None:
    for lead in ("", "mpirun ", "srun ", "mpiexec.hydra -n "):
        try:
            found = from_text(lead + text + " all_reduce_perf -b 8 " + text, LaunchContext())
            verdicts = [check(one.line, one.site) for one in found]
        except InputError:
            continue
        assert verdicts
        for verdict in verdicts:
            assert verdict.predictions


@given(st.text(max_size=80))
def test_garbage_manifests(text: str) -> None:
    with pytest.raises(InputError):
        from_manifests(documents_of(text, "x"), LaunchContext(), "x")


@given(st.lists(WORD | st.sampled_from(["-b", "-e", "-f", "-i", "8", "1G", "0", "-1"]), max_size=8))
def test_garbage_arguments(words: list[str]) -> None:
    program = read_program(["all_reduce_perf", *words])
    assert program is not None
    sizes = program.sizes
    if sizes is not None and sizes.first <= sizes.last and sizes.end is not None:
        assert sizes.first <= sizes.end <= sizes.last


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = "mpirun -N 8 -n 16 all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    assert run(["lint", "--nodes", "2", right]) == 0
    assert run(["lint", "--nodes", "2", "--", *right.split()]) == 0
    assert run(["lint", right.replace("16", "2", 1)]) == 1
    assert run(["lint", "python train.py"]) == 2
    assert run(["lint", "--launcher", "slurm", right]) == 2
    assert run(["lint", "mpirun 'open"]) == 2
    path = tmp_path / "job.yaml"
    path.write_text(MPIJOB)
    capsys.readouterr()
    assert run(["lint", str(path), "--json"]) == 1
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    (command,) = launch["commands"]
    assert command["starts"][0]["ranks"] == 2
    assert command["findings"][0]["id"] == "total-below-per-node"


@pytest.mark.parametrize(
    ("launcher", "code", "words"),
    [
        ("openmpi", 0, "(Open MPI 4.1 and 5.0)"),
        ("openmpi:5", 0, "(Open MPI 5.0)"),
        ("openmpi:4.1.4", 0, "(Open MPI 4.1)"),
        ("openmpi:3", 2, "hint:  openmpi:4 or openmpi:5"),
        ("openmpi-5", 2, "hint:  did you mean 'openmpi:5'?"),
        ("openmpi:new", 2, "'new' is no version"),
        ("kubernetes", 2, "has no command line to check"),
        ("mpich", 2, "'mpich' is no launcher"),
    ],
)
def test_a_launcher_is_named_as_for_launch(
    capsys: pytest.CaptureFixture[str], launcher: str, code: int, words: str
) -> None:
    line = "mpirun --bind-to none -n 2 all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    assert run(["lint", "--launcher", launcher, line]) == code
    assert words in "".join(capsys.readouterr())


def test_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    line = "mpirun -N 8 -n 2 all_reduce_perf -b 1G -e 10G -f 2 -n 100 -g 1"
    assert run(["lint", "--nodes", "2", line]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "starts   2 processes, both on the first node, 1 GPU each = 2 ranks"
        "  (Open MPI 4.1 and 5.0)",
        "error    -n 2 is the total number of processes; -N 8 only caps a node."
        " For 2 nodes x 8: -N 8 -n 16",
        "warning  -e 10G with -f 2 from 1 GiB measures 1 GiB, 2 GiB, 4 GiB, 8 GiB; 10 GiB is never"
        " reached. Write -e 8G",
        "note     -n 100 after the binary is nccl-tests' iterations, not processes",
        "fixed    mpirun -N 8 -n 16 all_reduce_perf -b 1G -e 8G -f 2 -n 100 -g 1",
    ]


def test_a_rendered_job_names_what_its_program_will_not_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = ["all_reduce_perf", "-b", "1G", "-e", "10G", "-f", "2"]
    launcher = ["--launcher", "slurm", "--nodes", "2"]
    assert run(["launch", "render", *launcher, "--", *program]) == 0
    assert "10 GiB is never reached. Write -e 8G" in capsys.readouterr().err
    program[4] = "8G"
    assert run(["launch", "render", *launcher, "--", *program]) == 0
    assert "warning" not in capsys.readouterr().err


def test_the_reference_shows_what_lint_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "lint-launch.md"
    blocks = re.findall(r"```\n\$ nccltune (lint .*?)\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) > 1
    for command, shown in blocks:
        assert run(shlex.split(command)) == 1
        assert capsys.readouterr().out == shown
