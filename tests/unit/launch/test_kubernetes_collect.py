# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

from nccltune.launch.kubernetes.collect import collect
from nccltune.launch.kubernetes.kubectl import Kubectl, KubectlResult
from nccltune.launch.kubernetes.seen import KINDS


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
