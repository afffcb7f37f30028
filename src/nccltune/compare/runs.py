# SPDX-License-Identifier: Apache-2.0
"""A run with its curves, and the facts in which two sets of runs differ."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from statistics import median_low
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.formats.reading.file_names import named_choice
from nccltune.formats.reading.platform_facts import (
    FACT_WORDS,
    PlatformFacts,
    PlatformGroups,
    Subject,
    common,
    differences,
    joined,
    missing_facts,
)
from nccltune.formats.reading.runs import RunFound
from nccltune.model.choice import DEFAULT, choice_label
from nccltune.model.collective import Collective
from nccltune.model.sample import Purpose, Sample
from nccltune.model.scale import count

_ROUNDED = 16
"""nccl-tests rounds a size down to a multiple of this many bytes for each rank."""
_ROUNDING = 0.005
"""The largest share of a size that counts as rounding."""
_REPEAT = re.compile(
    r"(?:(?:iter\w*|rep\w*|round|run|test|trial|try)s?)?[ _.#-]*\d*(?: ?\(.*)?", re.IGNORECASE
)
"""Names of columns that are repeats of one measurement."""
ScaleShown = tuple[int | None, int | None]
"""Nodes and ranks; None if the run does not show them."""


class MeasuredTest(NamedTuple):
    """The properties, besides size, choice and placement, that two timings must share."""

    collective: Collective
    scale: ScaleShown
    dtype: str | None
    redop: str | None
    root: int | None
    registered: bool
    graph: bool

    @property
    def title(self) -> str:
        """Return a title such as `all-reduce, 4 nodes, 32 ranks`."""
        parts = [self.collective.prose, scale_text(self.scale)]
        parts += ["registered"] if self.registered and not self.graph else []
        parts += ["CUDA graph"] if self.graph else []
        return ", ".join(parts)

    def titled(self, label: str) -> str:
        """Return the title, with the choice unless that is the default."""
        return self.title if label == "default" else f"{self.title}, {label}"

    @property
    def words(self) -> str:
        """Return the title with type, operation and root, which distinguish tests of one title."""
        root = None if self.root in (None, -1) else f"root {self.root}"
        return ", ".join([self.title, *filter(None, (self.dtype, self.redop, root))])

    def bandwidth(self, size: int, log_time: float) -> float:
        """Return the bus bandwidth in GB/s; the algorithm bandwidth if the ranks are unknown."""
        factor = 1.0 if self.scale[1] is None else self.collective.bus_factor(self.scale[1])
        return size / (math.exp(log_time) * 1e3) * factor


class TimedPoint(NamedTuple):
    """A point of a curve: placement and size."""

    in_place: bool
    bytes: int


class RunCurve(msgspec.Struct):
    """The log times (us) of one run, one test and one choice; `ran` is what NCCL reports."""

    times: dict[TimedPoint, float] = {}
    ran: dict[TimedPoint, str] = {}

    def time_us(self, point: TimedPoint) -> float:
        """Return the time of a point in us."""
        return math.exp(self.times[point])


class MeasuredRun(msgspec.Struct, kw_only=True):
    """One start of a measuring program.

    `name` is the file or study. `hosts` are the names of the machines, empty if they are unknown.
    `at` is the time in seconds since 1970. `curves` has a curve for each test and choice label.
    `left_out` counts samples with wrong results and samples of one rank. `doubts` are sentences of
    the reader on the whole file. `column` names its column and `table` its table, if each column
    of a table is a run.
    """

    name: str
    hosts: tuple[str, ...] = ()
    scale: ScaleShown = (None, None)
    facts: PlatformFacts = msgspec.field(default_factory=PlatformFacts)
    at: float | None = None
    curves: dict[tuple[MeasuredTest, str], RunCurve] = {}
    left_out: dict[str, int] = {}
    doubts: tuple[str, ...] = ()
    column: str = ""
    table: str = ""


def curves_of(
    samples: Iterable[Sample],
) -> tuple[dict[tuple[MeasuredTest, str], RunCurve], dict[str, int]]:
    """Return the curves (medians) of the samples of one run, and counts of what was left out."""
    times: dict[tuple[MeasuredTest, str], dict[TimedPoint, list[float]]] = {}
    curves: dict[tuple[MeasuredTest, str], RunCurve] = {}
    left_out: dict[str, int] = defaultdict(int)
    for sample in samples:
        if sample.source.purpose is not Purpose.TUNE or sample.bytes == 0:
            continue
        reason = "wrong results" if sample.wrong else "one rank only" if sample.ranks == 1 else ""
        if reason:
            left_out[reason] += 1
            continue
        test = MeasuredTest(
            sample.collective,
            (sample.nodes, sample.ranks),
            sample.dtype,
            sample.redop,
            sample.root,
            sample.registered or sample.graph,
            sample.graph,
        )
        key, place = (test, choice_label(sample.choice)), TimedPoint(sample.in_place, sample.bytes)
        times.setdefault(key, {}).setdefault(place, []).append(math.log(sample.time_us))
        curve = curves.setdefault(key, RunCurve())
        if sample.ran is not None:
            curve.ran[place] = sample.ran.without_channels().label
    for key, points in times.items():
        curves[key].times = {place: median(values) for place, values in sorted(points.items())}
    return curves, dict(left_out)


def one_of_a_loop(samples: dict[RunFound, list[Sample]]) -> dict[RunFound, list[Sample]]:
    """Return the runs of a file as one if each has another single size: a loop started them."""
    sizes = [{timing.bytes for timing in timings} for timings in samples.values()]
    if not sizes or max(map(len, sizes)) > 1 or len(set().union(*sizes)) < len(sizes):
        return samples
    alike = {(run.key, run.heading, run.facts.hosts, run.facts.gpus) for run in samples}
    first = next(iter(samples))
    apart = len(alike) > 1 or any(run.facts.conditions for run in samples)
    return samples if apart else {first: [x for timings in samples.values() for x in timings]}


def is_quote(run: MeasuredRun, other: MeasuredRun) -> bool:
    """Return whether a run is an excerpt of another: its times, eight at least, are all of that."""
    own, every = (
        {(test.collective, label, *x) for (test, label), y in curves for x in y.times.items()}
        for curves in (run.curves.items(), other.curves.items())
    )
    return len(own) >= 8 and own <= every and (not run.table or run.table != other.table)


def labelled_by_ran(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs with the default labelled by what NCCL mostly ran, where that differs.

    Else by the algorithm or the protocol that the name of a file states, as in `tree.txt`.
    """
    seen: dict[tuple[MeasuredTest, int], str] = {}
    mixed = {
        test.collective
        for run in runs
        for (test, label), curve in run.curves.items()
        if label == "default"
        for place, ran in curve.ran.items()
        if seen.setdefault((test, place.bytes), ran) != ran
    }

    def label_of(run: MeasuredRun, test: MeasuredTest, label: str, curve: RunCurve) -> str:
        named = named_choice(run.name)
        words = (named.algorithm, named.protocol) if named and named.is_evidence else ()
        if label != "default" or test.collective not in mixed or not curve.ran:
            stated = "/".join(word.value for word in words if word) if label == "default" else ""
            return stated or label
        return Counter(curve.ran.values()).most_common(1)[0][0]

    return [
        msgspec.structs.replace(
            run,
            curves={
                (test, label_of(run, test, label, curve)): curve
                for (test, label), curve in run.curves.items()
            },
        )
        for run in runs
    ]


