# SPDX-License-Identifier: Apache-2.0
"""Find settings, a version of NCCL or a network that ranks of one communicator have to share, and
do not.

A process that logs the lines around a setting and not the setting does not have it. Source: NCCL
2.18 to 2.30.
"""

import re
from collections import defaultdict
from typing import NamedTuple

from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_log.messages import COUNTED

Process = tuple[str, str]
"""Host and number of a process."""
VERSION = "NCCL version"
NETWORK = "Using network"
_SHARED = re.compile(
    r"NCCL_(?:ALGO|PROTO|(?:CUMEM(?:_HOST)?|MNNVL|NVLS|COLLNET)_ENABLE|IB_DISABLE|NET"
    r"|(?:P2P|SHM)_DISABLE|(?:LL_|LL128_)?BUFFSIZE|NTHREADS|(?:MIN|MAX)_(?:NCHANNELS|CTAS)|IB_HCA)"
)
_OF_A_HOST = "NCCL_IB_HCA"
"""Nodes may have NICs of other names. The ranks of one node choose among all of them."""
_ALWAYS = re.compile(
    r"NCCL_(?:ALGO|PROTO|(?:CUMEM|MNNVL|NVLS)_ENABLE|IB_DISABLE|NET|(?:LL_|LL128_)?BUFFSIZE)"
)
"""Settings that every process logs that has them. Others are logged where they are needed."""
_SETTING = re.compile(r"(?P<name>NCCL_\w{1,60}) set by environment to (?P<value>\S{1,80}?)\.?\s*$")
# NCCL compares its version alone, not that of CUDA after it (+cuda12.8).
_VERSION = re.compile(r"NCCL version (?P<value>\d[\w.]{1,40})(?:\+\w[\w.]{0,20})?")
_NETWORK = re.compile(rf"{NETWORK} (?P<value>\w[\w /.-]{{0,40}}?)\s*$")
_RANK = re.compile(
    r"\brank (?P<rank>\d{1,9}) nranks (?P<ranks>\d{1,9}) (?:.{0,160}?commId (?P<id>0x[0-9a-f]+))?"
    r".{0,160}- Init (?P<what>START|COMPLETE)"
)
_MARKS = ("Bootstrap", f"{VERSION} ", NETWORK, " set by environment to ", "- Init ")
# Lines of points alone: a person left lines of the log out.
_LEFT_OUT = re.compile(r"^[^\w\n.\u3002]{0,8}(?:\.{1,9}|\u2026|\u3002{2,9})[^\w\n]{0,8}$", re.M)
# NCCL prints its version without host and process, too.
_BARE_VERSION = re.compile(rf"^[^\S\n]*(?P<message>{_VERSION.pattern})[^\S\n]*$", re.M)
_LONGEST = 1000
_SHOWN = 8


class SettingApart(NamedTuple):
    """A setting, and its values with the ranks and hosts of each, as words."""

    name: str
    said: str


