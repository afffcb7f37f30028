# SPDX-License-Identifier: Apache-2.0
"""Commands in manifests of Kubernetes, what stands around them, and fields that do not exist."""

import re
from collections.abc import Iterator
from typing import Any

from nccltune.formats.yaml_documents import load_documents
from nccltune.launch.kubernetes.schema import check_manifest
from nccltune.launch.lint.command import Site
from nccltune.launch.lint.finding import Finding, Severity
from nccltune.launch.lint.source import Found, from_words
from nccltune.model.errors import InputError


def is_manifest(text: str) -> bool:
    """Whether a file is a manifest of Kubernetes."""
    return re.search(r"^kind:\s*\S", text, re.M) is not None and "apiVersion:" in text


def documents_of(text: str, where: str) -> list[dict[str, Any]]:
    """The documents of a YAML file. Raises InputError where it is none."""
    return [one for one in load_documents(text, where) if isinstance(one, dict)]


def judge_manifests(documents: list[dict[str, Any]]) -> list[Finding]:
    """What a cluster would refuse, or drop without a word."""
    found = []
    for document in documents:
        try:
            check_manifest(document)
        except InputError as error:
            found.append(
                Finding(
                    Severity.ERROR,
                    "manifest",
                    f"{error.where}: {error.message}",
                    "kubectl explain " + f"{document.get('kind')}".lower() + ".spec says what is",
                )
            )
    return found


def from_manifests(documents: list[dict[str, Any]], site: Site, where: str) -> list[Found]:
    """The commands in manifests' containers. Raises InputError where none has a launcher."""
    found = []
    for document in documents:
        around = _of_kind(document, site)
        for container in _containers(document):
            found += _of_container(container, around)
    if not found:
        raise InputError(
            "no container of this manifest starts a launcher",
            where=where,
            hint="looked for mpirun, mpiexec, prterun and srun in command and args",
        )
    return found


def _of_kind(document: dict[str, Any], site: Site) -> Site:
    """Nodes, slots and GPUs that the manifest gives to its workers."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return site
    if document.get("kind") == "MPIJob":
        worker = _at(spec, "mpiReplicaSpecs", "Worker")
        replicas, slots = _at(worker, "replicas"), _at(spec, "slotsPerWorker")
        site = site._replace(
            nodes=replicas if isinstance(replicas, int) and replicas > 0 else site.nodes,
            slots=slots if isinstance(slots, int) and slots > 0 else 1,
        )
    if document.get("kind") == "JobSet":
        jobs = spec.get("replicatedJobs")
        sizes = [
            _at(job, "template", "spec", "parallelism")
            for job in (jobs if isinstance(jobs, list) else [])
        ]
        whole = [size for size in sizes if isinstance(size, int) and size > 0]
        site = site._replace(nodes=max(whole, default=0) or site.nodes)
    gpus = [
        int(str(value))
        for container in _containers(document)
        for name, value in _mapping(_at(container, "resources", "limits")).items()
        if str(name).endswith("/gpu") and str(value).isdigit() and int(str(value)) > 0
    ]
    return site._replace(gpus_per_node=max(gpus)) if gpus else site


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("containers", "initContainers") and isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, dict))
            else:
                yield from _containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _containers(inner)


def _of_container(container: dict[str, Any], site: Site) -> list[Found]:
    words = [
        str(word)
        for part in ("command", "args")
        for word in (container[part] if isinstance(container.get(part), list) else [])
    ]
    environment = container.get("env")
    exported = tuple(
        (str(one["name"]), str(one["value"]))
        for one in (environment if isinstance(environment, list) else [])
        if isinstance(one, dict) and "name" in one and "value" in one
    )
    return from_words(words, site._replace(exported=(*site.exported, *exported)), strict=False)
