# SPDX-License-Identifier: Apache-2.0
"""Find launch commands in Kubernetes manifests, and faults in their fields and pods."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from nccltune.formats.text.yaml_documents import load_documents
from nccltune.launch.kubernetes.schema import SPECS, check_manifest
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.hosts import text_of
from nccltune.launch_lint.jobs import judge_job, volcano_variables
from nccltune.launch_lint.nested import SHELLS, script_at
from nccltune.launch_lint.pods import (
    COMPLETES,
    PodSpec,
    at,
    command_of,
    gpus_of,
    is_volcano,
    items,
    judge_pods,
    mapping,
    pods_of,
    variables_of,
)
from nccltune.launch_lint.read import no_launcher, script_of
from nccltune.launch_lint.source import FoundCommand, from_text, from_words
from nccltune.launch_lint.words import Line, is_open, placeholder_in, quoted, split
from nccltune.model.errors import InputError
from nccltune.model.scale import count

_VARIABLE = re.compile(r"(?<!\$)\$\(([A-Za-z_][\w.-]*)\)", re.ASCII)


def is_manifest(text: str) -> bool:
    """Return whether a text is or has a manifest of Kubernetes."""
    return re.search(r"^[ \t>]*kind:\s*\S", text, re.M) is not None and "apiVersion:" in text


def documents_of(text: str, where: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML file that are mappings.

    `where` is the file's name, for messages. A template is read with unknown values. Raises
    InputError if the text is not YAML.
    """
    try:
        read = load_documents(_without_actions(text), where)
    except InputError as raised:
        if not is_template(text):
            raise
        what = "is a template, which becomes a manifest when its {{ }} are filled in"
        raise InputError(what, where=where, hint=_FILLED) from raised
    return [one for one in read if isinstance(one, dict)]


def is_template(text: str) -> bool:
    """Return whether a manifest is a template of Helm or Go, which has `{{ }}`."""
    return _ACTION.search(text) is not None


_FILLED = "check the manifest with its values, such as `helm template` prints it"
_ACTION = re.compile(r"\{(?:\{(?s:.*?)\}|%-?\s.*?\s-?%)\}")
_ACTIONS_ALONE = re.compile(r"^[ \t]*(?:\{([{%#])(?:(?!\1\}|\}\}).)*[%#}]\}[ \t]*)+$\n?", re.M)
_ACTION_OF_ITEM = re.compile(r"^([ \t]*-) +\{[{%]-? *(?:if|with|range|for)\b.*[%}]\}$", re.M)


def _without_actions(text: str) -> str:
    """Return a template with unknown values: `{{ .Values.n }}` is `${.Values.n}`.

    Lines of actions alone (`{{- if }}`, `{{- include }}`, `{% for %}` of Jinja) are left out.
    """
    text = _ACTION_OF_ITEM.sub(r"\1", _ACTIONS_ALONE.sub("", text))
    return _ACTION.sub(_unknown, text)


def _unknown(action: re.Match[str]) -> str:
    name = re.sub("[^A-Za-z0-9_.]+", "_", action[0].strip("{}%- \t\n"))
    return f"${{{name}}}"


def judge_manifests(
    documents: list[dict[str, Any]], text: str = "", *, of_template: bool = False
) -> list[LaunchFinding]:
    """Return findings for fields that a cluster would refuse or ignore, and for faults of pods.

    `text` has the documents. In it, keys are found that a mapping has twice.
    The fields and pods of a template are not checked, because its actions may add what they lack.
    """
    if of_template:
        said = "this is a template: {{ }} stands for unknown values, and pods were not checked"
        return [note("template", said, _FILLED)]
    found = [*_repeated_keys(text)] if documents else []
    for document in documents:
        if _is_patch(document):
            said = "no container has an image or a command, as in a patch: gaps were not checked"
            found.append(note("manifest-patch", f"{document.get('kind')}: {said}"))
            continue
        # The fields of other kinds are not checked anyway.
        is_checked = document.get("kind") in SPECS or pods_of(document)
        blank = placeholder_in(document) if is_checked else None
        try:
            if blank is None and document.get("apiVersion") not in _OLD_MPI_JOBS:
                check_manifest(document)
        except InputError as raised:
            found.append(
                error(
                    "manifest",
                    f"{raised.where}: {raised.message}",
                    f"kubectl explain {document.get('kind')}.spec".lower() + " lists the fields",
                )
            )
        if blank is not None:
            said = f"{document.get('kind')}: {blank} is not filled in: its fields were not checked"
            found.append(note("template", said))
        found += [*judge_pods(document), *judge_job(document)]
    return found


