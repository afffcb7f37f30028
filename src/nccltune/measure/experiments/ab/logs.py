# SPDX-License-Identifier: Apache-2.0
"""Make NCCL write the log of its start to a file, and fetch that file.

Outside pods, NCCL writes to a folder that the processes share. In pods it writes to /dev/shm, and
the file is fetched from the pod of process 0.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.bench.pods import Pods
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.measure.experiments.ab.facts import STEM

_IN_PODS = "/dev/shm/"  # noqa: S108 - in a container
"""A folder that exists in every pod. Pods cannot write to folders of this machine."""


class Logs(NamedTuple):
    """The log of one process start. After `fetch`, the log files are in `folder`."""

    folder: Path
    pods: Pods | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that make NCCL log its start. With these settings NCCL logs nothing
        after its start."""
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH",
            "NCCL_DEBUG_FILE": f"{self._stem}%h.%p",
        }

    def fetch(self) -> None:
        """Copy the log from the pods into `folder`. Without pods, do nothing.

        A log that cannot be fetched is ignored.
        """
        if self.pods is not None and (data := self.pods.take(f"{self._stem}*")):
            (self.folder / f"{STEM}pod").write_bytes(data)

    @property
    def _stem(self) -> str:
        # NCCL does not create a folder in a pod, so file names begin with the local folder's name.
        return f"{self.folder}/{STEM}" if self.pods is None else f"{_IN_PODS}{self.folder.name}."


@contextlib.contextmanager
def logs_of_start(with_launcher: WithLauncher | None) -> Iterator[Logs]:
    """Yield the log of one process start, with a launcher or on this machine.

    The folder is deleted at the end.
    """
    pods = None if with_launcher is None else with_launcher.pods
    # Process 0 may run on another node and must write the log to a folder that this machine can
    # read. The current folder is usually shared between nodes; /tmp is not.
    shared = None if with_launcher is None or pods is not None else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=shared) as name:
        yield Logs(Path(name), pods)
