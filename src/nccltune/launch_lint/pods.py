# SPDX-License-Identifier: Apache-2.0
"""Find pods of a manifest without the GPUs, shared memory, names or locked memory they need."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccltune.launch.program import is_nccl_test, read_program
from nccltune.launch_lint.boxes import entrypoint_of
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.read import is_launcher
from nccltune.launch_lint.words import is_open, placeholder_in, whole_number
from nccltune.model.nccl_variables import PREFIX
from nccltune.model.scale import count

SHM = "/dev/shm"  # noqa: S108 - a mount point to look for
_GPU = re.compile(
    r"[\w.-]+/gpu|nvidia\.com/(?:gpu\.shared|mig-[\w.-]+)|(?:gpu|mig)\.(?:nvidia|amd)\.com/.+"
    r"|gpu\.intel\.com/(?:i915|xe)"
)
_MPI_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "orterun")


def mapping(value: Any) -> dict[Any, Any]:
    """Return `value` if it is a mapping, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def at(value: Any, *names: str) -> Any:
    """Return the value at a path of names in nested mappings, or None if a name is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class PodSpec(NamedTuple):
    """A pod's `spec`, its role in the job (`Worker`, `launcher`) and the number of such pods."""

    role: str
    spec: dict[Any, Any]
    number: int = 1

    @property
    def containers(self) -> list[dict[Any, Any]]:
        """Return the pod's containers, without init containers."""
        found = self.spec.get("containers")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @property
    def words(self) -> list[str]:
        """Return the words of all containers' commands. Scripts are split at blanks."""
        return [
            word for one in self.containers for part in command_of(one) for word in part.split()
        ]

    @property
    def gpus(self) -> int:
        """Return the sum of the GPU limits of the pod's containers."""
        return sum(gpus_of(container) for container in self.containers)

    @property
    def starts_mpi(self) -> bool:
        """Return whether a container calls an MPI launcher to start processes in other pods."""
        return any(word.rpartition("/")[2].startswith(_MPI_LAUNCHERS) for word in self.words)


def command_of(container: dict[Any, Any]) -> list[str]:
    """Return the command of a container, its own or the image's, with its arguments.

    Without arguments an operator may write the command, as that of a RayCluster does.
    """
    own, arguments = (
        [str(word) for word in listed] if isinstance(listed := container.get(key), list) else []
        for key in ("command", "args")
    )
    own = own or (list(entrypoint_of(str(container.get("image")))) if arguments else [])
    return [*own, *arguments]


def is_gpu(resource: Any) -> bool:
    """Return whether a resource name means GPUs: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`.

    Other names below `nvidia.com/`, such as `rdma-vf`, `hostdev` and `mlnxnics`, are NICs of the
    network operator, or whatever an administrator named so.
    """
    return _GPU.fullmatch(str(resource)) is not None


def gpus_of(container: dict[Any, Any]) -> int:
    """Return the number of GPUs in a container's limits."""
    limits = mapping(at(container, "resources", "limits"))
    return sum(whole_number(str(value)) or 0 for name, value in limits.items() if is_gpu(name))


_ROLES = {
    "MPIJob": "mpiReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "JobSet": "replicatedJobs",
    "Job": "tasks",
}
"""The field of a workload that has its roles; `tasks` is that of a job of Volcano."""
_OF_ONE_ROLE = ("Job", "Deployment", "StatefulSet", "DaemonSet")


def pods_of(document: dict[str, Any]) -> list[PodSpec]:
    """Return the pods of a workload, or no pods for an unknown kind of document."""
    kind, spec = str(document.get("kind")), mapping(document.get("spec"))
    if kind == "Pod":
        return [PodSpec("Pod", spec)]
    roles = spec.get(_ROLES.get(kind, ""))
    if kind == "LeaderWorkerSet":
        group = mapping(spec.get("leaderWorkerTemplate"))
        leader, worker = group.get("leaderTemplate"), group.get("workerTemplate")
        number = _count(group.get("size")) - (leader is not None)
        roles = {"leader": {"template": leader}} if leader is not None else {}
        roles |= {"worker": {"template": worker, "replicas": number}} if worker and number else {}
    elif kind in _OF_ONE_ROLE and not isinstance(roles, list):
        roles = {kind: spec}
    named = [(at(one, "name"), one) for one in roles] if isinstance(roles, list) else mapping(roles)
    pairs = named.items() if isinstance(named, dict) else named
    return [_pod(str(role), part) for role, part in pairs]


