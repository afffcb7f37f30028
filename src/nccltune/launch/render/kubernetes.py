# SPDX-License-Identifier: Apache-2.0
"""Render a job as YAML for Kubernetes: an MPIJob of the MPI Operator, or a JobSet."""

import shlex
from typing import Any

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.kubectl import base_words
from nccltune.launch.render.hydra import USUAL_INTEL, USUAL_MPICH, hydra_parts
from nccltune.launch.render.openmpi import ROOT, mpirun_parts
from nccltune.launch.render.rendered import CommandPart, RenderContext, Rendered, words_of
from nccltune.model.errors import InputError
from nccltune.model.scale import count

MANIFEST = "job.yaml"
HOST_LABEL = "kubernetes.io/hostname"
HOSTFILE = "/etc/mpi/hostfile"
SSH_PORT = 222
ROOTS_SSH = "/root/.ssh"
"""The folder in which the MPI Operator mounts its SSH key by default."""
ALIVE = "/tmp/nccltune-alive"  # noqa: S108 - in a container
HOLD_S = 300
"""Seconds after the last touch of `ALIVE` at which a held launcher pod ends, freeing GPUs."""
# Process 1 of a container ignores every signal for which it has no handler. Hence the trap.
HOLD = f"""\
trap 'exit 0' TERM
touch {ALIVE}
while [ $(($(date +%s) - $(stat -c %Y {ALIVE}))) -lt {HOLD_S} ]; do sleep 2 & wait $!; done
"""


def render_kubernetes(job: Job, flavor: Flavor, context: RenderContext) -> Rendered:
    """Return the manifest and the command that creates the job on a cluster.

    In a conversation the pods are held, for the command of `inner`. Raises InputError without an
    image, for inherited variables, and for a JobSet with another MPI than Open MPI.
    """
    if job.kubernetes.image is None:
        raise InputError(
            "a pod needs an image", where="kubernetes.image", hint="--set image=REGISTRY/NAME:TAG"
        )
    if job.inherit:
        raise InputError(
            f"no process of a cluster can inherit {job.inherit[0]} from here",
            where="inherit",
            hint="give its value in [environment]",
        )
    if job.kubernetes.kind == "MPIJob":
        manifest, parts = _mpi_job(job, held=context.conversation)
    else:
        manifest, parts = job_set(job, held=context.conversation)
    words = (*base_words(job.kubernetes.context), "create", "-f", MANIFEST)
    text = as_yaml(manifest)
    return Rendered(flavor, words, {MANIFEST: text}, tuple(parts), job.placement)


def as_yaml(manifest: dict[str, Any]) -> str:
    """Return a manifest as YAML. The order of its keys is kept."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """A dumper that writes texts of several lines as YAML blocks, which are readable."""

    def text_of(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_of)
    text: str = yaml.dump(manifest, Dumper=Dumper, sort_keys=False, width=1000)
    return text


def metadata(job: Job) -> dict[str, Any]:
    """Return the metadata of a job: its name, and its namespace if one is set."""
    found = {"name": job.name}
    if job.kubernetes.namespace is not None:
        found["namespace"] = job.kubernetes.namespace
    return found


def worker_pod(job: Job, name: str) -> dict[str, Any]:
    """Return a pod with the GPUs of one node and enough /dev/shm, which NCCL uses within a node."""
    options = job.kubernetes
    limits = {options.gpu_resource: job.gpus_per_node, **options.resources}
    pod: dict[str, Any] = {
        "containers": [
            {
                "name": name,
                "image": options.image,
                "resources": {"limits": limits},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shm}}],
    }
    if options.node_selector:
        pod["nodeSelector"] = dict(options.node_selector)
    if job.hosts:
        names = {"key": HOST_LABEL, "operator": "In", "values": list(job.hosts)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        pod["affinity"] = {"nodeAffinity": required}
    return pod


def hosts_part(job: Job) -> list[CommandPart]:
    """Return the meaning of the nodes that a job names, or nothing if the job names none."""
    if not job.hosts:
        return []
    return [
        CommandPart((f"nodeAffinity: {HOST_LABEL}",), f"pods run on {', '.join(job.hosts)} only")
    ]


def inner(job: Job, context: RenderContext) -> tuple[str, list[CommandPart]]:
    """Return shell lines that wait for a JobSet's workers, and the command of a held pod."""
    tagged = not context.conversation
    if job.kubernetes.kind == "MPIJob":
        return "", _launcher(job, tagged=tagged)

    return wait_for_workers(job), mpirun_of(job, tagged=tagged)