def no_repeats(runs: Sequence[MeasuredRun]) -> list[str]:
    """Return the NCCL releases, or the columns of a table, in which runs of one test differ."""
    found: dict[object, dict[str, None]] = defaultdict(dict)
    for run in runs:
        for key in run.curves:
            if run.facts.nccl:
                found[key][f"NCCL {run.facts.nccl}"] = None
            if run.table and not _REPEAT.fullmatch(run.column):
                found[key, run.table][f"column {run.column!r}"] = None
    return next((list(names) for names in found.values() if len(names) > 1), [])


def may_repeat(runs: Sequence[MeasuredRun]) -> bool:
    """Return whether runs may be of one test: no two differ by a factor of two at most sizes."""
    if no_repeats(runs) or len({run.facts.conditions for run in runs}) > 1:
        return False
    times = [
        {(key, point): x for key, curve in run.curves.items() for point, x in curve.times.items()}
        for run in runs
    ]
    for one, other in combinations(times, 2):
        apart = [abs(one[point] - other[point]) for point in one.keys() & other.keys()]
        if apart and median_low(apart) > math.log(2):
            return False
    return True


FACTS_COMPARED = {
    text: name
    for name, text in {**FACT_WORDS, "nccl": "NCCL version"}.items()
    if name not in ("hosts", "nics", "replay", "registration")
}
"""The facts that are named if a side does not show them, by their words."""


