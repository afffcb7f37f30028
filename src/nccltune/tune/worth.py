# SPDX-License-Identifier: Apache-2.0
"""What rules are worth to a job: the time that they save in a step, or in what a rank recorded.

A call of the job saves a share of its time that the study measured at its size. Its time is the
smaller one of the recorded mean, which includes the wait for other ranks, and the default's time in
the study; the upper limit rests on the recorded mean. What a rule saves in NCCL is an upper limit
of what it saves in a step: time that other kernels hide saves nothing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.tune.result import Decision, JobWorth, RuleWorth, TunedGroup
from nccltune.workload.table import Workload, WorkloadRow

LEAST_SHARE = 0.005
"""A rule that saves at most this share of a step is advised against."""
_LEAST_WEIGHT = 0.2
"""The part of the weight that all sizes share: the job may also send what was not recorded."""


class _Curve:
    """The default's time and the gain of the rules over the size, between the measured sizes."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        known = [item for item in decisions if item.default_us is not None and item.bytes > 0]
        self._sizes = [math.log(item.bytes) for item in known]
        self._times = [math.log(item.default_us or 1.0) for item in known]
        self._gains = [self._logs(item) for item in known]

    @staticmethod
    def _logs(item: Decision) -> tuple[float, float, float]:
        if item.choice is None:
            return 0.0, 0.0, 0.0
        if item.gain is None or item.gain_low is None or item.gain_high is None:
            return math.nan, math.nan, math.nan
        return math.log(item.gain), math.log(item.gain_low), math.log(item.gain_high)

    def time_us(self, size: int) -> float | None:
        """Return the time of NCCL's default; None beyond the measured sizes."""
        if not self._covers(size):
            return None
        return math.exp(float(np.interp(math.log(size), self._sizes, self._times)))

    def saved_share(self, size: int, which: int) -> float:
        """Return the share of the time that a rule saves: 0 the value, 1 and 2 its limits."""
        gains = [item[which] for item in self._gains]
        return 1 - math.exp(-float(np.interp(math.log(size), self._sizes, gains)))

    def _covers(self, size: int) -> bool:
        if not self._sizes or size < 1:
            return False
        return self._sizes[0] - 1e-9 <= math.log(size) <= self._sizes[-1] + 1e-9


class _Call(NamedTuple):
    """A row of the job with the group of the study that measured it; None if none did."""

    row: WorkloadRow
    calls: float
    group: TunedGroup | None
    study_us: float | None

    @property
    def likely_us(self) -> float | None:
        """Return the time of a call without waits, as far as it is known."""
        known = [time for time in (self.row.mean_us, self.study_us) if time is not None]
        return min(known, default=None)


def _calls(job: Workload, groups: Sequence[TunedGroup]) -> list[_Call]:
    curves = {id(group): _Curve(group.decisions) for group in groups}
    found = []
    for row in job.rows:
        group = _group_of(row, groups)
        study_us = None if group is None else curves[id(group)].time_us(row.bytes)
        found.append(_Call(row, row.calls / job.units, group, study_us))
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
    times: dict[tuple[Collective, Scale], dict[int, float]] = {}
    for call in _calls(job, groups):
        if call.group is None or call.study_us is None or call.likely_us is None:
            continue
        sizes = [item.bytes for item in call.group.decisions if item.bytes > 0]
        nearest = min(sizes, key=lambda size: abs(math.log(size / call.row.bytes)))
        own = times.setdefault((call.group.collective, call.group.scale), dict.fromkeys(sizes, 0.0))
        own[nearest] = own.get(nearest, 0.0) + call.calls * call.likely_us
    return {key: _weight(own) for key, own in times.items() if sum(own.values()) > 0}


def _weight(times: dict[int, float]) -> Callable[[int], float]:
    mean = sum(times.values()) / len(times)
    return lambda size: _LEAST_WEIGHT + (1 - _LEAST_WEIGHT) * times.get(size, 0.0) / mean


