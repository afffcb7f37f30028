# SPDX-License-Identifier: Apache-2.0
"""What NCCL made of its settings, by what it logs at its start; nothing is logged as it runs."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from nccltune.formats.nccl_alarms import alarms
from nccltune.formats.nccl_run_log import RunLog, read_run_log
from nccltune.measure.trial.settings import Settings

STEM = "nccl."
LOG = f"{STEM}*"
"""The files of a start's log."""


class Facts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One process's start: `read` are the tried settings that NCCL says it read, `transports`
    counts connections by kind. GPUDirect RDMA is None where nothing crosses a network."""

    nccl_version: str | None = None
    read: list[str] = []
    channels: int | None = None
    nvls_channels: int | None = None
    transports: dict[str, int] = {}
    network: str | None = None
    gdr_send: bool | None = None
    gdr_receive: bool | None = None
    alarms: list[str] = []


def read_facts(folder: Path, tried: Settings) -> Facts | None:
    """What the logs in `folder` say; None where there are none (the first process was elsewhere,
    or the program does not use NCCL)."""
    files = sorted(folder.glob(LOG))
    log = read_run_log(files) if files else None
    return facts_of(log, tried) if log is not None and log.lines else None


def facts_of(log: RunLog, tried: Settings) -> Facts:
    """The facts of a log."""
    counts = min(log.channels, key=lambda item: item.coll, default=None)
    return Facts(
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


def differences(before: Facts, after: Facts) -> Iterator[str]:
    """What the settings changed, in words: `channels 24 -> 2`."""
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
            yield f"GPUDirect RDMA to {words} {_told(one)} -> {_told(other)}"
    yield from (sentence for sentence in after.alarms if sentence not in before.alarms)


def _told(used: bool) -> str:
    return "on" if used else "off"
