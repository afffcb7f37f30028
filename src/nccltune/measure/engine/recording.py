# SPDX-License-Identifier: Apache-2.0
"""The timings and predictions that a study has recorded in one communicator, to draw from."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random
from statistics import median
from typing import NamedTuple

from nccltune.measure.bench.conditions import conditions
from nccltune.measure.bench.conversation import Measure
from nccltune.measure.engine.point_record import TableLine
from nccltune.measure.engine.record import LineFile
from nccltune.model.choice import AnyChoice, Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.sample import Purpose, Sample
from nccltune.model.scale import Scale
from nccltune.native.plugin_host import Costs
from nccltune.study import names
from nccltune.study.files import Study


class _Call(NamedTuple):
    """The properties of recorded calls that are always known."""

    collective: Collective
    choice: AnyChoice
    registered: bool
    graph: bool
    group_calls: int


class _Conditions(NamedTuple):
    """The properties of recorded calls that may be unknown. None matches any request."""

    dtype: str | None
    redop: str | None
    root: int | None

    def fitness(self, wanted: "_Conditions") -> int:
        """Return the number of known properties, or -1 if one differs from `wanted`."""
        known = [pair for pair in zip(self, wanted, strict=True) if pair[0] is not None]
        return len(known) if all(mine == other for mine, other in known) else -1


class Series:
    """The recorded timings of one choice for one kind of calls, by size."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._at: dict[int, list[Sample]] = defaultdict(list)
        for sample in samples:
            self._at[sample.bytes].append(sample)
        self._sizes = sorted(self._at)

    def covers(self, size: int) -> bool:
        """Return whether `size` is recorded or between two recorded sizes."""
        return self._sizes[0] <= size <= self._sizes[-1]

    def draw(self, size: int, chance: Random) -> tuple[float, Sample]:
        """Return a time in us for a covered size, and the sample that it was drawn from.

        At a recorded size, each timing is equally likely. Between two, the median is interpolated
        (log-log), and the nearer size gives the spread.
        """
        at = bisect_left(self._sizes, size)
        if self._sizes[at] == size:
            sample = chance.choice(self._at[size])
            return sample.time_us, sample
        low, high = self._sizes[at - 1 : at + 1]
        medians = {near: median(item.time_us for item in self._at[near]) for near in (low, high)}
        nearer = low if size * size < low * high else high
        sample = chance.choice(self._at[nearer])
        expected = interpolated(size, (low, medians[low]), (high, medians[high]))
        return sample.time_us * expected / medians[nearer], sample


def interpolated(size: int, low: tuple[int, float], high: tuple[int, float]) -> float:
    """Return the value at `size` between two (size, value), linear in log size and log value.

    >>> round(interpolated(4096, (1024, 10.0), (16384, 40.0)), 6)
    20.0
    """
    share = math.log(size / low[0]) / math.log(high[0] / low[0])
    return low[1] * math.exp(share * math.log(high[1] / low[1]))


