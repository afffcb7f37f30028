# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from nccltune.launch.find import InstalledLauncher
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.measure.bench.with_launcher import WithLauncher, command, program_with_launcher
from nccltune.model.errors import InputError
from tests.programs import write_program

MPIRUN = InstalledLauncher(Flavor(Launcher.OPENMPI, (5, 0, 11)), "mpirun")
HYDRA = InstalledLauncher(Flavor(Launcher.HYDRA, (4, 0, 2)), "mpiexec.hydra")
SRUN = InstalledLauncher(Flavor(Launcher.SLURM, (22, 5, 8)), "srun")
BENCH = ["/opt/nccltune-bench", "--nccl=/l"]
SCONTROL = """#!/bin/sh
[ "$2" = hostnames ] && printf 'c7\\nc9\\n' || echo "NodeName=$3 NodeAddr=10.0.0.7 State=IDLE"
"""


def test_one_node_meets_at_itself_and_inherits_what_is_ours() -> None:
    environment = {"NCCLTUNE_TOKEN": "s3cret", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    words, _ = command(BENCH, WithLauncher(MPIRUN, 1, 4), 77, environment)
    assert words[0] == "mpirun"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-x"] == [
        "NCCLTUNE_TOKEN",
        "NCCL_DEBUG",
    ]
    assert words[words.index("-np") + 1] == "4"
    assert words[-5:] == [*BENCH, "--rendezvous=127.0.0.1:77", "--gpus-per-process", "1"]
    assert "s3cret" not in " ".join(words)
    assert not [word for word in words if "tag" in word]


def test_several_nodes_meet_at_the_first() -> None:
    words, _ = command(BENCH, WithLauncher(HYDRA, 2, 8, ("n1", "n2"), per_node=True), 77, {})
    assert words[words.index("-n") + 1] == "2"
    assert words[-3:] == ["--rendezvous=n1:77", "--gpus-per-process", "8"]
    assert "n1" in words[words.index("-hosts") + 1]


def test_unnamed_nodes() -> None:
    with pytest.raises(InputError, match="none is named"):
        command(BENCH, WithLauncher(MPIRUN, 2, 8), 77, {})


def test_in_a_job_of_slurm_they_meet_at_the_address_of_its_first_node(tmp_path: Path) -> None:
    write_program(tmp_path / "scontrol", SCONTROL)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "c[7,9]"}
    words, _ = command(BENCH, WithLauncher(SRUN, 2, 8), 77, environment)
    assert words[0] == "srun"
    assert {"--nodes=2", "--ntasks-per-node=8", "--mpi=none", "--input=0"} <= set(words)
    assert "--rendezvous=10.0.0.7:77" in words
    assert "--gpus-per-node=8" not in words
    with_gpus, _ = command(
        BENCH, WithLauncher(SRUN, 2, 8), 77, environment | {"SLURM_JOB_GPUS": "0,1"}
    )
    assert "--gpus-per-node=8" in with_gpus


def test_without_nodes_from_slurm() -> None:
    with pytest.raises(InputError, match="no nodes") as caught:
        command(BENCH, WithLauncher(SRUN, 2, 8), 77, {})
    assert "salloc" in str(caught.value.hint)
    with pytest.raises(InputError, match="no nodes"):
        program_with_launcher(["all_reduce_perf"], WithLauncher(SRUN, 2, 8), {})


def test_a_program_of_mpi_gets_settings_gpus_and_tags() -> None:
    environment = {"NCCL_TUNER_PLUGIN": "/p.so", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    under = WithLauncher(MPIRUN, 2, 8, ("n1", "n2"), per_node=True)
    rendered = program_with_launcher(["all_reduce_perf", "-b", "8"], under, environment)
    words = rendered.words
    assert [words[at + 1] for at, word in enumerate(words) if word == "-x"] == [
        "NCCL_DEBUG",
        "NCCL_TUNER_PLUGIN",
    ]
    assert words[-5:] == ("all_reduce_perf", "-b", "8", "-g", "8")
    assert words[words.index("--output") :][:2] == ("--output", "tag")
    assert rendered.placement.processes == 2


def test_a_program_of_mpi_in_a_job_of_slurm() -> None:
    environment = {"SLURM_JOB_NODELIST": "c[7,9]", "SLURM_JOB_GPUS": "0,1"}
    under = WithLauncher(SRUN, 2, 8, mpi="pmi2")
    words = program_with_launcher(["all_reduce_perf"], under, environment).words
    assert words[0] == "srun"
    assert {"--nodes=2", "--mpi=pmi2", "--export=ALL", "--gpus-per-node=8"} <= set(words)


def test_an_mpirun_may_know_its_nodes_by_itself() -> None:
    with pytest.raises(InputError, match="none is named"):
        program_with_launcher(["all_reduce_perf"], WithLauncher(MPIRUN, 2, 8), {})
    known = program_with_launcher(
        ["all_reduce_perf"], WithLauncher(MPIRUN, 2, 8), {"PBS_NODEFILE": "/nodes"}
    )
    assert "--host" not in known.words
