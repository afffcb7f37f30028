# SPDX-License-Identifier: Apache-2.0
"""Find the choice (algorithm and protocol) that a table measured, from all evidence.

The evidence, the strongest first: NCCL's log of the run, the command line, `--choice`, the file
name. The *label* of a table or row is the choice that its samples get. If two pieces of evidence
contradict each other, the table gets no label and is not read.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from nccltune.formats.nccl_log.messages import RanChoice
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.reading.command_lines import CommandFound
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.file_names import NamedChoice, named_choice
from nccltune.formats.reading.file_report import FileReport, FlagKind
from nccltune.formats.text.lines import visible
from nccltune.model.choice import (
    ALGORITHMS,
    DEFAULT,
    MAX_CHANNELS,
    PARTIAL_CHOICES,
    PROTOCOLS,
    Algorithm,
    AnyChoice,
    Choice,
    PartialChoice,
    Protocol,
    choice_label,
    rest_of,
)
from nccltune.model.collective import Collective
from nccltune.model.forced import forced

Word = TypeVar("Word", Algorithm, Protocol)
CHANNEL_LIMITS = (("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"), ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"))
"""The settings of the least and the most channels; the names with CTAS are since NCCL 2.17."""
_HINT = "give --choice, or log with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING"


class Label(NamedTuple):
    """The choice that a table measured.

    If `choice` is None, each row needs a choice line of NCCL's log; `problem` is the reason. If
    `refused` is set, no row of the table gets a label.
    """

    choice: AnyChoice | None
    problem: str = ""
    problem_kind: FlagKind = FlagKind.CHOICE_UNKNOWN
    refused: bool = False


class _Claim(NamedTuple):
    """The choices that one piece of evidence allows.

    `said` describes the evidence in messages. `algorithms` and `protocols` are the algorithms and
    protocols that the evidence allows (None: no limit). `whole` is `default`, `tuned` or one
    choice, if the evidence names one of these; else None. `vague` evidence concerns the choice but
    does not identify it. `weak` evidence counts only together with other evidence. `forces` is
    False for a label that does not force NCCL: `--choice`, the file name and a title. `sets` states
    that a sentence above the table names the variable as set.
    """

    said: str
    algorithms: frozenset[Algorithm] | None = None
    protocols: frozenset[Protocol] | None = None
    whole: AnyChoice | None = None
    vague: bool = False
    weak: bool = False
    forces: bool = True
    sets: bool = False

    @property
    def one(self) -> bool:
        """Return whether one algorithm or one protocol is left. Then NCCL did not choose freely."""
        return any(
            some is not None and len(some) == 1 for some in (self.algorithms, self.protocols)
        )


def find_label(
    collective: Collective,
    log: NcclLog,
    command: CommandFound | None,
    options: ReadOptions,
    name: str,
    report: FileReport,
    line: int,
    heading: str = "",
) -> Label:
    """Return the choice of a table, and add flags for doubts to `report`.

    `heading` is that of the column, if each column is a run; it counts in place of the file's name.
    Without any evidence the choice is the default. See `tuner_of` for a tuner plugin.
    """
    if options.choice is not None and options.started_here:
        return Label(options.choice)
    if log.conflict is not None:
        return _conflict(f"NCCL's log: {log.conflict}")
    named = named_choice(heading or name)
    claims = [
        *_of_settings("NCCL's log has", log.algorithms, log.protocols, collective),
        *([] if heading and named else _of_command(command, collective)),
        *_of_choice("--choice is", options.choice),
        *(_of_heading(named) if heading else _of_name(named)),
    ]
    for one, other in combinations(claims, 2):
        if _contradict(one, other):
            return _conflict(f"{one.said}, but {other.said}")
    settled = _combine(claims, collective)
    if isinstance(settled, Choice) and not any(claim.forces for claim in claims):
        ran = log.choices_of(collective)
        if ran and settled.without_channels() not in ran:
            listed = ", ".join(sorted(choice.label for choice in ran))
            return _conflict(f"NCCL's log states that {listed} ran, but {claims[0].said}")
        _flag_unconfirmed(claims[0], log, report, line, any_ran=bool(ran))
    pinned = pinned_channels({**((command and command.settings) or {}), **log.settings})
    if isinstance(settled, Choice):
        return Label(replace(settled, channels=settled.channels or pinned))
    if settled is not None:
        _flag_limits(claims, pinned, report, line)
        return Label(settled)
    partial = [claim for claim in claims if claim.one and not claim.weak]
    firm = [claim for claim in partial if claim.forces or claim.sets]
    partial = [x for x in partial if x in firm or not any(_implies(one, x) for one in firm)]
    if partial and not options.comparing:
        said = " and ".join(claim.said for claim in partial)
        label = _partial(partial)
        if label is not None:
            report.flag(
                FlagKind.CHOICE_RESTRICTED,
                f"{said}, {rest_of(label)}: its curve is shown, but it is neither the default nor a"
                f" choice for rules; for rules {_HINT}; nccltune compare sets two such runs against"
                " each other",
                line,
            )
            return Label(label)
        return Label(
            None,
            f"{said}: nothing names the rest, so the choice is unknown; {_HINT};"
            " nccltune compare sets two such runs against each other",
        )
    vague = next((claim for claim in claims if claim.vague), None)
    if vague is not None and not log.would_tell:
        return Label(None, f"{vague.said}: the choice is unknown; {_HINT}")
    _flag_limits(claims, pinned, report, line)
    if command is not None and command.elsewhere is not None and not log.would_tell:
        at, setting = command.elsewhere
        report.flag(
            FlagKind.CHOICE_UNCONFIRMED,
            f"line {at} names {setting} under another heading or beside others: whether it holds"
            " here is unknown (else give --choice)",
            line,
        )
    given = (command.settings if command is not None else None) or {}
    _flag_default(log, tuner_of(log, command), named, {**given, **log.settings}, report, line)
    return Label(DEFAULT)


def _flag_unconfirmed(
    claim: _Claim, log: NcclLog, report: FileReport, line: int, *, any_ran: bool
) -> None:
    """Flag a label that NCCL's list of its settings does not confirm."""
    silent = log.algorithms is None and log.protocols is None and log.tuner is None
    if silent and not any_ran and (log.whole_environment or log.settings):
        where = "the environment has" if log.whole_environment else "NCCL's log lists"
        report.flag(
            FlagKind.CHOICE_UNCONFIRMED,
            f"{claim.said}, but {where} settings without NCCL_ALGO and NCCL_PROTO",
            line,
        )


