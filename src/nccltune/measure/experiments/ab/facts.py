# SPDX-License-Identifier: Apache-2.0
"""Read the effective settings of one process from the log of NCCL's start."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.formats.nccl_log.alarms import alarms
from nccltune.formats.nccl_log.run import RunLog, read_run_log
from nccltune.measure.bench.pods import Pods
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.measure.experiments.ab.settings import SettingChanges

STEM = "nccl."
LOG = f"{STEM}*"
"""Glob pattern for the log files of one process start."""


class StartFacts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The effective settings of one process, from the log of its start.

    read         the proposed settings that NCCL logged as read
    transports   number of connections by kind
    network      name of the network that NCCL uses between nodes
    gdr_send     whether sends use GPUDirect RDMA; None if no connection uses a network
    gdr_receive  whether receives use GPUDirect RDMA; None if no connection uses a network
    alarms       sentences on signs of a broken platform in the log
    """

    nccl_version: str | None = None
    read: list[str] = []
    channels: int | None = None
    nvls_channels: int | None = None
    transports: dict[str, int] = {}
    network: str | None = None
    gdr_send: bool | None = None
    gdr_receive: bool | None = None
    alarms: list[str] = []


def read_facts(folder: Path, tried: SettingChanges) -> StartFacts | None:
    """Return the effective settings from the log files in `folder`; None without any.

    Process 0 may run elsewhere, or not use NCCL. Raises InputError for an unreadable log.
    """
    files = sorted(folder.glob(LOG))
    log = read_run_log(files) if files else None
    return facts_of(log, tried) if log is not None and log.lines else None


def facts_of(log: RunLog, tried: SettingChanges) -> StartFacts:
    """Return the effective settings from a log. `tried` are the proposed settings."""
    counts = min(log.channels, key=lambda item: item.coll, default=None)
    return StartFacts(
        nccl_version=log.version or (log.plain.version if log.plain is not None else None),
        read=[name for name in log.named if name in tried],
        channels=None if counts is None else counts.coll,
        nvls_channels=None if counts is None else counts.nvls,
        transports=log.transports,
        network=next(iter(log.networks), None),
        gdr_send=log.gdr_send,
        gdr_receive=log.gdr_receive,
        alarms=[alarm.sentence for alarm in alarms(log) if not alarm.chosen],
    )


def differences(before: StartFacts, after: StartFacts) -> Iterator[str]:
    """Yield each difference, such as `channels 24 -> 2`, and alarms of `after` alone."""
    for words, name in (("channels", "channels"), ("NVLS channels", "nvls_channels")):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and other is not None and one != other:
            yield f"{words} {one} -> {other}"
    if before.network and after.network and before.network != after.network:
        yield f"network {before.network} -> {after.network}"
    kinds = [", ".join(facts.transports) for facts in (before, after)]
    if all(kinds) and set(before.transports) != set(after.transports):
        yield f"{kinds[0]} -> {kinds[1]}"
    for words, name in (("send", "gdr_send"), ("receive", "gdr_receive")):
        one, other = getattr(before, name), getattr(after, name)
        if one is not None and other is not None and one != other:
            yield f"GPUDirect RDMA to {words} {_on_or_off(one)} -> {_on_or_off(other)}"
    yield from (sentence for sentence in after.alarms if sentence not in before.alarms)


def _on_or_off(used: bool) -> str:
    return "on" if used else "off"


_IN_PODS = "/dev/shm/"  # noqa: S108 - in a container
"""A folder that exists in every pod. Pods cannot write to folders of this machine."""


class Logs(NamedTuple):
    """The log of one process start. After `fetch`, the log files are in `folder`."""

    folder: Path
    pods: Pods | None = None
    choices: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Return what makes NCCL log its start, and with `choices` what each call runs."""
        return {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH" + ",TUNING" * self.choices,
            "NCCL_DEBUG_FILE": f"{self._stem}%h.%p",
        }

    def fetch(self) -> None:
        """Copy the log from the pods into `folder`, if there are any and it can be had."""
        if self.pods is not None and (data := self.pods.take(f"{self._stem}*")):
            (self.folder / f"{STEM}pod").write_bytes(data)

    @property
    def _stem(self) -> str:
        # NCCL does not create a folder in a pod, so file names begin with the local folder's name.
        return f"{self.folder}/{STEM}" if self.pods is None else f"{_IN_PODS}{self.folder.name}."


@contextlib.contextmanager
def logs_of_start(with_launcher: WithLauncher | None, *, choices: bool = False) -> Iterator[Logs]:
    """Yield the log of one process start, with a launcher or here; deleted at the end."""
    pods = None if with_launcher is None else with_launcher.pods
    # Process 0 may run on another node and must write the log to a folder that this machine can
    # read. The current folder is usually shared between nodes; /tmp is not.
    shared = None if with_launcher is None or pods is not None else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".nccltune-", dir=shared) as name:
        yield Logs(Path(name), pods, choices)
