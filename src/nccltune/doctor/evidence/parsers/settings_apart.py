# SPDX-License-Identifier: Apache-2.0
"""Find settings, or a version of NCCL, that ranks of one communicator have to share, and do not.

A process that logs the lines around a setting and not the setting does not have it. Source: NCCL
2.18 to 2.30.
"""

import re
from collections import defaultdict

from nccltune.doctor.facts.log import LogSettingApart
from nccltune.formats.nccl_log.lines import find_log_line

_SHARED = re.compile(
    r"NCCL_(?:ALGO|PROTO|(?:CUMEM(?:_HOST)?|MNNVL|NVLS|COLLNET)_ENABLE|IB_DISABLE|NET|(?:P2P|SHM)_DISABLE"
    r"|(?:LL_|LL128_)?BUFFSIZE|NTHREADS)"
)
_ALWAYS = re.compile(r"NCCL_(?:ALGO|PROTO|(?:CUMEM|MNNVL|NVLS)_ENABLE|IB_DISABLE|NET)")
"""Settings that every process logs that has them. Others are logged where they are needed."""
_SETTING = re.compile(r"(?P<name>NCCL_\w{1,60}) set by environment to (?P<value>\S{1,80}?)\.?\s*$")
_VERSION = re.compile(r"NCCL INFO NCCL version (?P<value>\d[\w.+]{1,40})")
_RANK = re.compile(
    r"\brank (?P<rank>\d{1,9}) nranks (?P<ranks>\d{1,9}) (?:.{0,160}?commId (?P<id>0x[0-9a-f]+))?"
    r".{0,160}- Init (?P<what>START|COMPLETE)"
)
_LONGEST = 1000
_SHOWN = 8

_Process = tuple[str, str]


class _Log:
    def __init__(self) -> None:
        self.settings: dict[str, dict[_Process, str]] = defaultdict(dict)
        self.seen: dict[str, set[_Process]] = defaultdict(set)
        self.ranks: dict[tuple[str, int], dict[int, _Process]] = defaultdict(dict)


def settings_apart(text: str) -> list[LogSettingApart] | None:
    """Return each such setting with its value on the ranks; None without two processes of one
    communicator. A log that has no commId has one communicator of each size, if no rank is twice in
    it."""
    log = _read(text)
    found: dict[str, LogSettingApart] = {}
    known, whole = False, _whole(log)
    for (name, size), ranks in log.ranks.items():
        processes = set(ranks.values())
        if len(processes) < 2 or (not name and (-1 in ranks or len(ranks) != size)):
            continue
        known = True
        for setting, values in log.settings.items():
            has = processes & values.keys()
            of: dict[str, list[int]] = defaultdict(list)
            for rank, process in sorted(ranks.items()):
                if process in has:
                    of[values[process]].append(rank)
                elif has and _ALWAYS.fullmatch(setting) and process in whole:
                    of["not set"].append(rank)
            if len(of) > 1:
                said = "; ".join(f"{value}: {_ranks(some, ranks)}" for value, some in of.items())
                found.setdefault(setting, LogSettingApart(name=setting, said=said))
    return list(found.values()) if known else None


def _read(text: str) -> _Log:
    log = _Log()
    marks = ("Bootstrap", "NCCL version ", "Using network", " set by environment to ", "- Init ")
    for line in text.split("\n"):
        mark = next((one for one in marks if one in line), None)
        writer = find_log_line(line[:_LONGEST]) if mark is not None else None
        if mark is None or writer is None:
            continue
        process = writer["host"], writer["pid"]
        log.seen[mark].add(process)
        if (match := _SETTING.search(line)) is not None and _SHARED.fullmatch(match["name"]):
            log.settings[match["name"]].setdefault(process, match["value"])
        elif (match := _VERSION.search(line)) is not None:
            log.settings["NCCL version"].setdefault(process, match["value"])
        elif (match := _RANK.search(line)) is not None:
            ranks = log.ranks[match["id"] or "", int(match["ranks"])]
            before = ranks.setdefault(int(match["rank"]), process)
            if match["what"] == "COMPLETE":
                log.seen["COMPLETE"].add(process)
            if before != process:
                # Two communicators that the log does not tell apart.
                ranks[-1] = process
    return log


def _whole(log: _Log) -> set[_Process]:
    """Return the processes of which the log has a whole initialisation."""
    return log.seen["Bootstrap"] & log.seen["Using network"] & log.seen["COMPLETE"]


def _ranks(some: list[int], of: dict[int, _Process]) -> str:
    hosts = list(dict.fromkeys(of[rank][0] for rank in some))
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    where = f"{', '.join(hosts[:2])}{' ...' if len(hosts) > 2 else ''}"
    plural = "s" if len(some) > 1 else ""
    return f"rank{plural} {', '.join(map(str, some[:_SHOWN]))}{more} ({where})"
