# SPDX-License-Identifier: Apache-2.0
"""What an NCCL log (`NCCL_DEBUG=INFO`) says about the run that it stands beside.

Line forms: NCCL 2.18 to 2.32 (`src/debug.cc`, `enqueue.cc`, `graph/tuning.cc`, `plugin/tuner*`).
"""

import re
from typing import Literal, NamedTuple

from nccltune.formats.nccl_transport_lines import read_nics
from nccltune.formats.redact import keep_setting
from nccltune.formats.stamps import Stamps
from nccltune.model.choice import (
    ALGORITHMS,
    PROTOCOLS,
    Algorithm,
    Choice,
    Protocol,
    parse_algorithm,
    parse_protocol,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError

LOG_LINE = re.compile(
    r"(?P<stamp>\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] )?"
    r"(?P<host>[^\s:]+):(?P<pid>\d+):(?P<tid>\d+) "
    r"(?:\S+ ){0,5}?NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT) ?"
)
LONGEST = 4096
"""NCCL cuts its lines at 1,024 characters (`debug.cc`, 2.18 to 2.30); a search through a longer one
takes time with its square."""
_MARK = " NCCL "
_WINDOW = 1024
"""What stands before the mark and matters: a stamp, a host, numbers and a few words."""
_MARKS = 16
VERSION_LINE = re.compile(r"NCCL version (?P<version>\d+\.\d+\.\d+)")
# Plugins have names with blanks: AWS Libfabric.
NETWORK_LINE = re.compile(r"Using network (?P<name>\S{1,80}(?: \S{1,80}){0,8})")

# 2.20 to 2.22 name no collective; 2.20 to 2.23 count bytes over all ranks and give numbers.
_CHOICE_BY_NUMBER = re.compile(
    r"(?:(?P<func>\w+): )?(?P<bytes>\d+) Bytes -> Algo (?P<algo>\d+) proto (?P<proto>\d+) time "
)
# Since 2.24: names, and bytes are count x type size, so per rank for all-gather and reduce-scatter.
_CHOICE_BY_NAME = re.compile(
    r"(?P<func>\w+): (?P<bytes>\d+) Bytes -> Algo (?P<algo>\w+) proto (?P<proto>\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(?P<lo>\d+)\.\.(?P<hi>\d+)\})?"
)
# Since 2.27 (symmetric kernels) and 2.29 (copy engine): no tuner is asked.
_BYPASSED = re.compile(
    r"(?P<func>\w+) \[(?P<path>Symmetric|Copy Engine|Hierarchical CE)\]: (?P<bytes>\d+) Bytes -> "
)
_SETTING = re.compile(r"(?P<name>NCCL_\w+) set by environment to (?P<value>.*?)\.?\s*$")
_COMM = re.compile(r"\brank \d+ nRanks (?P<ranks>\d+) nNodes (?P<nodes>\d+)\b")
_COMM_RANKS = re.compile(r"\brank \d+ nranks (?P<ranks>\d+)\b")
_DRIVER = re.compile(r"cudaDriverVersion (?P<version>\d{4,6})\b")
_TUNER = re.compile(r"TUNER/Plugin: Using (?:tuner plugin )?(?P<name>[^\s(]+)")

PER_RANK = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER})
Bypass = Literal["symmetric kernel", "copy engine"]
Ran = Choice | Bypass
_MAX_POINTS = 100_000
_MAX_SETTINGS = 512
_MAX_HOSTS = 64


def find_log_line(text: str) -> re.Match[str] | None:
    """A log line in `text`, perhaps behind something else; what NCCL says follows the match.

    Looks near the mark only: a search through a long line takes time with its square.
    """
    at, tries = text.find(_MARK), 0
    while at >= 0 and tries < _MARKS:
        match = LOG_LINE.search(text, max(0, at - _WINDOW), at + 2 * len(_MARK))
        if match is not None:
            return match
        at, tries = text.find(_MARK, at + 1), tries + 1
    return None


