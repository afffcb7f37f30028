# SPDX-License-Identifier: Apache-2.0
"""Find pods of a manifest without the GPUs, memory, names or interfaces that they need."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nccltune.launch.program import is_nccl_test
from nccltune.launch_lint.boxes import entrypoint_of
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.read import is_launcher
from nccltune.launch_lint.words import is_open, placeholder_in, whole_number
from nccltune.model.nccl_variables import table

SHM = "/dev/shm"  # noqa: S108 - a mount point to look for
_GPU = re.compile(
    r"[\w.-]+/gpu|nvidia\.com/(?:gpu\.shared|mig-[\w.-]+)|(?:gpu|mig)\.(?:nvidia|amd)\.com/.+"
    r"|gpu\.intel\.com/(?:i915|xe)"
)
_PYTHON = re.compile(r"python[\d.]*")
_MPI_LAUNCHERS = ("mpirun", "mpiexec", "prterun", "orterun")


def mapping(value: Any) -> dict[Any, Any]:
    """Return `value` if it is a mapping, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return `value` if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


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
        return [one for one in items(self.spec.get("containers")) if isinstance(one, dict)]

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
    own, arguments = (list(map(str, items(container.get(key)))) for key in ("command", "args"))
    own = own or (list(entrypoint_of(str(container.get("image")))) if arguments else [])
    return [*own, *arguments]


def one_process(container: dict[Any, Any]) -> str | None:
    """Return what starts one process, `python` or "" for the image's own program, or None."""
    name, *others = [*command_of(container), ""]
    if name.startswith("-"):
        return ""
    name = name.rpartition("/")[2]
    return name if _PYTHON.fullmatch(name) and "-m" not in others[:2] else None


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
    elif kind not in _ROLES and not str(document.get("apiVersion")).startswith(COMPLETES):
        return [_pod(role, part) for role, part in _templates(spec, kind)]
    if isinstance(roles, list):
        named: Any = [(at(one, "name") or f"default{n}", one) for n, one in enumerate(roles)]
    else:
        named = mapping(roles)
    pairs = named.items() if isinstance(named, dict) else named
    return [_pod(str(role), part) for role, part in pairs]


COMPLETES = ("ray.io/", "serving.k")
"""Groups of kinds whose operators add /dev/shm and more to pods."""


