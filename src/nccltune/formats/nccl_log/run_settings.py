# SPDX-License-Identifier: Apache-2.0
"""Collect version, scale, settings and choices of a process, or of the processes of one run."""

import re

from nccltune.formats.nccl_log.messages import (
    Communicator,
    Driver,
    Message,
    Network,
    RanCall,
    RanChoice,
    Setting,
    TunerPlugin,
    Version,
    read_message,
)
from nccltune.formats.nccl_log.transports import Nics
from nccltune.formats.text.redact import keep_setting
from nccltune.formats.text.stamps import Stamps
from nccltune.model.choice import (
    Choice,
)
from nccltune.model.collective import Collective

PER_RANK = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
_MAX_POINTS = 100_000
_MAX_SETTINGS = 512
_MAX_HOSTS = 64


_TAKEN = frozenset({RanCall, Setting, Communicator, Nics, Driver, Version, TunerPlugin, Network})
"""The types of messages that are used here. Most messages have other types, and one lookup is
faster than a test for each type."""


class NcclLog:
    """The facts collected from the log lines of one run. Call `observe` or `take` for each line."""

    def __init__(self) -> None:
        self.lines = 0
        self.version: str | None = None
        self.ranks: int | None = None
        self.own_ranks: set[tuple[int, int]] = set()
        self.nodes: int | None = None
        self.algorithms: str | None = None
        self.protocols: str | None = None
        self.tuner: str | None = None
        self.no_tuner = False
        self.network: str | None = None
        self.driver: str | None = None
        self.nics: set[str] = set()
        self.stamps = Stamps()
        self.settings: dict[str, str] = {}
        self._by_total: dict[tuple[str | None, int], RanChoice | None] = {}
        self._by_task: dict[tuple[str | None, int], RanChoice | None] = {}
        self.whole_environment = False
        self.conflict: str | None = None
        self._said_by: dict[str, str] = {}

    def observe(self, message: str) -> None:
        """Process a message, the text after `NCCL INFO`."""
        self.take(read_message(message))

    def take(self, message: Message | None) -> None:
        """Process a line with the parsed `message`. None is a line that nccltune does not use."""
        self.lines += 1
        if type(message) not in _TAKEN:
            return
        match message:
            case RanCall():
                points = self._by_task if message.per_rank else self._by_total
                _note(points, (message.function, message.size), message.ran)
            case Setting(source="environment"):
                self.set(message.name, message.value)
            case Communicator(ended=False):
                self.ranks = message.ranks or None
                self.own_ranks.add((message.ranks, message.rank))
                if message.nodes is not None:
                    self.nodes = message.nodes or None
            case Nics():
                self._take_nics(message)
            case Driver():
                self.driver = message.version
            case Version():
                self.version = message.text
            case TunerPlugin():
                self.tuner = message.name or self.tuner
                self.no_tuner = self.no_tuner or not message.name
            case Network():
                self.network = message.name

    @property
    def has_choices(self) -> bool:
        """Return whether the log has any choice line."""
        return bool(self._by_total or self._by_task)

    def merge(self, other: "NcclLog", name: str) -> None:
        """Add the facts of another process, called `name`, of the same run.

        Facts that are already known are kept. If the processes have different values of a setting
        that forces a choice, `conflict` describes the difference. If they name different choices
        for one collective and size, neither choice is kept.
        """
        self.lines += other.lines
        self.conflict = self.conflict or other.conflict
        for setting, ours, theirs in (
            ("NCCL_ALGO", self.algorithms, other.algorithms),
            ("NCCL_PROTO", self.protocols, other.protocols),
        ):
            if theirs is None:
                continue
            if ours is None:
                self._said_by[setting] = other._said_by.get(setting) or name
            elif _plain(ours) != _plain(theirs) and self.conflict is None:
                self.conflict = (
                    f"{self._said_by.get(setting, 'one process')} has {setting}={ours},"
                    f" {name} has {setting}={theirs}"
                )
        self.algorithms = self.algorithms or other.algorithms
        self.protocols = self.protocols or other.protocols
        self.version = self.version or other.version
        self.ranks = self.ranks or other.ranks
        self.nodes = self.nodes or other.nodes
        self.tuner = self.tuner or other.tuner
        self.no_tuner = self.no_tuner or other.no_tuner
        self.network = self.network or other.network
        self.driver = self.driver or other.driver
        self.nics |= other.nics
        self.stamps.fill(other.stamps)
        self.settings = {**other.settings, **self.settings}
        self.whole_environment = self.whole_environment or other.whole_environment
        for ours_by, theirs_by in (
            (self._by_total, other._by_total),
            (self._by_task, other._by_task),
        ):
            for key, ran in theirs_by.items():
                if ran is None:
                    ours_by[key] = None
                else:
                    _note(ours_by, key, ran)

    @property
    def started(self) -> bool:
        """Return whether the log has the lines of NCCL's start.

        These lines name every setting that NCCL read.
        """
        return bool(self.settings) or self.ranks is not None

    @property
    def would_tell(self) -> bool:
        """Return whether a forced choice would be visible.

        This is so if the log has the lines of NCCL's start or choice lines, or if the whole
        environment is known.
        """
        known = self.whole_environment or bool(self.settings)
        return known or self.ranks is not None or self.has_choices

    @property
    def functions(self) -> set[Collective]:
        """Return the collectives that choice lines name."""
        known = {item.value: item for item in Collective}
        names = {func for func, _ in (*self._by_total, *self._by_task) if func is not None}
        return {known[name] for name in names if name in known}

    def choices_of(self, collective: Collective) -> set[Choice]:
        """Return the choices that ran for a collective, without channels.

        A log line that does not name its collective counts for every collective.
        """
        return {
            ran.without_channels()
            for points in (self._by_total, self._by_task)
            for (func, _), ran in points.items()
            if isinstance(ran, Choice) and func in (None, collective.value)
        }

    def points(self, ranks: int | None) -> dict[tuple[Collective, int], RanChoice | None]:
        """Return the choice that ran for each collective and size in bytes (over all ranks).

        Log lines that do not name the collective are left out. The value is None if the log names
        several choices. Per-rank sizes are multiplied by `ranks`, if it is known.
        """
        known = {item.value: item for item in Collective}
        found: dict[tuple[Collective, int], RanChoice | None] = {}
        for points, per_rank in ((self._by_task, True), (self._by_total, False)):
            for (func, size), ran in points.items():
                if func not in known:
                    continue
                collective = known[func]
                times = (ranks or 1) if per_rank and collective in PER_RANK else 1
                found[collective, size * times] = ran
        return found

    def ran(self, collective: Collective, size: int, ranks: int | None) -> RanChoice | None:
        """Return the choice that ran for a call of `size` bytes (over all ranks).

        None if the log does not show the choice, or names several choices for this size.
        """
        if not self.has_choices:
            return None
        name = collective.value
        found = self._by_total.get((name, size)) or self._by_total.get((None, size))
        if found is not None:
            return found
        if collective in PER_RANK:
            if not ranks or size % ranks:
                return None
            size //= ranks
        return self._by_task.get((name, size))

    def _take_nics(self, message: Nics) -> None:
        if message.nics and len(self.nics) < _MAX_HOSTS:
            names = " ".join(dict.fromkeys(nic.name for nic in message.nics))
            self.nics.add(f"{message.network} {names}")

    def set(self, name: str, value: str) -> None:
        """Add a setting that was in force.

        A second, different value of NCCL_ALGO or NCCL_PROTO is described in `conflict`.
        """
        if name in ("NCCL_ALGO", "NCCL_PROTO"):
            before = self.algorithms if name == "NCCL_ALGO" else self.protocols
            if before is not None and _plain(before) != _plain(value):
                self.conflict = f"the log has {name}={before} and {name}={value}"
        if name == "NCCL_ALGO":
            self.algorithms = value
        elif name == "NCCL_PROTO":
            self.protocols = value
        plain = keep_setting(name, value)
        if plain is not None and len(self.settings) < _MAX_SETTINGS:
            self.settings[name] = plain


def _note(
    points: dict[tuple[str | None, int], RanChoice | None],
    key: tuple[str | None, int],
    ran: RanChoice,
) -> None:
    if key not in points:
        if len(points) < _MAX_POINTS:
            points[key] = ran
        return
    before = points[key]
    if before == ran:
        return
    same = (
        isinstance(before, Choice)
        and isinstance(ran, Choice)
        and before.without_channels() == ran.without_channels()
    )
    # The log names two choices for one size. It is unknown which of them a row of the table
    # measured, so neither is kept. Two choices that differ only in channels count as the same.
    points[key] = ran if same else None


def _plain(value: str) -> str:
    """Return a setting's value without case and blanks, as NCCL compares it."""
    return re.sub(r"\s", "", value).lower()