class NcclLog:
    """What was gathered from the log lines of one run; feed it with `observe`."""

    def __init__(self) -> None:
        self.lines = 0
        self.version: str | None = None
        self.ranks: int | None = None
        self.nodes: int | None = None
        self.algorithms: str | None = None
        self.protocols: str | None = None
        self.tuner: str | None = None
        self.network: str | None = None
        self.driver: str | None = None
        self.nics: set[str] = set()
        self.stamps = Stamps()
        self.settings: dict[str, str] = {}
        self._by_total: dict[tuple[str | None, int], Ran | None] = {}
        self._by_task: dict[tuple[str | None, int], Ran | None] = {}
        self.whole_environment = False
        self.conflict: str | None = None
        self._said_by: dict[str, str] = {}
        self._last = ""

    def observe(self, message: str) -> None:
        """Take in what stands after `NCCL INFO`."""
        self.lines += 1
        if message == self._last:
            return
        self._last = message
        try:
            self._observe(message[:LONGEST])
        except ValueError:
            # A number of thousands of digits is none of NCCL's, and more than int() takes.
            return

    def _observe(self, message: str) -> None:
        if "Bytes ->" in message:
            self._observe_choice(message)
        elif " set by environment to " in message:
            self._observe_setting(message)
        elif message.startswith("NET/"):
            self._observe_nics(message)
        elif (match := _DRIVER.match(message)) is not None:
            self.driver = match["version"]
        elif "rank" in message and " - Destroy" not in message:
            self._observe_communicator(message)
        elif (match := VERSION_LINE.search(message)) is not None:
            self.version = match["version"]
        elif (match := _TUNER.search(message)) is not None:
            self.tuner = match["name"]
        elif (match := NETWORK_LINE.search(message)) is not None:
            self.network = match["name"]

    @property
    def says_choices(self) -> bool:
        """Whether any choice line was there."""
        return bool(self._by_total or self._by_task)

    def merge(self, other: "NcclLog", name: str) -> None:
        """Take in what another process, called `name`, says of the same run.

        What is known stays; two values of a setting that forces a choice are a `conflict`.
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
        """Whether the log has the lines of a start, which name every setting that NCCL read."""
        return bool(self.settings) or self.ranks is not None

    @property
    def would_tell(self) -> bool:
        """Whether a forced choice would have been seen: the log has the lines of a start, or the
        whole environment is known."""
        known = self.whole_environment or bool(self.settings)
        return known or self.ranks is not None or self.says_choices

    @property
    def functions(self) -> set[Collective]:
        """The collectives that choice lines name."""
        known = {item.value: item for item in Collective}
        names = {func for func, _ in (*self._by_total, *self._by_task) if func is not None}
        return {known[name] for name in names if name in known}

    def choices_of(self, collective: Collective) -> set[Choice]:
        """The choices that ran for a collective, without channels."""
        return {
            ran.without_channels()
            for points in (self._by_total, self._by_task)
            for (func, _), ran in points.items()
            if isinstance(ran, Choice) and func in (None, collective.value)
        }

    def points(self, ranks: int | None) -> dict[tuple[Collective, int], Ran | None]:
        """What ran by collective and bytes (over all ranks), where the log names the collective;
        None where it names several choices. `ranks` is what per-rank counts are multiplied by."""
        known = {item.value: item for item in Collective}
        found: dict[tuple[Collective, int], Ran | None] = {}
        for points, per_rank in ((self._by_task, True), (self._by_total, False)):
            for (func, size), ran in points.items():
                if func not in known:
                    continue
                collective = known[func]
                times = (ranks or 1) if per_rank and collective in PER_RANK else 1
                found[collective, size * times] = ran
        return found

    def ran(self, collective: Collective, size: int, ranks: int | None) -> Ran | None:
        """What ran for a call of `size` bytes (over all ranks), or None where the log is silent or
        names several choices for it."""
        if not self.says_choices:
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

    def _observe_choice(self, message: str) -> None:
        if (match := _CHOICE_BY_NAME.search(message)) is not None and not match["algo"].isdigit():
            try:
                algorithm = parse_algorithm(match["algo"])
                protocol = parse_protocol(match["proto"])
            except InputError:
                return
            channels = None
            if match["lo"] is not None:
                channels = int(match["hi"]) - int(match["lo"]) + 1
                channels = channels if channels >= 1 else None
            choice = Choice(algorithm, protocol, channels)
            _note(self._by_task, (match["func"].lower(), int(match["bytes"])), choice)
        elif (match := _CHOICE_BY_NUMBER.search(message)) is not None:
            algo, proto = int(match["algo"]), int(match["proto"])
            if algo < len(ALGORITHMS) and proto < len(PROTOCOLS):
                func = match["func"].lower() if match["func"] else None
                choice = Choice(ALGORITHMS[algo], PROTOCOLS[proto])
                _note(self._by_total, (func, int(match["bytes"])), choice)
        elif (match := _BYPASSED.search(message)) is not None:
            path: Bypass = "symmetric kernel" if match["path"] == "Symmetric" else "copy engine"
            _note(self._by_task, (match["func"].lower(), int(match["bytes"])), path)

    def _observe_setting(self, message: str) -> None:
        match = _SETTING.search(message)
        if match is None:
            return
        self.set(match["name"], match["value"])

    def _observe_nics(self, message: str) -> None:
        """`NET/IB : Using [0]mlx5_0:1/IB`, the NICs of one host."""
        nics = read_nics(message)
        if nics and len(self.nics) < _MAX_HOSTS:
            names = " ".join(dict.fromkeys(nic.name for nic in nics))
            self.nics.add(f"{nics[0].network} {names}")

    def set(self, name: str, value: str) -> None:
        """Take in a setting that was in force."""
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

    def _observe_communicator(self, message: str) -> None:
        if (match := _COMM.search(message)) is not None:
            self.nodes = int(match["nodes"]) or None
            self.ranks = int(match["ranks"]) or None
        elif (match := _COMM_RANKS.search(message)) is not None:
            self.ranks = int(match["ranks"]) or None


def _note(
    points: dict[tuple[str | None, int], Ran | None], key: tuple[str | None, int], ran: Ran
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
    # Two different choices for one size: which of them a row timed cannot be told.
    points[key] = ran if same else None


def _plain(value: str) -> str:
    """A setting's value without case and blanks, as NCCL compares it."""
    return re.sub(r"\s", "", value).lower()


