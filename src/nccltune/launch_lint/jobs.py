# SPDX-License-Identifier: Apache-2.0
"""Find what the jobs of operators lack: Volcano, MPIJob, PyTorchJob, JobSet."""

import re
from collections.abc import Iterator
from typing import Any

from nccltune.launch.program import read_program
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.pods import (
    OF_INTERFACES,
    PodSpec,
    absent_interface,
    at,
    command_of,
    gpus_of,
    is_volcano,
    mapping,
    one_process,
    pods_of,
    variables_of,
)
from nccltune.model.nccl_variables import PREFIX
from nccltune.model.scale import count


def judge_job(document: dict[str, Any]) -> Iterator[LaunchFinding]:
    """Yield findings for what the pods of one document need to be one job."""
    pods = pods_of(document)
    for pod in pods:
        yield from _alone(document, pod)
    yield from _nodes(document, pods)
    if is_volcano(document):
        yield from _volcano(document, pods)
    if document.get("kind") == "MPIJob":
        yield from _mpi_job(document, pods)
    if document.get("kind") == "PyTorchJob":
        yield from _pytorch_job(pods, "nprocPerNode" in mapping(document.get("spec")))
        yield from _elastic(
            mapping(document.get("spec")), " ".join(w for p in pods for w in p.words)
        )
    if document.get("kind") == "TrainJob":
        yield from _trainer(mapping(at(document, "spec", "trainer")))
    if document.get("kind") == "InferenceService":
        yield from _model_server(mapping(at(document, "spec", "predictor")))


def _elastic(spec: dict[str, Any], text: str) -> Iterator[LaunchFinding]:
    """Find nprocPerNode beside an elasticPolicy, which had one of its own (trainer#1948)."""
    each, policy = str(spec.get("nprocPerNode")), mapping(spec.get("elasticPolicy"))
    is_alone = bool(policy) and each.isdigit() and each != "1" and "nProcPerNode" not in policy
    if is_alone and _TORCHRUN.search(f"{text} ") is not None and "nproc" not in text:
        said = f"nprocPerNode: {each} beside elasticPolicy: training operators up to 1.7 do not"
        fix = f"write nProcPerNode: {each} into elasticPolicy, or --nproc-per-node={each}"
        yield note("pytorch-one-process", f"{said} read it, and torchrun starts 1 process", fix)


def _trainer(trainer: dict[str, Any]) -> Iterator[LaunchFinding]:
    """Find interfaces of a TrainJob, whose runtime may have the network of the host."""
    for name, value in variables_of(trainer):
        if name in OF_INTERFACES and (why := absent_interface(value)) is not None:
            yield note(
                "pod-interface",
                f"trainer: {name}={value}: {why}, unless the runtime sets hostNetwork or attaches"
                " another network",
                f"leave out {name}, or write {name}=eth0",
            )


def _model_server(predictor: dict[str, Any]) -> Iterator[LaunchFinding]:
    """Find a model of KServe whose vLLM is to use more GPUs than its container has."""
    for model in predictor.values() if "workerSpec" not in predictor else ():
        text, gpus = " ".join(command_of(mapping(model))), gpus_of(mapping(model))
        size = _TENSOR.search(text)
        if size is not None and 0 < gpus < int(size[1]) and "executor-backend" not in text:
            yield error(
                "too-many-gpus",
                f"predictor: {size[0]}, and the container's limit is {count(gpus, 'GPU')}",
                f"write nvidia.com/gpu: {size[1]}, or a size of {gpus}",
            )


_TENSOR = re.compile(r"(?<!\S)(?:--tensor[-_]parallel[-_]size|-tp)[= ](\d{1,4})(?!\S)")


_OF_SVC = re.compile(r"\bVC_\w+_(?:HOSTS|NUM)\b|/etc/volcano/")
_INDEX = re.compile(r"\bV[CK]_TASK_INDEX\b")
_RANK_OF_INDEX = re.compile(
    r"(?:\bnode[_-]rank|\b(?:NODE_|GROUP_|PET_NODE_)?RANK)[ =]+[\"']?\$[{(]?V[CK]_TASK_INDEX\b"
)
SVC_PLUGINS = ("svc", "mpi", "pytorch", "tensorflow")
"""Plugins of Volcano that give pods the names of the others: `svc`, and those that turn it on."""