def _mpi_job(job: Job, *, held: bool) -> tuple[dict[str, Any], list[CommandPart]]:
    """Return an MPIJob (v2beta1, MPI Operator 0.5 on), maybe held, and what its parts mean."""
    options = job.kubernetes
    parts = [CommandPart(("sh", "-c", HOLD), "waits for conversations")] if held else _launcher(job)
    command = list(words_of(parts))
    launcher = {"containers": [{"name": "launcher", "image": options.image, "command": command}]}
    spec = {
        "slotsPerWorker": job.processes_per_node,
        "mpiImplementation": options.mpi,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": launcher}},
            "Worker": {
                "replicas": job.nodes,
                "restartPolicy": "Never",
                "template": {"spec": worker_pod(job, "worker")},
            },
        },
    }
    if options.ssh_path != ROOTS_SSH:
        spec["sshAuthMountPath"] = options.ssh_path
    manifest = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata(job),
        "spec": spec,
    }
    meanings = [
        CommandPart(
            (f"slotsPerWorker: {job.processes_per_node}",), "processes that a pod has room for"
        ),
        CommandPart(
            (f"Worker replicas: {job.nodes}",), f"{count(job.nodes, 'pod')}, each a node's GPUs"
        ),
        CommandPart(
            ("launcherCreationPolicy: WaitForWorkersReady",),
            "mpirun starts when every worker answers, instead of failing until they do",
        ),
        CommandPart(("backoffLimit: 0",), "a failed run is reported, not retried"),
        CommandPart(
            ("cleanPodPolicy: Running",), "the workers' GPUs are free as soon as the program ends"
        ),
        CommandPart(
            (f"sizeLimit: {options.shm}",),
            "of /dev/shm, where NCCL shares memory; a pod has 64 MiB by default",
        ),
        *hosts_part(job),
    ]
    return manifest, [*meanings, *parts]


def _launcher(job: Job, *, tagged: bool = True) -> list[CommandPart]:
    """Return the command of the launcher pod, for the MPI that the image has."""
    if job.kubernetes.mpi == "OpenMPI":
        hostfile = CommandPart(("--hostfile", HOSTFILE), "the operator writes the workers there")
        # The version of Open MPI in the image is unknown. Use only options that both 4 and 5 have.
        flavor = Flavor(Launcher.OPENMPI)
        options = mpirun_parts(job, flavor, where=[hostfile], tagged=tagged)
        parts = [CommandPart(("mpirun",), "the image's Open MPI"), ROOT, *options]
    else:
        hostfile = CommandPart(("-f", HOSTFILE), "the operator writes the workers there")
        flavor = USUAL_INTEL if job.kubernetes.mpi == "Intel" else USUAL_MPICH
        name = f"the image's {job.kubernetes.mpi} MPI".replace("MPICH MPI", "MPICH")
        options = hydra_parts(job, flavor, tagged=tagged)
        parts = [CommandPart(("mpiexec.hydra",), name), hostfile, *options]
    return [*parts, CommandPart(tuple(job.words), "the program")]


KEYS = "/etc/nccl-ssh"
WAIT_S = 600
# By default Open MPI 4 cuts a host's name at the first dot, but DNS does not know the short name of
# a pod. This variable makes Open MPI keep the whole name.
_WHOLE_NAMES = "OMPI_MCA_orte_keep_fqdn_hostnames"

# All users can read the files of a secret, and ssh refuses a key with such permissions. So the
# script copies the keys with permissions for their owner only.
_PREPARE = f"""\
mkdir -p /root/.ssh /run/sshd
install -m 600 {KEYS}/id /root/.ssh/id
install -m 600 {KEYS}/id.pub /root/.ssh/authorized_keys
printf 'Host *\\n  Port {SSH_PORT}\\n  IdentityFile /root/.ssh/id\\n  StrictHostKeyChecking no\\n  \
UserKnownHostsFile /dev/null\\n  LogLevel ERROR\\n' > /root/.ssh/config
"""


