# SPDX-License-Identifier: Apache-2.0
"""The state of a job, from what a cluster reports."""

from typing import Any

import pytest

from nccltune.launch.kubernetes.seen import KINDS, JobSnapshot, pods_of, snapshot_of
from nccltune.launch.state import RunEnd, RunState

MPI = KINDS["MPIJob"]
RUNS = {"running": {"startedAt": "2026-11-21T14:00:00Z"}}


def _pod(name: str, role: str = "worker", state: Any = None, **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Pending", "conditions": more.pop("conditions", [])}
    if state is not None:
        status["containerStatuses"] = [{"name": role, "state": state}]
    status |= more.pop("status", {})
    metadata = {"name": name, "labels": {MPI.role_label: role}, **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"nodeName": more.pop("node", "a")}, "status": status}


def _look(pods: list[dict[str, Any]], *conditions: dict[str, str], workers: int = 2) -> JobSnapshot:
    return snapshot_of(
        MPI, {"status": {"conditions": conditions}}, pods_of({"items": pods}, MPI), workers
    )


def _is(name: str, **more: str) -> dict[str, str]:
    return {"type": name, "status": "True", **more}


def test_nobody_takes_it_up() -> None:
    seen = snapshot_of(MPI, {}, [], 2)
    assert (seen.end, seen.started) == (None, False)
    assert "MPI Operator" in seen.reason


def test_a_queue_holds_it() -> None:
    assert "queue" in _look([], _is("Created"), _is("Suspended")).reason


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (
            _pod(
                "w0",
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. "
                        "preemption: 0/2 nodes are available: 2 No preemption victims found.",
                    }
                ],
            ),
            "w0: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
        ),
        (
            _pod("w0", state={"waiting": {"reason": "ImagePullBackOff", "message": "no x:1"}}),
            "w0: ImagePullBackOff: no x:1",
        ),
        (_pod("w0", state={"waiting": {"reason": "ContainerCreating"}}), "0 of 2 workers run"),
        (_pod("w0", state=RUNS), "1 of 2 workers run"),
    ],
)
def test_why_it_waits(pod: dict[str, Any], reason: str) -> None:
    assert _look([pod], _is("Created")) == JobSnapshot(None, False, reason)


def test_it_runs_when_its_launcher_does() -> None:
    pods = [_pod("w0", state=RUNS), _pod("w1", state=RUNS), _pod("l", "launcher", RUNS)]
    assert _look(pods, _is("Created"), _is("Running")) == JobSnapshot(None, True, "")


@pytest.mark.parametrize(
    ("worker", "lost"),
    [
        (
            _pod("w1", state=RUNS, conditions=[{"type": "Ready", "status": "False"}], node="b"),
            "w1 is not ready any more (node b): its node may be gone",
        ),
        (
            _pod("w1", state=RUNS, metadata={"deletionTimestamp": "2026-11-21T14:00:00Z"}),
            "w1 is being deleted (node a)",
        ),
        (
            _pod("w1", status={"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
            "w1 Evicted: low on memory",
        ),
        (None, "1 of 2 workers are gone"),
    ],
)
def test_a_worker_that_a_running_job_lost(worker: dict[str, Any] | None, lost: str) -> None:
    pods = [_pod("w0", state=RUNS), _pod("l", "launcher", RUNS), *([worker] if worker else [])]
    seen = _look(pods, _is("Running"))
    assert (seen.end, seen.started, seen.lost) == (None, True, (lost,))


def test_how_it_ended() -> None:
    over = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    assert _look([_pod("l", "launcher", over)], _is("Succeeded")).end == RunEnd(RunState.DONE)
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    failed = _is("Failed", message="Job has reached the specified backoff limit: ")
    assert _look([_pod("l", "launcher", killed)], failed).end == RunEnd(
        RunState.FAILED, "l ended with status 137 (OOMKilled)"
    )
    never = {
        "exitCode": 128,
        "reason": "StartError",
        "message": 'failed to create containerd task: exec: "mpirun": not found. Try again',
    }
    assert _look([_pod("l", "launcher", {"terminated": never})], failed).end == RunEnd(
        RunState.FAILED,
        "l ended with status 128 (StartError: failed to create containerd task: exec: "
        '"mpirun": not found.)',
    )
    assert _look([], failed).end == RunEnd(
        RunState.FAILED, "Job has reached the specified backoff limit: "
    )


def test_the_last_launcher_counts() -> None:
    """A job that was suspended and let in again has two."""
    old = _pod("l-1", "launcher", {"terminated": {"exitCode": 1}})
    old["metadata"]["creationTimestamp"] = "2026-11-21T14:00:00Z"
    new = _pod("l-2", "launcher")
    new["metadata"]["creationTimestamp"] = "2026-11-21T14:05:00Z"
    assert not _look([old, new], _is("Created")).started
