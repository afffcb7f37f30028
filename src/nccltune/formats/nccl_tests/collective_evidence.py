# SPDX-License-Identifier: Apache-2.0
"""Find the collective that a table measures.

The evidence is the user's option, the program, the columns, NCCL's log, and the file name.
"""

from typing import NamedTuple

from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.nccl_tests.columns import DTYPE_BYTES
from nccltune.formats.reading.collective_names import collective_of_name
from nccltune.formats.reading.context import ReadOptions
from nccltune.model.collective import Collective

_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
UNCHECKED = frozenset({Collective.ALLTOALL, Collective.ALLTOALLV, Collective.SENDRECV})
"""Collectives that nccl-tests does not check in place: it prints N/A there since 2.13."""
_OLDER_ALGBW = frozenset({Collective.ALLGATHER, Collective.REDUCESCATTER, Collective.HYPERCUBE})
"""Collectives that print (n-1)/n of size / time as algbw: the first two before nccl-tests 2.9."""
_ROOTED = frozenset(
    {Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER}
)

_MOST_LISTED = 6
_SURE = 0.97
"""Bandwidths of 1 GB/s and more are printed so exactly that a smaller share of size / time is no
rounding."""
Limits = tuple[float, float] | None
"""The least and the largest value that printed digits allow; None if unknown."""


class Shape(NamedTuple):
    """The cells of a row that limit the possible collectives.

    `columns` are the columns that the table has. A copied table may lack some. `checked` are the
    placements whose results the rows check, True for in place.
    """

    size: int
    elements: int
    dtype: str
    redop: str | None
    root: int | None
    columns: frozenset[str] = frozenset({"count", "type", "redop", "root"})
    checked: frozenset[bool] = frozenset()


def possible_collectives(shape: Shape) -> set[Collective]:
    """Return the collectives that print a row like `shape` if there are several ranks.

    `size` is count x type size; if the count is per rank, also times the number of ranks. For an
    unknown type, the size is not checked. All-to-all-v follows no such rule, so it is left out.
    Every version that has it (2.19.0) prints its name.
    """
    width = DTYPE_BYTES.get(shape.dtype)
    found: set[Collective] = set()
    for collective in Collective:
        if collective is Collective.ALLTOALLV:
            continue
        reduces = collective in _REDUCING
        # Since 2.13, which prints `#wrong`, sendrecv_perf also prints a reduction, although
        # send/recv has none. So any reduction is accepted for send/recv then.
        any_redop = collective is Collective.SENDRECV and "error" not in shape.columns
        other = (shape.redop is not None) is not reduces and not any_redop
        if other and "redop" in shape.columns:
            continue
        other = (shape.root is not None) is not (collective in _ROOTED)
        if other and "root" in shape.columns:
            continue
        if width is not None and "count" in shape.columns:
            each = shape.elements * width
            per_rank = collective.counts_per_rank
            if per_rank and (each == 0 or shape.size % each or shape.size == each):
                continue
            if not per_rank and each != shape.size:
                continue
        found.add(collective)
    if shape.checked and "error" not in shape.columns:
        found = (found - UNCHECKED if True in shape.checked else found & UNCHECKED) or found
    return found


def find_collective(
    named: Collective | None,
    shape: Shape,
    log: NcclLog,
    options: ReadOptions,
    name: str,
    ranks: int | None,
    factor: Limits = None,
    share: float | None = None,
    commanded: Collective | None = None,
    *,
    directly: bool = False,
) -> Collective | str:
    """Return the collective, or the reason why it is unknown.

    The evidence is used in this order: the user's option, the header that the program prints, the
    columns if they allow only one collective, the program in the command line (`commanded`), NCCL's
    log, the file name. With one rank, the columns are not used. `factor` has the limits of the bus
    bandwidth divided by size / time, `share` is the algorithm bandwidth so; None if unknown.
    `directly`: the command line is that of this table, and of no earlier one.
    """
    one_rank = ranks == 1
    told = options.collective or named
    if told is not None:
        return told
    possible = _narrowed(possible_collectives(shape), factor, share, ranks)
    if directly and commanded not in (None, *possible):
        # Some builds check in place what others do not: the command is the better evidence.
        unchecked = possible_collectives(shape._replace(checked=frozenset()))
        if commanded in _narrowed(unchecked, factor, share, ranks):
            return commanded
    if len(possible) == 1 and not one_rank:
        return possible.pop()
    if commanded is not None and (one_rank or commanded in possible):
        return commanded
    logged = log.functions
    if len(logged) == 1 and (one_rank or not possible or logged <= possible):
        return logged.pop()
    called = collective_of_name(name)
    if called is not None:
        if one_rank or not possible or called in possible:
            return called
        return f"the file's name has {called.value}, but the columns are not those of it"
    if len(possible) > _MOST_LISTED:
        return "nothing names the collective"
    return f"nothing names the collective (by its rows: {_listed(possible, shape)})"


def contradiction(
    told: Collective, shape: Shape, factor: Limits, share: float | None, ranks: int | None
) -> str | None:
    """Return what rows are of, if not of the collective that the user states; else None."""
    if shape.size == shape.elements * DTYPE_BYTES.get(shape.dtype, 0):
        # One rank prints such rows, too.
        shape = shape._replace(columns=shape.columns - {"count"})
    possible = _narrowed(possible_collectives(shape), factor, share, ranks)
    if ranks == 1 or not possible or told in possible | {Collective.ALLTOALLV}:
        return None
    return f"its rows are not those of {told.value} as given, but of {_listed(possible, shape)}"


def _listed(possible: set[Collective], shape: Shape) -> str:
    """Return the collectives as text, and the number of ranks if it follows from the count."""
    listed = " or ".join(sorted(item.value for item in possible)) or "none that is known"
    each = shape.elements * DTYPE_BYTES.get(shape.dtype, 0)
    is_per_rank = bool(possible) and all(item.counts_per_rank for item in possible)
    counted = is_per_rank and each and "count" in shape.columns
    return f"{listed} of {shape.size // each} ranks" if counted else listed


def _narrowed(
    possible: set[Collective], factor: Limits, share: float | None, ranks: int | None
) -> set[Collective]:
    """Return the `possible` collectives that print such bandwidths (see `find_collective`).

    A number of ranks that no collective fits, as of a cut device list, is not used. All of
    `possible` are returned if `factor` is unknown or there is one rank.
    """
    if factor is None or ranks == 1:
        return possible
    low, high = 0.98 * factor[0], 1.02 * factor[1]
    if share is not None and factor[1] < _SURE:
        # The factor of few ranks is clearly below 1, so the two ways to print algbw differ.
        apart = _OLDER_ALGBW if share < _SURE else set(Collective) - {Collective.HYPERCUBE}
        possible = possible & apart or possible
    if ranks is not None:
        near = {item for item in possible if low < item.bus_factor(ranks) < high}
        if near:
            return near
    # With an unknown number of ranks the factor is between its values for 2 and for many ranks.
    many = 1 << 20
    fitting = {
        item for item in possible if item.bus_factor(2) <= high and low <= item.bus_factor(many)
    }
    return fitting or possible
