# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune compare`, also below that of `nccltune analyze`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nccltune.cli.output import hanging, harmless, plain_table, stdout, warn
from nccltune.model.numbers import counted, gain_text, percent_text, significant, size_form
from nccltune.model.sizes import format_bytes
from nccltune.report.words import listed, rate_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.analyze.compared import FastestRange
    from nccltune.app.compare import BesideCompared, ChoicesCompared, FleetCompared, SidesCompared
    from nccltune.compare.fleet import FleetTest, SlowPart
    from nccltune.compare.found import CurveComparison, SizeRatio
    from nccltune.compare.series import ScalingSeries

_NOTHING = "nothing: no test has four runs at one scale, or three scales of one platform"
_SERIES = 8
_TABLES = 3
"""Most tables of a screen, and verdicts of a line."""
_KINDS = {"path": "slow path", "node": "slow node", "period": "slow runs", "run": "slow run"}
_NODES = _MANY = 8
_PEAKS = 24
_RUNS = 5
_BY = {
    "scatter": "by the scatter along the sizes",
    "placements": "by both placements",
    "assumed": "by an assumed scatter of three times --assume-noise",
}
_LONG = 32
"""Longer names of files are not repeated in every sentence."""


def show(found: SidesCompared | FleetCompared | ChoicesCompared) -> None:
    """Print the verdicts first, then tables."""
    from nccltune.app.compare import ChoicesCompared, SidesCompared

    out = stdout()
    if isinstance(found, SidesCompared):
        _show_sides(found, out)
    elif isinstance(found, ChoicesCompared):
        for number, item in enumerate(found.tables):
            _show_beside(item, out, "\n" if number else "")
    else:
        _show_fleet(found, out)
    warn(found.warnings[:_RUNS])
    if len(found.warnings) > _RUNS:
        warn([f"and {len(found.warnings) - _RUNS} more (--json lists them)"])


def one_line(found: SidesCompared | FleetCompared | ChoicesCompared) -> str:
    """Return the verdict in one line."""
    from nccltune.app.compare import ChoicesCompared, SidesCompared

    if isinstance(found, ChoicesCompared):
        lead = counted(len(found.tables), "table")
        parts = [
            f"{item.title}: fastest {listed([_fastest(x) for x in item.fastest])}"
            for item in found.tables
        ]
    elif isinstance(found, SidesCompared):
        changed = listed([f"{x.fact} {x.first} to {x.second}" for x in found.different])
        lead = f"{found.first} to {found.second}" + (f" ({changed})" if changed else "")
        shown = _ordered(found.tests)
        parts = [f"{_title(x)}: {x.verdict(*_names(found))}" for x in shown]
    else:
        lead = counted(found.runs, "run")
        slow = [(item, test) for test in found.tests for item in test.slow]
        slow.sort(key=lambda pair: list(_KINDS).index(pair[0].kind))
        parts = [f"{_KINDS[item.kind]}: {test.title}: {item.sentence}" for item, test in slow]
        parts += [_failed(found)] if found.failed else []
        parts += [f"{test.title}: {_uneven(test)}" for test in found.tests if test.uneven]
        parts += [f"{x.title}: {words}" for x in found.scaling for words in x.sentences]
        nothing = "nothing is slower than the others beyond noise" if found.tests else _NOTHING
        parts = parts or [nothing]
    more = [f"and {len(parts) - _TABLES} more"] if len(parts) > _TABLES else []
    return harmless(f"{lead}: {'; '.join([*parts[:_TABLES], *more])}")


