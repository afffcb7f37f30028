# SPDX-License-Identifier: Apache-2.0
"""Run a job on a cluster: create it, watch it, follow its log, delete it with all of its pods."""

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nccltune.launch.follow import Follower
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.kubectl import Kubectl, refusal
from nccltune.launch.kubernetes.log import PodLog
from nccltune.launch.kubernetes.seen import (
    KINDS,
    LAUNCHER,
    JobKind,
    Pod,
    launcher_of,
    pods_of,
    snapshot_of,
)
from nccltune.launch.state import RunEnd, RunState
from nccltune.model.errors import LaunchError, PlatformError
from nccltune.native.child import Child, signal_of, start

POLL_S = 2.0
_STEP_S = 0.1
_CREATE_LIMIT_S = 90
_UNKNOWN_LIMIT = 15
"""Number of failed status queries in a row after which the job counts as lost."""
_TAKEN_UP_S = 3.0
"""Seconds in which a running controller notices a new job; only later it is reported."""
LOST_LIMIT_S = 60.0
"""Seconds in which a job that lost a pod may end by itself. Then the job counts as failed."""
DELETE_LIMIT_S = 60.0
SILENT_LIMIT_S = 5.0
"""Seconds to wait for pods whose node does not answer, which end only when it does."""
_WORKERS_LINES = 1000


class Created(NamedTuple):
    """The identity of a created job. A later job may get the same name, but not the same uid."""

    name: str
    namespace: str
    uid: str
    born: str


