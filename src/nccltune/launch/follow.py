# SPDX-License-Identifier: Apache-2.0
"""The lines of a job as they come: launchers' prefixes off, the table as it grows, who takes part,
the last words."""

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nccltune.formats.text.prefixes import strip_prefix
from nccltune.launch.placement import Placement

# A row that was cut can have words of a launcher behind it.
_ROW = re.compile(
    r"\s*\d+\s+\d+(?:\s+[a-z]\w*){1,2}(?:\s+(?:[-+]?[\d.]+(?:e[-+]?\d+)?|N/A|nan|inf)){4,}"
    r"(?:\s+\d+-\d+-\d+ [\d:]+)?\s*$"
)
_HEADER = re.compile(r"\s*#\s+(?:size\s+count\s+type|\(B\)\s+\(elements\))")
_DEVICE = re.compile(
    r"\s*#\s+Rank\s+(?P<rank>\d+) (?:Group\s+\d+ )?Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) device"
)
# What launchers print when the daemon of a node is gone: Open MPI 4.1 and 5.0, MPICH's hydra 4.0,
# Intel MPI 2021, srun 22.05.
_LOST = re.compile(
    r"unable to reliably start one or more daemons|daemon failed to report back after being spawned"
    r"|lost communication with a remote daemon|daemon has unexpectedly failed"
    r"|control_cb .*assert \(!closed\) failed|HYDT_bscu_wait.*one of the processes terminated badly"
    r"|ownstream from host (?P<host>\S+) (?:exited abnormally|was killed)"
    r"|Node failure on (?P<node>\S+)"
)
_LAST_LINES = 8
_LONGEST_LINE = 1 << 16


class Participants(NamedTuple):
    """Who took part, by the table's own list of devices: ranks, processes on each host."""

    ranks: int
    processes: dict[str, int]


class Follower:
    """Takes output in pieces of any size. `told` hears the rows of the table and their header."""

    def __init__(self, told: Callable[[str], None] | None = None) -> None:
        self.rows = 0
        self._told = told
        self._rest = b""
        self._speaker: str | None = None
        self._tables: dict[str, dict[int, tuple[str, int]]] = {}
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._launchers_last: deque[str] = deque(maxlen=_LAST_LINES)
        self._lost: str | None = None

    @property
    def last_words(self) -> list[str]:
        """The last lines of the program that are neither table nor comment, then the launcher's:
        its lines about a death would push out the reason. About a lost node it prints nothing
        but guesses."""
        if self._lost is not None and self._tables:
            return list(self._last)
        return [*self._last, *self._launchers_last]

    @property
    def seen(self) -> Participants | None:
        """Return who took part; None where no line shows it. Tables of processes that each believe
        to be alone are as many runs of one rank: the first is returned."""
        if not self._tables:
            return None
        ranks = next(iter(self._tables.values()))
        hosts: dict[str, int] = {}
        for host, _ in sorted(set(ranks.values())):
            hosts[host] = hosts.get(host, 0) + 1
        return Participants(len(ranks), hosts)

    @property
    def lost(self) -> str | None:
        """Return the sentence for a node that the launcher reports as lost or missing; None where
        it reports nothing of that."""
        if self._lost is None:
            return None
        if not self._tables:
            return (
                "the launcher has no daemon on a node: ssh to each node must work without a "
                "password, and the launcher be there at the same path"
            )
        which = f" ({self._lost})" if self._lost else ""
        return f"a node went away{which}: it died, or its network did, or the ssh to it"

    @property
    def alone(self) -> int:
        """How many processes printed a list of devices: more than one were not one job."""
        return len(self._tables)

    def feed(self, data: bytes) -> None:
        """Take in more output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST_LINE:
            self._rest = self._rest[-_LONGEST_LINE:]

    def finish(self) -> None:
        """No more comes. A line without its end may be cut: it is no row."""
        if self._rest.strip():
            self._remember(*strip_prefix(self._rest.decode(errors="replace")))
        self._rest = b""

    def _line(self, raw: bytes) -> None:
        source, text = strip_prefix(raw.decode(errors="replace").rstrip("\r"))
        if match := _DEVICE.match(text):
            table = self._tables.setdefault(source, {})
            table[int(match["rank"])] = (match["host"], int(match["pid"]))
        row = _ROW.match(text) is not None
        self.rows += row
        if not row:
            self._remember(source, text)
        if row or _HEADER.match(text):
            if self._speaker is None:
                self._speaker = source
            if self._told is not None and source == self._speaker:
                self._told(text.rstrip())

    def _remember(self, source: str, text: str) -> None:
        if not source and self._lost is None and (match := _LOST.search(text)):
            self._lost = match["host"] or match["node"] or ""
        if text.strip(" \t-=*") and not text.lstrip().startswith("#"):
            (self._last if source else self._launchers_last).append(text.rstrip())


def differences(promised: Placement, follower: Follower) -> list[str]:
    """Sentences for what took part otherwise than it was promised; none where nothing is known."""
    seen = follower.seen
    if seen is None:
        return []
    if follower.alone > 1 and seen.ranks < promised.ranks:
        return [
            f"{follower.alone} processes each ran a test of their own ({seen.ranks} ranks): the "
            "program was built without MPI, or with another one than the launcher's"
        ]
    found = []
    if seen.ranks != promised.ranks:
        found.append(f"{seen.ranks} ranks took part, not {promised.ranks}")
    counts = sorted(seen.processes.values())
    wanted = sorted(node.processes for node in promised.nodes)
    if counts != wanted:
        on = ", ".join(f"{number} on {host}" for host, number in seen.processes.items())
        found.append(f"processes ran {on}; {' + '.join(map(str, wanted))} were promised")
    return found
