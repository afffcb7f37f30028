# SPDX-License-Identifier: Apache-2.0
"""Traces of the PyTorch profiler (Kineto), with the sizes and times of NCCL's kernels.

The best evidence in a file counts: NCCL's kernels with sizes, else the calls on the host
(`record_param_comms`), else the annotations `nccl:all_reduce` of PyTorch before 2.2. A kernel of
NCCL without a size, such as one that a CUDA graph replays, is only counted.
"""

from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from nccltune.formats.text.json_stream import JsonStream
from nccltune.workload.call import CommCall, CommGroup, Recorded, Steps, Unread
from nccltune.workload.pytorch_names import call_of, elements_of, group_sizes, rank_list

_KERNEL, _STEP, _HOST, _NCCL = b'"kernel"', b"ProfilerStep", b"record_param_comms", b"nccl"
_LISTS = frozenset({"traceEvents"})


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _Job(msgspec.Struct):
    rank: int | None = None
    pg_config: Any = None


class _Timed(NamedTuple):
    """The start and duration of each kernel of one kind of calls, in us."""

    starts: "array[float]"
    durations: "array[float]"


class _Trace:
    """What one file shows, level by level."""

    def __init__(self) -> None:
        self.kernels: dict[CommCall, _Timed] = {}
        self.host: dict[CommCall, int] = {}
        self.annotations: dict[CommCall, int] = {}
        self.unread: dict[str, Unread] = {}
        self.unsized = 0
        self.unsized_us = 0.0
        self.steps = 0
        self.steps_us = 0.0
        self.starts = array("d")
        self.ends = array("d")

    def take(self, event: _Event) -> None:
        """Process one event."""
        if event.ph != "X":
            return
        if event.cat == "kernel":
            self._take_kernel(event)
        elif event.name == _HOST.decode():
            self._count(self.host, self._call(event))
        elif event.cat == "user_annotation" and event.name.startswith("ProfilerStep"):
            self.steps += 1
            self.steps_us += event.dur
        elif event.cat == "user_annotation" and event.name.startswith("nccl:"):
            self._count(self.annotations, self._annotated(event))

    def _take_kernel(self, event: _Event) -> None:
        if not event.name.lower().startswith(("nccl", "void nccl", "rccl")):
            self.starts.append(event.ts)
            self.ends.append(event.ts + event.dur)
            return
        call = self._call(event)
        if call is None:
            self.unsized += 1
            self.unsized_us += event.dur
            return
        timed = self.kernels.setdefault(call, _Timed(array("d"), array("d")))
        timed.starts.append(event.ts)
        timed.durations.append(event.dur)

    def _count(self, calls: dict[CommCall, int], call: CommCall | None) -> None:
        if call is not None:
            calls[call] = calls.get(call, 0) + 1

    def _call(self, event: _Event) -> CommCall | None:
        args = event.args
        name = args.get("Collective name")
        if not isinstance(name, str):
            return None
        group = str(args.get("Process Group Name", args.get("Process Group ID", "")))
        ranks = args.get("Group size")
        ranks = ranks if isinstance(ranks, int) and ranks > 0 else 0
        return self._checked(
            call_of(
                "",
                f"{group} {rank_list(args.get('Process Group Ranks')) or ''}".rstrip(),
                CommGroup(str(args.get("Process Group Description", "")), ranks),
                name,
                args.get("In msg nelems"),
                args.get("Out msg nelems"),
                str(args.get("dtype", "")),
            )
        )

    def _annotated(self, event: _Event) -> CommCall | None:
        shapes, types = event.args.get("Input Dims"), event.args.get("Input type")
        try:
            elements = elements_of(msgspec.convert(shapes, list[list[int]]))
            first = msgspec.convert(types, list[str])[0]
        except (msgspec.ValidationError, IndexError):
            return None
        return self._checked(call_of("", "", CommGroup("", 0), event.name, elements, 0, first))

    def _checked(self, call: CommCall | Unread | None) -> CommCall | None:
        if isinstance(call, Unread):
            before = self.unread.get(call.reason)
            number = 1 if before is None else before.number + 1
            self.unread[call.reason] = Unread(call.reason, number=number)
            return None
        return call

    def calls(self) -> Iterator[CommCall]:
        """Yield the calls of the best level, without their recorder."""
        if not self.kernels:
            for call, number in (self.host or self.annotations).items():
                yield msgspec.structs.replace(call, calls=number)
            return
        busy = _union(np.asarray(self.starts), np.asarray(self.ends))
        for call, timed in self.kernels.items():
            starts, durations = np.asarray(timed.starts), np.asarray(timed.durations)
            hidden = _covered(busy, starts + durations) - _covered(busy, starts)
            yield msgspec.structs.replace(
                call,
                calls=len(starts),
                time_us=float(durations.sum()),
                exposed_us=float((durations - hidden).clip(0).sum()),
            )