_TORCHRUN = re.compile(
    r"\b(?:torchrun|torch\.distributed\.(?:run|launch))\s"
    r"(?:.*?(?P<address>--(?:master-addr|rdzv-endpoint)\b))?",
    re.S,
)


def _alone(document: dict[str, Any], pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find torchrun without a number of nodes in several pods; an address shows what is meant."""
    text = " ".join(pod.words).replace("_", "-")
    names = {name for one in pod.containers for name, _ in variables_of(one)}
    if pod.number < 2 or document.get("kind") == "PyTorchJob" or "PET_NNODES" in names:
        return
    is_meant = document.get("kind") in ("Job", "JobSet", "StatefulSet", "LeaderWorkerSet")
    is_open = "--standalone" in text or any(word.startswith("$") for word in pod.words)
    if (found := _TORCHRUN.search(text)) is None or "--nnodes" in text:
        return
    if found["address"] or (is_meant and not is_open):
        yield (error if found["address"] else note)(
            "inner-alone",
            f"{pod.role}: torchrun runs in {pod.number} pods, and without --nnodes each is a job of"
            " 1 node",
            f"add --nnodes={pod.number}, and --node-rank for each pod",
        )


def _volcano(document: dict[str, Any], pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    plugins = mapping(at(document, "spec", "plugins"))
    used = [m[0] for pod in pods for word in pod.words if (m := _OF_SVC.search(word)) is not None]
    if used and not set(SVC_PLUGINS) & set(plugins):
        yield error(
            "volcano-svc",
            f"{used[0]} is there with Volcano's plugin svc only, and the job does not have it",
            "add svc: [] to plugins",
        )
    indexed = [pod.role for pod in pods if any(_INDEX.search(word) for word in pod.words)]
    if indexed and "env" not in plugins:
        yield error(
            "volcano-env",
            "VC_TASK_INDEX is there with Volcano's plugin env only, and the job does not have it",
            "add env: [] to plugins",
        )
    ranked = [pod.role for pod in pods if _RANK_OF_INDEX.search(" ".join(pod.words))]
    if len(ranked) > 1:
        yield error(
            "volcano-index",
            f"VC_TASK_INDEX counts from 0 in each of {', '.join(ranked)}: pods get the same rank",
            "add the number of pods of the tasks before: $((VC_TASK_INDEX + 1)) behind one pod",
        )


def volcano_variables(document: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables and the files that the plugins of a Volcano job give to its pods.

    Sources: the plugins svc, mpi and pytorch of Volcano 1.9.
    """
    plugins, pods = mapping(at(document, "spec", "plugins")), pods_of(document)
    job = at(document, "metadata", "name") or "job"
    values: dict[str, str] = {}
    files: dict[str, str] = {}
    hosts = {pod.role: [f"{job}-{pod.role}-{n}.{job}" for n in range(pod.number)] for pod in pods}
    if set(SVC_PLUGINS) & set(plugins):
        for role, names in hosts.items():
            task = role.upper().replace("-", "_")
            values |= {f"VC_{task}_HOSTS": ",".join(names), f"VC_{task}_NUM": str(len(names))}
            files[f"/etc/volcano/{role}.host"] = "\n".join(names)
    if "mpi" in plugins:
        given = [str(word) for word in plugins["mpi"] or ()]
        worker = next((w.partition("=")[2] for w in given if "worker=" in w), "worker")
        values["MPI_HOST"] = ",".join(hosts.get(worker, ()))
    if "pytorch" in plugins:
        values["WORLD_SIZE"] = str(sum(pod.number for pod in pods))
    return {name: value for name, value in values.items() if value}, files


def _mpi_job(document: dict[str, Any], pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    launcher = next((pod for pod in pods if pod.role == "Launcher"), None)
    workers = next((pod for pod in pods if pod.role == "Worker"), None)
    if launcher is None or workers is None:
        return
    if launcher.gpus and not at(document, "spec", "runLauncherAsWorker"):
        yield warning(
            "idle-gpus",
            f"Launcher: it asks for {count(launcher.gpus, 'GPU')}, and mpirun places the processes"
            " on the Workers",
            "leave its GPUs out, or set runLauncherAsWorker: true",
        )
    slots = at(document, "spec", "slotsPerWorker")
    if slots is None:
        slots = 1
    if not isinstance(slots, int) or slots < 1:
        return  # `check_manifest` reports it.
    program = read_program(launcher.words)
    gpus = program.gpus if program is not None else None
    each, case = (1, "where a process uses one GPU, ") if gpus is None else (gpus, "")
    if (gpus or _SLOTS.search(" ".join(launcher.words))) and slots * each < workers.gpus:
        yield (note if gpus is None else warning)(
            "idle-gpus",
            f"{case}slotsPerWorker: {slots} with {count(each, 'GPU')} each uses {slots * each} of"
            f" {workers.gpus} GPUs of a worker",
            f"write slotsPerWorker: {workers.gpus // each}",
        )
    passed = set(launcher.words)
    given = {word.partition("=")[0] for word in passed}
    for container in workers.containers:
        for name, _ in variables_of(container):
            if name.startswith(PREFIX) and name not in given:
                yield warning(
                    "worker-env",
                    f"{name} of the Worker's env does not arrive: its processes are started over"
                    " SSH, which does not pass it",
                    f"add -x {name}=VALUE to the launcher's mpirun",
                )


# A program of Python that no other launcher starts, on all slots.
_SLOTS = re.compile(r"mpi\w+ (?!.*(?:torch|accel| deepsp|sh -|node|-ppn|-N ))[^;&|]*python")


def _pytorch_job(pods: list[PodSpec], several: bool) -> Iterator[LaunchFinding]:
    """Find faults of pods; `several` is whether the job names a number of processes for each."""
    for pod in pods:
        if pod.role == "Master" and pod.number != 1:
            yield error("pytorch-master", f"Master has {pod.number} replicas, not 1")
        if pod.containers and not any(one.get("name") == "pytorch" for one in pod.containers):
            yield error(
                "pytorch-container",
                f"{pod.role}: no container is called pytorch, which the operator requires",
                "write name: pytorch",
            )
        program = one_process(pod.containers[0]) if pod.containers else None
        if pod.gpus > 1 and program is not None and (program or "nproc" not in str(pod.words)):
            nodes = sum(one.number for one in pods)
            said = f"the operator's WORLD_SIZE={nodes} counts pods"
            if several:
                said = "nprocPerNode starts nothing, torchrun alone reads it"
            yield (warning if several and program else note)(
                "pytorch-one-process",
                f"{pod.role}: {program or 'the operator'} starts one process, and the pod has"
                f" {pod.gpus} GPUs: {said}",
                f"start torchrun --nproc-per-node={pod.gpus}, unless the program starts the others"
                " itself",
            )


def _nodes(document: dict[str, Any], pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    """Find `--nnodes=4` in a job of 2 pods."""
    is_whole = document.get("kind") in ("PyTorchJob", "JobSet") or is_volcano(document)
    for pod in pods:
        text = " ".join(pod.words).replace('"', "")
        asked = _NNODES.findall(text)
        if len(asked) != 1 or (pod.number < 2 and not is_whole) or re.search(r"\bif\b", text):
            continue
        nodes = sum(one.number for one in pods if one is pod or one.gpus or not pod.gpus)
        # Several groups of pods may be several jobs.
        if int(asked[0]) > nodes or (nodes > int(asked[0]) and document["kind"] == "PyTorchJob"):
            yield error(
                "job-nodes",
                f"{pod.role}: --nnodes={asked[0]}, and the job has {count(nodes, 'pod')}",
                f"write --nnodes={nodes}, or give the job {asked[0]} pods",
            )


_NNODES = re.compile(r"--nnodes[= ](\d+)(?!\S)")