class Forced(NamedTuple):
    """What `NCCL_ALGO` and `NCCL_PROTO` left NCCL to choose from, for one collective.

    `choice` is set where both name exactly one. `partly` says that one of them names exactly one
    and the other leaves several. `restricted` says that they only exclude some. `algorithms` and
    `protocols` are what is left; None: all.
    """

    choice: Choice | None
    partly: bool
    restricted: bool
    algorithms: frozenset[Algorithm] | None = None
    protocols: frozenset[Protocol] | None = None


def forced(algorithms: str | None, protocols: str | None, collective: Collective) -> Forced:
    """Read the two settings as NCCL does: `ring`, `^nvls`, `ring,tree`,
    `ring;allreduce:tree` (per collective since 2.24)."""
    algo = _allowed(algorithms, collective, tuple(item.value for item in ALGORITHMS))
    proto = _allowed(protocols, collective, tuple(item.value for item in PROTOCOLS))
    one_algo = algo is not None and len(algo) == 1
    one_proto = proto is not None and len(proto) == 1
    left = (
        None if algo is None else frozenset(map(parse_algorithm, algo)),
        None if proto is None else frozenset(map(parse_protocol, proto)),
    )
    choice = None
    if algo is not None and one_algo:
        if proto is not None and one_proto:
            choice = Choice(parse_algorithm(algo[0]), parse_protocol(proto[0]))
        # These algorithms know only the simple protocol (all versions to 2.32).
        elif algo[0] not in ("tree", "ring"):
            choice = Choice(parse_algorithm(algo[0]), PROTOCOLS[2])
    partly = choice is None and (one_algo or one_proto)
    limited = algo is not None or proto is not None
    return Forced(choice, partly, choice is None and not partly and limited, *left)


def _allowed(
    setting: str | None, collective: Collective, names: tuple[str, ...]
) -> list[str] | None:
    """The names that a setting allows for a collective; None where it says nothing about it."""
    if setting is None:
        return None
    allowed: list[str] | None = None
    for entry in setting.strip().lower().split(";"):
        prefix, colon, listed = entry.partition(":")
        if not colon:
            listed = prefix
        elif prefix.strip() != collective.value:
            continue
        excluded = listed.startswith("^")
        words = {word.strip().replace("_", "") for word in listed.removeprefix("^").split(",")}
        allowed = [name for name in names if (name.replace("_", "") in words) is not excluded]
    return allowed if allowed else None