class SharedSettings:
    """Settings by process of a log, of which lines were left out if `is_cut`. Call `observe` for
    each message."""

    def __init__(self, *, is_cut: bool = False) -> None:
        self._settings: dict[str, dict[Process, str]] = defaultdict(dict)
        self._seen: dict[str, set[Process]] = defaultdict(set)
        # The process of each rank, by the id of the communicator ("" before NCCL 2.19) and size.
        self._ranks: dict[tuple[str, int], dict[int, Process]] = defaultdict(dict)
        self._is_cut = is_cut

    def observe(self, process: Process, message: str) -> None:
        """Process a message, the text after `NCCL INFO`."""
        mark = next((one for one in _MARKS if one in message), None)
        if mark is None:
            return
        message = message[:_LONGEST]
        # Ray leaves out equal lines of other processes.
        self._is_cut = self._is_cut or COUNTED in message
        self._seen[mark].add(process)
        if (match := _SETTING.search(message)) is not None:
            if _SHARED.fullmatch(match["name"]):
                self._settings[match["name"]].setdefault(process, match["value"])
        elif (match := _VERSION.match(message) or _NETWORK.match(message)) is not None:
            self._settings[mark.strip()].setdefault(process, match["value"])
        elif (match := _RANK.search(message)) is not None:
            ranks = self._ranks[match["id"] or "", int(match["ranks"])]
            before = ranks.setdefault(int(match["rank"]), process)
            if match["what"] == "COMPLETE":
                self._seen["COMPLETE"].add(process)
            if before != process:
                # Two communicators that the log does not tell apart.
                ranks[-1] = process

    def lacking(self) -> dict[Process, set[str]]:
        """Return the settings that a process does not have, and others of its communicator do."""
        if self._is_cut:
            return {}
        whole = self._seen["Bootstrap"] & self._seen[NETWORK] & self._seen["COMPLETE"]
        found: dict[Process, set[str]] = defaultdict(set)
        for ranks in self._communicators():
            processes = set(ranks.values())
            for name, values in self._settings.items():
                if _ALWAYS.fullmatch(name) and processes & values.keys():
                    for process in (processes & whole) - values.keys():
                        found[process].add(name)
        return dict(found)

    def apart(self) -> list[SettingApart] | None:
        """Return each setting that ranks do not share; None without two processes of one
        communicator. A log without a commId has one communicator of each size, if no rank is twice
        in it."""
        communicators = self._communicators()
        lacking = self.lacking()
        found: dict[str, SettingApart] = {}
        for ranks in communicators:
            for name, values in self._settings.items():
                of: dict[str, list[int]] = defaultdict(list)
                for rank, process in sorted(ranks.items()):
                    if process in values:
                        of[values[process]].append(rank)
                    elif name in lacking.get(process, ()):
                        of["not set"].append(rank)
                hosts = [host for some in of.values() for host in {ranks[one][0] for one in some}]
                if len(of) > 1 and (name != _OF_A_HOST or len(set(hosts)) < len(hosts)):
                    words = (f"{value}: {_words(some, ranks)}" for value, some in of.items())
                    found.setdefault(name, SettingApart(name, "; ".join(words)))
        return list(found.values()) if communicators else None

    def nodes(self) -> int:
        """Return the hosts of the largest communicator whose ranks are all there, 0 without one."""
        ranks = ((size, of) for (_, size), of in self._ranks.items() if 1 < len(of) == size)
        whole = [(size, len({at[0] for at in of.values()})) for size, of in ranks if -1 not in of]
        return max(whole, default=(0, 0))[1]

    def host_versions(self) -> list[str] | None:
        """Return versions and networks of NCCL, and the hosts of each, if they differ. None with
        less than two hosts, with two versions on one, and where communicators are known."""
        said, is_known = list[str](), False
        for name in () if self._ranks else (VERSION, NETWORK):
            pairs = dict.fromkeys((at, text) for (at, _), text in self._settings[name].items())
            hosts: dict[str, list[str]] = defaultdict(list)
            for host, value in pairs:
                hosts[value].append(host)
            if len({host for host, _ in pairs}) == len(pairs) > 1:
                is_known = is_known or name == VERSION
                of = [
                    f"{name} {value}: {', '.join(some[:_SHOWN])}" for value, some in hosts.items()
                ]
                said += of if len(of) > 1 else []
        return said if said or is_known else None

    def _communicators(self) -> list[dict[int, Process]]:
        return [
            ranks
            for (name, size), ranks in self._ranks.items()
            if len(set(ranks.values())) > 1 and -1 not in ranks and (name or len(ranks) == size)
        ]


def shared_settings(text: str) -> SharedSettings:
    """Return the settings by process of a log. A version without a process is of the one that
    wrote the lines before and after it."""
    shared = SharedSettings(is_cut=_LEFT_OUT.search(text) is not None)
    for line in text.split("\n"):
        if any(mark in line for mark in _MARKS) and (found := _read(line)) is not None:
            shared.observe(*found)
    for match in _BARE_VERSION.finditer(text):
        before = text[max(0, match.start() - _LONGEST) : match.start()].rstrip("\n")
        beside = _read(before.rpartition("\n")[2]), _read(text[match.end() + 1 :][:_LONGEST])
        processes = {found[0] for found in beside if found is not None}
        if None not in beside and len(processes) == 1:
            shared.observe(processes.pop(), match["message"])
    return shared


def _read(line: str) -> tuple[Process, str] | None:
    writer = find_log_line(line[:_LONGEST].partition("\n")[0])
    return writer and ((writer["host"], writer["pid"]), writer.string[writer.end() :])


def _words(some: list[int], of: dict[int, Process]) -> str:
    hosts = list(dict.fromkeys(of[rank][0] for rank in some))
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    where = f"{', '.join(hosts[:2])}{' ...' if len(hosts) > 2 else ''}"
    plural = "s" if len(some) > 1 else ""
    return f"rank{plural} {', '.join(map(str, some[:_SHOWN]))}{more} ({where})"
