# SPDX-License-Identifier: Apache-2.0
"""Traces of the PyTorch profiler (Kineto), with the sizes and times of NCCL's kernels.

The best evidence in a file counts: NCCL's kernels with sizes, else the calls on the host
(`record_param_comms`), else the annotations `nccl:all_reduce` of PyTorch before 2.2. A kernel of
NCCL without a size, such as one that a CUDA graph replays, is only counted. Where the trace has
steps, a call belongs to the one in which the host makes it, because the GPU may run far behind.
"""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from nccltune.formats.text.json_stream import JsonStream
from nccltune.workload.call import CommCall, CommGroup, Recorded, Steps, Unread
from nccltune.workload.pytorch_names import (
    NO_CALL,
    call_of,
    elements_of,
    group_sizes,
    plain_name,
    rank_list,
)

_KERNEL, _STEP, _HOST, _NCCL = b'"kernel"', b"ProfilerStep", b"record_param_comms", b"nccl"
_LISTS = frozenset({"traceEvents"})
UNSIZED = "kernels of NCCL of which the trace has no size, as in CUDA graphs and before PyTorch 2.2"
_OTHER_LIBRARY = re.compile(
    "all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|deep_ep|nvshmem",
    re.IGNORECASE,
)
_WITHOUT_NCCL = (
    "kernels that communicate without NCCL by their names, such as PyTorch's symmetric memory's "
    "or vLLM's own all-reduce"
)
_GROUP = "nccl:coalesced"
_BARRIER = "barriers, which carry no data, are not counted"
_MOST_TIME_US = 1e18
_EDGES = 1 << 20
"""Most starts and ends of kernels that are processed at once."""
_OUTSIDE = "calls outside the recorded steps are left out"


class _Event(msgspec.Struct):
    name: str = ""
    cat: str = ""
    ph: str = ""
    tid: Any = None
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}

    @property
    def number(self) -> int | None:
        """Return the id that a kernel has of its call on the host."""
        found = self.args.get("External id")
        return found if isinstance(found, int) else None


class _Job(msgspec.Struct):
    rank: int | None = None
    pg_config: Any = None


class _Spans(NamedTuple):
    """The starts and ends of alike events, in us. `ids` has the call on the host of each kernel."""

    starts: "array[float]"
    ends: "array[float]"
    ids: list[int | None]

    def add(self, event: _Event) -> None:
        self.starts.append(event.ts)
        self.ends.append(event.ts + max(event.dur, 0.0))

    def active(self, times: "_Floats") -> "_Counts":
        """Return how many of the events run at each of `times`."""
        return np.searchsorted(np.sort(self.starts), times, side="right") - np.searchsorted(
            np.sort(self.ends), times, side="right"
        )

    def beside(self, others: "_Spans") -> "_Spans":
        """Return the events that run while any of `others` does."""
        begun = np.searchsorted(np.sort(others.starts), self.ends)
        ended = np.searchsorted(np.sort(others.ends), self.starts, side="right")
        return self.chosen(begun > ended)

    def chosen(self, which: "np.ndarray[Any, np.dtype[np.bool_]]") -> "_Spans":
        """Return the events for which `which` is true."""
        starts, ends = np.asarray(self.starts)[which], np.asarray(self.ends)[which]
        ids = [number for number, is_chosen in zip(self.ids, which, strict=False) if is_chosen]
        return _Spans(array("d", starts), array("d", ends), ids)


def _no_spans() -> _Spans:
    return _Spans(array("d"), array("d"), [])


