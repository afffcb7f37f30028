# SPDX-License-Identifier: Apache-2.0
"""Choose the sizes that a proof measures."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.refine import BOUNDARY_RATIO
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.model.sizes import MAX_BYTES
from nccltune.workload.demand import Demand, sizes_to_measure

UNMEASURED_FACTOR = 2
LEAST_BYTES = 1 << 10
MOST_BYTES = 1 << 26
"""The sizes to prove for a collective that the sweep did not measure: from `LEAST_BYTES` to
`MOST_BYTES`, each `UNMEASURED_FACTOR` times the one before."""

MOST_JOB_SIZES = 32
"""About the most sizes that stand for those of a job."""


class ProvenCalls(NamedTuple):
    """The calls that a proof makes, and NCCL's `numPipeOps` for them.

    >>> ProvenCalls(CallKind(group_calls=4)).title
    '4 calls a group'
    """

    kind: CallKind = PLAIN
    pipe_ops: int = 1

    @property
    def title(self) -> str:
        """Return the title of `kind`."""
        return self.kind.title


PLAIN_CALLS = ProvenCalls()


def at_scale(rule: Rule, scale: Scale) -> bool:
    """Return whether a rule may match a call at this scale."""
    return rule.nodes in (None, scale.nodes) and rule.ranks in (None, scale.ranks)


def applies(rule: Rule, scale: Scale, calls: ProvenCalls = PLAIN_CALLS) -> bool:
    """Return whether a rule may match such calls at this scale."""
    return (
        at_scale(rule, scale)
        and rule.pipe_ops in (None, calls.pipe_ops)
        and rule.registered in (None, calls.kind.registered)
    )


def taken(
    rules: Sequence[Rule],
    collective: Collective,
    size: int,
    scale: Scale,
    calls: ProvenCalls = PLAIN_CALLS,
) -> int | None:
    """Return the index of the first rule that matches a call; None if no rule matches."""
    for index, rule in enumerate(rules):
        if rule.matches(
            collective, size, scale.nodes, scale.ranks, calls.pipe_ops, calls.kind.registered
        ):
            return index
    return None


def sizes_to_prove(
    collective: Collective,
    scale: Scale,
    measured: Collection[int],
    rules: Iterable[Rule],
    calls: ProvenCalls = PLAIN_CALLS,
) -> list[int]:
    """Return the sizes (bytes, rising) that a proof measures.

    These are all measured sizes, the sizes halfway between them, and the sizes on both sides of
    every edge of a rule. Between measured sizes that are close (`BOUNDARY_RATIO`), none is added.
    No size outside the measured range is returned. For a collective without measured sizes, sizes
    in the ranges of its rules take their place: from `LEAST_BYTES` to `MOST_BYTES`, each twice the
    one before.
    """
    own = [rule for rule in rules if rule.collective is collective and applies(rule, scale, calls)]
    grid = Grid(collective, scale.ranks, 1, MAX_BYTES, calls.kind.group_calls)
    known = sorted(measured) or _unmeasured(grid, own)
    if not known:
        return []
    found = set(known)
    for left, right in pairwise(known):
        middle = grid.middle(left, right)
        if middle is not None and right > BOUNDARY_RATIO * left:
            found.add(middle)
    for rule in own:
        found.update(grid.around(rule.min_bytes))
        if rule.max_bytes < known[-1]:
            found.update(grid.around(rule.max_bytes + 1))
    return sorted(size for size in found if known[0] <= size <= known[-1])


def job_sizes(
    collective: Collective,
    scale: Scale,
    measured: Sequence[int],
    rules: Iterable[Rule],
    demand: Demand,
) -> list[int]:
    """Return the sizes (bytes, rising) that a proof for a job measures.

    These are the sizes that the job sends, between the first and the last measured one, and both
    ends of every rule that has one of them.
    """
    grid = Grid(collective, scale.ranks, 1, MAX_BYTES)
    low, high = (measured[0], measured[-1]) if measured else (0, 0)
    sent = {size: size * calls for size, calls in demand.calls.items() if low <= size <= high}
    found = {grid.aligned(size) for size in sizes_to_measure(sent, MOST_JOB_SIZES)}
    for rule in rules:
        if rule.collective is collective and applies(rule, scale):
            ends = grid.around(rule.min_bytes)[1], grid.around(rule.max_bytes + 1)[0]
            if any(rule.min_bytes <= size <= rule.max_bytes for size in sent):
                found.update(ends)
    return sorted(size for size in found if low <= size <= high)


def _unmeasured(grid: Grid, rules: Iterable[Rule]) -> list[int]:
    found: set[int] = set()
    for rule in rules:
        low, high = max(rule.min_bytes, LEAST_BYTES), min(rule.max_bytes, MOST_BYTES)
        if low <= high:
            found.update(replace(grid, low=low, high=high).every(UNMEASURED_FACTOR))
    return sorted(found)
