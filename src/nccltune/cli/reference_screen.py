# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune compare` for one measurement among reference systems."""

from rich.console import Console
from rich.table import Table

from nccltune.app.compare_reference import RING_SHARE, PlacedTest, ReferenceCompared
from nccltune.cli.output import hanging, harmless, hint, stdout, warn
from nccltune.model.numbers import percent_text, significant
from nccltune.model.sizes import format_bytes
from nccltune.reference.placement import Placed, SystemFigure, Verdict
from nccltune.report.words import listed, rate_text

_LABELS = {
    Verdict.LOW: ("low        ", "red"),
    Verdict.BELOW: ("normal     ", "yellow"),
    Verdict.BETWEEN: ("normal     ", "green"),
    Verdict.ABOVE: ("normal     ", "green"),
    Verdict.UNDECIDED: ("undecided  ", "yellow"),
    Verdict.NOTHING_ALIKE: ("not known  ", "yellow"),
}
_ASKED = {
    "gpu": "--gpu H100 (the log does not show the GPU model)",
    "nodes": "--nodes 2 (the log does not show the number of nodes)",
    "ranks": "--ranks 16 (the log does not show the number of ranks)",
    "nics": "--nics 8x400 (NICs of a node and their Gbit/s, which a table does not show)",
}
_SYSTEMS = 8
_SIZES = 10
_CAUSES = 6


def show_placed(found: ReferenceCompared) -> None:
    """Print the verdict of each collective first, then systems and sizes."""
    out = stdout()
    for number, test in enumerate(found.tests):
        if number:
            out.print()
        _show_test(test, out)
    warn(found.warnings[:_CAUSES])
    if found.added is not None:
        hint(f"{found.added} curves added")
    if found.has_finding:
        hint(f"next: nccltune doctor {found.name}")


def placed_line(found: ReferenceCompared) -> str:
    """Return the verdicts in one line."""
    return harmless("; ".join(_line(test) for test in found.tests))


def _line(test: PlacedTest) -> str:
    on = f" on {_system(test)}" if _system(test) else ""
    if test.placement is None:
        return f"{test.collective.prose}{on}: {_asked(test)}"
    parts = [test.placement.bandwidth.sentence, *test.placement.by_rate]
    if test.ceiling is not None:
        parts.append(f"ceiling {rate_text(test.ceiling.gb_per_s)}")
    elif test.nics is not None:
        parts.append(_nics(test))
    parts += [f"needed: {_asked(test)}"] if test.missing else []
    return f"{test.collective.prose}{on}: {'; '.join(parts)}"


def _show_test(test: PlacedTest, out: Console) -> None:
    _show_verdict(test, out)
    placement = test.placement
    if placement is None:
        return
    systems, size = placement.bandwidth.systems, format_bytes(placement.bandwidth.bytes)
    if systems:
        hanging(out, "alike      ", 11, f"{test.rule}. GB/s at {size}:")
        _show_systems([*systems, *placement.bandwidth.faults], out)
    elif placement.bandwidth.verdict is Verdict.NOTHING_ALIKE:
        nearest = f"The nearest, GB/s at {size}:" if placement.nearest else "This GPU has no figure"
        hanging(out, "alike      ", 11, f"none is: {test.rule}. {nearest}")
        _show_systems(placement.nearest, out)
    if len(placement.sizes) > 1:
        _show_sizes(test, out)


def _show_verdict(test: PlacedTest, out: Console) -> None:
    name = test.title + (", in place" if test.in_place else "")
    hanging(out, "test       ", 11, f"{name} ({test.run})")
    if _system(test):
        hanging(out, "system     ", 11, _system(test))
    placement = test.placement
    if placement is not None:
        _show_placed(placement.bandwidth, out)
        for words in placement.by_rate:
            hanging(out, "           ", 11, words)
        if placement.latency is not None:
            _show_placed(placement.latency, out)
    if test.nics is not None:
        hanging(out, "NICs       ", 11, _nics(test))
    if test.ceiling is not None:
        sure = "" if test.ceiling.sure else "; a bandwidth in the topology is assumed"
        share = percent_text(test.ceiling.share)
        words = f"{rate_text(test.ceiling.gb_per_s)}, {share} of it reached: {test.ceiling.limit}"
        hanging(out, "ceiling    ", 11, words + sure)
    if test.missing:
        hanging(out, "needed     ", 11, _asked(test))
    label = "cause      " if test.is_low else "notice     "
    for words in test.causes[:_CAUSES]:
        hanging(out, label, 11, words)


def _system(test: PlacedTest) -> str:
    system = test.system
    each = "" if system.gpus_per_node is None else f"{system.gpus_per_node:g} "
    nodes = f"{system.nodes} x " if (system.nodes or 1) > 1 else ""
    parts = [f"{nodes}{each}{system.gpu}"] if system.gpu else []
    if test.nics is not None:
        parts.append(f"{test.nics.nics} x {test.nics.gbit_per_s:g} Gbit/s a node")
    parts += [f"NCCL {test.nccl}"] if test.nccl else []
    return " · ".join(parts)


def _show_placed(placed: Placed, out: Console) -> None:
    hanging(out, _LABELS[placed.verdict], 11, placed.sentence)


def _nics(test: PlacedTest) -> str:
    assert test.nics is not None
    one = test.nics
    lead = f"{one.nics} x {one.gbit_per_s:g} Gbit/s are {rate_text(one.gb_per_s)} a node"
    if not one.is_possible:
        return f"{lead}. The run has more than these NICs carry: check --nics"
    words = (
        f"{lead}, {percent_text(one.share)} of it reached; "
        f"a ring reaches about {percent_text(RING_SHARE)}"
    )
    return words + (", a tree on two nodes more" if test.system.nodes == 2 else "")


def _asked(test: PlacedTest) -> str:
    return listed([_ASKED[name] for name in test.missing])


def _show_systems(systems: list[SystemFigure], out: Console) -> None:
    for item in systems[:_SYSTEMS]:
        hanging(out, f"{significant(item.busbw_gb_per_s):>9}  ", 11, _figure(item))
    if len(systems) > _SYSTEMS:
        out.print(f"           and {len(systems) - _SYSTEMS} more (--json lists them)")


def _figure(item: SystemFigure) -> str:
    parts = [item.system, item.scale_text]
    if item.nic_gbps_per_gpu is not None:
        parts.append(f"{item.nic_gbps_per_gpu:g} Gbit/s a GPU")
    parts += [f"NCCL {', '.join(item.nccl)}"] if item.nccl else []
    if item.runs > 1:
        span = f"{significant(item.low)} to {significant(item.high)}"
        parts.append(f"median of {item.runs} runs, {span}")
    parts += [item.fault] if item.fault else []
    parts += [f"differs in {listed(item.unlike)}"] if item.unlike else []
    return f"{', '.join(parts)}: {item.sources[0]}"


def _show_sizes(test: PlacedTest, out: Console) -> None:
    assert test.placement is not None
    rows = test.placement.sizes
    step = -(-len(rows) // _SIZES)
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("size", "time us", "GB/s", "lowest", "median", "highest", "systems"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in reversed(rows[::-1][::step]):
        numbers = (row.time_us, row.busbw_gb_per_s, row.low, row.median, row.high)
        table.add_row(format_bytes(row.bytes), *map(significant, numbers), str(len(row.systems)))
    out.print(table)
