# SPDX-License-Identifier: Apache-2.0
"""Where NCCL writes the log of a start, and how it comes here: through a folder that all of its
processes see, or out of the pod that process 0 is in."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.measure.pods import Pods
from nccltune.measure.trial.facts import STEM
from nccltune.measure.under import Under

_IN_PODS = "/dev/shm/"  # noqa: S108 - in a container
"""Pods see no folder of this machine; this one every pod of a job has."""


class Logs(NamedTuple):
    """The log of one start: `folder` has its files once `fetch` was called."""

    folder: Path
    pods: Pods | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What makes NCCL write the lines of its start, and nothing as it runs."""
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH",
            "NCCL_DEBUG_FILE": f"{self._stem}%h.%p",
        }

    def fetch(self) -> None:
        """Bring the files here that are elsewhere; none, where they cannot be had."""
        if self.pods is not None and (data := self.pods.take(f"{self._stem}*")):
            (self.folder / f"{STEM}pod").write_bytes(data)

    @property
    def _stem(self) -> str:
        # No folder is made in a pod: the name of the one here is the beginning of a file's there.
        return f"{self.folder}/{STEM}" if self.pods is None else f"{_IN_PODS}{self.folder.name}."


@contextlib.contextmanager
def logs_of_start(under: Under | None) -> Iterator[Logs]:
    """Under a launcher, or on this machine; nothing of them is left behind here."""
    pods = None if under is None else under.pods
    # The first process may be on another node, which sees this folder and not this machine's /tmp.
    shared = None if under is None or pods is not None else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=shared) as name:
        yield Logs(Path(name), pods)