class ClusterJob:
    """One MPIJob or JobSet; its launcher's log is written to `output`.

    `on_change` gets a sentence at every change of state. After a failed `run`, pods, events and
    worker logs are saved beside `output`.
    """

    def __init__(
        self,
        job: Job,
        output: Path,
        follower: Follower,
        on_change: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
        *,
        poll_s: float = POLL_S,
        lost_limit_s: float = LOST_LIMIT_S,
    ) -> None:
        options = job.kubernetes
        self._job = job
        self._kind = KINDS[options.kind]
        self._kubectl = Kubectl(options.context, options.namespace, environment)
        self._output = output
        self._follower = follower
        self._on_change = on_change
        self._poll_s = poll_s
        self._lost_limit_s = lost_limit_s
        self._created: Created | None = None
        self._log: PodLog | None = None
        self._pods: list[Pod] = []
        self._troubles: dict[str, str] = {}
        self._unread = ""

    def run(self, words: Sequence[str], start_within_s: float | None = None) -> RunEnd:
        """Create the job with the command `words`, follow it to its end and return how it ended.

        Then it is deleted. KeyboardInterrupt gives STOPPED, no start in `start_within_s` seconds
        (None: no limit) PENDING. Raises InputError, LaunchError or PlatformError if the cluster
        refuses it, LaunchError if kubectl does not answer, PlatformError without kubectl or a
        JobSet's secret.
        """
        self._output.touch()
        self._prepare()
        try:
            self._create(words)
            end = self._watch(start_within_s)
            assert end is not None
        except KeyboardInterrupt as stop:
            number = signal_of(stop)
            end = RunEnd(RunState.STOPPED, f"by {number.name}", int(number))
        except BaseException:
            self._clear(RunEnd(RunState.LOST))
            raise
        end = end._replace(why="; ".join(filter(None, [end.why, self._clear(end)])))
        self._follower.finish()
        return end

    def hold(self, words: Sequence[str], start_within_s: float | None = None) -> list[Pod]:
        """Create the job, wait until all of its pods run, and return the pods; then `release`.

        Raises what `run` raises, and LaunchError if it ended, was lost or did not start in time; it
        is then deleted.
        """
        try:
            self._prepare()
            self._create(words)
            end = self._watch(start_within_s, held=True)
        except BaseException:
            self._delete()
            raise
        if end is None:
            return self._pods
        why = "; ".join(filter(None, [end.why, self._delete()]))
        raise LaunchError(f"the pods are {end.state.value}: {why}")

    def release(self) -> str:
        """Delete a job that `hold` created; return a sentence on what remains, if anything."""
        return self._delete()

    @property
    def kubectl(self) -> Kubectl:
        """Return the Kubectl for the namespace of the job."""
        return self._kubectl

    def _prepare(self) -> None:
        if self._job.kubernetes.kind == "JobSet":
            self._check_secret(self._job.kubernetes.ssh_secret)

    def _check_secret(self, name: str) -> None:
        found, why = self._kubectl.read("get", "secret", name)
        if found is None and not why:
            raise PlatformError(
                f"the cluster has no secret {name}, the key with which mpirun reaches the workers",
                hint="ssh-keygen -q -t ed25519 -N '' -f id && "
                f"{shlex.join(self._kubectl.words('create', 'secret', 'generic', name))} "
                "--from-file=id --from-file=id.pub",
            )

    def _create(self, words: Sequence[str]) -> None:
        process = start([*words, "-o", "json"], self._kubectl.environment)
        try:
            out, errors = process.communicate(timeout=_CREATE_LIMIT_S)
        except KeyboardInterrupt:
            # kubectl may have created the job already. Wait for the job's name, to delete the job.
            self._take_name(_rest_of(process, _CREATE_LIMIT_S))
            raise
        except subprocess.TimeoutExpired:
            self._take_name(_rest_of(process, 0.0))
            raise LaunchError(
                f"kubectl create gave no answer within {_CREATE_LIMIT_S} s",
                hint=f"the job may exist: kubectl get {self._kind.resource}",
            ) from None
        except BaseException:
            process.kill()
            process.communicate()
            raise
        self._take_name(out)
        if process.returncode != 0 or self._created is None:
            raise refusal(self._job.kubernetes.kind, errors.decode(errors="replace"))
        self._on_change(f"{self.title} is created in namespace {self._created.namespace}")

    def _take_name(self, out: bytes) -> None:
        self._created = _created(out)
        if self._created is not None:
            self._kubectl = self._kubectl.inside(self._created.namespace)

    @property
    def title(self) -> str:
        """Return the kind and name of the job: `MPIJob nccl-test`."""
        return f"{self._job.kubernetes.kind} {self._job.name}"

    def _watch(self, start_within_s: float | None, *, held: bool = False) -> RunEnd | None:
        """Return how the job ended, also PENDING or LOST; with `held` None as soon as all pods
        run."""
        begun = time.monotonic()
        before = ""
        lost_since: float | None = None
        unknown = 0
        while True:
            job, pods = self._ask()
            if job is None and not self._unread:
                return RunEnd(RunState.FAILED, f"somebody deleted {self.title}")
            if job is None or pods is None:
                unknown += 1
                if unknown >= _UNKNOWN_LIMIT:
                    return self._out_of_sight()
                self._take_log(self._poll_s)
                continue
            unknown = 0
            self._pods = pods
            seen = snapshot_of(self._kind, job, pods, self._job.nodes)
            if held and seen.end is None and sum(pod.running for pod in pods) > self._job.nodes:
                return None
            if not held:
                self._follow(pods)
            words = "; ".join(seen.lost) or ("runs" if seen.started else f"waits: {seen.reason}")
            if seen.reason == self._kind.nobody and time.monotonic() - begun < _TAKEN_UP_S:
                words = before
            if seen.end is None and words != before:
                before = words
                self._on_change(f"{self.title} {words}")
            if seen.end is not None:
                return self._with_troubles(seen.end)
            if start_within_s is not None and time.monotonic() - begun > start_within_s:
                if not seen.started:
                    waited = f"not started after {time.monotonic() - begun:.0f} s"
                    return RunEnd(RunState.PENDING, f"{waited} ({seen.reason})")
                start_within_s = None
            lost_since = (lost_since or time.monotonic()) if seen.lost else None
            if lost_since is not None and time.monotonic() - lost_since > self._lost_limit_s:
                return RunEnd(RunState.FAILED, f"{words}, and it did not end by itself")
            self._take_log(self._poll_s)

    def _ask(self) -> tuple[dict[str, Any] | None, list[Pod] | None]:
        """Return the job and its pods, None if unreadable (`_unread` has why) or absent.

        A later job with the same name does not count.
        """
        assert self._created is not None
        job, self._unread = self._kubectl.read("get", self._kind.resource, self._created.name)
        if job is None or job["metadata"]["uid"] != self._created.uid:
            return None, None
        listed, self._unread = self._list_pods()
        if self._unread:
            return job, None
        pods = pods_of(listed or {}, self._kind)
        for pod in pods:
            if pod.trouble:
                self._troubles[pod.name] = pod.trouble
        return job, pods

    def _list_pods(self) -> tuple[dict[str, Any] | None, str]:
        assert self._created is not None
        label = f"{self._kind.job_label}={self._created.name}"
        return self._kubectl.read("get", "pods", "-l", label)

    def _follow(self, pods: list[Pod]) -> None:
        launcher = launcher_of(pods)
        if self._log is None and launcher is not None and launcher.started:
            assert self._created is not None
            self._on_change(f"{launcher.name} runs on {launcher.node}")
            self._log = PodLog(self._kubectl, launcher.name, LAUNCHER, self._output, self._follower)

    def _take_log(self, for_s: float) -> None:
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            if self._log is None or not self._log.take():
                time.sleep(_STEP_S)

    def _with_troubles(self, end: RunEnd) -> RunEnd:
        if end.state is RunState.DONE:
            return end
        # The workers of a failed job may be deleted already. Use the troubles recorded earlier.
        known = [f"{name} {why}" for name, why in self._troubles.items()]
        return end._replace(why="; ".join([end.why, *(one for one in known if one not in end.why)]))

    def _out_of_sight(self) -> RunEnd:
        return RunEnd(
            RunState.LOST,
            f"{_UNKNOWN_LIMIT} times in a row the cluster did not report the state of {self.title} "
            f"({self._unread}): it may still run",
        )

    def _clear(self, end: RunEnd) -> str:
        """Save the logs, delete the job and its pods, and return sentences on what failed."""
        if self._created is None:
            return ""
        remains = []
        try:
            if self._log is not None and not self._log.finish():
                remains.append("the end of its log could not be read")
            if end.state is not RunState.DONE:
                with contextlib.suppress(PlatformError):
                    name, _, _, born = self._created
                    collect(self._kubectl, self._kind, name, born, self._output.parent)
            remains.append(self._delete())
        except KeyboardInterrupt:
            remains.append(self._delete())
        return "; ".join(filter(None, remains))

    def _delete(self) -> str:
        """Delete the job, wait until its pods are gone; return a sentence on what remains."""
        if self._created is None:
            return ""
        resource, (name, namespace, uid, _) = self._kind.resource, self._created
        left = f"{self.title} could not be deleted: kubectl delete {resource} {name} -n {namespace}"
        begun = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):
            while (waited_s := time.monotonic() - begun) < DELETE_LIMIT_S:
                job, why = self._kubectl.read("get", resource, name)
                if job is not None and job["metadata"]["uid"] == uid:
                    self._kubectl.ask("delete", resource, name, "--wait=false")
                elif not why:
                    listed, why = self._list_pods()
                    pods = pods_of(listed or {}, self._kind)
                    if not why and not pods:
                        return ""
                    left = f"its pods are not gone yet: kubectl get pods -n {namespace}"
                    if waited_s > SILENT_LIMIT_S and all(pod.silent for pod in pods):
                        nodes = ", ".join(sorted({pod.node for pod in pods}))
                        return f"nothing is heard of node {nodes}, where a pod is to be ended"
                time.sleep(_STEP_S)
        return left


def _rest_of(process: Child, limit_s: float) -> bytes:
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def _created(out: bytes) -> Created | None:
    try:
        metadata = msgspec.json.decode(out, type=dict[str, Any])["metadata"]
        namespace = metadata.get("namespace") or "default"
        born = metadata.get("creationTimestamp") or ""
        return Created(metadata["name"], namespace, metadata["uid"], born)
    except (msgspec.MsgspecError, KeyError, TypeError):
        return None


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