def _templates(value: Any, role: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an unknown kind that have the template of a pod, by their names."""
    role = str(at(value, "name") or role)
    if at(value, "template", "spec", "containers"):
        yield role, value
    elif isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else ((role, one) for one in value)
        for name, inner in pairs:
            yield from _templates(inner, role if name in ("spec", "template") else str(name))


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
        text = " ".join(word for one in pods if one is pod or one.starts_mpi for word in one.words)
        if pod.role != "Launcher" or at(document, "spec", "runLauncherAsWorker"):
            yield from _shared_memory(document, pod, text)
        yield from _mounts(document, pod)
        yield from _locked_memory(pod)
        yield from _fabric(document, pod, pods)
        yield from _channel(pod, text)
        yield from _host_network(document, pod)
        yield from _interfaces(document, pod, pods)
        if placeholder_in(document) is None:
            fix = "write $({0}), which Kubernetes replaces, or start it with bash -c"
            for container in pod.containers:
                if "Training" not in str(document.get("kind")):  # A TrainJob has its own command.
                    yield from unexpanded(pod.role, command_of(container), fix)
        yield from _not_text(pod)
        if _SUBSTITUTED.search(str(document)) is None:
            yield from _unreplaced_references(pod)
        yield from _same_rank(pod)


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
_GLOO = re.compile(r"(?<!executor[-_])backend[= ]+[\"']?(?:gloo|mpi)\b", re.I)


def _needs_gpus(document: dict[str, Any], pod: PodSpec, pods: list[PodSpec]) -> bool:
    if document.get("kind") == "MPIJob":
        runs = at(document, "spec", "runLauncherAsWorker") is True
        return pod.role == "Worker" or runs or len(pods) == 1
    if document.get("kind") == "PyTorchJob":
        return True
    if document.get("kind") not in ("Pod", *_ROLES, *_OF_ONE_ROLE, "LeaderWorkerSet"):
        return False  # What names an unknown kind, such as a TrainJob its runtime, may add them.
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
                said = "has no value" if value is None else f"{value} is no whole number"
                yield error(
                    "pod-gpus",
                    f"{where}: {name}: {said}",
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
    is_meant = document.get("kind") in ("MPIJob", "PyTorchJob")
    is_meant = is_meant and not any(one.get("resources") for one in pod.containers)
    is_meant = is_meant and "Memory" in str(pod.spec)  # Examples for CPUs share no memory.
    is_sure = is_meant or _ON_GPUS.search(str(document)) is not None
    yield (error if is_sure else note)(
        "pod-without-gpus",
        f"{where}: no container has a limit of nvidia.com/gpu, so that the pod gets no GPU",
        "add resources: {limits: {nvidia.com/gpu: 8}}" + ", unless it is for CPUs" * (not is_sure),
    )


_ON_GPUS = re.compile(r"nvidia|gpu|nccl|cuda|rdma(?!v_)|infiniband|_perf\b|vllm|sglang", re.I)
"""What shows that a job is for GPUs. Others may be for CPUs."""


def _may_get_gpus_otherwise(pod: PodSpec) -> bool:
    """Return whether the pod may get GPUs without a number in its limits.

    Such ways are resource claims, privileged containers and NVIDIA_VISIBLE_DEVICES. A GPU limit
    that is not a whole number, such as a variable of a template, also counts, and another device
    than a NIC, which may be an accelerator: `habana.ai/gaudi`, `aws.amazon.com/neuron`.
    """
    if at(pod.spec, "resourceClaims"):
        return True
    for container in pod.containers:
        limits = mapping(at(container, "resources", "limits"))
        if any((is_gpu(n) and str(v) != "0") or is_open(str(n)) for n, v in limits.items()):
            return True
        if any("/" in str(n) and not is_gpu(n) and not _NIC.search(str(n)) for n in limits):
            return True
        if at(container, "resources", "claims") or at(container, "securityContext", "privileged"):
            return True
        if any(name == "NVIDIA_VISIBLE_DEVICES" for name, _ in variables_of(container)):
            return True
    return False


_NIC = re.compile(r"rdma|efa|nic|net|hostdev|hca|sriov|roce|infiniband|mlx|vf|ib\b", re.I)


def variables_of(container: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return the environment variables of a container that have a literal value."""
    return [
        (str(one["name"]), str(one["value"]))
        for one in items(container.get("env"))
        if isinstance(one, dict) and "name" in one and "value" in one
    ]


def _not_text(pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find `value: 0` of a variable, which YAML reads as a number."""
    for container in pod.containers:
        for one in items(container.get("env")):
            name, value = at(one, "name"), at(one, "value")
            if isinstance(value, bool | int | float):
                kind = "truth value" if isinstance(value, bool) else "number"
                yield error(
                    "env-not-text",
                    f"{pod.role}: the value of {name} is a {kind}, and the API server takes only"
                    " text: it refuses the manifest",
                    f'write value: "{int(value) if name in table() else str(value).lower()}"',
                )


def _unreplaced_references(pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find `value: /opt/lib:$LD_LIBRARY_PATH`, which Kubernetes does not replace.

    It replaces `$(NAME)` of variables that the list has before, not those of the image.
    """
    for container in pod.containers:
        before: set[str] = set()
        for one in items(container.get("env")):
            name, value = str(at(one, "name")), str(at(one, "value") or "")
            for sign, used in _REFERENCE.findall(value):
                is_replaced = sign == "(" and (used in before or "envFrom" in container)
                text = f"${sign}{used}" + {"(": ")", "{": "}"}.get(sign, "")
                # `value: $NAME` of NAME alone is for `envsubst`, as it has no other meaning.
                if is_replaced or used not in (*before, name) or (used == name and value == text):
                    continue
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


_SUBSTITUTED = re.compile(r"'(?:image|replicas|namespace|nvidia\.com/gpu)': '\$[{A-Z]")
"""What shows that `envsubst` fills in `$NAME` before Kubernetes reads the text."""
_REFERENCE = re.compile(r"(?<!\$)\$([({]?)([A-Za-z_]\w*)")


_SLICE = re.compile(r"'nvidia\.com/(?:mig-|gpu\.shared|gpu(?:cores|mem))")
"""A part of a GPU (MIG, time slices, HAMi), of which NCCL does not connect several."""


def _shared_memory(document: dict[str, Any], pod: PodSpec, text: str) -> Iterator[LaunchFinding]:
    is_one = _SERVER.search(text) is not None and _SEVERAL_RANKS.search(text) is None
    is_other = _WITHOUT_NCCL.search(text) is not None and _WITH_NCCL.search(text) is None
    is_other = is_other or _GLOO.search(text) is not None
    limits = str([at(one, "resources", "limits") for one in pod.containers])
    is_sole = is_one or is_other or _SLICE.search(limits) is not None
    if pod.gpus < 2 or pod.spec.get("hostIPC") is True or is_sole:
        return
    for container in pod.containers:
        mounts = items(container.get("volumeMounts"))
        if gpus_of(container) and SHM not in [str(at(m, "mountPath")).rstrip("/") for m in mounts]:
            used, volumes = [at(m, "name") for m in mounts], items(pod.spec.get("volumes"))
            found = (at(v, "name") for v in volumes if at(v, "emptyDir", "medium") == "Memory")
            free = next((name for name in found if name not in used), None)
            program = one_process(container) if text else "?"
            is_sure = program is None or _SEVERAL_RANKS.search(text) is not None
            yield (warning if is_sure and _WITH_NCCL.search(str(document)) else note)(
                "pod-shm",
                f"{pod.role}: the pod has 64 MiB of {SHM}, which NCCL's shared buffers may exceed"
                + (f": its volume {free} is not mounted there" if free else ""),
                f"add to volumeMounts: {{name: {free}, mountPath: {SHM}}}"
                if free
                else f"mount an emptyDir of medium Memory at {SHM}",
            )
            return


_SERVER = re.compile(r"\bvllm (?:serve\b|-)|\bvllm\.entrypoints\b|\bsglang\b")
_SEVERAL_RANKS = re.compile(
    r"(?:[-_]parallel[-\w]*|--?[tdp]p(?:[-_]size)?|--nnodes)[= ][\"']?(?!1\b)|--config\b|\bray\b"
)
"""What a server may have several ranks by."""
_WITHOUT_NCCL = re.compile(
    r"bandwidth|gpu[-_]?burn|\bib_\w+_(?:bw|lat)\b|nvidia-smi|dcgmi|devicequery|vectoradd", re.I
)
_WITH_NCCL = re.compile(
    r"nccl|torch|python|_perf\b|vllm|sglang|deepspeed|accelerate|megatron|nemo|trt|triton|rank",
    re.I,
)
"""What may have a communicator of NCCL."""


def _mounts(document: dict[str, Any], pod: PodSpec) -> Iterator[LaunchFinding]:
    """Find a mount of a volume that the pod does not have, of a kind to which no operator adds."""
    stated = pod.spec.get("volumes"), at(document, "spec", "volumeClaimTemplates")
    volumes = [volume for part in stated for volume in items(part)]
    known = {str(at(volume, "name") or at(volume, "metadata", "name")) for volume in volumes}
    kinds = () if is_volcano(document) or is_open(str(stated)) else ("Pod", *_OF_ONE_ROLE)
    for container in pod.containers:
        names = [str(at(mount, "name")) for mount in items(container.get("volumeMounts"))]
        lost = [name for name in names if not is_open(name) and name not in known]
        if lost and "image" in container and document.get("kind") in kinds:
            said = f"{pod.role}: volumeMounts names {lost[0]}, which volumes does not"
            why = "the API server refuses the pod, unless something adds it"
            yield error("pod-volume", f"{said}: {why}", f"add {lost[0]} to volumes")


_MAY_LOCK = {"IPC_LOCK", "CAP_IPC_LOCK", "ALL"}


def _locked_memory(pod: PodSpec) -> Iterator[LaunchFinding]:
    for container in pod.containers:
        limits = mapping(at(container, "resources", "limits"))
        security = mapping(container.get("securityContext"))
        added = set(map(str, items(at(security, "capabilities", "add"))))
        is_allowed = added & _MAY_LOCK or security.get("privileged") is True
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


def _channel(pod: PodSpec, text: str) -> Iterator[LaunchFinding]:
    """Find copies by NVLink between nodes in pods that claim no channel of IMEX."""
    used = _BY_NVLINK.search(text)
    if used is not None and pod.number > 1 and pod.gpus and not _IMEX.search(str(pod.spec)):
        said = (
            f"{pod.role}: {used[0]} maps memory of other nodes over NVLink, and the pod claims no"
        )
        said += " IMEX channel: unless something else gives it one, that fails"
        yield note("pod-imex", said, "add the claim of a ComputeDomain's channel to resourceClaims")


_BY_NVLINK = re.compile(r"\bmultinode_\w+")
_IMEX = re.compile(r"'resourceClaims'|(?i:imex)|'privileged': True")


def _interfaces(
    document: dict[str, Any], pod: PodSpec, pods: list[PodSpec]
) -> Iterator[LaunchFinding]:
    """Find interfaces that pods with a network of their own do not have, or exclude."""
    is_own = pod.spec.get("hostNetwork") in (None, False) and "resourceClaims" not in pod.spec
    if not pod.gpus or not is_own or _is_attached(document):
        return
    given = [f"{name}={value}" for one in pod.containers for name, value in variables_of(one)]
    given += [word for one in pods if one.starts_mpi for word in one.words]
    for word in dict.fromkeys(given):
        name, _, value = re.sub("[\"']", "", word).partition("=")
        if name in OF_INTERFACES and (why := absent_interface(value)) is not None:
            yield warning(
                "pod-interface",
                f"{pod.role}: {name}={value}: {why}, unless another network is attached to it",
                f"leave out {name}, write {name}=eth0, or set hostNetwork: true",
            )


OF_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def absent_interface(value: str) -> str | None:
    """Return why a list names no interface of a network namespace that has lo and eth0, or None.

    >>> absent_interface("^lo,docker,eth")
    'a network of its own mostly has eth0 alone, which this excludes'
    """
    is_out, names = value.startswith("^"), value.lstrip("^=").split(",")
    listed = r"(?:eth?0?|e)$" if is_out else r"eth|net\d|lo$|et?$|rdma|eni"
    is_listed = any(re.match(listed, name) for name in names)
    if not value or is_open(value) or is_listed != is_out:
        return None
    what = "excludes" if is_out else "does not name"
    return f"a network of its own mostly has eth0 alone, which this {what}"


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
    if words and re.search(r"\w\s", words[0]) and not is_open(words[0]):
        said = f"{role}: '{' '.join(words[0].split()[:3])} ...' is one word, which no shell splits"
        fix = "write each word as an item of the list, or put sh and -c before it"
        yield error("no-shell", f"{said}: there is no program of that name", fix)
        return
    bare = [match[1] for word in words if (match := _BARE.search(word)) is not None]
    if bare and (is_launcher(words[0]) or is_nccl_test(words[0])):
        yield error(
            "no-shell",
            f"{role}: no shell reads ${bare[0]} of this command, which is a list of words:"
            " the program gets it as it is written",
            fix.replace("{0}", bare[0]),
        )