def mpirun_of(job: Job, *, tagged: bool) -> list[CommandPart]:
    """Return the mpirun command of the launcher pod."""
    slots = job.processes_per_node
    hosts = ",".join(f"{host}:{slots}" for host in _hosts(job))
    return [
        CommandPart(("mpirun",), "the image's Open MPI"),
        ROOT,
        *mpirun_parts(
            job,
            Flavor(Launcher.OPENMPI),
            where=[CommandPart(("--host", hosts), "the pods by their DNS names")],
            tagged=tagged,
        ),
        CommandPart(tuple(job.words), "the program"),
    ]


def wait_for_workers(job: Job) -> str:
    """Return the shell lines that wait until every worker accepts ssh, or exit with 1.

    ssh reads /dev/null, because the standard input is for the program.
    """
    return (
        f"for host in {' '.join(_hosts(job))}; do\n"
        f"  for second in $(seq {WAIT_S}); do "
        "ssh $host true </dev/null 2>/dev/null && continue 2; sleep 1; done\n"
        f'  echo "$host does not answer" >&2; exit 1\n'
        "done\n"
    )


def _hosts(job: Job) -> list[str]:
    return [f"{job.name}-worker-0-{index}.{job.name}" for index in range(job.nodes)]


def job_set(job: Job, *, held: bool) -> tuple[dict[str, Any], list[CommandPart]]:
    """Return the manifest of a JobSet, `held` to wait for commands, and what its parts mean.

    Raises InputError for another MPI than Open MPI.
    """
    options = job.kubernetes
    if options.mpi != "OpenMPI":
        raise InputError(
            f"a JobSet with {options.mpi} is not known",
            where="kubernetes.mpi",
            hint='use Open MPI, or kind = "MPIJob"',
        )
    inner = mpirun_of(job, tagged=True)
    worker = _with_keys(worker_pod(job, "worker"), job)
    worker["containers"][0]["command"] = [
        "bash",
        "-ec",
        f"{_PREPARE}ssh-keygen -A\nexec /usr/sbin/sshd -De -p {SSH_PORT}\n",
    ]
    run = f"{wait_for_workers(job)}exec {shlex.join(words_of(inner))}\n"
    launcher = _with_keys(
        {
            "containers": [
                {
                    "name": "launcher",
                    "image": options.image,
                    "command": ["bash", "-ec", _PREPARE + (HOLD if held else run)],
                    "env": [{"name": _WHOLE_NAMES, "value": "true"}],
                }
            ]
        },
        job,
    )
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(job),
        "spec": {
            "network": {"enableDNSHostnames": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [
                _replicated("worker", job.nodes, worker),
                _replicated("launcher", 1, launcher),
            ],
        },
    }
    meanings = [
        CommandPart((f"worker parallelism: {job.nodes}",), f"{count(job.nodes, 'pod')} with sshd"),
        CommandPart(("enableDNSHostnames: true",), "the pods find each other by name"),
        CommandPart(("targetReplicatedJobs: launcher",), "the set is done when mpirun is"),
        CommandPart(("maxRestarts: 0",), "a failed run is reported, not retried"),
        *hosts_part(job),
        CommandPart(
            (f"secret: {options.ssh_secret}",),
            "a key pair of your own, as files id and id.pub, with which mpirun reaches the workers",
        ),
    ]
    return manifest, [*meanings, *inner]


def _with_keys(pod: dict[str, Any], job: Job) -> dict[str, Any]:
    pod["restartPolicy"] = "Never"
    pod.setdefault("volumes", []).append(
        {"name": "ssh", "secret": {"secretName": job.kubernetes.ssh_secret}}
    )
    container = pod["containers"][0]
    container.setdefault("volumeMounts", []).append({"name": "ssh", "mountPath": KEYS})
    return pod


def _replicated(name: str, pods: int, pod: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {"name": name, "replicas": 1, "template": {"spec": spec}}