class _Coalesced:
    """Calls that are one to NCCL, as `batch_isend_irecv` makes them: their kernel has no sizes.

    On the host an annotation follows each call or, if they are coalesced, all of them. One of equal
    id covers their kernel on the GPU.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, int, CommCall]] = []
        self.ends: list[tuple[str, float, int | None]] = []
        self.covers: dict[str, list[tuple[float, float, int | None]]] = {}
        self.kernels: list[tuple[str, float, float]] = []

    def groups(self, sized: Container[int | None]) -> dict[int, list[tuple[int, CommCall]]]:
        """Return the calls of each group with their ids. Those of `sized` have a kernel."""
        found: dict[int, list[tuple[int, CommCall]]] = {}
        ends = sorted(self.ends, key=lambda end: end[:2])
        for thread, made, number, call in self.calls:
            at = bisect_left(ends, (thread, made), key=lambda end: end[:2])
            group = ends[at][2] if at < len(ends) and ends[at][0] == thread else None
            if group is not None and number not in sized:
                found.setdefault(group, []).append((number, call))
        return found

    def placed(self) -> Iterator[tuple[float, float, int | None]]:
        """Yield the start, the end and the group of each kernel; None: of none."""
        for spans in self.covers.values():
            spans.sort(key=lambda span: span[0])
        for stream, start, end in self.kernels:
            spans = self.covers.get(stream, [])
            at = bisect_right(spans, start, key=lambda span: span[0]) - 1
            yield start, end, spans[at][2] if at >= 0 and start < spans[at][1] else None


class _Trace:
    """What one file shows, level by level."""

    def __init__(self) -> None:
        self.kernels: dict[CommCall, _Spans] = {}
        self.host: dict[CommCall, _Spans] = {}
        self.annotations: dict[CommCall, _Spans] = {}
        self.made: dict[int | None, float] = {}
        """When the host made a call, by what its kernels have as `External id`."""
        self.coalesced = _Coalesced()
        self.unread: dict[str, Unread] = {}
        self.steps = _no_spans()
        self.steps_us = 0.0
        self.others = _no_spans()

    def take(self, event: _Event) -> None:
        """Process one event."""
        if event.ph != "X":
            return
        if max(abs(event.ts), event.dur) > _MOST_TIME_US:
            self._leave(Unread("an event at a time that cannot be right"))
        elif event.cat == "kernel":
            self._take_kernel(event)
        elif event.name == _HOST.decode():
            call = self._call(event)
            if event.number is not None and isinstance(call, CommCall):
                self.made[event.number] = event.ts
                self.coalesced.calls.append((str(event.tid), event.ts, event.number, call))
            self._add(self.host, event, call)
        elif event.cat == "user_annotation" and event.name.startswith("ProfilerStep"):
            self.steps.add(event)
        elif event.cat == "gpu_user_annotation" and event.name == _GROUP:
            cover = event.ts, event.ts + event.dur, event.number
            self.coalesced.covers.setdefault(str(event.tid), []).append(cover)
        elif event.cat == "user_annotation" and event.name.startswith("nccl:"):
            group = event.number if event.name == _GROUP else None
            self.coalesced.ends.append((str(event.tid), event.ts, group))
            self._add(self.annotations, event, self._annotated(event))

    def place_groups(self) -> None:
        """Give kernels without a size to the coalesced calls that they are of.

        Each call has the span of all kernels of its group, so that they share the time.
        """
        sized = {number for spans in self.kernels.values() for number in spans.ids}
        groups, whole = self.coalesced.groups(sized), dict[int, tuple[float, float]]()
        for start, end, group in self.coalesced.placed():
            if group is not None and group in groups:
                before = whole.get(group, (start, end))
                whole[group] = min(start, before[0]), max(end, before[1])
            else:
                self._leave(Unread(UNSIZED, time_us=end - start))
        for group, (start, end) in whole.items():
            for number, call in groups[group]:
                spans = self.kernels.setdefault(call, _no_spans())
                spans.starts.append(start)
                spans.ends.append(end)
                spans.ids.append(number)

    def _take_kernel(self, event: _Event) -> None:
        if not event.name.lower().startswith(("nccl", "void nccl", "rccl")):
            self.others.add(event)
            if _OTHER_LIBRARY.search(event.name) and not event.name.startswith("triton"):
                self._leave(Unread(_WITHOUT_NCCL, time_us=event.dur))
            return
        name = event.args.get("Collective name")
        kind = plain_name(name) if isinstance(name, str) else ""
        if kind == "barrier":
            self._leave(Unread(_BARRIER, time_us=event.dur))
        elif not kind or kind in NO_CALL:
            end = event.ts + max(event.dur, 0.0)
            self.coalesced.kernels.append((str(event.tid), event.ts, end))
        else:
            self._add(self.kernels, event, self._call(event), event.dur)

    def _add(
        self,
        calls: dict[CommCall, _Spans],
        event: _Event,
        call: CommCall | Unread | None,
        time_us: float = 0.0,
    ) -> None:
        if isinstance(call, Unread):
            self._leave(Unread(call.reason, time_us=time_us))
        elif call is not None:
            spans = calls.setdefault(call, _no_spans())
            spans.add(event)
            spans.ids.append(event.number if calls is self.kernels else None)

    def _leave(self, item: Unread) -> None:
        before = self.unread.get(item.reason, Unread(item.reason, number=0))
        self.unread[item.reason] = Unread(
            item.reason,
            number=before.number + item.number,
            time_us=before.time_us + item.time_us,
        )

    def _call(self, event: _Event) -> CommCall | Unread | None:
        args = event.args
        name = args.get("Collective name")
        if not isinstance(name, str):
            return None
        group = str(args.get("Process Group Name", args.get("Process Group ID", "")))
        ranks = args.get("Group size")
        ranks = ranks if isinstance(ranks, int) and ranks > 0 else 0
        return call_of(
            "",
            f"{group} {rank_list(args.get('Process Group Ranks')) or ''}".rstrip(),
            CommGroup(str(args.get("Process Group Description", "")), ranks),
            name,
            args.get("In msg nelems"),
            args.get("Out msg nelems"),
            str(args.get("dtype", "")),
            is_even=args.get("In split size") == args.get("Out split size") == "[]",
        )

    def _annotated(self, event: _Event) -> CommCall | Unread | None:
        shapes, types = event.args.get("Input Dims"), event.args.get("Input type")
        try:
            elements = elements_of(msgspec.convert(shapes, list[list[int]]))
            first = msgspec.convert(types, list[str])[0]
        except (msgspec.ValidationError, IndexError):
            return None
        return call_of("", "", CommGroup("", 0), event.name, elements, 0, first)

    def calls(self) -> Iterator[CommCall]:
        """Yield the calls of the best level in the steps, without their recorder.

        Of kernels of NCCL that run at once each has an equal share of the time, so that the sum is
        the time in which any of them ran.
        """
        found = self.kernels or self.host or self.annotations
        inside = {call: self._in_steps(spans) for call, spans in found.items()}
        whole = _joined(inside.values())
        if self.steps.starts and found and not whole.starts:
            del self.unread[_OUTSIDE]
            self._leave(Unread("no call is in a recorded step: the steps are not used"))
            self.steps, inside = _no_spans(), found
            whole = _joined(inside.values())
        clock = _Clock(whole, self.others) if found is self.kernels else None
        self.steps_us = self._time_of_steps(whole, 0.0 if clock is None else clock.whole_us)
        for call, spans in inside.items():
            if not spans.starts:
                continue
            times = (None, None) if clock is None else clock.times(spans)
            yield msgspec.structs.replace(
                call, calls=len(spans.starts), time_us=times[0], exposed_us=times[1]
            )

    def leave_cut_steps(self) -> None:
        """Leave out steps behind which no call is made: a file that is cut off may lack theirs."""
        found = (self.kernels or self.host or self.annotations).values()
        last = max((float(self._made(spans).max()) for spans in found), default=0.0)
        whole = np.asarray(self.steps.ends) <= last
        if not whole.all():
            self._leave(Unread("a step that may be cut off", number=int((~whole).sum())))
            self.steps = self.steps.chosen(whole)

    def _made(self, spans: _Spans) -> "_Floats":
        """Return when the host made each call, as far as the trace has it, else its start."""
        pairs = zip(spans.ids, spans.starts, strict=True)
        return np.asarray([self.made.get(number, start) for number, start in pairs])

    def _in_steps(self, spans: _Spans) -> _Spans:
        """Return the events that are called in a step; all if the trace has no steps."""
        if not self.steps.starts:
            return spans
        starts, ends = np.asarray(spans.starts), np.asarray(spans.ends)
        inside = self.steps.active(self._made(spans)) > 0
        if not inside.all():
            time_us = float((ends - starts)[~inside].sum()) if self.kernels else 0.0
            self._leave(Unread(_OUTSIDE, number=int((~inside).sum()), time_us=time_us))
        return spans.chosen(inside)

    def _time_of_steps(self, calls: _Spans, nccl_us: float) -> float:
        """Return the time of all steps: that of the host, or of the GPU if it is slower.

        The GPU's is that from the first of NCCL's kernels of a step to that of another.
        """
        begun = np.sort(self.steps.starts)
        host_us = float((np.sort(self.steps.ends) - begun).sum())
        if not host_us or not nccl_us:
            return host_us
        step, starts = np.searchsorted(begun, self._made(calls), "right"), np.asarray(calls.starts)
        first, last = step.min(), step.max()
        gpu_us = starts[step == last].min() - starts[step == first].min()
        return max(host_us, nccl_us, float(gpu_us) * len(begun) / max(int(last - first), 1))


_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Counts = np.ndarray[Any, np.dtype[np.int64]]


def _joined(parts: Iterable[_Spans]) -> _Spans:
    found = _no_spans()
    for part in parts:
        found.starts.extend(part.starts)
        found.ends.extend(part.ends)
        found.ids.extend(part.ids)
    return found


class _Clock:
    """The time of NCCL up to each moment, in which kernels at once share it equally."""

    def __init__(self, nccl: _Spans, others: _Spans) -> None:
        others = others.beside(nccl)  # A large trace has millions that say nothing here.
        edges = [nccl.starts, nccl.ends, others.starts, others.ends]
        self._times: _Floats = np.unique(np.concatenate([np.asarray(edge) for edge in edges]))
        self._all, self._exposed = np.zeros((2, len(self._times)))
        for start in range(0, len(self._times) - 1, _EDGES):
            at = self._times[start : start + _EDGES + 1]
            running = nccl.active(at[:-1])
            shares = np.where(running > 0, np.diff(at) / np.maximum(running, 1), 0.0)
            alone = shares * (others.active(at[:-1]) == 0)
            for sums, parts in ((self._all, shares), (self._exposed, alone)):
                sums[start + 1 : start + len(at)] = sums[start] + np.cumsum(parts)
        self.whole_us = float(self._all[-1]) if len(self._all) else 0.0

    def times(self, spans: _Spans) -> tuple[float, float]:
        """Return the time of kernels, and that in which no kernel but NCCL's ran."""
        first = np.searchsorted(self._times, np.asarray(spans.starts))
        last = np.searchsorted(self._times, np.asarray(spans.ends))
        time, exposed = ((sums[last] - sums[first]).sum() for sums in (self._all, self._exposed))
        return float(time), float(exposed)


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
    trace.place_groups()
    if not stream.complete:
        trace.leave_cut_steps()
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
    if trace.steps_us > 0:
        yield Steps(recorder, len(trace.steps.starts), trace.steps_us)
    yield from trace.unread.values()
    if not trace.kernels and (trace.host or trace.annotations):
        yield Unread("no kernel of NCCL has a size in the trace: the calls have no times")
