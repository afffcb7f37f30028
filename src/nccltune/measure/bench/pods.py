# SPDX-License-Identifier: Apache-2.0
"""Pods of a Kubernetes cluster: created once, then used by every bench and program that one
nccltune command starts."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.follow import Follower
from nccltune.launch.job import BENCH, Job, check
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.launch.kubernetes.seen import LAUNCHER, Pod
from nccltune.launch.render import RenderContext, render
from nccltune.launch.render.kubernetes import ALIVE, MANIFEST, inner
from nccltune.launch.render.rendered import words_of
from nccltune.model.errors import InputError, LaunchError

CONFIG = "/dev/shm/nccltune-tuner.conf"  # noqa: S108 - in a container
# These variables are not passed to the pods. Their values are paths of this machine, which do not
# exist in a pod.
_NOT_PASSED = frozenset({"NCCLTUNE_NATIVE_DIR"})
_OURS = ("NCCL_", "NCCLTUNE_")
# The script reads the variables from its input, one in each line. If the variables were on a
# command line, other users could read secrets in them.
_VARIABLES = """\
while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
"""
# A waiting pod ends itself if the file ALIVE was not touched for some minutes. This loop touches
# the file while a command runs.
_ALIVE = f"""\
(while touch {ALIVE}; do sleep 20; done) </dev/null >/dev/null 2>&1 &
"""
_TALK = """\
{variables}bench=$(command -v {bench} || python3 -c {find}) || {{
  echo "error: the image has no nccltune" >&2
  echo "hint: pip install nccltune in it, and python3 on its PATH" >&2
  exit 3
}}
{alive}trap "kill $!" EXIT
{wait}{mpirun}
"""
# A command in a pod receives no signal from this machine. When the connection ends, the command's
# input ends too. The script then kills the program, so that it does not run beside the next one.
_RUN = """\
{variables}{alive}alive=$!
trap "kill $alive" EXIT
{wait}exec 3<&0
{mpirun} </dev/null 3<&- &
program=$!
(while read -r line; do :; done; kill "$program") <&3 >/dev/null 2>&1 &
trap "kill $alive $! 2>/dev/null" EXIT
wait "$program"
"""
_FIND = "from nccltune.native import bench_path; print(bench_path())"


class Pods:
    """A Kubernetes job whose pods wait for commands, created at the first; `close` deletes it."""

    def __init__(
        self, job: Job, on_line: Callable[[str], None], environment: Mapping[str, str] = os.environ
    ) -> None:
        """Check the job, but create nothing; `job.program` is ignored. Raises InputError."""
        self._job = replace(job, program=[BENCH])
        check(self._job, "‹launcher› kubernetes")
        self._around = RenderContext(conversation=True)
        self._rendered = render(self._job, Flavor(Launcher.KUBERNETES), self._around)
        self._on_line = on_line
        self._environment = environment
        self._folder: Path | None = None
        self._cluster: ClusterJob | None = None
        self._launcher = ""
        self._workers: list[Pod] = []

    def command(
        self, options: Sequence[str], port: int, environment: Mapping[str, str]
    ) -> tuple[list[str], list[bytes]]:
        """Return the command that starts the bench in the pods, and the first lines of its input.

        Every process gets the variables `NCCL_*` and `NCCLTUNE_*` of `environment`, and a copy of
        NCCLTUNE_CONFIG's file. Raises InputError for one that cannot be read or a variable of
        several lines, LaunchError or PlatformError where the cluster provides no pods.
        """
        cluster = self._open()
        variables = self._variables(cluster, environment)
        program = [BENCH, *options, f"--rendezvous={self._workers[0].address}:{port}"]
        wait, parts = inner(
            replace(self._job, program=program, inherit=sorted(variables)), self._around
        )
        words = words_of(parts)
        at = words.index(BENCH)
        mpirun = f'{shlex.join(words[:at])} "$bench" {shlex.join(words[at + 1 :])}'
        find = shlex.quote(_FIND)
        script = _TALK.format(
            variables=_VARIABLES, alive=_ALIVE, bench=BENCH, find=find, wait=wait, mpirun=mpirun
        )
        return self._exec(cluster, script), _lines(variables)

    def program(
        self, program: Sequence[str], environment: Mapping[str, str], also: Collection[str] = ()
    ) -> tuple[list[str], list[bytes]]:
        """Return the command that runs an MPI program, and its input, whose end stops it.

        For nccl-tests, -g is set to the GPUs of a process. Also the variables `also` are passed.
        Raises what `command` raises, and InputError for a program that sets its GPUs itself.
        """
        job = replace(self._job, program=list(program))
        check(job, "‹launcher› kubernetes")
        cluster = self._open()
        variables = self._variables(cluster, environment, also)
        wait, parts = inner(replace(job, inherit=sorted(variables)), RenderContext())
        mpirun = shlex.join(words_of(parts))
        script = _RUN.format(variables=_VARIABLES, alive=_ALIVE, wait=wait, mpirun=mpirun)
        return self._exec(cluster, script), _lines(variables)

    def take(self, pattern: str) -> bytes:
        """Delete the files that match a pattern in the pod of process 0; return their content."""
        if self._cluster is None:
            return b""
        answer = self._cluster.kubectl.take(self._workers[0].name, pattern)
        return answer.out if answer.status == 0 else b""

    def _exec(self, cluster: ClusterJob, script: str) -> list[str]:
        command = ["exec", "-i", self._launcher, "-c", LAUNCHER, "--", "sh", "-c", script]
        return list(cluster.kubectl.words(*command))

    def _variables(
        self, cluster: ClusterJob, environment: Mapping[str, str], also: Collection[str] = ()
    ) -> dict[str, str]:
        """Return the variables of every process; copy NCCLTUNE_CONFIG's file into the pods."""
        variables = {
            name: value
            for name, value in environment.items()
            if (name.startswith(_OURS) or name in also) and name not in _NOT_PASSED
        }
        if config := variables.get("NCCLTUNE_CONFIG"):
            self._copy(cluster, Path(config))
            variables["NCCLTUNE_CONFIG"] = CONFIG
        for name, value in variables.items():
            if "\n" in value:
                raise InputError("a value of several lines cannot be passed to pods", where=name)
        return variables

    def close(self) -> None:
        """Delete the pods, if there are any."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None and (left := cluster.release()):
            self._on_line(left)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self) -> ClusterJob:
        if self._cluster is not None:
            return self._cluster
        self._folder = Path(tempfile.mkdtemp(prefix="nccltune-pods-"))
        manifest = self._folder / MANIFEST
        manifest.write_text(self._rendered.files[MANIFEST], encoding="utf-8")
        cluster = ClusterJob(
            self._job, self._folder / "output", Follower(), self._on_line, self._environment
        )
        words = [str(manifest) if word == MANIFEST else word for word in self._rendered.words]
        pods = cluster.hold(words)
        self._cluster = cluster
        (self._launcher,) = [pod.name for pod in pods if pod.role == LAUNCHER]
        # Sort by worker number, so that worker 2 precedes worker 10.
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
                raise LaunchError(f"{config.name} cannot be copied to {pod.name}: {answer.errors}")


def _lines(variables: Mapping[str, str]) -> list[bytes]:
    return [*(f"{name}={value}".encode() for name, value in sorted(variables.items())), b""]
