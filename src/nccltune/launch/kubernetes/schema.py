# SPDX-License-Identifier: Apache-2.0
"""The fields of an MPIJob and a JobSet, to find a wrong field before a cluster sees the manifest.

Source: the API of MPI Operator 0.7 (kubeflow.org/v2beta1) and JobSet 0.12
(jobset.x-k8s.io/v1alpha2). In the description of a pod only the containers are checked. The cluster
checks the rest when it creates the pod.
"""

from typing import Annotated, Any, Literal

import msgspec

from nccltune.model.errors import InputError

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Fields(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Only its own fields, spelled as in Kubernetes (`camelCase`)."""


class _Container(msgspec.Struct, kw_only=True):
    name: str
    image: str | None = None
    command: list[str] = []
    args: list[str] = []


class _PodSpec(msgspec.Struct, kw_only=True):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]


class _PodTemplate(_Fields):
    spec: _PodSpec
    metadata: dict[str, Any] = {}


class _SchedulingPolicy(_Fields):
    min_available: _Count | None = None
    queue: str | None = None
    min_resources: dict[str, Any] | None = None
    priority_class: str | None = None
    schedule_timeout_seconds: _Count | None = None


class _RunPolicy(_Fields):
    clean_pod_policy: Literal["All", "Running", "None"] | None = None
    ttl_seconds_after_finished: _Count | None = None
    active_deadline_seconds: _Count | None = None
    backoff_limit: _Count | None = None
    scheduling_policy: _SchedulingPolicy | None = None
    suspend: bool | None = None
    managed_by: str | None = None


class _Replica(_Fields):
    template: _PodTemplate
    replicas: _Count | None = None
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"] | None = None


class _Replicas(msgspec.Struct, forbid_unknown_fields=True, rename="pascal", kw_only=True):
    launcher: _Replica
    worker: _Replica | None = None


class MpiJobSpec(_Fields):
    """The field `spec` of an MPIJob."""

    mpi_replica_specs: _Replicas
    slots_per_worker: _Count | None = None
    run_launcher_as_worker: bool | None = None
    run_policy: _RunPolicy | None = None
    ssh_auth_mount_path: str | None = None
    launcher_creation_policy: Literal["AtStartup", "WaitForWorkersReady"] | None = None
    mpi_implementation: Literal["OpenMPI", "Intel", "MPICH"] | None = None


class _Network(_Fields):
    enable_dns_hostnames: bool | None = msgspec.field(default=None, name="enableDNSHostnames")
    publish_not_ready_addresses: bool | None = None
    subdomain: str | None = None


class _SuccessPolicy(_Fields):
    operator: Literal["All", "Any"]
    target_replicated_jobs: list[str] = []


class _FailurePolicy(_Fields):
    max_restarts: _Count | None = None
    restart_strategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] | None = None
    rules: list[dict[str, Any]] = []


class _StartupPolicy(_Fields):
    startup_policy_order: Literal["AnyOrder", "InOrder"]


class _Coordinator(_Fields):
    replicated_job: str
    job_index: _Count | None = None
    pod_index: _Count | None = None


class _JobSpec(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of a batch/v1 Job that are checked here. The cluster checks the others."""

    template: _PodTemplate
    parallelism: _Count | None = None
    completions: _Count | None = None
    backoff_limit: _Count | None = None


class _JobTemplate(_Fields):
    spec: _JobSpec
    metadata: dict[str, Any] = {}


class _ReplicatedJob(_Fields):
    name: str
    template: _JobTemplate
    replicas: _Count | None = None
    group_name: str | None = None
    depends_on: list[dict[str, Any]] = []


class JobSetSpec(_Fields):
    """The field `spec` of a JobSet."""

    replicated_jobs: Annotated[list[_ReplicatedJob], msgspec.Meta(min_length=1)]
    network: _Network | None = None
    success_policy: _SuccessPolicy | None = None
    failure_policy: _FailurePolicy | None = None
    startup_policy: _StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: _Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: _Count | None = None
    volume_claim_policies: list[dict[str, Any]] = []


SPECS = {
    "MPIJob": ("kubeflow.org/v2beta1", MpiJobSpec),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", JobSetSpec),
}


def check_manifest(document: dict[str, Any]) -> None:
    """Raise InputError with the place of the first wrong field of an MPIJob or a JobSet."""
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in SPECS:
        return
    version, spec = SPECS[kind]
    given = document.get("apiVersion")
    if given != version:
        raise InputError(f"apiVersion of {kind} is {given!r}, not {version!r}", where="apiVersion")
    try:
        msgspec.convert(_without_nulls(document.get("spec")), spec)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        where = "spec" + place.strip("`").removeprefix("$")
        raise InputError(what[0].lower() + what[1:], where=where) from error


def _without_nulls(value: Any) -> Any:
    """Return a value without the fields that are null, which Kubernetes takes for absent."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