class FactDifference(msgspec.Struct, frozen=True):
    """A fact that differs between two sides, with both values as texts."""

    fact: str
    first: str
    second: str


def fact_differences(
    first: Sequence[MeasuredRun], second: Sequence[MeasuredRun]
) -> list[FactDifference]:
    """Return the facts that all show and that differ; limits of the choice also of one side."""
    one, other = _subject(first), _subject(second)
    scales = [{run.scale for run in side} for side in (first, second)]
    if scales[0] == scales[1] or all(may_be_one_scale(*pair) for pair in product(*scales)):
        # Equal scales count as one, also if the number of nodes is unknown.
        one, other = (side._replace(nodes=0, ranks=0) for side in (one, other))
    varied = _varied(first) | _varied(second)
    found = [item for item in differences(one, other) if item.fact not in varied]
    result = [FactDifference(*item) for item in found if item.fact != "hosts"]
    shown = {item.fact for item in result}
    files = {run.name.rpartition(":")[0] or run.name for run in (*first, *second)}
    commanded = [run.facts for run in (*first, *second) if run.facts.commanded and len(files) < 2]
    stated = {name for facts in commanded for name in facts.settings} - varied
    for name in dict.fromkeys(("NCCL_ALGO", "NCCL_PROTO", *sorted(stated))):
        # A run that was limited to one algorithm is named, also if the other side shows no command.
        # Of two tables in one file, all that the command above one of them sets is.
        limits = [
            joined([run.facts.settings.get(name, "not shown") for run in side])
            for side in (first, second)
        ]
        if limits[0] != limits[1] and name not in shown:
            result.append(FactDifference(name, *limits))
    here, there = (sorted({host for run in side for host in run.hosts}) for side in (first, second))
    if here and there and here != there:
        result.append(FactDifference("hosts", joined(here), joined(there)))
    return result


_OF_SENDS = re.compile(r"NCCL_P2P_(?!LEVEL|READ|DIRECT|USE)")
"""Settings of sends and receives, such as NCCL_P2P_NET_CHUNKSIZE, which need no access of GPUs."""


def causes(differences: Iterable[FactDifference]) -> list[FactDifference]:
    """Return differences, each once, without what another one says.

    Limits of a choice say what the label `default` of their run is. `NCCL_P2P_LEVEL` means nothing
    where `NCCL_P2P_DISABLE=1`.
    """
    found = list(dict.fromkeys(differences))
    off = tuple(
        item.fact.removesuffix("DISABLE")
        for item in found
        if item.fact.endswith("_DISABLE") and "1" in (item.first, item.second)
    )
    found = [
        item
        for item in found
        if not item.fact.startswith(off)
        or item.fact.endswith("_DISABLE")
        or _OF_SENDS.match(item.fact)
        or "not set" not in (item.first, item.second)
    ]
    choice = next((item for item in found if item.fact == "choice"), None)
    if choice is None:
        return found
    limits = [item for item in found if item.fact in ("NCCL_ALGO", "NCCL_PROTO")]
    names = []
    for at, label in (("first", choice.first), ("second", choice.second)):
        sides = [(item.fact, getattr(item, at)) for item in limits]
        said = [f"{name}={value}" for name, value in sides if not value.startswith("not ")]
        names.append(" ".join(said) if said and label == DEFAULT else label)
    kept = [item for item in found if item not in limits and item is not choice]
    return [FactDifference("choice", *names), *kept]


def facts_not_shown(first: Sequence[MeasuredRun], second: Sequence[MeasuredRun]) -> list[str]:
    """Return the names of the facts that at least one side does not show, but of buffers."""
    missing = missing_facts(_subject(first)) | missing_facts(_subject(second))
    found = [text for text, name in FACTS_COMPARED.items() if name in missing]
    nodes = [{run.scale[0] for run in side} for side in (first, second)]
    return found + ["number of nodes"] * (nodes[0] != nodes[1] and None in nodes[0] | nodes[1])


