# SPDX-License-Identifier: Apache-2.0
"""Read the start of communicators: ranks that do not complete it, the time it takes, and NVLink
across nodes. Source: NCCL 2.18 to 2.30 (init.cc).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.failures import FailureLine
from nccltune.doctor.evidence.parsers.result_rows import has_rows
from nccltune.doctor.facts.log import LogInit, LogInitTimes
from nccltune.formats.nccl_log.lines import find_log_line

_INIT = re.compile(
    r"\bcomm 0x[0-9a-f]{1,16} rank (?P<rank>\d{1,9}) nranks (?P<ranks>\d{1,9}) "
    r"(?:.{0,80}?\bbusId (?P<bus>[0-9a-f]{1,12}) )?.{0,120}?(?:commId (?P<id>0x[0-9a-f]{1,16})"
    r"|parent 0x[0-9a-f]{1,16} (?P<split>\w{1,20} \d{1,9} color -?\d{1,10}) key -?\d{1,10})"
    r" ?- Init (?P<what>START|COMPLETE)"
)
_TORN = re.compile(r"\bcommId (0x[0-9a-f]{1,16}) ?- Init COMPLETE")
# Releases without `Init START` name no communicator either.
_OLD = re.compile(r"\bcomm 0x[0-9a-f]{1,16} rank (\d{1,9}) nranks (\d{1,9}) .*- Init COMPLETE")
_ENDED = re.compile(r"DUE TO TIME LIMIT|TERM_RUNLIMIT|walltime \d+ exceeded")
# The start returned an error: it does not hang.
_RETURNED = re.compile(r"\.cc:\d{1,6} -> [1-6]\b")
_REFUSED = re.compile(r"invalid usage|ncclInvalidUsage", re.IGNORECASE)
_TIMES = re.compile(
    r"rank \d{1,9} nranks (?P<ranks>\d{1,9}) total (?P<total>\d{1,9}\.\d{1,6}) "
    r"\((?P<parts>[^)]{1,200})\)"
)
_PART = re.compile(r"(\w{1,20}) (\d{1,9}\.\d{1,6})")
_FABRIC = re.compile(
    r"busId (?P<bus>0x[0-9a-f]{1,16}) fabric UUID (?P<uuid>[0-9a-f.]{1,40}) cliqueId "
    r"(?P<clique>\S{1,20}) state (?P<state>\d{1,3})(?: healthMask (?P<mask>0x[0-9a-f]{1,8}))?"
)
_HEALTH = (
    "bandwidth degraded",
    "route recovery in progress",
    "route unhealthy",
    "recovery of access timeouts",
)
"""Fields of two bits of a fabric's health mask: 0 not supported, 1 true, 2 false (nvml.h)."""
_JOINED = re.compile(
    r" nRanks (?P<ranks>\d{1,9}) nNodes (?P<nodes>\d{1,9}) .{0,60}? MNNVL (?P<on>\d)"
)
# Ray counts equal lines of several processes, and people leave lines out.
_CUT = re.compile(r"\[repeated \d{1,6}x |^\W{0,3}(?:\.{3}|…|。。|\.$|snip|truncated)\W{0,3}$", re.M)
# The last messages of a rank before `Init COMPLETE`.
_LATE = ("coll channels", "CC Off", "CC On", "TUNER/Plugin")
# Messages that a rank logs after the bootstrap: it has met all others.
_MET = (" nRanks ", " via ", "Trees ", "Channel ", "Chunksize", "Connected ", "Setting affinity")
# Messages that a rank logs only after its `Init COMPLETE`: the lines before them were left out.
_AFTER = ("Init timings", "Destroy", "opCount", "Init COMPLETE")
_LONGEST = 1000
_COMPLETED = 3
"""State of a GPU in a fabric (nvmlGpuFabricState): its registration is complete."""


class InitLines(NamedTuple):
    """The start of communicators in a log. None marks what the log does not have.

    `fabric_nodes` is the number of hosts whose GPUs are in one NVLink domain. `nvlink_domains` is
    into how many domains of several hosts NVLink joins the largest communicator: 0 if into none.
    `fabric_faults` are sentences about GPUs. `times` are of the slowest start.
    """

    unfinished: list[LogInit] | None
    times: LogInitTimes | None
    fabric_nodes: int | None
    nvlink_domains: int | None
    fabric_faults: list[str] | None