def pinned_channels(settings: Mapping[str, str]) -> int | None:
    """Return the number of channels if its least and its most are set to it; else None."""
    for least, most in CHANNEL_LIMITS:
        value = settings.get(least, "")
        if value == settings.get(most) and value.isdecimal() and 0 < int(value) <= MAX_CHANNELS:
            return int(value)
    return None


def _conflict(sentence: str) -> Label:
    return Label(None, f"{sentence}: the table is not read", FlagKind.CHOICE_CONFLICT, True)


def _of_settings(
    said: str, algorithms: str | None, protocols: str | None, collective: Collective
) -> list[_Claim]:
    """Return the claim of `NCCL_ALGO` and `NCCL_PROTO`.

    No claim is returned if neither is set, or if they concern only another collective.
    """
    both = (("NCCL_ALGO", algorithms), ("NCCL_PROTO", protocols))
    words = [f"{key}={visible(value, 60)}" for key, value in both if value]
    if not words:
        return []
    said = f"{said} {' and '.join(words)}"
    limits = forced(algorithms, protocols, collective)
    if limits.choice is not None:
        choice = limits.choice
        return [_Claim(said, frozenset({choice.algorithm}), frozenset({choice.protocol}), choice)]
    if limits.algorithms is None and limits.protocols is None:
        # NCCL does not know the words, or they concern another collective.
        return [] if any(":" in word for word in words) else [_Claim(said, vague=True)]
    return [_Claim(said, limits.algorithms, limits.protocols)]