def _subject(runs: Sequence[MeasuredRun]) -> Subject:
    """Return the facts that are the same in all runs as those of one run."""
    facts = [run.facts for run in runs]

    def same(name: str) -> str | None:
        values = [getattr(item, name) for item in facts]
        return None if None in values else common(values)

    settings = set.intersection(*(set(item.settings.items()) for item in facts))
    conditions = {item.conditions for item in facts}
    each = {item.gpus_per_process for item in facts}
    commanded = [set(item.commanded) for item in facts if item.commanded is not None]
    every = PlatformFacts(
        gpu=same("gpu"),
        machine=same("machine"),
        library=same("library"),
        nccl=same("nccl"),
        driver=same("driver"),
        network=same("network"),
        replay=same("replay"),
        gpus_per_process=each.pop() if len(each) == 1 else None,
        settings=dict(settings),
        settings_by=same("settings_by"),
        conditions=conditions.pop() if len(conditions) == 1 else None,
        commanded=tuple(set.intersection(*commanded)) if len(commanded) == len(facts) else None,
    )
    return Subject(every, *runs[0].scale, None, True)


def runs_by_platform(runs: Sequence[MeasuredRun]) -> list[list[MeasuredRun]]:
    """Return runs of equal facts, but of hosts; one that fits several groups is in none."""
    groups = PlatformGroups()
    found: list[list[MeasuredRun]] = []
    subjects = [_platform(run) for run in runs]
    for run, subject in sorted(
        zip(runs, subjects, strict=True), key=lambda item: len(missing_facts(item[1]))
    ):
        fitting = groups.fitting(subject)
        if len(fitting) != 1:
            fitting = [len(found)]
            found.append([])
        groups.put(fitting[0], run.name, subject)
        found[fitting[0]].append(run)
    return found


def _platform(run: MeasuredRun) -> Subject:
    """Return the facts of a run that do not depend on its scale."""
    facts = msgspec.structs.replace(
        run.facts, hosts=(), first_host=None, nics=(), gpus=None, ranks_per_host=None, emulated=None
    )
    return Subject(facts, *run.scale, None, True)


def with_nominal_sizes(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs with one size for those that nccl-tests rounded differently by ranks.

    It rounds the sizes of collectives that divide the buffer by the ranks, and only these.
    """
    most: dict[Collective, dict[int, int]] = defaultdict(dict)
    for run in runs:
        for (test, _), curve in run.curves.items():
            own = most[test.collective]
            for place in curve.times:
                own[place.bytes] = max(own.get(place.bytes, 0), test.scale[1] or 0)
    nominal: dict[tuple[Collective, int], int] = {}
    for collective, ranks in most.items():
        last = 0
        for size in sorted(ranks, reverse=True):
            divided = collective.counts_per_rank and ranks[size] != ranks.get(last)
            rounding = min(_ROUNDED * ranks[size], _ROUNDING * last) if divided else 0
            last = last if 0 < last - size < rounding else size
            nominal[collective, size] = last

    def curve_of(test: MeasuredTest, curve: RunCurve) -> RunCurve:
        sizes = {place.bytes for place in curve.times}
        new = {size: nominal[test.collective, size] for size in sizes}
        if len(set(new.values())) < len(sizes):
            return curve
        return RunCurve(
            {place._replace(bytes=new[place.bytes]): x for place, x in curve.times.items()},
            {place._replace(bytes=new[place.bytes]): x for place, x in curve.ran.items()},
        )

    return [
        msgspec.structs.replace(
            run, curves={key: curve_of(key[0], curve) for key, curve in run.curves.items()}
        )
        for run in runs
    ]


def _varied(runs: Sequence[MeasuredRun]) -> set[str]:
    settings = [set(run.facts.settings.items()) for run in runs]
    return {name for name, _ in settings[0].union(*settings) - settings[0].intersection(*settings)}


def may_be_one_scale(one: ScaleShown, other: ScaleShown) -> bool:
    """Return whether two scales are equal in ranks and, if both show them, in nodes."""
    return one == other or (one[1] == other[1] is not None and None in (one[0], other[0]))


def scale_text(scale: ScaleShown) -> str:
    """Return `4 nodes, 32 ranks`; only what is known."""
    nodes, ranks = scale
    parts = [count(nodes, "node")] if nodes else []
    parts += [count(ranks, "rank")] if ranks else []
    return ", ".join(parts) or "scale not shown"
