# SPDX-License-Identifier: Apache-2.0
"""Keys of a job file on the command line."""

from typing import Any

import pytest

from nccltune.app.job import JobRequest, job_of, launcher_flavor, read_keys
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.model.errors import InputError

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


def test_variables_are_set_or_inherited() -> None:
    job, _ = job_of(JobRequest(PROGRAM, variables=["NCCL_DEBUG=INFO", "LD_LIBRARY_PATH"]))
    assert job.environment == {"NCCL_DEBUG": "INFO"}
    assert job.inherit == ["LD_LIBRARY_PATH"]


def test_a_launcher_may_have_a_version() -> None:
    assert launcher_flavor("openmpi:5") == Flavor(Launcher.OPENMPI, (5,))
    with pytest.raises(InputError) as error:
        launcher_flavor("openmpi-5")
    assert error.value.hint == "did you mean 'openmpi:5'?"
