# SPDX-License-Identifier: Apache-2.0
"""The calls of a job, summed up by communicator, operation and size."""

from collections.abc import Iterable, Iterator

import msgspec

from nccltune.workload.call import CommCall, CommGroup, LastCall, Operation, Recorded, Steps, Unread

MOST_ROWS = 1 << 17
"""From this number of rows on, new sizes are rounded down to three binary digits."""
_MOST_NAMES = 1 << 17
_NO_NAMES = frozenset({"default_pg", "undefined", "unknown"})


class WorkloadRow(msgspec.Struct):
    """The calls of one group of communicators with one size, summed over all ranks that recorded.

    `timed` is the number of the calls that have a time, `exposing` that of those whose exposed time
    is known. `bins` has the number of those calls that are a random sample, by time (`sampled`).
    """

    group: CommGroup
    operation: Operation
    bytes: int
    calls: int = 0
    timed: int = 0
    time_us: float = 0.0
    exposing: int = 0
    exposed_us: float = 0.0
    bins: dict[int, int] = {}

    def add(self, call: CommCall) -> None:
        """Add calls."""
        self.calls += call.calls
        if call.time_us is not None:
            self.timed += call.calls
            self.time_us += call.time_us
        if call.exposed_us is not None:
            self.exposing += call.calls
            self.exposed_us += call.exposed_us
        for number, count in call.bins:
            self.bins[number] = self.bins.get(number, 0) + count

    @property
    def sent(self) -> float:
        """Return the bytes of all calls. A message counts half at each of its ends."""
        return self.calls * self.bytes * self.operation.part

    @property
    def mean_us(self) -> float | None:
        """Return the mean time of the calls that have one."""
        return self.time_us / self.timed if self.timed else None


class UnreadSum(msgspec.Struct):
    """What was not read of a file: how often, the first line, and the time of it if known."""

    file: str
    reason: str
    number: int
    line: int
    time_us: float = 0.0


class RefusedFile(msgspec.Struct, frozen=True):
    """A file without a recording, why, and what to give instead."""

    file: str
    reason: str
    hint: str | None


class Workload(msgspec.Struct):
    """What a job sends.

    - `recorders`: the number of ranks that recorded; all sums are over them
    - `steps`: the steps of all of them; 0 if any of them recorded none. `steps_us` is their time
    - `stepped`: the number of ranks that recorded steps
    - `communicators`: the number of different communicators of each group, by position in `groups`
    - `notes`: remarks on the files, such as other jobs among them, or ranks that are missing
    """

    rows: list[WorkloadRow]
    groups: list[CommGroup]
    communicators: list[int]
    recorders: int
    steps: int = 0
    steps_us: float = 0.0
    stepped: int = 0
    formats: dict[str, int] = {}
    unread: list[UnreadSum] = []
    refused: list[RefusedFile] = []
    notes: list[str] = []

    @property
    def units(self) -> int:
        """Return what sums are divided by: the steps of all ranks, else the number of ranks."""
        return self.steps or self.recorders

    @property
    def unit(self) -> str:
        """Return what a quotient is of: `a step` or `a rank`."""
        return "a step" if self.steps else "a rank"

    @property
    def remarks(self) -> list[str]:
        """Return why the sums may not be those of the job, besides what was not read."""
        found = [*self.notes]
        if len(self.formats) > 1:
            names = ", ".join(self.formats)
            found.append(f"calls that are in several formats ({names}) are counted in each")
        if self.stepped and not self.steps:
            found.append(
                f"the steps are not used: {self.stepped} of {self.recorders} ranks recorded any"
            )
        return found

    @property
    def untimed(self) -> int:
        """Return the number of calls without a time, also of a sample of their like."""
        return sum(row.calls - row.timed for row in self.rows if not row.bins)

    @property
    def step_us(self) -> float | None:
        """Return the mean time of a step."""
        return self.steps_us / self.steps if self.steps_us else None