def _of_command(command: CommandFound | None, collective: Collective) -> list[_Claim]:
    if command is None:
        return []
    said = f"line {command.line} has"
    if command.unknown:
        return [_Claim(f"line {command.line} sets NCCL_ALGO or NCCL_PROTO", vague=True)]
    claims = _of_settings(said, command.algorithms, command.protocols, collective)
    return [claim._replace(forces=command.forced, sets=command.stated) for claim in claims]


def _of_choice(said: str, choice: AnyChoice | None) -> list[_Claim]:
    if choice is None:
        return []
    said = f"{said} {choice_label(choice)}"
    if not isinstance(choice, Choice):
        return [_Claim(said, whole=choice, forces=False)]
    algorithms, protocols = frozenset({choice.algorithm}), frozenset({choice.protocol})
    return [_Claim(said, algorithms, protocols, choice, forces=False)]


def _of_name(named: NamedChoice | None) -> list[_Claim]:
    if named is None or not named.is_evidence:
        return []
    shown = visible(named.name, 60)
    if named.unclear:
        said = f"the name {shown!r} has words of several choices"
        return [_Claim(said, vague=True, forces=False)]
    if named.choice is not None:
        return _of_choice(f"the name {shown!r} states", named.choice)
    algorithm, protocol = named.algorithm, named.protocol
    return [
        _Claim(
            f"the name {shown!r} states {algorithm or protocol}",
            None if algorithm is None else frozenset({algorithm}),
            None if protocol is None else frozenset({protocol}),
            # Alone it is an ordinary word, as in `simple-test`; `auto_simple` leaves the algorithm
            # to NCCL.
            weak=algorithm is None
            and protocol is Protocol.SIMPLE
            and "auto" not in named.name.lower(),
            forces=False,
        )
    ]


def _of_heading(named: NamedChoice | None) -> list[_Claim]:
    """Return the claim of a column's heading: beside other columns, it names what was forced."""
    return [
        claim._replace(
            said=claim.said.replace("the name", "the column", 1), weak=False, forces=True
        )
        for claim in _of_name(named)
    ]


_RING_ONLY = frozenset({Collective.BROADCAST, Collective.REDUCE})
"""Collectives that NCCL runs as rings only, so a protocol names their whole choice."""


def _contradict(one: _Claim, other: _Claim) -> bool:
    if one.vague or other.vague or one.weak or other.weak:
        return False
    free = [claim for claim in (one, other) if claim.whole in (DEFAULT, "tuned")]
    if len(free) == 2:
        return one.whole != other.whole
    if free:
        return (other if free[0] is one else one).one
    return _disjoint(one.algorithms, other.algorithms) or _disjoint(one.protocols, other.protocols)


def _implies(one: _Claim, other: _Claim) -> bool:
    """Return whether `other` limits nothing that `one` does not limit as much."""
    pairs = ((one.algorithms, other.algorithms), (one.protocols, other.protocols))
    return all(theirs is None or (own is not None and own <= theirs) for own, theirs in pairs)


def _disjoint(one: frozenset[Word] | None, other: frozenset[Word] | None) -> bool:
    return one is not None and other is not None and not one & other


def _combine(claims: list[_Claim], collective: Collective) -> AnyChoice | None:
    """Return the choice that consistent claims leave; None if they leave several.

    Only `--choice` can name a number of channels, so a choice with channels takes precedence.
    """
    given = [claim.whole for claim in claims if claim.whole is not None]
    detailed = [whole for whole in given if isinstance(whole, Choice)]
    if detailed:
        return next((item for item in detailed if item != item.without_channels()), detailed[0])
    if given:
        return given[0]
    algorithms: frozenset[Algorithm] = frozenset(ALGORITHMS)
    protocols: frozenset[Protocol] = frozenset(PROTOCOLS)
    if collective in _RING_ONLY and any(claim.one and not claim.weak for claim in claims):
        algorithms = frozenset({Algorithm.RING})
    for claim in claims:
        algorithms = algorithms if claim.algorithms is None else algorithms & claim.algorithms
        protocols = protocols if claim.protocols is None else protocols & claim.protocols
    if len(algorithms) == 1 and len(protocols) == 1:
        return Choice(next(iter(algorithms)), next(iter(protocols)))
    return None


