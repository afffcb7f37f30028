# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune analyze`: curves in numbers, and findings."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from nccltune.analyze.compared import Comparison, comparisons, is_right
from nccltune.analyze.default_runs import is_before, ran_text
from nccltune.analyze.result import Analysis, Condition, ConditionAnalysis
from nccltune.analyze.stats import MIN_ROUNDS
from nccltune.app.analyze import Analyzed, AnalyzedInput
from nccltune.app.compare import FleetCompared
from nccltune.cli.compare_screen import show as show_compared
from nccltune.cli.import_screen import UPDATE_FIRST, next_of_cause, show_read
from nccltune.cli.output import hanging, hint, plain_table, stdout, styled
from nccltune.formats.reading.platform_facts import joined
from nccltune.model.finding import FindingKind
from nccltune.model.numbers import counted, percent_text, size_form
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.report.remarks import REMARKS, grouped
from nccltune.report.words import no_shapes, range_text, rate_text

_GAP = 4
"""Neighbouring sizes with a larger ratio leave a gap in the curve."""
_MANY = 3
"""The most sets of runs of a fleet whose curves are all printed."""
_NARROW = 66
"""On a terminal with fewer columns a finding starts on its own line."""


def show(found: AnalyzedInput, path: Path, stated: str = "") -> None:
    """Print the runs side by side, curves, findings, what was not read, and the next step.

    `stated` are the options, each after a space, that a next command must repeat.
    """
    out = stdout()
    if found.compared is not None:
        show_compared(found.compared)
    shown = _shown(found)
    for number, part in enumerate(shown):
        analysis = part.analysis
        if part.of:
            first = found.compared is None and not number
            out.print(styled("" if first else "\n", ("runs       ", "bold"), part.of))
        elif found.compared is not None:
            out.print("")
        # Where a file has runs of several programs, its version is that of one of them.
        version = None if part.foreign else analysis.platform.nccl_version
        title = msgspec.structs.replace(analysis.platform, nccl_version=version).title
        if "RCCL" in part.of:
            title = title.replace("NCCL ", "RCCL ")
        unnamed = found.imported is not None and title == analysis.platform.name
        hanging(out, "platform   ", 11, "unknown" if unnamed else title)
        if (settings := analysis.platform.settings) and analysis.platform.recorded_at is None:
            listed = joined([f"{name}={value}" for name, value in settings.items()], 8)
            hanging(out, "settings   ", 11, listed)
        if analysis.platform.replay:
            hanging(out, "replay     ", 11, f"of {analysis.platform.replay}")
        compared = show_analysis(analysis, out, foreign=part.foreign)
        for line in _scale_lines(analysis) if found.compared is None and not part.foreign else ():
            hanging(out, ("scales     ", "bold"), 11, line)
    if len(shown) < len(found.parts):
        of = f"{len(found.parts) - len(shown)} of {counted(len(found.parts), 'set')} of runs"
        text = f"not shown for {of}: no clear dip, plateau or falling time; of one file"
        out.print("")
        hanging(out, "curves     ", 11, f"{text}: nccltune analyze FILE")
    if found.imported is not None:
        # What is doubtful is a finding of a single part.
        show_read(found.imported, doubtful=len(found.parts) > 1)
    if len(found.parts) == 1:
        _next(analysis, compared, path, part.measure, stated, is_study=found.imported is None)


def _shown(found: AnalyzedInput) -> list[Analyzed]:
    """Return the parts to print: of a fleet with many only those with a finding of their own."""
    if not isinstance(found.compared, FleetCompared) or len(found.parts) <= _MANY:
        return found.parts
    kinds = {FindingKind.NOT_COMPARED, FindingKind.NOT_SATURATED}
    return [part for part in found.parts if {x.kind for x in part.analysis.findings} - kinds]


