# SPDX-License-Identifier: Apache-2.0
"""What rules are worth to a job: the time that they save in a step, or in what a rank recorded.

A call of the job saves a share of its time that the study measured at its size. Its time is the
smaller one of the recorded mean, which includes the wait for other ranks, and the default's time in
the study; the upper limit rests on the recorded mean. What a rule saves in NCCL is an upper limit
of what it saves in a step: time that other kernels hide saves nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.tune.result import Decision, JobWorth, LeverWorth, RuleWorth, TunedGroup
from nccltune.workload.call import CommGroup
from nccltune.workload.demand import at_nearest, weight_of
from nccltune.workload.table import Workload, WorkloadRow

LEAST_SHARE = 0.005
"""A rule that saves at most this share of a step is advised against."""


class GainPoint(NamedTuple):
    """The time of NCCL's default at a size in us, and the gain over it with its limits."""

    bytes: int
    default_us: float
    gain: float = 1.0
    low: float = 1.0
    high: float = 1.0


class Lever(NamedTuple):
    """Something besides rules that makes calls faster, as it was measured: points by collective.

    `fits` is whether the measurement is one of calls on a communicator, and `why` states what was
    measured.
    """

    name: str
    points: Mapping[Collective, Sequence[GainPoint]]
    fits: Callable[[CommGroup], bool]
    why: str


class _Curve:
    """The default's time and the gain over it over the size, between the measured sizes."""

    def __init__(self, points: Iterable[GainPoint]) -> None:
        points = sorted(points)
        self._bytes = [item.bytes for item in points]
        self._sizes = [math.log(item.bytes) for item in points]
        self._times = [math.log(item.default_us) for item in points]
        self._gains = [[math.log(gain) for gain in item[2:]] for item in points]

    def time_us(self, size: int) -> float | None:
        """Return the time of NCCL's default; None beyond the measured sizes."""
        if not self._bytes or not self._bytes[0] <= size <= self._bytes[-1]:
            return None
        return math.exp(float(np.interp(math.log(size), self._sizes, self._times)))

    def saved_shares(self, size: int) -> list[float]:
        """Return the share of the time that a rule saves, and its lower and upper limit."""
        return [
            1 - math.exp(-float(np.interp(math.log(size), self._sizes, gains)))
            for gains in zip(*self._gains, strict=True)
        ]


def _points(decisions: Sequence[Decision]) -> list[GainPoint]:
    """Return the gain of the rules at each size at which the default was measured."""
    found = []
    for item in decisions:
        gains = [item.gain, item.gain_low, item.gain_high] if item.choice is not None else [1.0] * 3
        if item.default_us is not None and item.bytes > 0:
            known = [math.nan if gain is None else gain for gain in gains]
            known = known if None not in gains else [math.nan] * 3
            found.append(GainPoint(item.bytes, item.default_us, *known))
    return found


class _Call(NamedTuple):
    """A row of the job with what measured it: a group of the study or a lever; None if none did."""

    row: WorkloadRow
    calls: float
    group: TunedGroup | Lever | None
    curve: _Curve

    @property
    def study_us(self) -> float | None:
        """Return the time of NCCL's default in the study; None if it was not measured."""
        return self.curve.time_us(self.row.bytes)

    @property
    def likely_us(self) -> float:
        """Return the time of the calls without waits, as far as it is known; 0 if it is not."""
        if self.row.mean_us is None or self.study_us is None:
            return self.longest_us
        return self.calls * min(self.row.mean_us, self.study_us)

    @property
    def longest_us(self) -> float:
        """Return the recorded time of the calls; that in the study if none was recorded."""
        part = self.row.operation.part
        return self.calls * (self.row.mean_us or part * (self.study_us or 0.0))

    @property
    def exposed_us(self) -> float | None:
        """Return the time of the calls that no other kernel hides; None if unknown."""
        row = self.row
        return self.calls * row.exposed_us / row.exposing if row.exposing else None


def _calls(job: Workload, groups: Sequence[TunedGroup]) -> list[_Call]:
    curves = {id(group): _Curve(_points(group.decisions)) for group in groups}
    found = []
    for row in job.rows:
        group = _group_of(row, groups)
        found.append(_Call(row, row.calls / job.units, group, curves.get(id(group), _Curve([]))))
    return found


def _group_of(row: WorkloadRow, groups: Sequence[TunedGroup]) -> TunedGroup | None:
    """Return the group of the study of the collective and scale; None if none or several fit."""
    collective, wanted = row.operation.collective, row.group
    fitting = [
        group
        for group in groups
        if group.collective is collective
        and wanted.ranks == group.scale.ranks
        and wanted.nodes in (0, group.scale.nodes)
    ]
    if len({group.scale for group in fitting}) != 1:
        return None
    # Nothing records whether buffers are registered, or the calls of a group. Take plain calls.
    return min(fitting, key=lambda group: (group.registered or False, group.pipe_ops or 1))


def job_weights(
    job: Workload, groups: Sequence[TunedGroup]
) -> dict[tuple[Collective, Scale], Callable[[int], float]]:
    """Return the weight of each measured size, for the collectives and scales of the job.

    `groups` are those of a search without weights. The weight of a size is the job's time there;
    a part of it is the same for all sizes.
    """
    times: dict[int, dict[int, float]] = {}
    for call in _calls(job, groups):
        if call.group is not None and call.study_us is not None:
            own = times.setdefault(id(call.group), {})
            own[call.row.bytes] = own.get(call.row.bytes, 0.0) + call.likely_us
    found = {}
    for group in groups:
        sizes = [item.bytes for item in group.decisions if item.bytes > 0]
        own = at_nearest(times.get(id(group), {}), sizes)
        if any(own.values()):
            found[group.collective, group.scale] = weight_of(own)
    return found