def parse_init(text: str) -> InitLines:
    """Parse a log of one process, or of several processes in one text."""
    # A table of nccl-tests shows that all ranks were initialised.
    is_whole = "- Init " in text and _CUT.search(text) is None and not has_rows(text)
    unfinished = _unfinished if "Init START" in text else _unstarted
    return InitLines(
        unfinished(text) if is_whole else None,
        _slowest(text) if "Init timings" in text else None,
        _fabric(text) if "MNNVL busId" in text else None,
        _domains(text) if " MNNVL " in text else None,
        _faults(text) if "MNNVL busId" in text else None,
    )


def _lines(text: str, word: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with `word`, at most _LONGEST characters of each, and where they end."""
    at = text.find(word)
    while at >= 0:
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        end = end if end >= 0 else len(text)
        yield end, text[start : min(end, start + _LONGEST)]
        at = text.find(word, end)


class _Group:
    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.open: Counter[int] = Counter()
        self.owner: dict[int, tuple[str, str]] = {}
        self.done: list[int] = []
        self.torn = 0


def _unfinished(text: str) -> list[LogInit]:
    groups, end = _groups(text)
    found = []
    last = _last_lines(text) if any(any(one.open.values()) for one in groups.values()) else {}
    failed = _returned(text)
    ends_here = not any(_is_other(line) for line in text[end:].split("\n")[1:])
    for name, group in groups.items():
        waiting = [rank for rank in group.owner if group.open[rank] > 0]
        # Where nodes write over each other, the lines of some ranks lack their head.
        if len(waiting) <= group.torn:
            continue
        if any(group.owner[one] in failed for one in waiting):
            continue
        if any(word in last.get(group.owner[one], "") for one in waiting for word in _AFTER):
            continue
        late = all(any(w in last.get(group.owner[one], "") for w in _LATE) for one in waiting)
        # A log that ends among the `Init COMPLETE` lines has those of the first ranks, or of ranks
        # that were ready when others were.
        first = sorted(list(group.owner)[: len(group.done)]) == sorted(group.done)
        cut = not text.endswith("\n") or (ends_here and (late or first))
        found.append(
            LogInit(
                comm=name,
                ranks=group.ranks,
                started=len(group.owner),
                completed=len(group.done),
                unfinished=sorted(waiting),
                hosts=sorted({group.owner[one][0] for one in waiting}),
                whole=bool(group.done) and not cut,
                met=all(any(w in last.get(group.owner[one], "") for w in _MET) for one in waiting),
            )
        )
    return found


def _unstarted(text: str) -> list[LogInit] | None:
    """Return the one communicator of a log without `Init START` that a time limit ended, if as many
    processes as ranks are in the log, and some of both did not complete it; None if that does not
    decide."""
    done: dict[tuple[str, str], int] = {}
    sizes = set()
    for _, line in _lines(text, "- Init COMPLETE"):
        writer, match = find_log_line(line), _OLD.search(line)
        if writer is None or match is None or (writer["host"], writer["pid"]) in done:
            return None
        done[writer["host"], writer["pid"]] = int(match[1])
        sizes.add(int(match[2]))
    last = _last_lines(text)
    if len(sizes) != 1 or {len(last)} != sizes or _ENDED.search(text) is None or _returned(text):
        return None
    waiting = last.keys() - done.keys()
    ranks = set(range(len(last))) - set(done.values())
    if not ranks or len(ranks) != len(waiting):
        return None
    return [
        LogInit(
            comm="without an id",
            ranks=len(last),
            started=len(last),
            completed=len(done),
            unfinished=sorted(ranks),
            hosts=sorted({host for host, _ in waiting}),
            whole=True,
            met=all(any(word in last[one] for word in _MET) for one in waiting),
        )
    ]


def _returned(text: str) -> set[tuple[str, str]]:
    """Return host and process of each start that returned an error."""
    writers = (find_log_line(line) for _, line in _lines(text, ".cc:") if _RETURNED.search(line))
    return {(writer["host"], writer["pid"]) for writer in writers if writer is not None}


def _groups(text: str) -> tuple[dict[str, _Group], int]:
    """Return the communicators by name, and where the last `Init COMPLETE` line ends."""
    groups: dict[str, _Group] = {}
    last = 0
    for end, line in _lines(text, "- Init "):
        writer, match = find_log_line(line), _INIT.search(line)
        if writer is None or match is None:
            if (torn := _TORN.search(line)) is not None and torn[1] in groups:
                groups[torn[1]].torn += 1
            continue
        name = match["id"] or f"{match['split']} of {match['ranks']} ranks"
        rank = int(match["rank"])
        group = groups.setdefault(name, _Group(int(match["ranks"])))
        if match["what"] == "START":
            group.open[rank] += 1
            group.owner.setdefault(rank, (writer["host"], writer["pid"]))
        else:
            group.open[rank] -= 1
            group.done.append(rank)
            last = end
    return groups, last


def shared_gpus(text: str) -> tuple[FailureLine, ...]:
    """Return the ranks of a communicator that name one GPU of one host, where NCCL refused their
    use and did not print that ranks are `both on CUDA device`."""
    if _REFUSED.search(text) is None or "both on CUDA device" in text:
        return ()
    users: dict[tuple[str, ...], dict[str, int]] = {}
    for end, line in _lines(text, "- Init START"):
        writer, match = find_log_line(line), _INIT.search(line)
        if writer is not None and match is not None and match["bus"] and match["id"]:
            users.setdefault((match["id"], writer["host"], match["bus"]), {})[match["rank"]] = end
    return tuple(
        FailureLine(
            "device",
            f"ranks {', '.join(sorted(ranks, key=int)[:8])} of one communicator on {host} have the "
            f"same GPU, bus id {bus}; NCCL refused an invalid usage",
            text.count("\n", 0, min(ranks.values())) + 1,
            1,
        )
        for (_, host, bus), ranks in users.items()
        if len(ranks) > 1
    )


def _is_other(line: str) -> bool:
    return bool(line.strip()) and "Init COMPLETE" not in line and "Init timings" not in line


def _last_lines(text: str) -> Mapping[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for _, line in _lines(text, " NCCL "):
        if (match := find_log_line(line)) is not None:
            found[match["host"], match["pid"]] = line
    return found


def _slowest(text: str) -> LogInitTimes | None:
    matches = [match for _, line in _lines(text, "Init timings") if (match := _TIMES.search(line))]
    if not matches:
        return None
    match = max(matches, key=lambda one: float(one["total"]))
    parts = [(float(seconds), name) for name, seconds in _PART.findall(match["parts"])]
    seconds, name = max(parts, default=(0.0, "unknown"))
    return LogInitTimes(
        ranks=int(match["ranks"]), total_s=float(match["total"]), part=name, part_s=seconds
    )


def _fabric(text: str) -> int | None:
    hosts: dict[tuple[str, str], set[str]] = {}
    for _, line in _lines(text, "MNNVL busId"):
        writer, match = find_log_line(line), _FABRIC.search(line)
        if writer is None or match is None or not match["uuid"].strip("0."):
            continue
        if int(match["state"]) == _COMPLETED:
            hosts.setdefault((match["uuid"], match["clique"]), set()).add(writer["host"])
    return max((len(one) for one in hosts.values()), default=0)


def _faults(text: str) -> list[str]:
    """Return the GPUs that are not registered with their fabric, or whose health mask has a
    fault."""
    found: dict[str, None] = {}
    for _, line in _lines(text, "MNNVL busId"):
        writer, match = find_log_line(line), _FABRIC.search(line)
        if writer is None or match is None:
            continue
        mask = int(match["mask"] or "0", 16)
        faults = [name for at, name in enumerate(_HEALTH) if mask >> 2 * at & 3 == 1]
        if mask >> 8 & 15 > 1:
            faults.append("wrong configuration")
        if int(match["state"]) in (1, 2):
            faults.append("registration not complete")
        for fault in faults:
            found.setdefault(f"{writer['host']} GPU {match['bus']}: {fault}")
    return list(found)


def _domains(text: str) -> int | None:
    matches, hosts = [], set()
    for _, line in _lines(text, " MNNVL "):
        if (match := _JOINED.search(line)) is not None:
            matches.append(match)
            writer = find_log_line(line)
            hosts.add(writer["host"] if writer else "")
    if not matches:
        return None
    largest = max(matches, key=lambda one: (int(one["ranks"]), int(one["on"])))
    if largest["on"] == "0":
        return 0
    # With MNNVL, the hosts that share fabric UUID and clique count as one node. It can be on for
    # ranks of a single host, which says nothing of others.
    return int(largest["nodes"]) if len(hosts) > 1 else None