def _show_sides(found: SidesCompared, out: Console) -> None:
    from nccltune.compare.runs import FACTS_COMPARED

    hanging(out, "first      ", 11, found.first)
    hanging(out, "second     ", 11, found.second)
    for item in found.different:
        hanging(out, "differs    ", 11, f"{item.fact}: {item.first} first, {item.second} second")
    if found.not_shown:
        words = f"not shown by both, so they may differ, too: {', '.join(found.not_shown)}"
        hanging(out, "unknown    ", 11, words)
    if not found.different:
        same = [name for name in FACTS_COMPARED if name not in found.not_shown]
        words = f" ({', '.join(same)})" if same else ""
        hanging(out, "differs    ", 11, f"nothing that both show{words}")
    if len(found.different) > 1 and any(test.ranges for test in found.tests):
        words = f"{len(found.different)} things differ: which of them matters cannot be separated"
        hanging(out, "cause      ", 11, words)
    plain = [x for x in found.tests if not x.ranges and not (x.undecided or x.few or x.bus_factors)]
    hidden = plain if len(plain) > _MANY else []
    if hidden:
        words = f"{len(plain)} of {len(found.tests)} tests: no difference beyond noise"
        hanging(out, "no diff    ", 11, f"{words} (--json lists them)")
    for test in (x for x in found.tests if x not in hidden):
        label, style = ("slower     ", "red") if test.slower else ("no diff    ", "")
        if test.bus_factors is not None:
            label = "scales     "
        elif test.undecided or test.few:
            label = "unclear    "
        elif test.ranges and not test.slower:
            label, style = "faster     ", "green"
        hanging(out, (label, style), 11, f"{_title(test)}: {test.verdict(*_names(found))}")
    tables = _ordered(found.tests)
    tables = tables if tables[0].ranges else tables[:1]
    for test in tables[:_TABLES]:
        _show_table(test, out)
    if len(tables) > _TABLES:
        out.print(f"and {len(tables) - _TABLES} more tables (--json has all)")


def _show_beside(found: BesideCompared, out: Console, above: str) -> None:
    hanging(out, f"{above}compared   ", 11, f"{found.title}: {listed(list(found.times_us))}")
    for item in found.fastest:
        hanging(out, ("fastest    ", "green"), 11, _fastest(item))
    for side in found.sides:
        for test in side.tests:
            words = test.verdict(side.first, side.second)
            words = words if test.ranges or test.few else f"{side.first} and {side.second}: {words}"
            hanging(out, "beside     ", 11, words)
    hidden = dict.fromkeys(name for side in found.sides for name in side.not_shown)
    if hidden:
        words = f"not shown, so they may differ, too: {', '.join(hidden)}"
        hanging(out, "unknown    ", 11, words)
    table = plain_table(">size", *(f">{harmless(name)}" for name in found.times_us))
    sizes = sorted({size for own in found.times_us.values() for size in own})
    form = size_form(sizes)
    for size in sizes:
        times = [own.get(size) for own in found.times_us.values()]
        table.add_row(form(size), *("-" if time is None else time_text(time) for time in times))
    out.print(table)


def _fastest(item: FastestRange) -> str:
    form = size_form((item.low_bytes, item.high_bytes))
    sizes = " to ".join(dict.fromkeys((form(item.low_bytes), form(item.high_bytes))))
    if item.most == 1:
        return f"{sizes}: {' and '.join(item.names)} are equal within 2 %"
    edges = " to ".join(dict.fromkeys(map(gain_text, (item.least, item.most))))
    equal = " (equal within 2 %)" if len(item.names) > 1 else ""
    names = f"{' and '.join(item.names)}{equal}"
    return f"{sizes}: {names}, {edges} faster than the next by one run of each"


def _ordered(tests: list[CurveComparison]) -> list[CurveComparison]:
    """Return the tests with a difference, slower ones first; all if none has one."""
    different = [test for test in tests if test.ranges]
    return sorted(different, key=lambda test: not test.slower) or tests


def _names(found: SidesCompared) -> tuple[str, str]:
    """Return what to call the sides: by the NCCL version or choice if nothing else differs."""
    if len(found.different) == 1:
        item = found.different[0]
        if item.fact == "NCCL":
            return item.first, f"NCCL {item.second}"
        if item.fact in ("choice", "ran"):
            return item.first, item.second
        shown = "not shown" not in (item.first, item.second)
        if "_" in item.fact and item.fact.isupper() and shown:
            first, second = (
                f"without {item.fact}" if value == "not set" else f"{item.fact}={value}"
                for value in (item.first, item.second)
            )
            return first, second
    if max(len(found.first), len(found.second)) > _LONG:
        return "the first", "the second"
    return found.first, found.second


def _title(test: CurveComparison) -> str:
    title = test.title if test.choices[0] == "default" else f"{test.title}, {test.choices[0]}"
    return title if len(test.placements) > 1 else f"{title}, {test.placements[0]}"