def _repeated_keys(text: str) -> Iterator[LaunchFinding]:
    """Yield keys that a mapping of a YAML text has twice, of which kubectl takes the last."""
    repeated: list[tuple[str, int, int]] = []
    with contextlib.suppress(InputError):
        load_documents(text, "", repeated)
    for key, first, last in dict.fromkeys(repeated):
        yield warning(
            "key-twice",
            f"line {last}: {key} is also in line {first} of the same mapping: kubectl takes the"
            " last alone, and kustomize refuses the file",
            f"write {key} once, with all that it needs",
        )


def checked_pods(documents: list[dict[str, Any]]) -> Iterator[LaunchFinding]:
    """Yield the note that pods with GPUs, or Ray and servers, were checked without a command."""
    pods = [pod for document in documents for pod in pods_of(document) if pod.gpus]
    if pods:
        what = f"the fields of {count(sum(pod.number for pod in pods), 'pod')} with GPUs"
        said = f"no container starts a launcher: {what} were checked alone"
        yield note("pods-alone", said, "check the command that is started in them by itself")
    served = [one for one in documents if str(one.get("apiVersion")).startswith(COMPLETES)]
    if served and not pods:
        what = f"{served[0].get('kind')}: Ray or a server starts the processes: no command line"
        said = f"{what} that shows how many is in this file, and only its settings were read"
        yield note("pods-alone", said)


def _is_patch(document: dict[str, Any]) -> bool:
    """Return whether a workload starts nothing by itself, such as a patch of a kustomization."""
    containers = _containers(document)
    return bool(pods_of(document)) and not any({"image", "command"} & set(c) for c in containers)


_OLD_MPI_JOBS = tuple(f"kubeflow.org/v1{kind}" for kind in ("", "alpha1", "alpha2"))
"""Versions of MPIJob before v2beta1, whose fields are not checked."""


def from_manifests(
    documents: list[dict[str, Any]], site: LaunchContext, where: str
) -> list[FoundCommand]:
    """Return the commands of the containers in manifests.

    `where` is the file's name. Raises InputError if no container starts a launcher or a program of
    nccl-tests.

    >>> container = {"command": ["mpirun", "-np", "8", "all_reduce_perf"]}
    >>> pod = {"kind": "Pod", "spec": {"containers": [container]}}
    >>> (found,) = from_manifests([pod], LaunchContext(), "pod.yaml")
    >>> found.line.words[0].text
    'mpirun'
    """
    found = []
    for document in documents:
        around = _of_kind(document, site)
        for script in _scripts(document):
            with contextlib.suppress(InputError):
                if is_manifest(script):
                    found += from_manifests(documents_of(script, where), site, where)
                else:
                    found += from_text(script, around)
        pods = {id(one): pod for pod in pods_of(document) for one in pod.containers}
        for container in _containers(document):
            pod, gpus, own = pods.get(id(container)), gpus_of(container), around
            if pod is not None and not pod.starts_mpi and 0 < gpus < (around.gpus or 0):
                own = own._replace(gpus=gpus, gpus_from=f"the limit of the {pod.role}'s container")
            found += _of_container(container, own)
        if document.get("kind") == "Kustomization":
            found += _of_patches(document, around, where)
    if not found and any(document.get("kind") == "Kustomization" for document in documents):
        raise InputError(
            "is a kustomization, which names the manifests and changes them",
            where=where,
            hint="check what `kubectl kustomize FOLDER` prints",
        )
    if not found:
        lines = [line for one in documents for box in _containers(one) for line in _lines_of(box)]
        if any(script_of(line.words) for line in lines):
            raise no_launcher(lines)
        raise InputError(
            "no container of this manifest starts a launcher",
            where=where,
            hint="looked for mpirun, mpiexec, prterun, srun, torchrun, vllm, sglang and the"
            " programs of nccl-tests in command and args",
        )
    return found