def job_worth(job: Workload, groups: Sequence[TunedGroup]) -> JobWorth:
    """Return what the rules of `groups` are worth to a job."""
    calls = _calls(job, groups)
    basis, total_us = _total(job, calls)
    # Whether the job's buffers are registered is unknown, and whether its calls are in groups.
    plain = [group for group in groups if not (group.registered or (group.pipe_ops or 1) > 1)]
    by_rule: dict[Rule, list[_Call]] = {}
    for group in plain:
        for rule in (item.rule for item in group.rules):
            by_rule.setdefault(rule, []).extend(
                call for call in calls if (call.group or group) is group and _is_in(call.row, rule)
            )
    all_bytes = _bytes(calls) or 1.0
    measured = {group.collective for group in plain}
    every = [call for inside in by_rule.values() for call in inside if call.group]
    if not any(call.group for call in calls):
        every = [call for call in calls if call.row.operation.collective in measured]
    return JobWorth(
        unit=job.unit,
        recorders=job.recorders,
        basis=basis,
        total_us=total_us,
        nccl_us=_recorded(calls),
        estimated_us=math.fsum(call.longest_us for call in calls),
        covered_share=_bytes(call for call in calls if call.study_us is not None) / all_bytes,
        is_scale_known=all(row.group.nodes and row.group.ranks for row in job.rows),
        unread=len(job.unread) + len(job.refused) + len(job.remarks),
        rules=[_worth(rule, inside, all_bytes, total_us) for rule, inside in by_rule.items()],
        whole=_worth(None, every, all_bytes, total_us),
        calls=sum(row.calls for row in job.rows),
        untimed=job.untimed,
    )


def lever_worth(job: Workload, lever: Lever) -> LeverWorth:
    """Return what a lever is worth to a job."""
    curves = {collective: _Curve(points) for collective, points in lever.points.items()}
    every = [_Call(row, row.calls / job.units, None, _Curve([])) for row in job.rows]
    calls = [
        call._replace(
            group=lever if lever.fits(call.row.group) else None,
            curve=curves[call.row.operation.collective],
        )
        for call in every
        if call.row.operation.collective in curves
    ]
    basis, total_us = _total(job, every)
    # Without any time, the time of these calls alone is known, which is no share of the job's.
    total_us = 0.0 if basis == "estimated" else total_us
    worth = _worth(None, calls, _bytes(every) or 1.0, total_us)
    return LeverWorth(lever.name, lever.why, job.unit, basis, total_us, worth)


_Basis = Literal["step", "recorded", "estimated"]


def _total(job: Workload, calls: Sequence[_Call]) -> tuple[_Basis, float]:
    """Return what shares are of, and its time in us."""
    recorded = _recorded(calls)
    if job.step_us is not None:
        return "step", job.step_us
    if recorded is not None:
        return "recorded", recorded
    return "estimated", math.fsum(call.longest_us for call in calls)


def _recorded(calls: Iterable[_Call]) -> float | None:
    """Return the recorded time in NCCL; None if calls of a size have none."""
    return _sum(None if call.row.mean_us is None else call.longest_us for call in calls)


def _is_in(row: WorkloadRow, rule: Rule) -> bool:
    is_same = row.operation.collective is rule.collective
    return is_same and rule.min_bytes <= row.bytes <= rule.max_bytes


def _bytes(calls: Iterable[_Call]) -> float:
    return math.fsum(call.calls / call.row.calls * call.row.sent for call in calls)


def _sum(times: Iterable[float | None]) -> float | None:
    """Return the sum; None if any is unknown."""
    found = list(times)
    return math.fsum(time for time in found if time is not None) if None not in found else None


def _worth(
    rule: Rule | None, calls: Sequence[_Call], all_bytes: float, total_us: float
) -> RuleWorth:
    """Return the worth of a rule, or of all, to the calls in its range, of any scale."""
    elsewhere = {
        Scale(call.row.group.nodes, call.row.group.ranks) for call in calls if call.group is None
    }
    calls = [call for call in calls if call.group is not None]
    saved, low, high, most_us = 0.0, 0.0, 0.0, 0.0
    for call in calls:
        if call.study_us is not None:
            gain, least, most = call.curve.saved_shares(call.row.bytes)
            saved += call.likely_us * gain
            low += (call.likely_us if least > 0 else call.longest_us) * least
            limit = (call.longest_us if most > 0 else call.likely_us) * most
            high += limit
            most_us += limit if call.exposed_us is None else min(limit, call.exposed_us)
    exposed = _sum(call.exposed_us for call in calls)
    # A size that the study did not measure is no size at which nothing is saved.
    is_known = bool(calls) and all(call.study_us is not None for call in calls)
    is_known = is_known and not math.isnan(saved)
    share = None if calls else 0.0
    if is_known and total_us > 0:
        share = min(max(most_us / total_us, 0.0), 1.0)
    return RuleWorth(
        rule=rule,
        calls=math.fsum(call.calls for call in calls),
        bytes_share=_bytes(calls) / all_bytes,
        time_us=math.fsum(call.longest_us for call in calls),
        is_recorded=all(call.row.timed for call in calls),
        exposed_us=exposed,
        saved_us=saved if is_known else None,
        saved_low_us=low if is_known else None,
        saved_high_us=high if is_known else None,
        most_share=share,
        advised_against=share is not None and share <= LEAST_SHARE and bool(calls or not elsewhere),
        elsewhere=sorted(elsewhere),
    )
