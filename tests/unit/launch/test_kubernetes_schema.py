# SPDX-License-Identifier: Apache-2.0
"""Manifests that we render are right, and each kind of mistake is found with its place."""

from typing import Any

import pytest
import yaml

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.kubernetes.schema import check_manifest
from nccltune.launch.render import render
from nccltune.model.errors import InputError

CONTAINERS = "spec.mpiReplicaSpecs.Worker.template.spec.containers"


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


GONE = object()


@pytest.mark.parametrize(
    ("kind", "path", "value", "where"),
    [
        ("MPIJob", "spec.slotsPerWorkers", 8, "spec"),
        ("MPIJob", "spec.slotsPerWorker", "8", "spec.slotsPerWorker"),
        ("MPIJob", "spec.cleanPodPolicy", "Running", "spec"),
        ("MPIJob", "spec.runPolicy.cleanPodPolicy", "running", "spec.runPolicy"),
        ("MPIJob", "spec.mpiImplementation", "OpenMpi", "spec.mpiImplementation"),
        ("MPIJob", "spec.mpiReplicaSpecs.worker", {}, "spec.mpiReplicaSpecs"),
        ("MPIJob", "spec.mpiReplicaSpecs.Launcher", GONE, "spec.mpiReplicaSpecs"),
        ("MPIJob", CONTAINERS, [], CONTAINERS),
        ("MPIJob", "apiVersion", "kubeflow.org/v1", "apiVersion"),
        ("MPIJob", "spec", GONE, "spec"),
        ("JobSet", "spec.network.enableDnsHostnames", True, "spec.network"),
        ("JobSet", "spec.successPolicy.operator", "all", "spec.successPolicy.operator"),
        ("JobSet", "spec.replicatedJobs", [], "spec.replicatedJobs"),
    ],
)
def test_one_mistake_is_found_with_its_place(
    kind: str, path: str, value: object, where: str
) -> None:
    document = part = _manifest(kind)
    *before, last = path.split(".")
    for name in before:
        part = part[name]
    if value is GONE:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(InputError) as raised:
        check_manifest(document)
    place = raised.value.where or ""
    assert place == where if kind == "JobSet" else place.startswith(where)


def test_other_kinds_are_not_judged() -> None:
    check_manifest({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})