def _pod(role: str, part: Any) -> PodSpec:
    """Return the pods of a role. A role of a JobSet has the template of a Job."""
    spec = mapping(at(part, "template", "spec"))
    number = _count(at(part, "replicas")) * _count(at(part, "parallelism"))
    if "template" in spec:
        return _pod(role, spec)._replace(number=number * _count(spec.get("parallelism")))
    return PodSpec(role, spec, number)


def is_volcano(document: dict[str, Any]) -> bool:
    """Return whether a document is a job of the scheduler Volcano."""
    version = str(document.get("apiVersion"))
    return document.get("kind") == "Job" and version.startswith("batch.volcano.sh/")


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def judge_pods(document: dict[str, Any]) -> Iterator[LaunchFinding]:
    """Yield findings for what the pods of one document lack."""
    pods = pods_of(document)
    for pod in pods:
        yield from _gpus(document, pod, pods)
        if pod.role != "Launcher" or at(document, "spec", "runLauncherAsWorker"):
            yield from _shared_memory(pod)
        yield from _locked_memory(pod)
        yield from _fabric(document, pod, pods)
        yield from _host_network(document, pod)
        if placeholder_in(document) is None:
            fix = "write $({0}), which Kubernetes replaces, or start it with bash -c"
            for container in pod.containers:
                yield from unexpanded(pod.role, command_of(container), fix)
        yield from _not_text(pod)
        yield from _unreplaced_references(pod)
        yield from _alone(document, pod)
        yield from _same_rank(pod)
    if is_volcano(document):
        yield from _volcano(document, pods)
    if document.get("kind") == "MPIJob":
        yield from _mpi_job(document, pods)
    if document.get("kind") == "PyTorchJob":
        yield from _pytorch_job(pods)


