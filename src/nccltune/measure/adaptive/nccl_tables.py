# SPDX-License-Identifier: Apache-2.0
"""Read NCCL's own tables before the first measurement: the legal choices and NCCL's predictions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.adaptive.plan import EXHAUSTIVE_FACTOR
from nccltune.measure.adaptive.time_estimate import Predictions
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import Hello, TableRequest, TableRow
from nccltune.measure.bench.process import Bench
from nccltune.model.choice import AnyChoice, Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.names import nearest

_PROBE_BYTES = 1 << 16


class CollectiveTables(NamedTuple):
    """NCCL's own tables of one collective: legal choices, its picks and times in us by size.

    Costs are by label. Sizes and choices without a prediction are missing.
    """

    grid: Grid
    legal: list[Choice]
    predicted: dict[int, Choice]
    costs: Predictions
    calls: CallKind = PLAIN


def ask_tables(
    bench: Bench,
    collectives: Sequence[Collective],
    low: int,
    high: int,
    kinds: Sequence[CallKind] = (PLAIN,),
) -> list[CollectiveTables]:
    """Return NCCL's own tables for `collectives` and kinds of calls, from `low` to `high`.

    Raises InputError for calls that the bench cannot measure, PlatformError if NCCL offers no
    choice for any collective, and the errors of `Bench`.
    """
    able = bench.hello.can.collectives
    found = []
    for collective in collectives:
        if collective.value not in able:
            raise InputError(
                f"{collective.value} cannot be measured here",
                where="‹collectives›",
                hint=nearest(collective.value, able),
            )
        for calls in kinds:
            refuse_unable(bench.hello, calls)
            grid = Grid(collective, bench.hello.ranks, low, high, calls.group_calls)
            # The largest size comes first, so that the bench allocates its buffers only once.
            sizes = sorted(grid.every(EXHAUSTIVE_FACTOR), reverse=True)
            request = TableRequest(
                id=0,
                collective=collective,
                bytes=sizes,
                registered=calls.registered,
                group_calls=calls.group_calls,
            )
            rows = bench.tables(request)
            unable = next((row.error for row in rows if row.error), None)
            if unable is not None and calls != PLAIN and all(row.error for row in rows):
                raise InputError(f"calls ({calls.title}) cannot be measured here: {unable.text}")
            found.append(_collective_tables(grid, rows)._replace(calls=calls))
    if not any(item.legal for item in found):
        if bench.hello.replay:
            raise InputError("holds timings of NCCL's default only", where="‹replay›")
        raise PlatformError(
            f"NCCL {bench.hello.nccl.version} offers no choice: it gave the tuner plugin no table",
            hint="NCCL 2.22 or later is needed, and neither NCCL_ALGO nor NCCL_PROTO may be set",
        )
    return found


def ask_pipe_ops(bench: Bench, collective: Collective, calls: CallKind) -> int | None:
    """Return NCCL's `numPipeOps` for such calls; None if they cannot be made.

    NCCL before 2.22 has no table that shows it, and always passes 1.
    """
    if calls.group_calls == 1:
        return 1
    grid = Grid(collective, bench.hello.ranks, 1, _PROBE_BYTES, calls.group_calls)
    request = TableRequest(
        id=0,
        collective=collective,
        bytes=[grid.aligned(_PROBE_BYTES)],
        registered=calls.registered,
        group_calls=calls.group_calls,
    )
    rows = bench.tables(request)
    if any(row.error for row in rows):
        return None
    return next((max(1, row.seen.pipe_ops) for row in rows if row.seen), 1)


def refuse_unable(hello: Hello, calls: CallKind) -> None:
    """Raise InputError if the bench cannot make calls of this kind."""
    where = f"the recording {hello.replay}" if hello.replay else "this bench"
    for able, wanted, what in (
        (hello.can.registered, calls.registered, "calls with registered buffers"),
        (hello.can.group_calls, calls.group_calls > 1, "groups of calls"),
    ):
        if wanted and not able:
            raise InputError(
                f"{where} holds no {what}" if hello.replay else f"{where} cannot make {what}",
                hint="measure them on GPUs: without ‹replay›" if hello.replay else None,
            )


def _collective_tables(grid: Grid, rows: Sequence[TableRow]) -> CollectiveTables:
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
    return CollectiveTables(grid, sorted(legal, key=lambda choice: choice.label), predicted, costs)


def _choice(label: str) -> Choice | None:
    """Return the choice with this label; None if a newer NCCL's is unknown here."""
    try:
        choice: AnyChoice = parse_choice(label)
    except InputError:
        return None
    return choice if isinstance(choice, Choice) else None