def job_worth(job: Workload, groups: Sequence[TunedGroup]) -> JobWorth:
    """Return what the rules of `groups` are worth to a job."""
    calls = _calls(job, groups)
    recorded = _sum(map(_recorded_us, calls))
    estimated = sum(call.calls * (call.likely_us or 0.0) for call in calls)
    basis: Literal["step", "recorded", "estimated"] = "estimated"
    total_us = estimated
    if job.step_us is not None:
        basis, total_us = "step", job.step_us
    elif recorded is not None:
        basis, total_us = "recorded", recorded
    all_bytes = sum(call.calls * call.row.bytes for call in calls)
    covered = sum(call.calls * call.row.bytes for call in calls if call.study_us is not None)
    by_rule: dict[Rule, list[RuleWorth]] = {}
    for group in groups:
        if group.registered or (group.pipe_ops or 1) > 1:
            continue  # whether the job's calls are such ones is unknown
        curve = _Curve(group.decisions)
        own = [call for call in calls if call.group is group]
        for item in group.rules:
            rule = item.rule
            inside = [call for call in own if rule.min_bytes <= call.row.bytes <= rule.max_bytes]
            worth = _rule_worth(rule, inside, curve, all_bytes, total_us)
            by_rule.setdefault(rule, []).append(worth)
    rules = [_together(rule, parts, total_us) for rule, parts in by_rule.items()]
    whole = _together(None, [item for item in rules if item.calls], total_us)
    return JobWorth(
        unit=job.unit,
        recorders=job.recorders,
        basis=basis,
        total_us=total_us,
        nccl_us=recorded,
        estimated_us=estimated,
        covered_share=covered / all_bytes if all_bytes else 0.0,
        is_scale_known=all(row.group.nodes and row.group.ranks for row in job.rows),
        rules=rules,
        whole=whole,
    )


def _sum(times: Iterable[float | None]) -> float | None:
    """Return the sum; None if any is unknown."""
    found = list(times)
    return math.fsum(time for time in found if time is not None) if None not in found else None


def _recorded_us(call: _Call) -> float | None:
    return None if call.row.mean_us is None else call.calls * call.row.mean_us


def _exposed_us(call: _Call) -> float | None:
    row = call.row
    return call.calls * row.exposed_us / row.exposing if row.exposing else None


def _rule_worth(
    rule: Rule, calls: Sequence[_Call], curve: _Curve, all_bytes: float, total_us: float
) -> RuleWorth:
    known = [call for call in calls if call.study_us is not None]
    saved, low, high = 0.0, 0.0, 0.0
    for call in known:
        size, likely = call.row.bytes, call.calls * (call.likely_us or 0.0)
        longest = call.calls * (call.row.mean_us or call.study_us or 0.0)
        least, most = curve.saved_share(size, 1), curve.saved_share(size, 2)
        saved += likely * curve.saved_share(size, 0)
        low += (likely if least > 0 else longest) * least
        high += (longest if most > 0 else likely) * most
    is_known = bool(known) and not math.isnan(saved + low + high)
    worth = RuleWorth(
        rule=rule,
        calls=sum(call.calls for call in calls),
        bytes_share=sum(call.calls * call.row.bytes for call in calls) / (all_bytes or 1.0),
        time_us=sum(call.calls * (call.row.mean_us or call.study_us or 0.0) for call in calls),
        is_recorded=all(call.row.timed for call in calls),
        exposed_us=_sum(map(_exposed_us, calls)),
        saved_us=saved if is_known else None,
        saved_low_us=low if is_known else None,
        saved_high_us=high if is_known else None,
    )
    return _judged(worth, total_us)


def _judged(worth: RuleWorth, total_us: float) -> RuleWorth:
    """Return the worth with its largest share of the total, and whether it is advised against."""
    most = 0.0 if not worth.calls else worth.saved_high_us
    if most is not None and worth.exposed_us is not None:
        most = min(most, worth.exposed_us)
    share = None if most is None or total_us <= 0 else max(most, 0.0) / total_us
    against = share is not None and share <= LEAST_SHARE
    return msgspec.structs.replace(worth, most_share=share, advised_against=against)


def _together(rule: Rule | None, parts: Sequence[RuleWorth], total_us: float) -> RuleWorth:
    """Return the sum of parts, such as those of a rule for several scales."""
    worth = RuleWorth(
        rule=rule,
        calls=sum(item.calls for item in parts),
        bytes_share=sum(item.bytes_share for item in parts),
        time_us=sum(item.time_us for item in parts),
        is_recorded=all(item.is_recorded for item in parts),
        exposed_us=_sum(item.exposed_us for item in parts),
        saved_us=_sum(item.saved_us for item in parts),
        saved_low_us=_sum(item.saved_low_us for item in parts),
        saved_high_us=_sum(item.saved_high_us for item in parts),
    )
    return _judged(worth, total_us)
