# SPDX-License-Identifier: Apache-2.0
"""Read the start of communicators: ranks that do not complete it, the time it takes, and NVLink
across nodes. Source: NCCL 2.18 to 2.30 (init.cc).
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

_INIT = re.compile(
    r"(?P<host>[^\s:\]]{1,255}):(?P<pid>\d{1,10}):\d{1,10} [^\n]{0,80}?\bcomm 0x[0-9a-f]{1,16} "
    r"rank (?P<rank>\d{1,9}) nranks (?P<ranks>\d{1,9}) [^\n]{0,120}?"
    r"(?:commId (?P<id>0x[0-9a-f]{1,16})"
    r"|parent 0x[0-9a-f]{1,16} (?P<split>\w{1,20} \d{1,9} color -?\d{1,10}) key -?\d{1,10})"
    r" ?- Init (?P<what>START|COMPLETE)"
)
_TIMES = re.compile(
    r"Init timings\b[^\n]{0,80}?rank \d{1,9} nranks (?P<ranks>\d{1,9}) "
    r"total (?P<total>\d{1,9}\.\d{1,6}) \((?P<parts>[^)\n]{1,200})\)"
)
_PART = re.compile(r"(\w{1,20}) (\d{1,9}\.\d{1,6})")
_FABRIC = re.compile(
    r"(?P<host>[^\s:\]]{1,255}):\d{1,10}:\d{1,10} [^\n]{0,80}?MNNVL busId \S{1,20} fabric UUID "
    r"(?P<uuid>[0-9a-f.]{1,40}) cliqueId (?P<clique>\S{1,20}) state (?P<state>\d{1,3})"
)
_JOINED = re.compile(
    r" nRanks (?P<ranks>\d{1,9}) nNodes (?P<nodes>\d{1,9}) .{0,60}? MNNVL (?P<on>\d)"
)
# Ray counts equal lines of several processes, and people leave lines out.
_CUT = re.compile(r"\[repeated \d{1,6}x |^\W{0,3}(?:\.{3}|…|snip|truncated)\W{0,3}$", re.M)
# The last messages of a rank before `Init COMPLETE`.
_LATE = ("coll channels", "CC Off", "CC On", "TUNER/Plugin")
_COMPLETED = 3
"""State of a GPU in a fabric (nvmlGpuFabricState): its registration is complete."""


class OpenInit(NamedTuple):
    """A communicator with ranks that started and did not complete.

    `whole` is false if the log may be cut before the lines of these ranks.
    """

    comm: str
    ranks: int
    started: int
    completed: int
    unfinished: list[int]
    hosts: list[str]
    whole: bool


class InitTimes(NamedTuple):
    """Seconds of the slowest start of a communicator, and those of its longest part."""

    ranks: int
    total_s: float
    part: str
    part_s: float


class InitLines(NamedTuple):
    """The start of communicators in a log. None marks what the log does not have.

    `fabric_nodes` is the number of hosts whose GPUs are in one NVLink domain. `mnnvl` is whether
    the largest communicator joins nodes by NVLink.
    """

    unfinished: list[OpenInit] | None
    times: InitTimes | None
    fabric_nodes: int | None
    mnnvl: bool | None


def parse_init(text: str) -> InitLines:
    """Parse a log of one process, or of several processes in one text."""
    return InitLines(
        _unfinished(text) if "Init START" in text and _CUT.search(text) is None else None,
        _slowest(text) if "Init timings" in text else None,
        _fabric(text) if "MNNVL busId" in text else None,
        _joined(text) if " MNNVL " in text else None,
    )


class _Group:
    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.open: Counter[int] = Counter()
        self.owner: dict[int, tuple[str, str]] = {}
        self.done: list[int] = []


def _unfinished(text: str) -> list[OpenInit]:
    groups: dict[str, _Group] = {}
    end = 0
    for match in _INIT.finditer(text):
        name = match["id"] or f"{match['split']} of {match['ranks']} ranks"
        rank = int(match["rank"])
        group = groups.setdefault(name, _Group(int(match["ranks"])))
        if match["what"] == "START":
            group.open[rank] += 1
            group.owner.setdefault(rank, (match["host"], match["pid"]))
        else:
            group.open[rank] -= 1
            group.done.append(rank)
            end = match.end()
    found = []
    last = _last_lines(text) if any(any(one.open.values()) for one in groups.values()) else {}
    ends_here = not [line for line in text[end:].split("\n")[1:] if _is_other(line)]
    for name, group in groups.items():
        waiting = [rank for rank in group.owner if group.open[rank] > 0]
        if not waiting:
            continue
        late = all(any(w in last.get(group.owner[one], "") for w in _LATE) for one in waiting)
        # A log that ends among the `Init COMPLETE` lines has those of the first ranks, or of ranks
        # that were ready when others were.
        first = sorted(list(group.owner)[: len(group.done)]) == sorted(group.done)
        cut = not text.endswith("\n") or (ends_here and (late or first))
        hosts = sorted({group.owner[one][0] for one in waiting})
        found.append(
            OpenInit(name, group.ranks, len(group.owner), len(group.done), sorted(waiting), hosts,
                     whole=bool(group.done) and not cut)
        )  # fmt: skip
    return found


def _is_other(line: str) -> bool:
    return bool(line.strip()) and "Init COMPLETE" not in line and "Init timings" not in line


_OWNER = re.compile(r"(?P<host>[^\s:\]]{1,255}):(?P<pid>\d{1,10}):\d{1,10} [^\n]{0,80}?NCCL ")


def _last_lines(text: str) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for line in text.split("\n"):
        if " NCCL " in line and (match := _OWNER.search(line[:400])) is not None:
            found[match["host"], match["pid"]] = line
    return found


def _slowest(text: str) -> InitTimes | None:
    match = max(_TIMES.finditer(text), key=lambda one: float(one["total"]), default=None)
    if match is None:
        return None
    parts = [(float(seconds), name) for name, seconds in _PART.findall(match["parts"])]
    seconds, name = max(parts, default=(0.0, "unknown"))
    return InitTimes(int(match["ranks"]), float(match["total"]), name, seconds)


def _fabric(text: str) -> int | None:
    hosts: dict[tuple[str, str], set[str]] = {}
    for match in _FABRIC.finditer(text):
        if match["uuid"].strip("0.") and int(match["state"]) == _COMPLETED:
            hosts.setdefault((match["uuid"], match["clique"]), set()).add(match["host"])
    return max((len(one) for one in hosts.values()), default=0)


def _joined(text: str) -> bool | None:
    match = max(
        _JOINED.finditer(text), key=lambda one: (int(one["ranks"]), int(one["on"])), default=None
    )
    return None if match is None else match["on"] != "0"
