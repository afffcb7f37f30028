# SPDX-License-Identifier: Apache-2.0
"""Which collective a table times and which choice it was made with: who says so, in which order."""

from typing import NamedTuple

from nccltune.formats.choices import choice_of_name, collective_of_name
from nccltune.formats.context import ReadOptions
from nccltune.formats.nccl_log import NcclLog, Ran, forced
from nccltune.formats.nccl_tests_layout import DTYPE_BYTES
from nccltune.formats.reading import FileReport, FlagKind
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective

_PER_RANK_COUNT = frozenset(
    {
        Collective.ALLGATHER,
        Collective.REDUCESCATTER,
        Collective.ALLTOALL,
        Collective.GATHER,
        Collective.SCATTER,
        Collective.HYPERCUBE,
    }
)
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset(
    {Collective.BROADCAST, Collective.REDUCE, Collective.SCATTER, Collective.GATHER}
)


class Shape(NamedTuple):
    """What a row says about its collective without naming it."""

    size: int
    elements: int
    dtype: str
    redop: str | None
    root: int | None


def possible_collectives(shape: Shape) -> set[Collective]:
    """The collectives that print such a row where there are several ranks.

    `size` is count x type size, times the ranks where the count is per rank. All-to-all-v follows
    no rule, but every version that has it (2.19.0) also prints its name.
    """
    width = DTYPE_BYTES.get(shape.dtype)
    found: set[Collective] = set()
    for collective in Collective:
        if collective is Collective.ALLTOALLV:
            continue
        reduces = collective in _REDUCING
        # sendrecv_perf prints a reduction too since 2.13, though it has none.
        if (shape.redop is not None) is not reduces and collective is not Collective.SENDRECV:
            continue
        if (shape.root is not None) is not (collective in _ROOTED):
            continue
        if width is not None:
            each = shape.elements * width
            per_rank = collective in _PER_RANK_COUNT
            if per_rank and (each == 0 or shape.size % each or shape.size == each):
                continue
            if not per_rank and each != shape.size:
                continue
        found.add(collective)
    return found


def find_collective(
    named: Collective | None,
    shape: Shape,
    log: NcclLog,
    options: ReadOptions,
    name: str,
    ranks: int | None,
    factor: float | None = None,
) -> Collective | str:
    """The collective, or the reason why it cannot be told.

    In this order: what the user told, what the program's own header names, the only one that the
    columns allow, what the NCCL log names, what the file is called. `factor` is bus over algorithm
    bandwidth, where there are digits to tell it.
    """
    one_rank = ranks == 1
    told = options.collective or named
    if told is not None:
        return told
    possible = _narrowed(possible_collectives(shape), factor, ranks)
    if len(possible) == 1 and not one_rank:
        return possible.pop()
    logged = log.functions
    if len(logged) == 1 and (one_rank or not possible or logged <= possible):
        return logged.pop()
    called = collective_of_name(name)
    if called is not None:
        if one_rank or not possible or called in possible:
            return called
        return f"the file's name says {called.value}, but the columns are not those of it"
    listed = " or ".join(sorted(item.value for item in possible)) or "none that is known"
    return f"nothing names the collective (by its columns: {listed})"


def _narrowed(
    possible: set[Collective], factor: float | None, ranks: int | None
) -> set[Collective]:
    """Those of `possible` whose bus bandwidth is `factor` times the algorithm bandwidth; all of
    them where none is, which is flagged as a mismatch later."""
    if factor is None or ranks is None or ranks < 2:
        return possible
    fitting = {item for item in possible if abs(factor - item.bus_factor(ranks)) < 0.02 * factor}
    return fitting or possible


class Label(NamedTuple):
    """The choice a table was made with; None: only partly forced, so each row needs the log."""

    choice: AnyChoice | None
    said_by: str


def find_label(
    collective: Collective,
    log: NcclLog,
    options: ReadOptions,
    name: str,
    report: FileReport,
    line: int,
) -> Label:
    """The choice, in this order: what the user told, `NCCL_ALGO` and `NCCL_PROTO` as the log (or
    the environment in a JSON) has them, the file's name, and else the default, which is said."""
    if options.choice is not None:
        return Label(options.choice, "--choice")
    limits = forced(log.algorithms, log.protocols, collective)
    named = choice_of_name(name)
    if limits.choice is not None:
        return Label(limits.choice, "NCCL_ALGO and NCCL_PROTO")
    if limits.partly and (named is None or named == DEFAULT):
        return Label(None, "NCCL_ALGO or NCCL_PROTO")
    if limits.restricted:
        report.flag(FlagKind.CHOICE_RESTRICTED, _restricted(log), line)
    if named is not None:
        return Label(named, "the file's name")
    if log.tuner is not None:
        report.flag(
            FlagKind.TUNER_LOADED,
            f"the tuner plugin {log.tuner!r} was loaded: what is called default here is what it"
            " decided (say --choice tuned if that is meant)",
            line,
        )
    elif not log.would_tell:
        report.flag(
            FlagKind.CHOICE_ASSUMED,
            "nothing says which choice it was made with: taken as the default (else say --choice)",
            line,
        )
    return Label(DEFAULT, "the NCCL log" if log.would_tell else "nothing")


def label_of_row(
    label: AnyChoice | None, ran: Ran | None, report: FileReport, line: int
) -> tuple[AnyChoice | None, Choice | None]:
    """The choice of one row, and what ran as far as it can be named.

    `label` is the table's (None: forced in part), `ran` what the log says for the row. A forced
    choice that did not run is named by what ran; channels are only told, not compared, because
    NCCL uses fewer for small messages. None where nothing tells what ran.
    """
    forced_one = isinstance(label, Choice)
    if isinstance(ran, str):
        report.flag(
            FlagKind.TUNER_BYPASSED,
            f"a {ran} ran, which NCCL chooses without algorithm, protocol or tuner",
            line,
        )
        return (DEFAULT if label is None or forced_one else label), None
    if ran is None:
        return label, None
    plain = ran.without_channels()
    if label is None:
        return plain, ran
    if isinstance(label, Choice) and label.without_channels() != plain:
        report.flag(
            FlagKind.CHOICE_OVERRIDDEN,
            f"{label.label} was asked for, but the log says {plain.label} ran: named by what ran",
            line,
        )
        return plain, ran
    return label, ran


def _restricted(log: NcclLog) -> str:
    said = [
        f"{name}={value}"
        for name, value in (("NCCL_ALGO", log.algorithms), ("NCCL_PROTO", log.protocols))
        if value is not None
    ]
    return f"{' and '.join(said)}: the default could not choose freely"