def _show_table(test: CurveComparison, out: Console) -> None:
    both = " (mean of out of place and in place)" if len(test.placements) > 1 else ""
    both += ", bus bandwidth" if test.bus_factors else ""
    out.print(f"\n{_title(test)}{both}", style="bold")
    interval = "95 % CI" if test.noise == "runs" else ""
    table = plain_table(">size", ">first", ">second", ">ratio", f">{interval}", "")
    form = size_form(point.bytes for point in test.points)
    for point in test.points:
        interval = "" if point.low is None else f"{point.low:.2f}-{point.high:.2f}"
        remark = ("slower" if point.ratio > 1 else "faster") if point.beyond else ""
        if test.bus_factors is not None:
            remark = ""
        elif point.bytes in test.isolated:
            remark = "unclear: run it again"
        table.add_row(
            form(point.bytes),
            *_both(test, point),
            gain_text(1 / point.ratio if test.bus_factors else point.ratio),
            interval,
            remark,
        )
    out.print(table)
    if test.bus_factors is not None:
        return
    runs = f"{counted(test.runs[0], 'run')} and {counted(test.runs[1], 'run')}"
    if test.noise == "runs":
        words = f"{runs}: the noise is that between the runs"
    else:
        whole = f" or {percent_text(test.whole)} for the whole curve (assumed)"
        whole = "" if test.few else whole
        alone = f"differences under {percent_text(test.single)} at one size ({_BY[test.noise]})"
        if test.noise == "scatter" and test.ranges:
            # The scatter along the sizes may be that of the difference.
            alone = "neighbouring sizes are judged together; differences under"
            whole = whole.removeprefix(" or")
        words = (
            f"{runs}: {alone}{whole} are not "
            "shown to be more than noise; give several runs of each to measure it"
        )
    hanging(out, "noise      ", 11, words)


def _both(test: CurveComparison, point: SizeRatio) -> list[str]:
    if test.bus_factors is not None:
        return list(map(rate_text, point.rates(test.bus_factors)))
    return [time_text(time_us) for time_us in (point.first_us, point.second_us)]


def _show_fleet(found: FleetCompared, out: Console) -> None:
    hosts = max((test.hosts for test in found.tests), default=0)
    words = counted(found.runs, "run") + (f" of {counted(hosts, 'node')}" if hosts else "")
    hanging(out, "fleet      ", 11, words)
    if found.failed:
        hanging(out, ("failed     ", "red"), 11, _failed(found))
    for test in found.tests:
        _show_slow(test, out)
        if test.uneven:
            hanging(out, ("uneven     ", "red"), 11, f"{test.title}: {_uneven(test)}")
        elif test.varied and not test.slow:
            size, *times = test.varied
            low, high = map(time_text, times)
            words = f"at {format_bytes(size)} from {low} to {high}, far more than at most sizes"
            hanging(out, ("varies     ", "red"), 11, f"{test.title}: {words}")
        if test.cut:
            words = f"{test.title}: less than half of the sizes in {listed(test.cut[:_RUNS])}"
            hanging(out, "not judged ", 11, words + _more(len(test.cut) - _RUNS))
    if found.tests and not any(test.slow or test.uneven or test.varied for test in found.tests):
        words = f"nothing in {counted(len(found.tests), 'test')} beyond the noise of the runs"
        hanging(out, ("slow       ", "green"), 11, words)
    _show_scaling_sentences(found.scaling, out)
    tables = [test for test in found.tests if test.slow or test.uneven] or found.tests
    for test in tables[:_TABLES]:
        _show_nodes(test, out)
    for test in [test for test in found.tests if test not in tables[:_TABLES]]:
        out.print(_summary(test))
    shown = [item for item in found.scaling if item.rows]
    for item in shown[:_SERIES]:
        _show_scaling(item, out)
    if len(shown) > _SERIES:
        out.print(f"and {len(shown) - _SERIES} more scaling tables (--json has all)")
    if not shown and not any(test.nodes for test in found.tests):
        _show_peaks(found, out)


def _show_scaling_sentences(series: list[ScalingSeries], out: Console) -> None:
    """Print what was found in the series; equal sentences of several tests once."""
    sentences: dict[tuple[str, str], list[str]] = {}
    for item in series:
        test, _, where = item.title.partition(", ")
        for words in item.sentences:
            sentences.setdefault((where, words), []).append(test)
    for (where, words), tests in sentences.items():
        hanging(out, "scaling    ", 11, f"{listed(tests)}, {where}: {words}")


