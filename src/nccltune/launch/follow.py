# SPDX-License-Identifier: Apache-2.0
"""Parse the output of a running job: nccl-tests' table, its list of devices, and the last lines.

A launcher may put a prefix with the rank before each line. These prefixes are removed.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from nccltune.formats.text.prefixes import strip_prefix
from nccltune.launch.placement import Placement

# Match the whole line: a launcher's message may follow a row that was cut off, and such a line is
# not a row.
_ROW = re.compile(
    r"\s*\d+\s+\d+(?:\s+[a-z]\w*){1,2}(?:\s+(?:[-+]?[\d.]+(?:e[-+]?\d+)?|N/A|nan|inf)){4,}"
    r"(?:\s+\d+-\d+-\d+ [\d:]+)?\s*$"
)
_HEADER = re.compile(r"\s*#\s+(?:size\s+count\s+type|\(B\)\s+\(elements\))")
_DEVICE = re.compile(
    r"\s*#\s+Rank\s+(?P<rank>\d+) (?:Group\s+\d+ )?Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) device"
)
# Messages of launchers about a lost node: Open MPI 4.1 and 5.0, MPICH's hydra 4.0, Intel MPI 2021
# and srun 22.05.
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
    """The number of ranks, and of processes on each host, from the device list of nccl-tests."""

    ranks: int
    processes: dict[str, int]


class Follower:
    """A parser of a job's output, which may arrive in pieces of any size.

    `on_line` is called with each header and row of the table. If several processes print a table,
    `on_line` gets only the table of the first process. `rows` counts the rows of all processes so
    far.

    >>> follower = Follower()
    >>> follower.feed(b"#  Rank  0 Group  0 Pid  41 on  node1 device  0 [0000:1b:00] H200\\n")
    >>> follower.seen
    Participants(ranks=1, processes={'node1': 1})
    """

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self.rows = 0
        self._on_line = on_line
        self._rest = b""
        self._speaker: str | None = None
        self._tables: dict[str, dict[int, tuple[str, int]]] = {}
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._launchers_last: deque[str] = deque(maxlen=_LAST_LINES)
        self._lost: str | None = None

    @property
    def last_words(self) -> list[str]:
        """Return the last lines that are neither table nor comment: the program's, the launcher's.

        Each has a list, so that a launcher's lines on a failure do not displace the reason. After
        the loss of a node they are guesses, and left out.
        """
        if self._lost is not None and self._tables:
            return list(self._last)
        return [*self._last, *self._launchers_last]

    @property
    def seen(self) -> Participants | None:
        """Return the ranks and processes of the first device list; None without one."""
        if not self._tables:
            return None
        ranks = next(iter(self._tables.values()))
        hosts: dict[str, int] = {}
        for host, _ in sorted(set(ranks.values())):
            hosts[host] = hosts.get(host, 0) + 1
        return Participants(len(ranks), hosts)

    @property
    def lost(self) -> str | None:
        """Return a sentence about a node that the launcher lost; None if it reports none."""
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
        """Return the number of device lists. Processes without a common MPI job print several."""
        return len(self._tables)

    def feed(self, data: bytes) -> None:
        """Parse the next piece of output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._rest) > _LONGEST_LINE:
            self._rest = self._rest[-_LONGEST_LINE:]

    def finish(self) -> None:
        """Process the end of the output; an unfinished last line may be cut off: no row."""
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
            if self._on_line is not None and source == self._speaker:
                self._on_line(text.rstrip())

    def _remember(self, source: str, text: str) -> None:
        if not source and self._lost is None and (match := _LOST.search(text)):
            self._lost = match["host"] or match["node"] or ""
        if text.strip(" \t-=*") and not text.lstrip().startswith("#"):
            (self._last if source else self._launchers_last).append(text.rstrip())


def placement_differences(promised: Placement, follower: Follower) -> list[str]:
    """Return sentences on ranks and processes that differ from `promised`, if any are shown."""
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
