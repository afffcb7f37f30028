# SPDX-License-Identifier: Apache-2.0
"""Where NCCL writes the log of its start, and how it is fetched.

It is written to a folder that all processes see. In pods it is fetched from the pod of process 0.
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
"""A folder that every pod of a job has. Pods cannot see folders of this machine."""


class Logs(NamedTuple):
    """The log of one start. `folder` has its files after `fetch` was called."""

    folder: Path
    pods: Pods | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings that make NCCL log its start, and nothing while it runs."""
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH",
            "NCCL_DEBUG_FILE": f"{self._stem}%h.%p",
        }

    def fetch(self) -> None:
        """Copy the log from the pods, if there are any. A log that cannot be fetched is ignored."""
        if self.pods is not None and (data := self.pods.take(f"{self._stem}*")):
            (self.folder / f"{STEM}pod").write_bytes(data)

    @property
    def _stem(self) -> str:
        # No folder is created in a pod: the name of the local folder is the prefix of the file
        # names there.
        return f"{self.folder}/{STEM}" if self.pods is None else f"{_IN_PODS}{self.folder.name}."


@contextlib.contextmanager
def logs_of_start(with_launcher: WithLauncher | None) -> Iterator[Logs]:
    """Yield the logs of one start, with a launcher or on this machine. Their folder is then
    deleted."""
    pods = None if with_launcher is None else with_launcher.pods
    # The first process may run on another node. It sees this folder but not /tmp of this machine.
    shared = None if with_launcher is None or pods is not None else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=shared) as name:
        yield Logs(Path(name), pods)