_Floats = np.ndarray[Any, np.dtype[np.float64]]


def _union(starts: _Floats, ends: _Floats) -> tuple[_Floats, _Floats]:
    """Return the union of intervals, as sorted starts and ends."""
    if not len(starts):
        return starts, ends
    order = np.argsort(starts)
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > ends[:-1]))
    return starts[first], ends[np.concatenate((first[1:], [True]))]


def _covered(busy: tuple[_Floats, _Floats], times: _Floats) -> _Floats:
    """Return the length of the intervals `busy` before each of `times`."""
    starts, ends = busy
    if not len(starts):
        return np.zeros(len(times))
    before = np.concatenate(([0.0], np.cumsum(ends - starts)))
    at = np.searchsorted(starts, times, side="right")
    inside = np.minimum(times, ends[at - 1]) - starts[at - 1]
    found: _Floats = np.where(at > 0, before[at - 1] + inside, 0.0)
    return found


def read_kineto(file: BinaryIO, name: str) -> Iterator[Recorded]:
    """Yield the calls, times and steps of a trace."""
    trace, job = _Trace(), _Job()
    stream = JsonStream(file, _LISTS)
    decoder = msgspec.json.Decoder(_Event)
    for item in stream:
        raw = item.raw or b""
        if item.key == "distributedInfo":
            try:
                job = msgspec.json.decode(raw, type=_Job)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                yield Unread("distributedInfo cannot be read", item.line)
        if item.key not in _LISTS:
            continue
        if item.raw is None:
            yield Unread("an event of more than 32 MiB", item.line)
        if not (_KERNEL in raw or _NCCL in raw or _HOST in raw or _STEP in raw):
            continue
        try:
            trace.take(decoder.decode(raw))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            yield Unread("an event that is not one of the PyTorch profiler", item.line)
    yield from _summary(trace, job, name)
    if not stream.complete:
        yield Unread("the file is cut off")


def _summary(trace: _Trace, job: _Job, name: str) -> Iterator[Recorded]:
    recorder = name if job.rank is None else f"rank {job.rank}"
    sizes = group_sizes(job.pg_config)
    for call in trace.calls():
        ranks = call.group.ranks or sizes.get(call.communicator.partition(" ")[0], 0)
        group = msgspec.structs.replace(call.group, ranks=ranks)
        yield msgspec.structs.replace(call, recorder=recorder, group=group)
    if trace.steps and trace.steps_us > 0:
        yield Steps(recorder, trace.steps, trace.steps_us)
    yield from trace.unread.values()
    if trace.unsized:
        yield Unread(
            "kernels of NCCL of which the trace has no size, as in CUDA graphs and before "
            "PyTorch 2.2",
            number=trace.unsized,
            time_us=trace.unsized_us,
        )
    if not trace.kernels and (trace.host or trace.annotations):
        yield Unread("no kernel of NCCL has a size in the trace: the calls have no times")