class WorkloadTable:
    """Adds up what the readers yield."""

    def __init__(self) -> None:
        self._rows: dict[tuple[CommGroup, Operation, int], WorkloadRow] = {}
        self._communicators: dict[CommGroup, set[str]] = {}
        self._recorders: set[str] = set()
        self._steps: dict[str, Steps] = {}
        self._last: dict[tuple[str, str], dict[str, LastCall]] = {}
        self._unread: dict[tuple[str, str], UnreadSum] = {}
        self.formats: dict[str, int] = {}
        self.refused: list[RefusedFile] = []
        self.notes: list[str] = []

    def add(self, items: Iterable[Recorded], file: str) -> int:
        """Add what a reader yields; return the number of calls among it."""
        calls = 0
        for given in items:
            item = given
            if isinstance(given, CommCall) and not given.is_possible:
                item = Unread("a call whose bytes, ranks or time cannot be right")
            match item:
                case CommCall():
                    calls += item.calls
                    self._add_call(item)
                case Steps():
                    before = self._steps.get(item.recorder, Steps(item.recorder, 0, 0.0))
                    self._steps[item.recorder] = Steps(
                        item.recorder, before.steps + item.steps, before.time_us + item.time_us
                    )
                case LastCall():
                    own = self._last.setdefault((item.name, item.members), {})
                    if own.setdefault(item.recorder, item).called < item.called:
                        own[item.recorder] = item
                case Unread():
                    first = UnreadSum(file, item.reason, 0, item.line)
                    found = self._unread.setdefault((file, item.reason), first)
                    found.number += item.number
                    found.time_us += item.time_us
        return calls

    def reasons(self, file: str) -> list[str]:
        """Return what was not read of a file."""
        return [item.reason for item in self._unread.values() if item.file == file]

    def _add_call(self, call: CommCall) -> None:
        group = call.group
        if group.name in _NO_NAMES:
            group = msgspec.structs.replace(group, name="")
        key = group, call.operation, call.bytes
        if key not in self._rows and len(self._rows) >= MOST_ROWS:
            cut = max(call.bytes.bit_length() - 3, 0)
            key = group, call.operation, call.bytes >> cut << cut
        self._rows.setdefault(key, WorkloadRow(*key)).add(call)
        names = self._communicators.setdefault(group, set())
        if len(names) < _MOST_NAMES:
            names.add(call.communicator)
        if len(self._recorders) < _MOST_NAMES:
            self._recorders.add(call.recorder)

    def workload(self) -> Workload:
        """Return the sum, largest groups first."""
        steps = [self._steps[name] for name in self._recorders if name in self._steps]
        whole = len(steps) == len(self._recorders)
        groups = sorted(self._communicators)
        refused = {item.file for item in self.refused}
        return Workload(
            rows=sorted(self._rows.values(), key=lambda row: (row.group, row.operation, row.bytes)),
            groups=groups,
            communicators=[len(self._communicators[group]) for group in groups],
            recorders=len(self._recorders),
            steps=sum(item.steps for item in steps) if whole else 0,
            steps_us=sum(item.time_us for item in steps) if whole else 0.0,
            stepped=len(steps),
            formats=self.formats,
            unread=[item for item in self._unread.values() if item.file not in refused],
            refused=self.refused,
            notes=[*self.notes, *self._waiting()],
        )

    def _waiting(self) -> Iterator[str]:
        """Yield the calls that ranks wait in, and the ranks that had not made them."""
        for (name, _), own in self._last.items():
            number = min((last.waits for last in own.values() if last.waits), default=0)
            if late := [last.recorder for last in own.values() if last.called < number]:
                made = next(last.recorder for last in own.values() if last.waits == number)
                who = ", ".join(late[:8]) + " and others" * (len(late) > 8)
                ends = f"{made} waits in it, {who} had not made it at the end of the recording"
                yield f"call {number:,} of {name}: {ends}"