def _partial(claims: list[_Claim]) -> PartialChoice | None:
    """Return the partial choice that settings forced; None if they forced something else."""
    algorithms = {claim.algorithms for claim in claims if claim.algorithms is not None}
    protocols = {claim.protocols for claim in claims if claim.protocols is not None}
    words = [
        *(word for some in algorithms for word in some),
        *(word for some in protocols for word in some),
    ]
    if len(words) != 1 or not all(claim.forces or claim.sets for claim in claims):
        return None
    return PARTIAL_CHOICES[[*ALGORITHMS, *PROTOCOLS].index(words[0])]


def _flag_limits(claims: list[_Claim], pinned: int | None, report: FileReport, line: int) -> None:
    if pinned is not None:
        sentence = f"the settings allow {pinned} channels only: the default could not choose freely"
        report.flag(FlagKind.CHOICE_RESTRICTED, sentence, line)
    for claim in claims:
        if not claim.weak and (claim.algorithms is not None or claim.protocols is not None):
            sentence = f"{claim.said}: the default could not choose freely"
            report.flag(FlagKind.CHOICE_RESTRICTED, sentence, line)


def tuner_of(log: NcclLog, command: CommandFound | None) -> str | None:
    """Return the tuner plugin that decided in place of NCCL; None if there is none.

    nccltune's own plugin decides nothing without a configuration.
    """
    if log.tuner is not None or log.no_tuner:
        return log.tuner
    plugin = log.settings.get("NCCL_TUNER_PLUGIN") or (command.tuner if command else None)
    configured = "NCCL_TUNER_CONFIG_FILE" in log.settings or (command and command.configured)
    if plugin is None:
        return "of NCCL_TUNER_CONFIG_FILE" if configured else None
    name = plugin.rpartition("/")[2][:80]
    inert = name.lower() in ("", "none") or ("nccltune" in name and not configured)
    return None if inert else name


def _flag_default(
    log: NcclLog,
    tuner: str | None,
    named: NamedChoice | None,
    settings: Mapping[str, str],
    report: FileReport,
    line: int,
) -> None:
    if tuner is not None:
        report.flag(
            FlagKind.TUNER_LOADED,
            f"the tuner plugin {tuner!r} was loaded: what is called default here is what it"
            " decided (give --choice tuned if that is meant)",
            line,
        )
    elif not log.would_tell and named is not None:
        words = " and ".join(map(repr, named.words or (str(named.protocol),)))
        other = f" and {named.unknown!r}" if named.unknown not in (*named.words, "") else ""
        report.flag(
            FlagKind.CHOICE_ASSUMED,
            f"the name {visible(named.name, 60)!r} has {words}{other}, which state no choice:"
            " taken as the default (else give --choice)",
            line,
            doubtful=named.likely,
        )
    elif not log.would_tell:
        channels = [x for pair in CHANNEL_LIMITS for x in pair if x in settings]
        beside = "".join(f", with {x}={visible(settings[x], 20)}" for x in channels)
        report.flag(
            FlagKind.CHOICE_ASSUMED,
            f"nothing names the choice it was made with: taken as the default{beside}"
            " (else give --choice)",
            line,
        )


def label_of_row(
    label: AnyChoice | None, ran: RanChoice | None, report: FileReport, line: int
) -> tuple[AnyChoice | None, Choice | None]:
    """Return the label of one row, and the choice that ran (None if it is unknown).

    `label` is the label of the table; None if the evidence does not name a whole choice. `ran` is
    the choice in the log for this row; None if the log shows none. If `ran` is not the forced
    choice, the row gets the choice that ran. If a symmetric kernel or the copy engine ran, a
    missing or forced label becomes the default. Channels are returned but not compared, because
    NCCL uses fewer channels for small messages.
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
    if label is None or label in PARTIAL_CHOICES:
        return plain, ran
    if isinstance(label, Choice) and label.without_channels() != plain:
        report.flag(
            FlagKind.CHOICE_OVERRIDDEN,
            f"{label.label} was asked for, but the log states that {plain.label} ran:"
            " named by what ran",
            line,
        )
        return plain, ran
    return label, ran
