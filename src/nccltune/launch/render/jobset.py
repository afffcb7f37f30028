# SPDX-License-Identifier: Apache-2.0
"""Render a JobSet for a cluster without the MPI Operator.

The worker pods run sshd; the launcher pod runs mpirun.
"""

import shlex
from typing import Any

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.kubernetes import HOLD, SSH_PORT, hosts_part, metadata, worker_pod
from nccltune.launch.render.openmpi import ROOT, mpirun_parts
from nccltune.launch.render.rendered import CommandPart, words_of
from nccltune.model.errors import InputError
from nccltune.model.scale import count

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