class Recording:
    """The recorded timings and predictions of a study with a single scale.

    Wrong results, `tuned`, and other settings than the platform's are left out. Raises StudyError
    for a study that is damaged, empty, of several scales or of an unknown scale or version.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.platform = study.platform()
        samples = [sample for sample in study.samples() if _can_be_drawn(sample)]
        if not samples:
            raise StudyError(
                "holds no timing that can be replayed",
                where=str(study.samples_path),
                hint="replay a study with timings of the default and of choices",
            )
        self.scale = self._one_scale(samples)
        versions = (sample.source.nccl_version for sample in samples)
        version = self.platform.nccl_version or next(filter(None, versions), None)
        if version is None:
            raise self._unusable("does not state its NCCL version", "add nccl_version")
        self.nccl_version = version
        self.collectives = [item for item in Collective if item in {s.collective for s in samples}]
        self.registered = any(sample.registered for sample in samples)
        self.graph = any(sample.graph for sample in samples)
        self.grouped = any(sample.group_calls > 1 for sample in samples)
        self.chunks = any(
            isinstance(sample.choice, Choice) and sample.choice.chunk_bytes for sample in samples
        )
        self._pipe_ops = {(s.registered, s.group_calls): s.pipe_ops for s in reversed(samples)}
        self._series = _all_series(samples)
        forced = [(s.collective, s.choice) for s in samples if isinstance(s.choice, Choice)]
        self._combinations = {
            collective: {(it.algorithm, it.protocol): 1.0 for of, it in forced if of is collective}
            for collective in self.collectives
        }
        self._costs = self._read_costs()

    def find(self, request: Measure, choice: AnyChoice, size: int) -> Series | None:
        """Return the timings of such calls that cover `size`, those of most known properties."""
        call = _Call(
            request.collective,
            choice,
            request.registered,
            request.graph,
            request.group_calls,
        )
        if request.load:
            return None
        wanted = _Conditions(request.dtype, request.redop, request.root)
        covering = [item for item in self._series.get(call, ()) if item[1].covers(size)]
        best = max(covering, key=lambda item: item[0].fitness(wanted), default=None)
        return best[1] if best is not None and best[0].fitness(wanted) >= 0 else None

    def pipe_ops(self, *, registered: bool, group_calls: int) -> int | None:
        """Return the pipe ops that NCCL's tuner got for such calls; None if not recorded."""
        if not registered and group_calls == 1:
            return 1
        return self._pipe_ops.get((registered, group_calls))

    def costs(self, collective: Collective, size: int) -> Costs | None:
        """Return NCCL's predictions in us, interpolated; None outside the recorded sizes."""
        tables = self._costs.get(collective, {})
        if size in tables:
            return tables[size]
        sizes = sorted(tables)
        at = bisect_left(sizes, size)
        if at in (0, len(sizes)):
            return None
        low, high = sizes[at - 1 : at + 1]
        return {
            pair: interpolated(size, (low, cost), (high, tables[high][pair]))
            for pair, cost in tables[low].items()
            if pair in tables[high]
        }

    def combinations(self, collective: Collective) -> Costs:
        """Return the combinations with a recorded timing, each with the same nominal cost."""
        return self._combinations.get(collective, {})

    def _one_scale(self, samples: list[Sample]) -> Scale:
        scales = {self._scale_of(item.nodes, item.ranks) for item in samples}
        if len(scales) > 1:
            listed = " ".join(f"{nodes}/{ranks}" for nodes, ranks in sorted(scales))
            raise StudyError(
                f"was recorded at several scales (nodes/ranks): {listed}",
                where=str(self.study.path),
                hint="replay a study of one scale",
            )
        ((nodes, ranks),) = scales
        if not nodes or not ranks:
            raise self._unusable("does not state the number of nodes and ranks", "add nodes, gpus")
        if ranks < 2 or nodes > ranks:
            raise self._unusable(
                f"was recorded on {nodes} nodes with {ranks} ranks in all: nothing to choose there",
                "correct nodes and gpus",
            )
        return Scale(nodes, ranks)

    def _scale_of(self, nodes: int | None, ranks: int | None) -> tuple[int, int]:
        return nodes or self.platform.nodes or 0, ranks or self.platform.gpus or 0

    def _unusable(self, message: str, repair: str) -> StudyError:
        hint = f"{repair} in {self.study.platform_path}"
        return StudyError(message, where=str(self.study.path), hint=hint)

    def _read_costs(self) -> Mapping[Collective, Mapping[int, Costs]]:
        found: dict[Collective, dict[int, Costs]] = defaultdict(dict)
        for line in LineFile(self.study, names.TABLES, TableLine).stream():
            if (line.nodes, line.ranks) == (self.scale.nodes, self.scale.ranks):
                choices = {parse_choice(label): cost for label, cost in line.costs.items()}
                found[line.collective][line.bytes] = {
                    (choice.algorithm, choice.protocol): cost
                    for choice, cost in choices.items()
                    if isinstance(choice, Choice)
                }
        return found


def _can_be_drawn(sample: Sample) -> bool:
    """Return whether a timing can stand for a call; imported pipe ops are grouped unknown."""
    return (
        (isinstance(sample.choice, Choice) or sample.choice == "default")
        and sample.source.purpose is not Purpose.AB
        and not (sample.wrong or sample.in_place)
        and sample.bytes > 0
        and (sample.group_calls > 1 or sample.pipe_ops == 1)
    )


def _all_series(samples: Iterable[Sample]) -> dict[_Call, list[tuple[_Conditions, Series]]]:
    grouped: dict[_Call, dict[_Conditions, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        call = _Call(
            sample.collective,
            sample.choice,
            sample.registered,
            sample.graph,
            sample.group_calls,
        )
        _, redop, root = conditions(sample.collective)
        # nccl-tests writes a root of -1 for collectives without one.
        known = _Conditions(
            sample.dtype,
            sample.redop if redop is not None else None,
            sample.root if root is not None and (sample.root or 0) >= 0 else None,
        )
        grouped[call][known].append(sample)
    return {
        call: [(known, Series(items)) for known, items in by_conditions.items()]
        for call, by_conditions in grouped.items()
    }