def show_analysis(analysis: Analysis, out: Console, *, foreign: bool = False) -> list[Comparison]:
    """Print the curves, the findings and what was compared; return what was compared.

    Of `foreign` runs, which by their name may be of another program, nothing is said of a default.
    """
    _show_conditions(analysis, out)
    if not foreign:
        _show_ran(analysis, out)
    modelled = [(item.title, item.model.sentence) for item in analysis.conditions if item.model]
    _show_lines(out, "model", modelled)
    _show_findings(analysis, out)
    found = comparisons(analysis)
    lines = [(item.where, item.text) for item in found]
    if foreign:
        lines = [("", "with nothing: by their name these runs may not be of NCCL")]
    _show_lines(out, "compared", lines)
    return found


def _scale_lines(analysis: Analysis) -> Iterator[str]:
    """Yield the bus bandwidths of each test of several scales at their largest common size."""
    tests: dict[Condition, list[ConditionAnalysis]] = {}
    for item in analysis.conditions:
        if item.condition.scale.nodes and not item.condition.in_place:
            test = msgspec.structs.replace(item.condition, scale=Scale(0, 0))
            tests.setdefault(test, []).append(item)
    for items in tests.values():
        curves = [{point.bytes: point for point in item.shown.points} for item in items]
        common = set(curves[0]).intersection(*curves)
        if len(items) < 2 or not common or len({item.shown.choice for item in items}) > 1:
            continue
        size = max(common)
        rates = [curve[size].busbw_gb_per_s for curve in curves]
        listed = [
            f"{item.title} {rate_text(rate)}" for item, rate in zip(items, rates, strict=True)
        ]
        if min(rates) > 0:
            ratio = (
                f", {rates[-1] / rates[0]:.2f} times that of the first" if len(rates) == 2 else ""
            )
            yield f"bus bandwidth at {format_bytes(size)}: {'; '.join(listed)}{ratio}"


def _next(
    analysis: Analysis,
    found: Sequence[Comparison],
    path: Path,
    measure: str,
    stated: str,
    *,
    is_study: bool,
) -> None:
    tuned = [item.compared for item in found if item.conditions[0].condition.collective.tuned]
    where = shlex.quote(str(path))
    given = "" if is_study else where + stated
    again = f"nccltune import FILES -o {where}" if is_study else f"nccltune import {given}"
    more = again if is_study else f"{again} FILES -o STUDY"
    kinds = {item.kind for item in analysis.findings}
    wrong, doubts = FindingKind.WRONG_RESULTS in kinds, [x.sentence for x in analysis.findings]
    if cause := next_of_cause(wrong, doubts, path, is_study):
        hint(cause)
    elif FindingKind.BELOW_EXPECTED in kinds:
        hint("next: nccltune doctor  # on the machines that were measured")
    elif not any(item.condition.scale.nodes for item in analysis.conditions):
        ranks = " --ranks N" * (not all(item.condition.scale.ranks for item in analysis.conditions))
        # An import again needs what may have been stated with the first one.
        names = {item.condition.collective.value for item in analysis.conditions}
        named = f" --collective {names.pop()}" if is_study and len(names) == 1 else ""
        command = again if is_study else f"nccltune analyze {given}"
        hint(f"next: {command}{named} --nodes N{ranks}")
    elif not tuned:
        hint(f"next: nccltune report {where}" if is_study else f"next: nccltune compare {given}")
    elif any(item.choices[1] > (not item.has_default) for item in tuned):
        hint(f"next: nccltune tune {given or where}")
    elif not any(item.has_default for item in tuned):
        hint(f"next: run again without the forced choice, and {more}")
    elif is_before(analysis.platform.nccl_version):
        hint(UPDATE_FIRST)
    else:
        if not is_study:
            across = any(item.condition.scale.nodes > 1 for item in analysis.conditions)
            facts = " --gpu NAME" * (not analysis.platform.gpu) + " --nics NICSxGBIT" * across
            such = "" if not across else " (NICs of a node x Gbit/s, such as 8x400)"
            hint(f"next: nccltune compare {given}{facts}  # is it normal?{such}")
        hint(f"next: run again with NCCL_ALGO and NCCL_PROTO forced, and {more}")
        if measure:
            hint(f"next: or let nccltune measure the choices, on the same machines: {measure}")


