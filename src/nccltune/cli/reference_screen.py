# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune compare` for one measurement among reference systems."""

from rich.console import Console

from nccltune.app.compare_reference import PlacedTest, ReferenceCompared
from nccltune.cli.output import hanging, harmless, hint, plain_table, stdout, warn
from nccltune.model.numbers import counted, significant
from nccltune.model.sizes import format_bytes
from nccltune.reference.placement import Placement, SizeRange, SystemFigure, Verdict
from nccltune.report.words import listed

_LABELS = {
    Verdict.LOW: ("low", "red"),
    Verdict.BELOW: ("normal", "yellow"),
    Verdict.BETWEEN: ("normal", "green"),
    Verdict.ABOVE: ("normal", "green"),
    Verdict.UNDECIDED: ("undecided", "yellow"),
    Verdict.NOTHING_ALIKE: ("not known", "yellow"),
}
_ASKED = {
    "gpu": "--gpu NAME, such as H100 (the log does not show the GPU model)",
    "nodes": "--nodes N (the log does not show the number of nodes)",
    "ranks": "--ranks N (the log does not show the number of ranks)",
    "nics": "--nics 8x400 (NICs of a node and their Gbit/s, which a table does not show)",
}
_INDENT = 11
_SYSTEMS = 8
_SIZES = 10
_LINES = 6


def show_placed(found: ReferenceCompared) -> None:
    """Print the verdict of each collective first, then systems and sizes."""
    out = stdout()
    for number, test in enumerate(found.tests):
        if number:
            out.print()
        for label, style, words in _lines(test):
            hanging(out, (f"{label:<{_INDENT}}", style), _INDENT, words)
        if test.placement is not None:
            _show_systems(test, test.placement, out)
            if len(test.placement.sizes) > 1:
                _show_sizes(test.placement.sizes, out)
    warn(found.warnings[:_LINES])
    if found.added is not None:
        hint(f"{found.added} curves added")


def placed_line(found: ReferenceCompared) -> str:
    """Return the verdicts in one line."""
    parts = []
    for test in found.tests:
        words = [f"{limit.name}: {limit.sentence}" for limit in test.limits]
        words += [f"assumed: {_assumed(test)}"] if test.assumed_node else []
        if test.placement is not None:
            words = [test.placement.bandwidth.sentence, *test.placement.by_rate, *words]
        words += [test.model.sentence] if test.model is not None else []
        words += [f"needed: {_asked(test)}"] if test.asked else []
        words += [_wrong(test)] if test.wrong else []
        words += test.doubts[:_LINES]
        system = f" on {_system(test)}" if _system(test) else ""
        parts.append(f"{test.collective.prose}{system}: {'; '.join(words)}")
    return harmless("; ".join(parts))


def _lines(test: PlacedTest) -> list[tuple[str, str, str]]:
    """Return the lines above the tables: label, style and words."""
    name = test.title + (", in place" if test.in_place else "")
    lines = [("test", "", f"{name} ({test.run})")]
    lines += [("system", "", _system(test))] if _system(test) else []
    if test.placement is not None:
        placed, latency = test.placement.bandwidth, test.placement.latency
        label = ("measured", "") if test.decisive is not None else _LABELS[placed.verdict]
        lines.append((*label, placed.sentence))
        lines += [("", "", words) for words in test.placement.by_rate]
        lines += [(*_LABELS[latency.verdict], latency.sentence)] if latency is not None else []
    for limit in test.limits:
        label = (limit.name, "")
        if limit is test.decisive:
            label = _LABELS[Verdict.LOW if test.is_low else Verdict.BETWEEN]
        lines.append((*label, limit.sentence))
    lines += [("assumed", "", _assumed(test))] if test.assumed_node else []
    lines += [("model", "", test.model.sentence)] if test.model is not None else []
    lines += [("needed", "", _asked(test))] if test.asked else []
    lines += [("wrong", "red", _wrong(test))] if test.wrong else []
    cause = "cause" if test.is_low else "notice"
    lines += [(cause, "", words) for words in test.causes[:_LINES]]
    return lines + [("notice", "", words) for words in test.doubts[:_LINES]]


def _system(test: PlacedTest) -> str:
    system = test.system
    each = "" if system.gpus_per_node is None else f"{system.gpus_per_node:g} "
    nodes = f"{system.nodes} x " if (system.nodes or 1) > 1 else ""
    parts = [f"{nodes}{each}{system.gpu}"] if system.gpu else []
    parts += [f"{test.nics} a node"] if test.nics else []
    parts += [f"NCCL {test.nccl}"] if test.nccl else []
    return " · ".join(parts)


def _assumed(test: PlacedTest) -> str:
    return f"{test.assumed_node}, for ceiling and model; --topology FILE has the real one"


def _wrong(test: PlacedTest) -> str:
    return f"{counted(test.wrong, 'timing')} with wrong results, left out"


def _asked(test: PlacedTest) -> str:
    asked = _ASKED
    if "AMD" in (test.system.gpu or "").upper().split():
        only = "the reference set has NVIDIA GPUs only"
        asked = _ASKED | {"gpu": f"a system with {test.system.gpu} ({only})"}
    return listed([asked[name] for name in test.asked])


def _show_systems(test: PlacedTest, placement: Placement, out: Console) -> None:
    placed = placement.bandwidth
    at = f"GB/s at {format_bytes(placed.bytes)}:"
    systems = [*placed.systems, *placed.faults]
    words = f"{test.rule}. {at}"
    if placed.verdict is Verdict.NOTHING_ALIKE:
        systems = placement.nearest
        end = f"The nearest, {at}" if systems else "This GPU has no figure"
        words = f"none is: {test.rule}. {end}"
    if not test.rule or (not systems and placed.verdict is not Verdict.NOTHING_ALIKE):
        return
    hanging(out, f"{'alike':<{_INDENT}}", _INDENT, words)
    for item in systems[:_SYSTEMS]:
        hanging(out, f"{significant(item.busbw_gb_per_s):>9}  ", _INDENT, _figure(item))
    if len(systems) > _SYSTEMS:
        out.print(f"{'':{_INDENT}}and {len(systems) - _SYSTEMS} more (--json lists them)")


def _figure(item: SystemFigure) -> str:
    parts = [item.system, item.scale_text]
    if item.nic_gbps_per_gpu is not None:
        parts.append(f"{item.nic_gbps_per_gpu:g} Gbit/s a GPU")
    parts += [f"NCCL {', '.join(item.nccl)}"] if item.nccl else []
    if item.runs > 1:
        span = " to ".join(dict.fromkeys(map(significant, (item.low, item.high))))
        parts.append(f"median of {item.runs} runs ({span})")
    parts += [item.fault] if item.fault else []
    parts += [f"differs in {listed(item.unlike)}"] if item.unlike else []
    return f"{', '.join(parts)}: {item.sources[0]}"


def _show_sizes(sizes: list[SizeRange], out: Console) -> None:
    step = -(-len(sizes) // _SIZES)
    out.print()
    table = plain_table(">size", ">time us", ">GB/s", ">lowest", ">median", ">highest", ">systems")
    for row in reversed(sizes[::-1][::step]):
        numbers = (row.time_us, row.busbw_gb_per_s, row.low, row.median, row.high)
        table.add_row(format_bytes(row.bytes), *map(significant, numbers), str(len(row.systems)))
    out.print(table)