def _same_rank(pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find `--node-rank=0` in the command of several pods, whose ranks have to differ."""
    text = " ".join(pod.words)
    rank = _RANK.search(text)
    if rank is not None and pod.number > 1 and _BY_RANK.search(text) is None:
        yield error(
            "inner-rank",
            f"{pod.role}: each of {pod.number} pods gets {rank[0]}",
            "take it from a variable that differs, such as JOB_COMPLETION_INDEX of an indexed job",
        )


_RANK = re.compile(r"--(?:node|machine)[-_]rank[= ]\d+(?!\S)")
_BY_RANK = re.compile(r"\b(?:if|case)\b|--rdzv[-_]backend[= ](?!static)")
"""What shows that pods differ, or that their ranks come from elsewhere."""
_GLOO = re.compile(r"\bbackend[= ]+[\"']?gloo\b", re.I)


def _needs_gpus(document: dict[str, Any], pod: PodSpec, pods: list[PodSpec]) -> bool:
    if document.get("kind") == "MPIJob":
        runs = at(document, "spec", "runLauncherAsWorker") is True
        return pod.role == "Worker" or runs or len(pods) == 1
    if document.get("kind") == "PyTorchJob":
        return True
    if _GLOO.search(" ".join(pod.words)):
        return False
    others = [one for one in pods if one is not pod]
    if pod.starts_mpi:
        return not others
    if any(other.starts_mpi for other in others):
        return True
    return any(is_nccl_test(word) or is_launcher(word) for word in pod.words)


def _gpus(document: dict[str, Any], pod: PodSpec, pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    where = f"{document.get('kind')}, {pod.role}"
    for container in pod.containers:
        limits = mapping(at(container, "resources", "limits"))
        requests = mapping(at(container, "resources", "requests"))
        for name, value in {**requests, **limits}.items():
            if not is_gpu(name):
                continue
            if is_open(str(value)):
                return  # A template's number of GPUs.
            if whole_number(str(value)) is None:
                yield error(
                    "pod-gpus",
                    f"{where}: {name}: {value} is no whole number",
                    f"write {name}: 8, the GPUs of the pod",
                )
            elif name in requests and name in limits and str(requests[name]) != str(limits[name]):
                yield error(
                    "pod-gpus",
                    f"{where}: {name} has the request {requests[name]} and the limit"
                    f" {limits[name]}, which have to be equal",
                    "leave out the request",
                )
    if not _needs_gpus(document, pod, pods) or pod.gpus or _may_get_gpus_otherwise(pod):
        return
    kind = document.get("kind")
    is_sure = kind in ("MPIJob", "PyTorchJob") or _ON_GPUS.search(str(document)) is not None
    yield (error if is_sure else note)(
        "pod-without-gpus",
        f"{where}: no container has a limit of nvidia.com/gpu, so that the pod gets no GPU",
        "add resources: {limits: {nvidia.com/gpu: 8}}",
    )


_ON_GPUS = re.compile(r"nvidia|gpu|nccl|cuda|rdma|infiniband|_perf\b|vllm|sglang", re.I)
"""What shows that a job is for GPUs. Others may be for CPUs."""


def _may_get_gpus_otherwise(pod: PodSpec) -> bool:
    """Return whether the pod may get GPUs without a number in its limits.

    Such ways are resource claims, privileged containers and NVIDIA_VISIBLE_DEVICES. A GPU limit
    that is not a whole number, such as a variable of a template, also counts.
    """
    if at(pod.spec, "resourceClaims"):
        return True
    for container in pod.containers:
        limits = mapping(at(container, "resources", "limits"))
        if any((is_gpu(n) and str(v) != "0") or is_open(str(n)) for n, v in limits.items()):
            return True
        if at(container, "resources", "claims") or at(container, "securityContext", "privileged"):
            return True
        if any(name == "NVIDIA_VISIBLE_DEVICES" for name, _ in variables_of(container)):
            return True
    return False


def variables_of(container: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return the environment variables of a container that have a literal value."""
    environment = container.get("env")
    return [
        (str(one["name"]), str(one["value"]))
        for one in (environment if isinstance(environment, list) else [])
        if isinstance(one, dict) and "name" in one and "value" in one
    ]


def _not_text(pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find `value: 0` of a variable, which YAML reads as a number."""
    for container in pod.containers:
        environment = container.get("env")
        for one in environment if isinstance(environment, list) else []:
            name, value = at(one, "name"), at(one, "value")
            if isinstance(value, bool | int | float):
                kind = "truth value" if isinstance(value, bool) else "number"
                yield error(
                    "env-not-text",
                    f"{pod.role}: the value of {name} is a {kind}, and the API server takes only"
                    " text: it refuses the manifest",
                    f'write value: "{str(value).lower()}"',
                )


def _unreplaced_references(pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find `value: /opt/lib:$LD_LIBRARY_PATH`, which Kubernetes does not replace.

    It replaces `$(NAME)` of variables that the list has before, not those of the image.
    """
    for container in pod.containers:
        before: set[str] = set()
        environment = container.get("env")
        for one in environment if isinstance(environment, list) else []:
            name, value = str(at(one, "name")), str(at(one, "value") or "")
            for sign, used in _REFERENCE.findall(value):
                is_replaced = sign == "(" and (used in before or "envFrom" in container)
                if is_replaced or used not in (*before, name):
                    continue
                text = f"${sign}{used}" + {"(": ")", "{": "}"}.get(sign, "")
                own = f", and what the image has in {name} is lost" * (used == name)
                yield warning(
                    "env-kept",
                    f"{pod.role}: Kubernetes does not replace {text} in the value of {name}: it"
                    f" stays as text{own}",
                    f"set {name} in the command of the container, where a shell reads it"
                    if own
                    else f"write $({used})",
                )
            before.add(name)


_REFERENCE = re.compile(r"(?<!\$)\$([({]?)([A-Za-z_]\w*)")


def _shared_memory(pod: PodSpec) -> Iterator[LaunchFinding]:
    if pod.gpus < 2 or pod.spec.get("hostIPC") is True:
        return
    for container in pod.containers:
        mounts = container.get("volumeMounts")
        mounted = [at(mount, "mountPath") for mount in (mounts if isinstance(mounts, list) else [])]
        if gpus_of(container) and SHM not in [str(path).rstrip("/") for path in mounted]:
            yield warning(
                "pod-shm",
                f"{pod.role}: the pod has 64 MiB of {SHM}, which NCCL's shared buffers may exceed",
                f"mount an emptyDir of medium Memory at {SHM}",
            )
            return


def _locked_memory(pod: PodSpec) -> Iterator[LaunchFinding]:
    for container in pod.containers:
        limits = mapping(at(container, "resources", "limits"))
        security = mapping(container.get("securityContext"))
        added = at(security, "capabilities", "add")
        is_allowed = security.get("privileged") is True or (
            isinstance(added, list) and {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"} & set(map(str, added))
        )
        if any(str(name).startswith("rdma/") for name in limits) and not is_allowed:
            yield note(
                "pod-memlock",
                f"{pod.role}: RDMA locks memory, and without IPC_LOCK a container locks only what"
                " the limit of its runtime allows",
                "add securityContext: {capabilities: {add: [IPC_LOCK]}}",
            )


_PLAIN = re.compile(r"cpu|memory|ephemeral-storage|hugepages-\w+")
_OF_HOST = re.compile(r"/dev/infiniband|'privileged': True|'resourceClaims'")
_JOB = re.compile(r"--nnodes\b|--dist-init-addr|\bray[ _](?:start|init)\b")
_ATTACHED = re.compile(r"(?<![a-z])(?:network\w*|rdma\w*|eni|ib)(?![a-z])", re.I)


def _is_attached(document: dict[str, Any]) -> bool:
    """Return whether something besides a device plugin gives pods their NICs."""
    parts: list[Any] = [document]
    for part in parts:
        parts += part if isinstance(part, list) else mapping(part).values()
    is_named = any(_ATTACHED.search(str(at(part, "annotations"))) for part in parts)
    return is_named or "MELLANOX_VISIBLE_DEVICES" in str(document)


def _fabric(document: dict[str, Any], pod: PodSpec, pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    """Find FI_PROVIDER=efa and NCCL_IB_HCA for pods that get no device but GPUs."""
    given = [f"{name}={value}" for one in pod.containers for name, value in variables_of(one)]
    given += [word for one in pods for word in one.words]
    is_set = "FI_PROVIDER=efa" in given
    hca = next((one for one in given if re.match(r"NCCL_IB_HCA=[^^]", one)), None)
    is_off = any(re.match("NCCL_(IB_DISABLE=1|NET=Socket|NET_PLUGIN=)", one) for one in given)
    asked = [mapping(container.get("resources")) for container in pod.containers]
    names = [str(name) for one in asked for part in one.values() for name in mapping(part)]
    has_other = not all(is_gpu(name) or _PLAIN.fullmatch(name) for name in names)
    number = sum(one.number for one in pods if one.gpus)
    is_job = number > 1 and (_needs_gpus(document, pod, pods) or _JOB.search(" ".join(pod.words)))
    if not is_job or not pod.gpus or has_other or _OF_HOST.search(str(pod.spec)):
        return
    if hca is not None and not is_off and not _is_attached(document):
        yield note(
            "pod-rdma",
            f"{pod.role}: {hca}, and the pod asks for no RDMA device: unless something else gives"
            " it /dev/infiniband, NCCL finds no NIC there and takes TCP",
            "add the resource of your RDMA device plugin to the limits: rdma/NAME: 1",
        )
    if is_set:
        yield warning(
            "pod-efa",
            f"{pod.role}: FI_PROVIDER=efa without an EFA device: libfabric finds no such provider",
            "add vpc.amazonaws.com/efa, with the number of EFA devices, to the limits",
        )


def _host_network(document: dict[str, Any], pod: PodSpec) -> Iterator[LaunchFinding]:
    for name in ("hostNetwork", "hostIPC", "hostPID"):
        value = pod.spec.get(name)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            said = f"{pod.role}: {name} is text, and the API server takes a truth value: it refuses"
            yield error("manifest", f"{said} the manifest", f"write {name}: {value.lower()}")
    if pod.spec.get("hostNetwork") is not True or document.get("kind") == "Pod":
        return
    own = "hostname" in pod.spec or re.search(r"'name': '(?i:hostname)'", str(pod.spec))
    words = " ".join(pod.words)
    if not own and re.search("rank", words, re.I) and (ordinal := _ORDINAL.search(words)):
        yield error(
            "inner-rank",
            f"{pod.role}: with hostNetwork {ordinal[0]} is of the node's name, not of the pod's",
            "take it from a variable of the pod's own: valueFrom fieldRef metadata.name",
        )
    if document.get("kind") == "MPIJob" and pod.role != "Launcher":
        return
    if pod.spec.get("dnsPolicy") == "ClusterFirstWithHostNet" or pod.number == 1 == len(
        pods_of(document)
    ):
        return
    yield warning(
        "pod-names",
        f"{pod.role}: with hostNetwork the pod asks the node's name server, which does not know"
        " the names of the other pods",
        "add dnsPolicy: ClusterFirstWithHostNet",
    )


_ORDINAL = re.compile(
    r"\$\{HOSTNAME##\*-\}|(?:\$HOSTNAME\b|\$\{HOSTNAME\}|\bhostname(?: -s)?)\"?\s*\|"
    r"\s*(?:awk|sed|cut|grep)[^;&|)]{0,40}?(?:-[Fd] ?[\"']?-|\[0-9\]|\\d)[^;&|)]{0,20}"
)
"""The number at the end of a host's name, which is a pod's rank where it has a name of its own."""
_BARE = re.compile(r"(?<![$\w])\$\{?([A-Za-z_]\w*)")


def unexpanded(role: str, words: list[str], fix: str) -> Iterator[LaunchFinding]:
    """Find `command: [torchrun, --node-rank=$RANK]`: no shell reads it, and Kubernetes does not.

    `fix` has {0} for the name.
    """
    bare = [match[1] for word in words if (match := _BARE.search(word)) is not None]
    if bare and (is_launcher(words[0]) or is_nccl_test(words[0])):
        yield error(
            "no-shell",
            f"{role}: no shell reads ${bare[0]} of this command, which is a list of words:"
            " the program gets it as it is written",
            fix.replace("{0}", bare[0]),
        )


_OF_SVC = re.compile(r"\bVC_\w+_(?:HOSTS|NUM)\b|/etc/volcano/")
_INDEX = re.compile(r"\bV[CK]_TASK_INDEX\b")
_RANK_OF_INDEX = re.compile(
    r"(?:\bnode[_-]rank|\b(?:NODE_|GROUP_|PET_NODE_)?RANK)[ =]+[\"']?\$[{(]?V[CK]_TASK_INDEX\b"
)
SVC_PLUGINS = ("svc", "mpi", "pytorch", "tensorflow")
"""Plugins of Volcano that give pods the names of the others: `svc`, and those that turn it on."""


_WITH_ADDRESS = re.compile(
    r"\b(?:torchrun|torch\.distributed\.\w+)\s.*?--(?:master-addr|rdzv-endpoint)\b", re.S
)


def _alone(document: dict[str, Any], pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find torchrun with an address, but without a number of nodes, in several pods."""
    text = " ".join(pod.words).replace("_", "-")
    names = {name for one in pod.containers for name, _ in variables_of(one)}
    if pod.number < 2 or document.get("kind") == "PyTorchJob" or "PET_NNODES" in names:
        return
    if _WITH_ADDRESS.search(text) is not None and "--nnodes" not in text:
        yield error(
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


def _pytorch_job(pods: list[PodSpec]) -> Iterator[LaunchFinding]:
    nodes = sum(pod.number for pod in pods)
    for pod in pods:
        if pod.role == "Master" and pod.number != 1:
            yield error("pytorch-master", f"Master has {pod.number} replicas, not 1")
        if pod.containers and not any(one.get("name") == "pytorch" for one in pod.containers):
            yield error(
                "pytorch-container",
                f"{pod.role}: no container is called pytorch, which the operator requires",
                "write name: pytorch",
            )
        words = pod.words
        for place, word in enumerate(words):
            name, sign, value = word.lstrip("-").partition("=")
            if not word.startswith("-") or name.replace("_", "-") != "nnodes":
                continue
            given = value if sign else (words[place + 1] if place + 1 < len(words) else "")
            if whole_number(given) not in (None, nodes):
                yield error(
                    "pytorch-nodes",
                    f"{pod.role}: --nnodes={given}, and the job has {count(nodes, 'pod')}",
                    f"write --nnodes={nodes}",
                )