def _of_patches(document: dict[str, Any], site: LaunchContext, where: str) -> list[FoundCommand]:
    """Return the commands that the patches of a kustomization give to containers."""
    names = ("patches", "patchesStrategicMerge", "patchesJson6902")
    given = [one for name in names for one in items(document.get(name))]
    patches = [
        one.get("patch") or text_of(str(one.get("path")), site) if isinstance(one, dict) else one
        for one in given
    ]
    found: list[FoundCommand] = []
    for patch in patches:
        with contextlib.suppress(InputError):
            read = load_documents(str(patch or ""), where)
            steps = [step for one in read for step in items(one)]
            values = {str(at(step, "path")): at(step, "value") for step in steps}
            pods = next(
                (n for path, n in values.items() if path.endswith("/Worker/replicas")), None
            )
            around = site._replace(nodes=pods) if isinstance(pods, int) and pods > 0 else site
            for value in values.values():
                words = list(map(str, items(value)))
                # One word is the script of the `bash -c` that the base has.
                words = ["sh", "-c", *words] if len(words) == 1 else words
                found += from_words(words, around, strict=False) if words else []
            found += from_manifests([one for one in read if isinstance(one, dict)], site, where)
    return found


def _scripts(document: dict[str, Any]) -> list[str]:
    """Return the scripts in a ConfigMap, and the command of a RayJob."""
    if document.get("kind") == "RayJob":
        return [str(at(document, "spec", "entrypoint"))]
    data = mapping(document.get("data") if document.get("kind") == "ConfigMap" else None)
    return [value for value in data.values() if isinstance(value, str)]


def manifests_in(text: str, where: str) -> tuple[list[dict[str, Any]], str]:
    """Return the documents of a manifest or of those inside a text, and the rest of the text.

    They may be behind `<<` of a script, or in a code block of a page. Raises InputError for a text
    that begins as a manifest and cannot be read.
    """
    if not is_manifest(text):
        return [], text
    try:
        if documents := documents_of(text, where):
            return documents, ""
    except InputError as raised:
        whole = raised
    else:
        return [], text
    blocks, rest = _blocks(text)
    found: list[dict[str, Any]] = []
    for block in blocks:
        with contextlib.suppress(InputError):
            found += documents_of(block, where)
    lines = (line for line in text.splitlines() if line.strip(" \t") and line[0] not in "#-{%")
    if not found and _BEGIN.match(next(lines, "")) is not None:
        raise whole
    return (found, rest) if found else ([], text)


def _blocks(text: str) -> tuple[list[str], str]:
    """Return the parts of a text from `apiVersion:` to the first line that is no part of it."""
    blocks: list[list[str]] = []
    rest: list[str] = []
    margin: str | None = None
    for line in text.splitlines(keepends=True):
        if margin is not None and line.strip():
            inner = line.removeprefix(margin)
            is_part = inner == line[len(margin) :] and _PART.match(inner) is not None
            margin = margin if is_part else None
        if margin is None and (begin := _BEGIN.match(line)) is not None:
            margin = begin[1]
            blocks.append([])
        (rest if margin is None else blocks[-1]).append(
            line if margin is None else line.removeprefix(margin)
        )
    return ["".join(block) for block in blocks], "".join(rest)


_BEGIN = re.compile(r"([ \t>]*)(?:apiVersion|kind):\s*\S")
_PART = re.compile(r"[ \t]|[\w\"'.-]+:(?:\s|$)|- |#|---|\{\{")
"""The beginning of a line of a manifest, without its margin."""


