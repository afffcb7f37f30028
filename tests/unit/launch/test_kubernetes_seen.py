# SPDX-License-Identifier: Apache-2.0
"""Jobs in a cluster, from what it reports; logs over connections that break; what is saved."""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from nccltune.launch.follow import Follower
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.kubernetes import log
from nccltune.launch.kubernetes.kubectl import Kubectl, KubectlResult
from nccltune.launch.kubernetes.log import PodLog
from nccltune.launch.kubernetes.run import ClusterJob, collect
from nccltune.launch.kubernetes.seen import KINDS, JobSnapshot, pods_of, snapshot_of
from nccltune.launch.state import RunEnd, RunState
from nccltune.model.errors import LaunchError
from tests.programs import write_program

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


class Told(Kubectl):
    """A cluster that gives these events, and no pods."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        super().__init__(environment={})
        self._events = events

    def read(self, *arguments: str) -> tuple[dict[str, Any] | None, str]:
        return ({"items": self._events} if arguments[1] == "events" else None), ""

    def ask(self, *arguments: str) -> KubectlResult:
        raise AssertionError(arguments)


def event(at: str, name: str) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": at},
        "lastTimestamp": at,
        "involvedObject": {"kind": "Pod", "name": name},
        "reason": "Killing",
        "message": "why",
    }


def test_events_are_those_of_this_job(tmp_path: Path) -> None:
    early, born, late = (f"2026-11-21T10:00:0{second}Z" for second in (0, 1, 2))
    events = [
        event(early, "job-launcher-x"),
        event(late, "job-2-launcher-x"),
        event(late, "jobs"),
        event(born, "job"),
        event(late, "job-worker-1"),
    ]
    collect(Told(events), KINDS["MPIJob"], "job", born, tmp_path)
    assert (tmp_path / "events.txt").read_text().splitlines() == [
        f"{born}  Pod job  Killing: why",
        f"{late}  Pod job-worker-1  Killing: why",
    ]
    assert not (tmp_path / "pods.json").exists()


# Gives the lines of FOLDER/log whose second is that of --since-time or later, as a kubelet does;
# with --follow at most as many bytes as the next number in FOLDER/cuts.
KUBECTL = """#!/usr/bin/env python3
import pathlib, sys
folder = pathlib.Path({folder!r})
since = next((word[13:32] for word in sys.argv if word.startswith("--since-time=")), "")
text = b"".join(
    line for line in (folder / "log").read_bytes().splitlines(keepends=True)
    if line[:19].decode() >= since
)
if "--follow" in sys.argv:
    first, *rest = (folder / "cuts").read_text().split()
    (folder / "cuts").write_text(" ".join(rest))
    text = text[:int(first)]
elif (folder / "gone").exists():
    sys.exit("Error from server (NotFound)")
sys.stdout.buffer.write(text)
"""


def _log(tmp_path: Path, lines: int, rng: random.Random) -> bytes:
    """Lines with the stamps of a container runtime, several a second, the last without an end."""
    text, stamped, ns = [], [], 0
    for number in range(lines):
        ns += rng.randrange(1, 400_000_000)
        stamp = f"2026-11-21T14:00:{ns // 10**9:02}.{ns % 10**9:09}Z"
        text.append(f"line {number}".encode() if number % 7 else b"")
        stamped.append(stamp.encode() + b" " + text[-1])
    (tmp_path / "log").write_bytes(b"\n".join(stamped))
    return b"\n".join(text)


@pytest.fixture
def pod_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodLog:
    monkeypatch.setattr(log, "_AGAIN_S", 0.0)
    write_program(tmp_path / "kubectl", KUBECTL.format(folder=str(tmp_path)))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    kubectl = Kubectl(environment={**os.environ, "PATH": path})
    return PodLog(kubectl, "pod", "launcher", tmp_path / "output", Follower())


@pytest.mark.parametrize("seed", range(4))
def test_broken_connections_lose_nothing(tmp_path: Path, pod_log: PodLog, seed: int) -> None:
    rng = random.Random(seed)
    text = _log(tmp_path, 60, rng)
    cuts = [rng.randrange(0, 900) for _ in range(8)]
    (tmp_path / "cuts").write_text(" ".join(map(str, cuts)))
    until = time.monotonic() + 120
    while (tmp_path / "cuts").read_text() and time.monotonic() < until:
        pod_log.take()
    assert pod_log.finish()
    assert (tmp_path / "output").read_bytes() == text


def test_words_about_the_log_are_not_of_it(tmp_path: Path, pod_log: PodLog) -> None:
    (tmp_path / "log").write_bytes(
        b"2026-11-21T14:00:00.000000001Z a\nfailed to watch file: too many open files\n"
    )
    assert pod_log.finish()
    assert (tmp_path / "output").read_bytes() == b"a\n"


def test_a_log_that_is_gone_is_told(tmp_path: Path, pod_log: PodLog) -> None:
    _log(tmp_path, 3, random.Random(1))
    (tmp_path / "gone").touch()
    assert not pod_log.finish()


def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.launch.kubernetes.run._CREATE_LIMIT_S", 0.1)
    kubectl = write_program(tmp_path / "kubectl", "#!/bin/sh\nexec sleep 3600\n")
    job = Job(program=["all_reduce_perf"], kubernetes=KubernetesOptions(image="image"))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    cluster = ClusterJob(job, tmp_path / "output", Follower(), lambda _: None, environment)
    with pytest.raises(LaunchError, match="no answer within"):
        cluster.run([str(kubectl), "create", "-f", "job.yaml"])