def _show_peaks(found: FleetCompared, out: Console) -> None:
    if not found.tests:
        hanging(out, "judged     ", 11, _NOTHING)
    out.print()
    table = plain_table("test", "run", ">peak", ">at")
    table.columns[1].overflow = "fold"
    for item in found.peaks[:_PEAKS]:
        rate, size = rate_text(item.gb_per_s), format_bytes(item.bytes)
        table.add_row(item.title, harmless(item.run), rate, size)
    out.print(table)
    if len(found.peaks) > _PEAKS:
        out.print(f"and {len(found.peaks) - _PEAKS} more (--json lists them)")


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


def _failed(found: FleetCompared) -> str:
    names = found.failed[:3]
    more = _more(len(found.failed) - 3)
    often = [f"{name} ({number})" for name, number in found.failed_nodes.items() if number > 1]
    words = f"{counted(len(found.failed), 'test')} gave no result: {', '.join(names)}{more}"
    return words + (f"; most often with {', '.join(often[:3])}" if often else "")


def _show_slow(test: FleetTest, out: Console) -> None:
    runs = [item for item in test.slow if item.kind == "run"]
    for item in test.slow:
        if item not in runs[_RUNS:]:
            lead = (f"{_KINDS[item.kind]:<11}", "red")
            hanging(out, lead, 11, f"{test.title}: {item.sentence}")
    if len(runs) > _RUNS:
        out.print(f"           and {len(runs) - _RUNS} more slow runs (--json lists them)")
    if any(len(item.hosts) > 1 for item in runs):
        repeated = {node.name for node in test.nodes if node.runs > 1}
        words = (
            _path_words(runs)
            if any(repeated.intersection(item.hosts) for item in runs)
            else "these nodes have no other run: run each with another node to tell node and path"
        )
        hanging(out, "           ", 11, words)
    elif runs and test.hosts and not any(item.hosts or item.facts for item in runs):
        words = "all runs have the same nodes: look at what else differs, such as settings and time"
        hanging(out, "           ", 11, words)


def _uneven(test: FleetTest) -> str:
    others = "the other runs" if test.slow else "the runs"
    low, high = map(significant, test.rates)
    return (
        f"{others} reach {low} to {high} GB/s at {format_bytes(test.bytes)}, so what is usual is "
        "unknown: look at what differs between them, such as settings"
    )


def _path_words(runs: list[SlowPart]) -> str:
    often = Counter(host for item in runs for host in item.hosts).most_common(3)
    repeated = [f"{name} in {number}" for name, number in often if number > 1]
    words = "most other runs of these nodes are normal: look at the path between them, or repeat"
    return words + (f" (of {len(runs)}: {', '.join(repeated)})" if repeated else "")


def _summary(test: FleetTest) -> str:
    hosts = f" of {counted(test.hosts, 'node')}" if test.hosts else ""
    low, high = map(significant, test.rates)
    rate = f"{low} to {high}" if test.uneven else f"usual {significant(test.usual_gb_per_s)}"
    return (
        f"{test.title}: {counted(test.runs, 'run')}{hosts}, {rate} GB/s at "
        f"{format_bytes(test.bytes)}, spread {percent_text(test.spread)}"
    )


def _show_nodes(test: FleetTest, out: Console) -> None:
    out.print(f"\n{_summary(test)}", style="bold")
    if not test.nodes:
        return
    table = plain_table("<node", ">runs", ">slow", ">median", ">mean", ">worst")
    for item in test.nodes[:_NODES]:
        rates = (item.median_gb_per_s, item.mean_gb_per_s, item.worst_gb_per_s)
        table.add_row(item.name, str(item.runs), str(item.low), *map(significant, rates))
    out.print(table)
    if len(test.nodes) > _NODES:
        out.print(f"and {len(test.nodes) - _NODES} nodes with a higher mean")


def _show_scaling(series: ScalingSeries, out: Console) -> None:
    out.print(f"\n{series.title}", style="bold")
    sizes = [f">{format_bytes(size)}" for size in series.sizes]
    table = plain_table(">nodes", ">ranks", ">runs", *sizes, ">efficiency", ">")
    for row in series.rows:
        efficiency = "" if row.efficiency is None else percent_text(row.efficiency)
        rates = [significant(rate) for rate in row.gb_per_s]
        remark = "below both neighbours" if row.outlier else ""
        numbers = (str(row.nodes or "?"), str(row.ranks), str(row.runs))
        table.add_row(*numbers, *rates, efficiency, remark)
    out.print(table)
