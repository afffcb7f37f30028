# SPDX-License-Identifier: Apache-2.0
"""Compare two studies, logs or folders size by size; the runs in one file; or those of a fleet."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.analyze.compared import FastestRange, fastest_ranges
from nccltune.app.compare_reference import (
    ReferenceCompared,
    ReferenceRequest,
    compare_with_reference,
    is_one_measurement,
)
from nccltune.app.importing import collective_of
from nccltune.compare.fleet import FleetTest, RunPeak, judge_fleet, run_peaks
from nccltune.compare.found import CurveComparison
from nccltune.compare.matching import NothingInCommonError
from nccltune.compare.runs import (
    FactDifference,
    MeasuredRun,
    MeasuredTest,
    causes,
    curves_of,
    fact_differences,
    facts_not_shown,
    is_quote,
    labelled_by_ran,
    may_repeat,
    no_repeats,
    one_of_a_loop,
    with_nominal_sizes,
)
from nccltune.compare.series import ScalingSeries, by_facts, kept_apart, scaling
from nccltune.compare.sides import compare_sides
from nccltune.formats.importing.importer import keep_apart
from nccltune.formats.importing.inputs import Reading, find_inputs, read_inputs
from nccltune.formats.nccl_tests.run import listed_hosts
from nccltune.formats.reading.context import Copies, ReadOptions
from nccltune.formats.reading.file_report import FileKind, FlagKind, ImportRecord
from nccltune.formats.reading.platform_facts import PlatformFacts, facts_of_platform, joined
from nccltune.formats.reading.runs import RunFound
from nccltune.formats.text.lines import encoding_of
from nccltune.model.errors import InputError
from nccltune.model.numbers import counted
from nccltune.model.sample import Sample
from nccltune.study.files import Study
from nccltune.study.names import SAMPLES

_SEPARATORS = (re.compile(r"[_.+,@\s]+|--+"), re.compile(r"[_.+,@\s]+|(?<=\d)-+(?=[A-Za-z])"))
_HOST_WORD = re.compile(r"(?=.*[A-Za-z])(?=.*\d)(?!\d)[\w-]+")
_OTHER_WORD = re.compile(
    r"(?:attempt|day|iter|job|rep|repeat|round|run|test|trial|try)s?-?\d+", re.IGNORECASE
)

BASE = re.compile(r"(?:py)?nccl|default|base(?:line)?|before|none|stock|vanilla", re.IGNORECASE)
"""Names of the run with which the others in a table are compared."""


_MEASURED = re.compile(r"^measured (?:column|under) '([^']+)'$")
_SETTING = re.compile(r"(?P<name>[A-Z][A-Z0-9]*_[A-Z0-9_]+)=(?P<value>[\w,.:^-]+)")
_TABLES_ARE = "the tables are at "
_ROW_OR_SUM = re.compile(
    r"[\s|>]*\d[\d.,]*\s?[KMG]?i?B?[\s|,]|# (?:Out of bounds|Avg bus|Collective.*d: )"
)


class RunsRead(NamedTuple):
    """The runs of some inputs, and what is said of the other files.

    `failed` are tests without a result: name, hosts, reason. `dropped` are sentences on columns
    beside those of runs.
    """

    runs: list[MeasuredRun]
    failed: list[tuple[str, tuple[str, ...], str]]
    unread: list[str]
    hints: list[str]
    dropped: list[str]


class SidesCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two inputs; `not_shown` names facts that at least one does not show."""

    first: str
    second: str
    different: list[FactDifference]
    not_shown: list[str]
    tests: list[CurveComparison]
    warnings: list[str]

    @property
    def has_finding(self) -> bool:
        """Return whether the second side is slower beyond noise in any test."""
        return any(test.slower for test in self.tests)


class FleetCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of many runs by their peaks; `failed_nodes` counts failed tests by node."""

    runs: int
    tests: list[FleetTest]
    scaling: list[ScalingSeries]
    peaks: list[RunPeak]
    failed: list[str]
    failed_nodes: dict[str, int]
    warnings: list[str]

    @property
    def has_finding(self) -> bool:
        """Return whether a node, run, period or scale is slower or uneven, or a test failed."""
        slow = any(test.slow or test.uneven or test.varied for test in self.tests)
        return slow or bool(self.failed) or any(item.has_outlier for item in self.scaling)

    @property
    def is_judged(self) -> bool:
        """Return whether there was anything to compare, or a test without a result."""
        return bool(self.tests or self.failed or any(item.rows for item in self.scaling))


class BesideCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of three and more runs of one test in one file, such as columns of a table.

    `sides` has each of the others compared with the first, or with the one called default.
    `times_us` has the times of each run by size, and `fastest` the fastest by ranges of sizes.
    """

    title: str
    sides: list[SidesCompared]
    times_us: dict[str, dict[int, float]]
    fastest: list[FastestRange]


class ChoicesCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparisons in each table of one file. `warnings` are on what was left out."""

    tables: list[BesideCompared]
    warnings: list[str]

    @property
    def has_finding(self) -> bool:
        """Return False: runs beside each other are choices, and none of them is a regression."""
        return False


def compare_paths(
    paths: Sequence[Path],
    *,
    assumed_noise: float,
    nodes: int | None = None,
    ranks: int | None = None,
    collective: str | None = None,
    reference: ReferenceRequest | None = None,
    copies: Copies | None = None,
) -> SidesCompared | FleetCompared | ChoicesCompared | ReferenceCompared:
    """Return the comparison of two inputs, or of the runs in one folder or many files.

    One measurement, or any option of `reference`, is placed among published systems. `nodes`,
    `ranks` and `collective` hold where an input does not show them. Raises InputError if there is
    nothing to compare, StudyError for a damaged study. `copies`: see ReadOptions.
    """
    reference = reference or ReferenceRequest()
    options = ReadOptions(
        study="compare",
        nodes=nodes,
        ranks=ranks,
        collective=collective_of(collective),
        comparing=True,
        copies=copies,
    )
    if len(paths) > 1 and any(reference):
        raise InputError(
            f"one input is placed among reference systems, and {len(paths)} are named",
            where=", ".join(map(str, paths)),
            hint="leave out the options about GPU, NICs, topology and reference, or name one input",
        )
    if len(paths) == 2:
        return _sides(
            _labels(*paths), [read_runs([path], options) for path in paths], assumed_noise
        )
    found = read_runs(paths, options)
    runs = found.runs
    if not any(run.curves for run in runs):
        raise _nothing_to_compare(found, ", ".join(map(str, paths)))
    if len(paths) == 1 and (any(reference) or _is_one(paths[0], runs)):
        warnings = [*_left_out(runs), *found.unread, *found.dropped]
        return compare_with_reference(paths[0], runs, reference, warnings)
    columns = _by_name(runs)
    # Equal names of columns in tables of several files are not known to be one system.
    one_text = len({run.table.rpartition(":")[0] for run in runs}) < 2
    if len(columns) == 2 and one_text and all(map(may_repeat, columns.values())):
        first, second = columns
        return _sides(
            (first, second), [found._replace(runs=x) for x in columns.values()], assumed_noise
        )
    if len(runs) < 2:
        raise _nothing_to_compare(found, ", ".join(map(str, paths)))
    fleet = _fleet(found)
    one_file = len(paths) == 1 and not paths[0].is_dir()
    # Runs without names are of one system at most: each is placed among published systems.
    tables_of = {run.table.rpartition(":")[0] for run in runs}
    tabled = any(tables_of) and (one_file or len(tables_of) == 1)
    named = found if tabled else _named_by_facts(found)
    if named.runs and not (fleet.scaling if tabled else fleet.is_judged):
        tables = list(_beside(named, assumed_noise))
        if tables:
            return ChoicesCompared(tables=tables, warnings=fleet.warnings)
    if len(paths) == 1 and not (paths[0].is_dir() or fleet.tests or fleet.scaling):
        return compare_with_reference(paths[0], runs, reference, fleet.warnings)
    return fleet


def _named_by_facts(found: RunsRead) -> RunsRead:
    """Return the runs named by what differs among them, such as `NCCL 2.27.3`; else none."""
    named = [
        msgspec.structs.replace(
            run, column=_MEASURED.sub(r"\1", facts.removeprefix(", ")), table=""
        )
        for own, facts in by_facts(found.runs)
        for run in own
        if facts and not facts.endswith("not shown")
    ]
    return found._replace(runs=named if len(named) == len(found.runs) else [])


def _by_name(runs: Iterable[MeasuredRun]) -> dict[str, list[MeasuredRun]]:
    found: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        found.setdefault(run.column or run.name, []).append(run)
    return found


def _beside(found: RunsRead, assumed: float) -> Iterator[BesideCompared]:
    tables: dict[tuple[str, MeasuredTest], list[MeasuredRun]] = {}
    for run in found.runs:
        if len({test for test, _ in run.curves}) == len(run.curves):
            for key, curve in run.curves.items():
                part = msgspec.structs.replace(run, curves={key: curve})
                tables.setdefault((run.table, key[0]), []).append(part)
    if all(len(_by_name(runs)) < 2 for runs in tables.values()):
        sections = list(tables.items())
        tables = {}
        for (_, test), runs in sections:
            tables.setdefault(("", test), []).extend(runs)
    alike = Counter(test.title for _, test in tables)
    for (_, test), runs in tables.items():
        named = _by_name(runs)
        if len(named) < 2:
            continue
        base = next((name for name in named if BASE.fullmatch(name)), next(iter(named)))
        sides = []
        for name, own in named.items():
            pair = [found._replace(runs=x) for x in (named[base], own)]
            with suppress(InputError):  # the same times twice
                sides += [_sides((base, name), pair, assumed)] if name != base else []
        times = {name: _times(own) for name, own in named.items()}
        words = runs[0].facts.conditions or ("",)
        title = test.words if alike[test.title] > 1 else test.title
        title += f", {words[-1]}" * (alike[test.title] > 1 and words[-1].startswith("under "))
        yield BesideCompared(
            title=title, sides=sides, times_us=times, fastest=fastest_ranges(times)
        )


def _times(runs: Sequence[MeasuredRun]) -> dict[int, float]:
    """Return the time of each size: of the first run that has it, out of place where it can be."""
    found: dict[int, float] = {}
    for run in reversed(runs):
        (curve,) = run.curves.values()
        ordered = sorted(curve.times, key=lambda point: not point.in_place)
        found |= {point.bytes: curve.time_us(point) for point in ordered}
    return dict(sorted(found.items()))


def _is_one(path: Path, runs: Sequence[MeasuredRun]) -> bool:
    one_run = len(runs) == 1 or (path / SAMPLES).is_file()
    return one_run or (not path.is_dir() and is_one_measurement(runs))


def _nothing_to_compare(found: RunsRead, where: str) -> InputError:
    failed = [f"{name}: {why}" for name, _, why in found.failed]
    reasons = [*failed, *found.unread, *_left_out(found.runs)][:3]
    wrong = sum(run.left_out.get("wrong results", 0) for run in found.runs)
    if wrong and not any(run.curves for run in found.runs):
        return InputError(
            f"no figure counts: {counted(wrong, 'timing')} with wrong results (#wrong), no other",
            where=where,
            hint=f"nccltune doctor {where.replace(', ', ' ')}",
        )
    return InputError(
        f"no measurement to compare: {'; '.join(reasons) or 'no file'}",
        where=where,
        hint=next(iter(found.hints), "nccltune compare LOG, or nccltune compare BEFORE AFTER"),
    )


def _sides(labels: tuple[str, str], sides: list[RunsRead], assumed: float) -> SidesCompared:
    for label, side in zip(labels, sides, strict=True):
        if not any(run.curves for run in side.runs):
            raise _nothing_to_compare(side, label)
        if names := no_repeats(side.runs):
            raise InputError(
                f"it has {joined(names)}, which are no repeats of one measurement",
                where=label,
                hint=f"give the runs of one of them on each side, or {label} alone",
            )
    where = " and ".join(labels)
    number = len(sides[0].runs)
    runs = with_nominal_sizes([*sides[0].runs, *sides[1].runs])
    here, there = _apart(runs[:number], runs[number:])
    if not here or not there:
        raise InputError(
            "both inputs hold the same run: there is nothing to compare",
            where=where,
            hint=next(
                (words for words in sides[0].hints if words.startswith(_TABLES_ARE)),
                "name the two measurements, or two folders without a common file",
            ),
        )
    try:
        tests = compare_sides(here, there, assumed)
    except NothingInCommonError as error:
        raise InputError(
            str(error),
            where=where,
            hint="compare the same collective and sizes; ‹nodes› and ‹ranks› state a scale that a "
            "file does not show",
        ) from error
    settings = [_SETTING.fullmatch(label) for label in labels]
    stated = [
        FactDifference(first["name"], first["value"], second["value"])
        for first, second in [settings]
        if first and second and first["name"] == second["name"]
    ]
    return SidesCompared(
        first=labels[0],
        second=labels[1],
        different=causes(
            [
                *stated,
                *fact_differences(here, there),
                *(item for test in tests for item in test.differs),
            ]
        ),
        not_shown=facts_not_shown(here, there),
        tests=tests,
        warnings=[
            f"{label}: {words}"
            for label, side in zip(labels, sides, strict=True)
            for words in (
                *_left_out(side.runs),
                *(f"{name}: no result" for name, *_ in side.failed),
            )
        ]
        + [
            f"{label}: {counted(len(side.runs) - len(kept), 'run')} left out: the other input"
            for label, side, kept in zip(labels, sides, (here, there), strict=True)
            if len(kept) < len(side.runs)
        ]
        + list(dict.fromkeys(words for side in sides for words in side.dropped)),
    )


def _apart(
    here: list[MeasuredRun], there: list[MeasuredRun]
) -> tuple[list[MeasuredRun], list[MeasuredRun]]:
    """Return both sides; if one is a part of the other, such as a node of a fleet, without it.

    A side is empty if they have runs in common otherwise.
    """
    own, other = (
        [run for run in side if all(run.curves != one.curves for one in rest)]
        for side, rest in ((here, there), (there, here))
    )
    if len(own) == len(here):
        return here, there
    if not own:
        return here, other
    return own, there if not other else []


def _fleet(found: RunsRead) -> FleetCompared:
    runs = with_nominal_sizes(labelled_by_ran(_named_hosts(found.runs)))
    return FleetCompared(
        runs=len(runs),
        tests=judge_fleet(runs),
        scaling=scaling(runs),
        peaks=run_peaks(runs),
        failed=[name for name, *_ in found.failed],
        failed_nodes=dict(
            Counter(host for _, hosts, _ in found.failed for host in hosts).most_common()
        ),
        warnings=[
            *filter(None, [kept_apart(runs)]),
            *_left_out(runs),
            *found.unread,
            *found.dropped,
        ],
    )


def _labels(first: Path, second: Path) -> tuple[str, str]:
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))


def _left_out(runs: Sequence[MeasuredRun]) -> list[str]:
    reasons: Counter[str] = Counter()
    for run in runs:
        reasons.update(run.left_out)
    return [
        f"{counted(number, 'timing')} left out: {reason}"
        + f" ({joined([run.name for run in runs if reason in run.left_out])})" * (len(runs) > 1)
        for reason, number in reasons.items()
    ]


def read_runs(paths: Sequence[Path], options: ReadOptions) -> RunsRead:
    """Read the runs of files, studies and folders of both. A run that occurs twice is read once."""
    found = RunsRead([], [], [], [], [])
    lines: dict[Path, list[int]] = {}
    paths = [_without_line(path, lines) for path in paths]
    known: dict[str, MeasuredRun] = {}
    studies: list[Path] = []
    for path in paths:
        if path.is_dir():
            studies += [item.parent for item in sorted(path.rglob(SAMPLES))]
    inside = {folder.resolve() for folder in studies}
    files = [
        item
        for item in find_inputs(paths)
        if item.path is None or not inside & set(item.path.resolve().parents)
    ]
    read = set()
    for reading in read_inputs(files, options):
        file = reading.found.path
        _add_file(reading, found, known, lines.get(file, []) if file else [])
        read.add(reading.report.file_hash)
    for folder in dict.fromkeys(studies):
        found.runs.extend(_of_study(Study(folder), read))
    found.runs.extend(known.values())
    bare = [run for run in found.runs if run.scale == (None, None)]
    if len(bare) < len(found.runs):
        found.runs[:] = [run for run in found.runs if run not in bare]
        found.unread.extend(f"{run.name}: left out, its scale is not shown" for run in bare)
    return found


def _without_line(path: Path, lines: dict[Path, list[int]]) -> Path:
    name, _, line = str(path).rpartition(":")
    if path.exists() or not line.isdecimal() or not Path(name).is_file():
        return path
    lines.setdefault(Path(name), []).append(int(line))
    return Path(name)


def _of_study(study: Study, read: set[str]) -> list[MeasuredRun]:
    """Return the runs of a study, but those imported from files with the hashes `read`."""
    platform = study.platform()
    facts = facts_of_platform(platform, measured=platform.recorded_at is not None)
    known = {
        run.process: (run.facts, tuple(record.sentences))
        for record in study.imports(ImportRecord)
        for run in record.runs or ()
    }
    samples: dict[str | None, list[Sample]] = {}
    for sample in study.samples():
        if sample.source.file_hash not in read:
            samples.setdefault(sample.source.process, []).append(sample)
    runs = [
        _run(study.name, items, *known.get(process or "", (facts, ())), {})
        for process, items in samples.items()
    ]
    return [run for run in runs if run.curves or run.left_out]


def _add_file(
    reading: Reading, found: RunsRead, known: dict[str, MeasuredRun], lines: Sequence[int]
) -> None:
    """Add the runs of a file to `known`; with `lines` only those whose tables hold these lines.

    Of two files with the same rows the one with process ids counts.
    """
    report, item = reading.report, reading.found
    samples: dict[RunFound, list[Sample]] = {}
    for batch in reading.batches():
        samples.setdefault(batch.run, []).extend(batch.samples)
    # The device list is read from the text, because runs keep only hashes of host names.
    content = reading.content() if report.file_hash else b""
    names = listed_hosts(content.decode(encoding_of(content[:4]), errors="replace"))
    if not any(samples.values()):
        if names and not (report.rows or report.unreadable or report.reasons):
            hosts = tuple(sorted(names.values()))
            found.failed.append((item.name, hosts, report.error or "the test gave no result"))
        else:
            doubts = [flag.sentence for flag in report.flags if flag.doubtful] + [*report.reasons]
            found.unread.append(f"{item.name}: {report.error or joined(doubts) or 'no result'}")
            if report.kind is FileKind.NCCL_LOG and item.path:
                found.hints.append(f"what it says of faults: nccltune doctor {item.path}")
        if any(flag.kind is FlagKind.COLLECTIVE_UNKNOWN for flag in report.flags):
            found.hints.append("‹collective› NAME states what was measured")
        found.hints.extend(filter(None, [report.hint]))
    samples = one_of_a_loop({run: timings for run, timings in samples.items() if timings})
    headed = any(run.heading for run in samples)
    keep_apart(samples, names_only=not headed)
    columns = [x for x in report.flags if headed and x.kind is FlagKind.COLUMNS_UNKNOWN]
    found.dropped.extend(f"{item.name}: {flag.sentence}" for flag in columns)
    doubtful = [flag for flag in report.flags if flag.doubtful]
    starts = sorted({run.line for run in samples})
    heads = {_head(line, starts, content) for line in lines}
    places = ", ".join(f"{item.path}:{line}" for line in starts)
    found.hints.extend([f"{_TABLES_ARE}{places}"] if lines else [])
    titles = [(run.title, run.collective, run.nodes, run.ranks) for run in samples]
    titled = not headed and all(run.title for run in samples) and len({*titles}) == len(titles)
    for number, (run, timings) in enumerate(samples.items()):
        if lines and run.line not in heads:
            continue
        name = item.name
        if len(samples) > 1:
            name += run.place if run.line else f", run {number + 1}"
        record = run.record()
        key = record.prints or f"{report.file_hash} {number}"
        of_one = timings[0].ranks == 1
        remarks = [x.sentence for x in doubtful if of_one or x.kind is not FlagKind.ONE_RANK]
        at = run.stamps.local if run.stamps.utc is None else run.stamps.utc
        new = _run(name, timings, run.facts, tuple(remarks), names, at)
        if run.heading or titled:
            new.column, new.table = run.heading or run.title, f"{item.name}:{run.line}"
        if record.pids:
            known.pop(key, None)
            known.setdefault(f"{key} {record.pids}", new)
        elif not any(x.startswith(key) or is_quote(new, known[x]) for x in known):
            known[key] = new


def _head(line: int, starts: Sequence[int], content: bytes) -> int:
    """Return the line of the table that a line is of; the text above a table is a part of it.

    That text begins behind the last row or summary of the table before.
    """
    before = max((start for start in starts if start <= line), default=0)
    after = min((start for start in starts if start > line), default=0)
    text = content.decode(encoding_of(content[:4]), errors="replace").split("\n")
    above = not before or not any(map(_ROW_OR_SUM.match, text[line - 1 : after - 1]))
    return after if after and above else before


def _run(
    name: str,
    samples: list[Sample],
    facts: PlatformFacts,
    doubts: tuple[str, ...],
    names: dict[str, str],
    at: float | None = None,
) -> MeasuredRun:
    curves, left_out = curves_of(samples)
    scale = (samples[0].nodes, samples[0].ranks)
    hosts = tuple(sorted(names[key] for key in facts.hosts if key in names))
    return MeasuredRun(
        name=name,
        hosts=hosts,
        scale=scale,
        facts=facts,
        at=at,
        curves=curves,
        left_out=left_out,
        doubts=doubts,
    )


def _named_hosts(runs: list[MeasuredRun]) -> list[MeasuredRun]:
    """Return the runs in order of time; hosts come from file names if no run shows its own.

    That needs as many words with letters and digits, not shared by all, as the run has nodes.
    """
    if all(run.at is not None for run in runs):
        runs = sorted(runs, key=lambda run: run.at or 0)
    if any(run.hosts for run in runs):
        return runs
    for separator in _SEPARATORS:
        words = [
            {
                word
                for word in separator.split(Path(run.name).stem)
                if _HOST_WORD.fullmatch(word) and not _OTHER_WORD.fullmatch(word)
            }
            for run in runs
        ]
        hosts = [tuple(sorted(own - set.intersection(*words))) for own in words]
        if all(len(own) == run.scale[0] for own, run in zip(hosts, runs, strict=True)):
            return [
                msgspec.structs.replace(run, hosts=own)
                for run, own in zip(runs, hosts, strict=True)
            ]
    return runs
