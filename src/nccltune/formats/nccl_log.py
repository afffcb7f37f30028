# SPDX-License-Identifier: Apache-2.0
"""What an NCCL log (`NCCL_DEBUG=INFO`) says about the run that it stands beside.

Line forms: NCCL 2.18 to 2.32 (`src/debug.cc`, `enqueue.cc`, `graph/tuning.cc`, `plugin/tuner*`).
"""

import re
from typing import Literal

from nccltune.formats.nccl_transport_lines import read_nics
from nccltune.formats.redact import keep_setting
from nccltune.formats.stamps import Stamps
from nccltune.model.choice import (
    ALGORITHMS,
    PROTOCOLS,
    Choice,
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

    def add(self, other: "NcclLog") -> None:
        """Take in what another source says of the same run, where this one is silent."""
        self.algorithms = self.algorithms or other.algorithms
        self.protocols = self.protocols or other.protocols
        self.version = self.version or other.version
        self.network = self.network or other.network
        self.driver = self.driver or other.driver
        self.nics = self.nics or other.nics
        self.stamps.fill(other.stamps)
        self.settings = {**other.settings, **self.settings}
        self.whole_environment = self.whole_environment or other.whole_environment

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


class Forced:
    """What `NCCL_ALGO` and `NCCL_PROTO` left NCCL to choose from, for one collective.

    `choice` is set where both name exactly one. `partly` says that one of them names exactly one
    and the other leaves several. `restricted` says that they only exclude some.
    """

    def __init__(self, choice: Choice | None, partly: bool, restricted: bool) -> None:
        self.choice = choice
        self.partly = partly
        self.restricted = restricted


def forced(algorithms: str | None, protocols: str | None, collective: Collective) -> Forced:
    """Read the two settings as NCCL does: `ring`, `^nvls`, `ring,tree`,
    `ring;allreduce:tree` (per collective since 2.24)."""
    algo = _allowed(algorithms, collective, tuple(item.value for item in ALGORITHMS))
    proto = _allowed(protocols, collective, tuple(item.value for item in PROTOCOLS))
    one_algo = algo is not None and len(algo) == 1
    one_proto = proto is not None and len(proto) == 1
    if algo is not None and proto is not None and one_algo and one_proto:
        return Forced(Choice(parse_algorithm(algo[0]), parse_protocol(proto[0])), False, False)
    # These algorithms know only the simple protocol (all versions to 2.32).
    if algo is not None and one_algo and algo[0] not in ("tree", "ring"):
        return Forced(Choice(parse_algorithm(algo[0]), PROTOCOLS[2]), False, False)
    partly = one_algo or one_proto
    return Forced(None, partly, not partly and (algo is not None or proto is not None))


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
