# SPDX-License-Identifier: Apache-2.0
"""The answers of the plugin host. docs/reference/plugin-host.md explains every field."""

from typing import Literal

import msgspec

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective


class PluginLogLine(msgspec.Struct, frozen=True):
    """A line that the plugin passed to NCCL's logger. `level` is NCCL's (`INFO`, `WARN`)."""

    level: str
    text: str


class Caution(msgspec.Struct, frozen=True):
    """A problem that NCCL itself does not report. `code` is the same in all releases."""

    code: str
    text: str


class PluginFailure(msgspec.Struct, frozen=True):
    """Why a plugin was not loaded, initialised or failed; `kind`: docs/reference/plugin-host.md."""

    kind: str
    text: str


class AlgorithmProtocol(msgspec.Struct, frozen=True):
    """An algorithm with a protocol, which is an entry of NCCL's cost table."""

    algorithm: Algorithm
    protocol: Protocol


class TableChange(msgspec.Struct, frozen=True):
    """A changed cost in us: -1 if NCCL cannot use it, None if it is not finite."""

    algorithm: Algorithm
    protocol: Protocol
    before: float | None
    after: float | None


class TunerAnswer(msgspec.Struct, frozen=True):
    """The decision of a tuner plugin. None leaves that part to NCCL."""

    algorithm: Algorithm | None
    protocol: Protocol | None
    channels: int | None
    chunk_bytes: int | None

    @property
    def choice(self) -> Choice | None:
        """Return the decision as a choice; None if algorithm and protocol are left to NCCL."""
        if self.algorithm is None or self.protocol is None:
            return None
        return Choice(self.algorithm, self.protocol, self.channels, self.chunk_bytes)

    @property
    def label(self) -> str:
        """Return a label like a choice's, with `-` for parts left to NCCL: `tree/ll/4`, `-/-/1`."""
        parts: list[str | int] = [self.algorithm or "-", self.protocol or "-"]
        if self.channels is not None or self.chunk_bytes is not None:
            parts.append("-" if self.channels is None else self.channels)
        if self.chunk_bytes is not None:
            parts.append(self.chunk_bytes)
        return "/".join(str(part) for part in parts)


class PluginDecision(msgspec.Struct, frozen=True):
    """The result of one call of getCollInfo, as the emulated NCCL version uses it.

    `decided` is `default` if all is left to NCCL, None with an `error`. `selected` is what runs;
    None if NCCL's predicted times would decide and were not given.
    """

    collective: Collective
    bytes: int
    pipe_ops: int
    registered: bool
    costs: Literal["nominal", "given"]
    decided: TunerAnswer | Literal["default"] | None
    selected: AlgorithmProtocol | None
    channels_requested: int
    table_changed: list[TableChange]
    warnings: list[Caution]
    log: list[PluginLogLine]
    log_dropped: int
    error: PluginFailure | None

    @property
    def label(self) -> str:
        """Return `default`, `fails`, or the label of the decision: `tree/ll/4`, `-/-/1`."""
        if self.decided is None:
            return "fails"
        return self.decided if isinstance(self.decided, str) else self.decided.label


class ConstantChange(msgspec.Struct, frozen=True):
    """A constant of NCCL's cost model that the plugin changed in init. `name` is NCCL's name."""

    name: str
    before: float | None
    after: float | None


class HostInit(msgspec.Struct, frozen=True):
    """The result of loading a plugin and its init; `interface` is the version in use."""

    ok: bool
    schema_version: int
    tuner: str
    nccl: str
    nccl_known: bool
    nodes: int
    ranks: int
    exported: list[int]
    interface: int | None
    plugin: str | None
    has_chunk_size: bool
    channel_rule: Literal["replaces", "caps"]
    constants_changed: list[ConstantChange]
    warnings: list[Caution]
    log: list[PluginLogLine]
    log_dropped: int
    error: PluginFailure | None
