# SPDX-License-Identifier: Apache-2.0
"""Save the pods, events and worker logs of a failed job before its pods are deleted."""

from pathlib import Path

import msgspec

from nccltune.launch.kubernetes.kubectl import Kubectl
from nccltune.launch.kubernetes.seen import LAUNCHER, JobKind, pods_of

_WORKERS_LINES = 1000


def collect(kubectl: Kubectl, kind: JobKind, job: str, born: str, folder: Path) -> None:
    """Write `pods.json`, `events.txt` and the ends of the workers' logs to `folder`.

    What cannot be read, and events before `born`, of an earlier job, are left out. Raises
    PlatformError without kubectl, OSError if a file cannot be written.
    """
    listed, _ = kubectl.read("get", "pods", "-l", f"{kind.job_label}={job}")
    if listed is not None:
        raw = msgspec.json.format(msgspec.json.encode(listed), indent=2)
        (folder / "pods.json").write_bytes(raw)
        for pod in pods_of(listed, kind):
            if pod.role == LAUNCHER or not pod.started:
                continue
            answer = kubectl.ask("logs", pod.name, f"--tail={_WORKERS_LINES}")
            if answer.status == 0 and answer.out.strip():
                (folder / f"{pod.name}.txt").write_bytes(answer.out)
    events, _ = kubectl.read("get", "events", "--sort-by=.metadata.creationTimestamp")
    lines = [
        f"{item.get('lastTimestamp') or item.get('eventTime') or '-'}  {about.get('kind')} "
        f"{about.get('name')}  {item.get('reason')}: {item.get('message')}\n"
        for item in (events or {}).get("items") or []
        if (about := item.get("involvedObject") or {})
        and (item["metadata"].get("creationTimestamp") or "") >= born
        and _is_of(job, str(about.get("name")))
    ]
    if lines:
        (folder / "events.txt").write_text("".join(lines), encoding="utf-8")


def _is_of(job: str, name: str) -> bool:
    """Return whether `name` is the job or an object made for it; `JOB-2` is another job."""
    return name == job or name.startswith((f"{job}-launcher", f"{job}-worker"))