def _show_ran(analysis: Analysis, out: Console) -> None:
    lines = [
        (item.title, text)
        for item in analysis.conditions
        if item.condition.collective.tuned and (text := ran_text(item, analysis.platform))
    ]
    _show_lines(out, "default", lines)


def _show_lines(out: Console, label: str, lines: Sequence[tuple[str, str]]) -> None:
    """Print texts with their places, or a single line if all texts are equal."""
    if len({text for _, text in lines}) == 1:
        hanging(out, (f"{label:<11}", "bold"), 11, lines[0][1])
        return
    for where, text in lines:
        hanging(out, (f"{label:<11}", "bold"), 11, f"{where}: {text}")


def _show_conditions(analysis: Analysis, out: Console) -> None:
    ends = [(item.sizes[0], item.sizes[-1]) for item in analysis.conditions]
    tops = [item.saturation for item in analysis.conditions if item.saturation is not None]
    whole = size_form(size for pair in ends for size in pair)
    half = size_form(top.half_bytes for top in tops)
    ninety = size_form(top.ninety_bytes for top in tops)
    table = plain_table(
        "<collective", ">sizes", ">rounds", ">peak", ">half at", ">90 % at", ">noise"
    )
    for item, (first, last) in zip(analysis.conditions, ends, strict=True):
        top = item.saturation
        few = "few rounds" if 1 < item.rounds < MIN_ROUNDS else "unknown"
        noise = percent_text(item.noise.typical) if item.noise.known else few
        sizes = range_text(first, last, "-", whole)
        table.add_row(
            item.title,
            sizes,
            str(item.rounds),
            _peak(item),
            _reached(top.half_bytes, item.sizes, half) if top else "",
            _reached(top.ninety_bytes, item.sizes, ninety) if top else "",
            noise,
        )
    out.print(table)


def _peak(item: ConditionAnalysis) -> str:
    """Return the highest bus bandwidth; of an unknown number of ranks algbw, if that needs none."""
    points = item.shown.points
    if (most := max(point.busbw_gb_per_s for point in points)) > 0:
        return rate_text(most)
    if item.condition.collective.counts_per_rank or item.condition.scale.ranks:
        return ""
    return f"{rate_text(max(point.bytes / (point.time_us * 1e3) for point in points))} (algbw)"


def _curve_text(analysis: Analysis) -> str:
    found = no_shapes(
        max((len(item.sizes) for item in analysis.conditions), default=0),
        rates=all(item.saturation is not None for item in analysis.conditions),
        known=all(item.noise.known for item in analysis.conditions),
    )
    return f"curve      {found}"


def _reached(size: int, sizes: Sequence[int], form: Callable[[int], str]) -> str:
    """Return a size; `<= 1 GiB` for the first one and above a gap, where none was measured."""
    at = sizes.index(size)
    gap = at == 0 or size > _GAP * sizes[at - 1]
    return f"<= {form(size)}" if gap else form(size)


def _show_findings(analysis: Analysis, out: Console) -> None:
    shown = [item for item in analysis.findings if item.kind is not FindingKind.NOT_COMPARED]
    for alike in grouped(shown):
        label = alike.first.kind.value.replace("_", " ")
        style = REMARKS[alike.first.kind].style or "dim"
        sentence = alike.first.sentence
        sentence += f" ({alike.more}: --json lists them)" if alike.others else ""
        if out.width < _NARROW:
            out.print(styled((label, style)))
            hanging(out, "  ", 2, sentence)
        else:
            hanging(out, (f"{label:<22}", style), 22, sentence)
    if is_right(analysis) and not shown:
        out.print("nothing found: the default is right at every size measured")
    elif not shown:
        out.print(_curve_text(analysis))
