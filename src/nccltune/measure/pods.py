# SPDX-License-Identifier: Apache-2.0
"""Pods of a Kubernetes cluster, held for as many conversations with the bench as a verb needs."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.follow import Follower
from nccltune.launch.job import BENCH, Job, check
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.launch.kubernetes.seen import LAUNCHER, Pod
from nccltune.launch.render import Around, render
from nccltune.launch.render.kubernetes import ALIVE, MANIFEST, inner
from nccltune.launch.render.rendered import words_of
from nccltune.model.errors import InputError, LaunchError

CONFIG = "/dev/shm/nccltune-tuner.conf"  # noqa: S108 - in a container
# Of this shell alone: where things are on this machine.
_NOT_HANDED_ON = frozenset({"NCCLTUNE_NATIVE_DIR"})
_OURS = ("NCCL_", "NCCLTUNE_")
# Variables come before the conversation, a line each, and no secret stands on a command line. The
# touch tells the pods that somebody needs them.
_TALK = """\
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
bench=$(command -v {bench} || python3 -c {find}) || {{
  echo "error: the image has no nccltune" >&2
  echo "hint: pip install nccltune in it, and python3 on its PATH" >&2
  exit 3
}}
(while touch {alive}; do sleep 20; done) </dev/null >/dev/null 2>&1 &
trap "kill $!" EXIT
{wait}{mpirun}
"""
_FIND = "from nccltune.native import bench_path; print(bench_path())"


class Pods:
    """A job whose pods wait. Nothing is created before the first conversation; `close` deletes it
    and may be called without one."""

    def __init__(
        self,
        job: Job,
        told: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`job.program` is not used. Raises InputError for a job that cannot be."""
        self._job = replace(job, program=[BENCH])
        check(self._job, "--launcher kubernetes")
        self._around = Around(conversation=True)
        self._rendered = render(self._job, Flavor(Launcher.KUBERNETES), self._around)
        self._told = told
        self._environment = environment
        self._folder: Path | None = None
        self._cluster: ClusterJob | None = None
        self._launcher = ""
        self._workers: list[Pod] = []

    def command(
        self, options: Sequence[str], port: int, environment: Mapping[str, str]
    ) -> tuple[list[str], list[bytes]]:
        """The command that starts the bench in the pods, and the lines to send it before all
        others.

        Every process gets this environment's variables of NCCL and of ours, and the file of
        NCCLTUNE_CONFIG. Raises LaunchError or PlatformError where the cluster gives no pods.
        """
        cluster = self._open()
        variables = {
            name: value
            for name, value in environment.items()
            if name.startswith(_OURS) and name not in _NOT_HANDED_ON
        }
        if config := variables.get("NCCLTUNE_CONFIG"):
            self._copy(cluster, Path(config))
            variables["NCCLTUNE_CONFIG"] = CONFIG
        for name, value in variables.items():
            if "\n" in value:
                raise InputError("a value of several lines cannot be handed to pods", where=name)
        program = [BENCH, *options, f"--rendezvous={self._workers[0].address}:{port}"]
        wait, parts = inner(replace(self._job, program=program, inherit=sorted(variables)))
        words = words_of(parts)
        at = words.index(BENCH)
        mpirun = f'{shlex.join(words[:at])} "$bench" {shlex.join(words[at + 1 :])}'
        script = _TALK.format(
            bench=BENCH, find=shlex.quote(_FIND), alive=ALIVE, wait=wait, mpirun=mpirun
        )
        command = ["exec", "-i", self._launcher, "-c", LAUNCHER, "--", "sh", "-c", script]
        lines = [f"{name}={value}".encode() for name, value in sorted(variables.items())]
        return list(cluster.kubectl.words(*command)), [*lines, b""]

    def close(self) -> None:
        """Delete the pods, if there are any."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None and (left := cluster.release()):
            self._told(left)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self) -> ClusterJob:
        if self._cluster is not None:
            return self._cluster
        self._folder = Path(tempfile.mkdtemp(prefix="nccltune-pods-"))
        manifest = self._folder / MANIFEST
        manifest.write_text(self._rendered.files[MANIFEST], encoding="utf-8")
        cluster = ClusterJob(
            self._job, self._folder / "output", Follower(), self._told, self._environment
        )
        words = [str(manifest) if word == MANIFEST else word for word in self._rendered.words]
        pods = cluster.hold(words)
        self._cluster = cluster
        (self._launcher,) = [pod.name for pod in pods if pod.role == LAUNCHER]
        # By number, of which the tenth is not behind the first.
        workers = [pod for pod in pods if pod.role != LAUNCHER]
        self._workers = sorted(workers, key=lambda pod: (len(pod.name), pod.name))
        return cluster

    def _copy(self, cluster: ClusterJob, config: Path) -> None:
        try:
            data = config.read_bytes()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(config)) from error
        for pod in self._workers:
            answer = cluster.kubectl.write(pod.name, CONFIG, data)
            if answer.status != 0:
                raise LaunchError(f"{config.name} does not reach {pod.name}: {answer.errors}")
