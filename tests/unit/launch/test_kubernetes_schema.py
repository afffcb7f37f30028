# SPDX-License-Identifier: Apache-2.0
"""Manifests that we render are right, and each kind of mistake is found with its place."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.kubernetes.schema import check_manifest
from nccltune.launch.render import render
from nccltune.model.errors import InputError


def _manifest(kind: str, mpi: str = "OpenMPI") -> dict[str, Any]:
    options = KubernetesOptions(kind=kind, mpi=mpi, image="image", namespace="n")  # type: ignore[arg-type]
    job = Job(program=["all_reduce_perf"], nodes=2, kubernetes=options)
    found: dict[str, Any] = yaml.safe_load(render(job, Flavor(Launcher.KUBERNETES)).text)
    return found


@pytest.mark.parametrize(
    ("kind", "mpi"),
    [("MPIJob", "OpenMPI"), ("MPIJob", "Intel"), ("MPIJob", "MPICH"), ("JobSet", "OpenMPI")],
)
def test_what_we_render_has_only_fields_that_exist(kind: str, mpi: str) -> None:
    check_manifest(_manifest(kind, mpi))


def test_the_key_is_mounted_in_the_home_of_the_images_user() -> None:
    options = KubernetesOptions(image="image", ssh_path="/home/nccltune/.ssh")
    job = Job(program=["all_reduce_perf"], kubernetes=options)
    manifest = yaml.safe_load(render(job, Flavor(Launcher.KUBERNETES)).text)
    check_manifest(manifest)
    assert manifest["spec"]["sshAuthMountPath"] == "/home/nccltune/.ssh"
    assert "sshAuthMountPath" not in _manifest("MPIJob")["spec"]


def _put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *before, last = path
        for name in before:
            document = document[name]
        document[last] = value

    return change


def _drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *before, last = path
        for name in before:
            document = document[name]
        del document[last]

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_put("spec", "slotsPerWorkers", value=8), "spec"),
        (_put("spec", "slotsPerWorker", value="8"), "spec.slotsPerWorker"),
        (_put("spec", "cleanPodPolicy", value="Running"), "spec"),
        (_put("spec", "runPolicy", "cleanPodPolicy", value="running"), "spec.runPolicy"),
        (_put("spec", "mpiImplementation", value="OpenMpi"), "spec.mpiImplementation"),
        (_put("spec", "mpiReplicaSpecs", "worker", value={}), "spec.mpiReplicaSpecs"),
        (_drop("spec", "mpiReplicaSpecs", "Launcher"), "spec.mpiReplicaSpecs"),
        (
            _put("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "containers", value=[]),
            "spec.mpiReplicaSpecs.Worker.template.spec.containers",
        ),
        (_put("apiVersion", value="kubeflow.org/v1"), "apiVersion"),
        (_drop("spec"), "spec"),
    ],
)
def test_one_mistake_in_an_mpi_job(change: Callable[[dict[str, Any]], None], where: str) -> None:
    document = _manifest("MPIJob")
    change(document)
    with pytest.raises(InputError) as raised:
        check_manifest(document)
    assert (raised.value.where or "").startswith(where)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (_put("spec", "network", "enableDnsHostnames", value=True), "spec.network"),
        (_put("spec", "successPolicy", "operator", value="all"), "spec.successPolicy.operator"),
        (_put("spec", "replicatedJobs", value=[]), "spec.replicatedJobs"),
    ],
)
def test_one_mistake_in_a_job_set(change: Callable[[dict[str, Any]], None], where: str) -> None:
    document = _manifest("JobSet")
    change(document)
    with pytest.raises(InputError) as raised:
        check_manifest(document)
    assert raised.value.where == where


def test_other_kinds_are_not_judged() -> None:
    check_manifest({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})
