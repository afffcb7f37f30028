# SPDX-License-Identifier: Apache-2.0
"""Summarise the state of a job and its pods from the JSON of kubectl. No request is made here."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nccltune.launch.state import RunEnd, RunState


class JobKind(NamedTuple):
    """A kind of job: its resource, labels of pods, and condition for success.

    `nobody` is the message for a job that no controller has noticed.
    """

    resource: str
    job_label: str
    role_label: str
    done: str
    nobody: str


KINDS = {
    # The labels of MPI Operator 0.4 and later.
    "MPIJob": JobKind(
        "mpijobs.kubeflow.org",
        "training.kubeflow.org/job-name",
        "training.kubeflow.org/job-role",
        "Succeeded",
        "the MPI Operator has not taken it up: is it running, and watching this namespace?",
    ),
    "JobSet": JobKind(
        "jobsets.jobset.x-k8s.io",
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "Completed",
        "JobSet's controller has not taken it up: is it running?",
    ),
}
LAUNCHER = "launcher"
# Reasons that Kubernetes gives for waiting during a normal start. They are no trouble.
_NORMAL = frozenset({"ContainerCreating", "PodInitializing"})


class Pod(NamedTuple):
    """A pod.

    - `born`: its creationTimestamp.
    - `started`: its container runs or has run.
    - `running`: its container runs now.
    - `trouble`: the reason why the pod does not run or is removed; empty if all is well.
    - `ended`: how its container ended, in words; empty if it runs or ended with status 0.
    - `silent`: its container runs, but the pod is not ready: its node may not answer any more.
    """

    name: str
    role: str
    node: str = ""
    address: str = ""
    born: str = ""
    started: bool = False
    running: bool = False
    trouble: str = ""
    ended: str = ""
    silent: bool = False


class JobSnapshot(NamedTuple):
    """The state of a job: its `end`, else the `reason` why it has not started, and lost pods."""

    end: RunEnd | None
    started: bool
    reason: str
    lost: tuple[str, ...] = ()


def pods_of(listed: Mapping[str, Any], kind: JobKind) -> list[Pod]:
    """Return the pods in the JSON of `kubectl get pods`."""
    return [_pod(item, kind) for item in listed.get("items") or []]


def launcher_of(pods: Iterable[Pod]) -> Pod | None:
    """Return the newest launcher pod; None if there is none yet."""
    found = sorted((pod for pod in pods if pod.role == LAUNCHER), key=lambda pod: pod.born)
    return found[-1] if found else None


def snapshot_of(
    kind: JobKind, job: Mapping[str, Any], pods: list[Pod], workers: int
) -> JobSnapshot:
    """Return the state of a job of so many workers from its conditions and pods."""
    conditions = _true_conditions(job)
    launcher = launcher_of(pods)
    started = launcher is not None and launcher.started
    if kind.done in conditions:
        return JobSnapshot(RunEnd(RunState.DONE), True, "")
    if "Failed" in conditions:
        return JobSnapshot(
            RunEnd(RunState.FAILED, _why(conditions["Failed"], launcher, pods)), started, ""
        )
    if started:
        return JobSnapshot(None, True, "", _lost(pods, workers))
    if "Suspended" in conditions:
        return JobSnapshot(None, False, "suspended: its queue has not let it in")
    troubles = [f"{pod.name}: {pod.trouble}" for pod in pods if pod.trouble]
    if troubles:
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        return JobSnapshot(None, False, troubles[0] + more)
    if not conditions and not pods:
        return JobSnapshot(None, False, kind.nobody)
    running = sum(pod.running for pod in pods if pod.role != LAUNCHER)
    return JobSnapshot(None, False, f"{running} of {workers} workers run")


def _lost(pods: list[Pod], workers: int) -> tuple[str, ...]:
    """Return sentences on pods that a running job lost. Such a job may never end."""
    found = [f"{pod.name} {pod.trouble}" for pod in pods if pod.trouble]
    there = sum(pod.role != LAUNCHER for pod in pods)
    if there < workers:
        found.append(f"{workers - there} of {workers} workers are gone")
    return tuple(found)


def _why(condition: Mapping[str, Any], launcher: Pod | None, pods: list[Pod]) -> str:
    """Return the reason of a failure: the launcher's end, which explains more, else the
    controller's."""
    reasons = [f"{pod.name} {pod.trouble}" for pod in pods if pod.trouble and pod.role != LAUNCHER]
    if launcher is not None and (launcher.ended or launcher.trouble):
        reasons.insert(0, f"{launcher.name} {launcher.ended or launcher.trouble}")
    if not reasons:
        message = condition.get("message") or condition.get("reason") or "no reason given"
        reasons.append(str(message))
    return "; ".join(reasons)


def _true_conditions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    status = item.get("status") or {}
    return {
        one["type"]: one for one in status.get("conditions") or [] if one.get("status") == "True"
    }


def _pod(raw: Mapping[str, Any], kind: JobKind) -> Pod:
    metadata, status = raw.get("metadata") or {}, raw.get("status") or {}
    labels = metadata.get("labels") or {}
    containers = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    running = any("running" in state for state in containers)
    ended = next(
        (_exit_text(state["terminated"]) for state in containers if "terminated" in state), ""
    )
    node = (raw.get("spec") or {}).get("nodeName") or ""
    return Pod(
        name=metadata.get("name") or "?",
        role=labels.get(kind.role_label) or "?",
        node=node,
        address=status.get("podIP") or "",
        born=metadata.get("creationTimestamp") or "",
        started=running or any("terminated" in state for state in containers),
        running=running,
        trouble=_trouble(metadata, status, containers, node, ended),
        ended=ended,
        silent=running and _silent(status),
    )


def _silent(status: Mapping[str, Any]) -> bool:
    """Return whether a running pod is not ready, as when its node does not answer."""
    conditions = status.get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "False" for one in conditions)


def _trouble(
    metadata: Mapping[str, Any],
    status: Mapping[str, Any],
    containers: list[Mapping[str, Any]],
    node: str,
    ended: str,
) -> str:
    """Return why a pod does not run or is being removed; an empty text if all is well."""
    conditions = {one.get("type"): one for one in status.get("conditions") or []}
    on = f" (node {node})" if node else ""
    target = conditions.get("DisruptionTarget") or {}
    if target.get("status") == "True":
        return f"is taken away{on}: {target.get('message') or target.get('reason')}"
    if metadata.get("deletionTimestamp"):
        return f"is being deleted{on}"
    if status.get("phase") == "Failed":
        said = [status.get("reason"), status.get("message")]
        return ": ".join(filter(None, said)) or ended or f"failed{on}"
    if (scheduled := conditions.get("PodScheduled") or {}).get("status") == "False":
        return _short(scheduled.get("message") or scheduled.get("reason") or "not scheduled")
    for state in containers:
        waiting = state.get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _NORMAL:
            said = [waiting["reason"], waiting.get("message")]
            return _short(": ".join(filter(None, said)))
    if any("running" in state for state in containers) and _silent(status):
        return f"is not ready any more{on}: its node may be gone"
    return ""


def _exit_text(terminated: Mapping[str, Any]) -> str:
    code, reason = terminated.get("exitCode"), terminated.get("reason")
    if code == 0:
        return ""
    # The reason `Error` means that the program itself exited. Other reasons, such as OOMKilled, are
    # from the node.
    if not reason or reason == "Error":
        return f"ended with status {code}"
    message = _short(terminated.get("message") or "")
    return f"ended with status {code} ({': '.join(filter(None, [reason, message]))})"


def _short(text: str) -> str:
    """Return the first sentence; the scheduler's further ones are about preemption."""
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