def _of_kind(document: dict[str, Any], site: LaunchContext) -> LaunchContext:
    """Return `site` with the numbers of nodes, slots and GPUs that a manifest gives its workers.

    For a PyTorchJob, also add the variables that its operator sets.
    """
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return site
    if document.get("kind") == "MPIJob":
        worker = at(spec, "mpiReplicaSpecs", "Worker")
        replicas, slots = at(worker, "replicas"), at(spec, "slotsPerWorker")
        pods = None
        if isinstance(replicas, int) and replicas > 0:
            pods = replicas + (spec.get("runLauncherAsWorker") is True)
        site = site._replace(
            several=site.several or is_open(str(replicas)),
            workers=pods or site.workers,
            nodes=pods or site.nodes,
            # Without the field a worker has 1 slot. `check_manifest` reports other values.
            slots=1 if slots is None else slots if isinstance(slots, int) and slots > 0 else None,
        )
    if document.get("kind") == "JobSet":
        jobs = items(spec.get("replicatedJobs"))
        sizes = [at(job, "template", "spec", "parallelism") for job in jobs]
        whole = [size for size in sizes if isinstance(size, int) and size > 0]
        site = site._replace(nodes=max(whole, default=0) or site.nodes)
    if document.get("kind") == "LeaderWorkerSet":
        size = at(spec, "leaderWorkerTemplate", "size")
        if isinstance(size, int) and size > 0:
            exported = (*site.exported, ("LWS_GROUP_SIZE", str(size)))
            site = site._replace(nodes=size, exported=exported)
    if is_volcano(document):
        values, files = volcano_variables(document)
        site = site._replace(
            exported=(*site.exported, *values.items()),
            files=(*site.files, *((name.rpartition("/")[2], text) for name, text in files.items())),
        )
    if document.get("kind") in _SET_FOR_TORCHRUN:
        elastic, policy = at(spec, "elasticPolicy"), mapping(at(spec, "mlPolicy"))
        given_by = (policy, mapping(policy.get("torch")), mapping(policy.get("mpi")))
        trainer = mapping(at(spec, "trainer")) or {k: v for one in given_by for k, v in one.items()}
        number = trainer.get("numNodes") or sum(pod.number for pod in pods_of(document)) or 1
        least, most = (at(elastic, f"{limit}Replicas") or number for limit in ("min", "max"))
        each = spec.get("nprocPerNode") or at(elastic, "nProcPerNode")
        each = each or trainer.get("numProcPerNode") or "auto"
        given = {
            "PET_RDZV_ENDPOINT": "",
            "PET_NODE_RANK": "",
            "PET_NPROC_PER_NODE": str(each),
            "PET_NNODES": str(number) if elastic is None else f"{least}:{most}",
        }
        if document.get("kind") == "PyTorchJob" and elastic is None and each == "auto":
            # With a number of processes per node, newer operators count processes, not pods.
            given["WORLD_SIZE"] = str(number)
        site = site._replace(exported=(*site.exported, *given.items()))
        pod = PodSpec("", {"containers": [*_containers(document)]})
        if document.get("kind") != "PyTorchJob" and pod.starts_mpi:
            site = _of_mpi_runtime(site, trainer, max(map(gpus_of, pod.containers)))
    gpus = [gpus_of(container) for container in _containers(document)]
    return site._replace(gpus=max(gpus), gpus_from="the container's limit") if any(gpus) else site


def _of_mpi_runtime(site: LaunchContext, trainer: dict[str, Any], gpus: int) -> LaunchContext:
    """Return `site` with the hosts that Kubeflow Trainer 2 lists for mpirun.

    Without a number of processes per node, each has a slot for each GPU, or one.
    """
    nodes, each = trainer.get("numNodes"), trainer.get("numProcPerNode") or gpus
    nodes = nodes if isinstance(nodes, int) and nodes > 0 else None
    slots = each if isinstance(each, int) and each > 0 else None
    return site._replace(nodes=nodes or site.nodes, workers=nodes, slots=slots)


_SET_FOR_TORCHRUN = ("PyTorchJob", "TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
"""Kinds whose operators set variables that torchrun reads instead of options."""


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("containers", "initContainers") and isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, dict))
            elif name == "trainer" and isinstance(inner, dict):
                # Of a TrainJob, whose runtime has the rest of the pod.
                yield {**inner, "resources": inner.get("resourcesPerNode")}
            else:
                yield from _containers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _containers(inner)


def _lines_of(container: dict[str, Any]) -> list[Line]:
    """Return the lines that a container runs: its command, or those of its shell's script."""
    words = command_of(container)
    script = script_at(words, 1) if words and words[0].rpartition("/")[2] in SHELLS else None
    return split(words[script]) if script is not None else [Line(tuple(map(quoted, words)), "")]


def _of_container(container: dict[str, Any], site: LaunchContext) -> list[FoundCommand]:
    around = site._replace(exported=(*site.exported, *variables_of(container)))
    values = dict(around.exported)
    # Kubernetes itself replaces $(NAME), also where no shell is started.
    words = [
        _VARIABLE.sub(lambda match: values.get(match[1], match[0]), word)
        for word in command_of(container)
    ]
    with contextlib.suppress(InputError):
        if manifests := [one for word in words for one in manifests_in(word, "")[0]]:
            return from_manifests(manifests, site, "")
    return from_words(words, around, strict=False)
