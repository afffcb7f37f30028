# SPDX-License-Identifier: Apache-2.0
"""What NCCL says of itself before anything is measured, and the plan that begins with it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.measure.bench import Bench
from nccltune.measure.conversation import Table, TableRow
from nccltune.measure.grid import Grid
from nccltune.measure.lane import Decide, Lane, Options
from nccltune.measure.outlook import Predictions
from nccltune.measure.plan import EXHAUSTIVE_FACTOR, ExhaustivePlan, Plan
from nccltune.measure.sweep import Wanted
from nccltune.model.choice import AnyChoice, Choice, parse_choice
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.names import nearest
from nccltune.model.scale import Scale


class Survey(NamedTuple):
    """What NCCL says of one collective before anything is measured."""

    grid: Grid
    legal: list[Choice]
    predicted: dict[int, Choice]
    costs: Predictions


def survey(bench: Bench, wanted: Wanted) -> list[Survey]:
    """Ask NCCL for its own tables: what it can run, what it would pick, what it expects.

    Raises InputError for a collective that the bench cannot measure, PlatformError where NCCL
    offers nothing to choose from.
    """
    able = bench.hello.can.collectives
    found = []
    for collective in wanted.collectives:
        if collective.value not in able:
            raise InputError(
                f"{collective.value} cannot be measured here",
                where="--collectives",
                hint=nearest(collective.value, able),
            )
        grid = Grid(collective, bench.hello.ranks, wanted.low, wanted.high)
        # The largest first: the bench's buffers need not grow then.
        sizes = sorted(grid.every(EXHAUSTIVE_FACTOR), reverse=True)
        request = Table(id=0, collective=collective, bytes=sizes)
        found.append(_survey(grid, bench.tables(request)))
    if not any(item.legal for item in found):
        raise PlatformError(
            f"NCCL {bench.hello.nccl.version} offers no choice: it gave the tuner plugin no table",
            hint="NCCL 2.22 or later is needed, and neither NCCL_ALGO nor NCCL_PROTO may be set",
        )
    return found


def make_plan(
    surveys: Sequence[Survey], wanted: Wanted, scale: Scale, decide: Decide, *, chunks: bool
) -> Plan:
    """The plan for what was asked. `decide` says what the rules would choose by some timings."""
    lanes = [
        Lane(
            item.grid,
            scale,
            item.legal,
            decide,
            Options(threshold=wanted.threshold, chunks=chunks),
            predicted=item.predicted,
        )
        for item in surveys
    ]
    costs = {item.grid.collective: item.costs for item in surveys}
    if wanted.rounds is not None:
        return ExhaustivePlan(lanes, costs, rounds=wanted.rounds)
    return Plan(lanes, costs)


def _survey(grid: Grid, rows: Sequence[TableRow]) -> Survey:
    legal: dict[Choice, None] = {}
    predicted: dict[int, Choice] = {}
    costs: dict[int, Mapping[str, float]] = {}
    for row in rows:
        choices = {label: choice for label in row.costs if (choice := _choice(label)) is not None}
        legal.update(dict.fromkeys(choices.values()))
        known = {label: cost for label, cost in row.costs.items() if cost and label in choices}
        if known:
            costs[row.bytes] = known
        if row.predicted is not None and row.predicted.algorithm and row.predicted.protocol:
            choice = _choice(f"{row.predicted.algorithm}/{row.predicted.protocol}")
            if choice is not None:
                predicted[row.bytes] = choice
    return Survey(grid, sorted(legal, key=lambda choice: choice.label), predicted, costs)


def _choice(label: str) -> Choice | None:
    """A combination by its label; None for one of a newer NCCL that no rule could name."""
    try:
        choice: AnyChoice = parse_choice(label)
    except InputError:
        return None
    return choice if isinstance(choice, Choice) else None
