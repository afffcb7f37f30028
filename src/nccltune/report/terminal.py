# SPDX-License-Identifier: Apache-2.0
"""Render the report for a terminal: shorter than the page, in the same order."""

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from nccltune.model.numbers import counted, gain_text, size_form
from nccltune.model.rule import RuleState
from nccltune.model.sizes import MAX_BYTES
from nccltune.report import words
from nccltune.report.data import (
    GroupRow,
    ProofGroupRow,
    ProofReport,
    ProofRuleRow,
    ProofSizeRow,
    Report,
    RuleRow,
    SizeRow,
)
from nccltune.report.remarks import EDGE_NOTE, GAIN_NOTE, REMARKS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_WIDTH = 120
"""The widest line in columns. Longer lines are hard to read, even on a wide terminal."""
NARROW = 66
"""A terminal with fewer columns gets two lines for each row of a table."""
INDENT = 11
_ASCII = str.maketrans(
    {"·": "-", "–": "-", "—": "-", "×": "x", "µ": "u", "…": "...", "’": "'", "“": '"', "”": '"'}
)
_TONES = {"gain": "bold green", "right": "bold green", "unknown": "bold yellow"}


def render(report: Report, console: "Console") -> None:
    """Print the report with the colour, width and encoding of `console`.

    No information depends on colour alone.
    """
    page = _Page(console)
    page.wrapped(report.verdict, style=_TONES[report.tone])
    page.blank()
    _facts(page, report)
    _sizes(page, report)
    if report.proof is not None:
        page.blank()
        page.wrapped("proof: default against tuned, in alternating order", style="bold")
        page.wrapped(report.proof.sentence, label="verify", indent=INDENT)
        page.wrapped(report.proof.how, label="measured", indent=INDENT)
        _proof(page, report.proof)
    _findings(page, report)
    _rules(page, report)
    _left_alone(page, report)
    _next(page, report)


def proof_tables(proof: ProofReport, console: "Console", *, brief: bool = False) -> None:
    """Print only the tables of a proof: the most informative sizes, then the rules.

    With `brief`, print the same sizes, but only the rules that do not hold.
    """
    _proof(_Page(console), proof, brief=brief)


class _Page:
    """A writer of styled text: single lines, and paragraphs wrapped to the width of the console.

    It writes plain ASCII if the console's encoding is not a UTF encoding.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console
        self.width = min(console.width, MAX_WIDTH)
        self.narrow = self.width < NARROW
        self._ascii = not console.encoding.lower().replace("-", "").startswith("utf")

    def line(self, *parts: "str | tuple[str, str]") -> None:
        """Print one line of parts, each plain or with a style. The line is never wrapped."""
        from rich.text import Text

        text = Text(no_wrap=True)
        for part in parts:
            if isinstance(part, tuple):
                text.append(self._safe(part[0]), style=part[1])
            else:
                text.append(self._safe(part))
        text.rstrip()
        self._put(text)

    def wrapped(self, text: str, *, label: str = "", style: str = "", indent: int = 0) -> None:
        """Print a paragraph; `label` precedes its first line, which starts at `indent`."""
        first, *others = textwrap.wrap(
            words.unbroken(self._safe(text)), max(20, self.width - indent), break_on_hyphens=False
        ) or [""]
        self.line((label.ljust(indent), "dim" if label else ""), (first, style))
        for other in others:
            self.line(" " * indent, (other, style))

    def heading(self, text: str) -> None:
        """Print a heading after an empty line."""
        self.blank()
        self.line((text, "bold"))

    def blank(self) -> None:
        """Print an empty line."""
        self.line("")

    def _safe(self, text: str) -> str:
        text = words.printable(text).replace("\u00a0", " ")
        if self._ascii:
            text = text.translate(_ASCII).encode("ascii", "replace").decode()
        return text

    def _put(self, text: "Text") -> None:
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)


def _facts(page: _Page, report: Report) -> None:
    if report.replay:
        page.wrapped(f"of {report.replay}", label="replay", indent=INDENT, style="yellow")
    for fact in report.facts:
        text = f"{fact.value} ({fact.note})" if fact.note else fact.value
        label = fact.label.split(" ")[0].lower()
        page.wrapped(text, label=label, indent=INDENT)
    for note in report.notes:
        page.wrapped(note.text, label="note", indent=INDENT, style="yellow")


def _sizes(page: _Page, report: Report) -> None:
    shown = [group for group in report.groups if group.rules and group.proven_gain is None]
    for group in shown:
        page.heading(group.label)
        rows = informative_sizes(group)
        form = size_form(row.bytes for row in rows)
        _size_heads(page, "tuned, expected")
        for row in rows:
            _size(page, row, form)
    if shown:
        page.blank()
        _gain_note(page)


def _size_heads(page: _Page, tuned: str) -> None:
    if page.narrow:
        page.line((f"{'size':>10}{'gain':>8}   95 % CI", "dim"))
        page.line((f"{'':>4}default -> {tuned}  choice", "dim"))
        return
    page.line((f"{'size':>10}{'default':>12}{tuned:>17}{'gain':>8}   {'95 % CI':<12}choice", "dim"))


def _size_line(
    page: _Page,
    cells: tuple[str, str, str, str],
    interval: str,
    choice: tuple[str, str],
    *,
    styles: tuple[str, str],
    note: tuple[str, str] = ("", ""),
) -> None:
    """Print one size.

    `cells` are size, default, tuned and gain; `styles` are for gain and interval.
    """
    size, default, tuned, gain = cells
    if not page.narrow:
        page.line(
            f"{size:>10}{default:>12}{tuned:>17}",
            (f"{gain:>8}", styles[0]),
            (f"   {interval:<12}", styles[1]),
            choice,
            note,
        )
        return
    page.line(f"{size:>10}", (f"{gain:>8}", styles[0]), (f"   {interval}", styles[1]))
    page.line(f"{'':>4}{default} -> {tuned}  ", choice)
    if note[0]:
        page.wrapped(note[0].strip(), indent=4, style=note[1])


def _gain_note(page: _Page) -> None:
    page.wrapped(GAIN_NOTE, style="dim")


def _size(page: _Page, row: SizeRow, form: Callable[[int], str]) -> None:
    default = "unknown" if row.default_us is None else words.time_text(row.default_us)
    gain, interval = _gain(row), _interval(row)
    if row.choice is None:
        gain, interval = ("" if row.default_us is None else "1.00x"), "left alone"
    if not row.compared:
        gain, interval = "", "not compared"
    _size_line(
        page,
        (form(row.bytes), default, words.time_text(row.tuned_us), gain),
        interval,
        (row.choice or "", ""),
        styles=("green", "") if row.choice else ("dim", "dim"),
    )


def informative_sizes(group: GroupRow) -> list[SizeRow]:
    """Return the most informative sizes of a group.

    For each rule these are the first size, the last size, the size with the largest gain, and the
    next size without a rule on each side.
    """
    kept = set()
    for rule in group.rules:
        inside = [
            index
            for index, row in enumerate(group.sizes)
            if rule.first_bytes <= row.bytes <= rule.last_bytes
        ]
        if not inside:
            continue
        best = max(inside, key=lambda index: group.sizes[index].gain or 1.0)
        kept |= {inside[0] - 1, inside[0], best, inside[-1], inside[-1] + 1}
    return [row for index, row in enumerate(group.sizes) if index in kept]


def _proof(page: _Page, proof: ProofReport, *, brief: bool = False) -> None:
    if proof.replay and not brief:
        page.wrapped(f"of {proof.replay}", label="replay", indent=INDENT, style="yellow")
    if proof.remark:
        page.wrapped(proof.remark, label="note", indent=INDENT, style="yellow")
    alike = False
    for group in proof.groups:
        rows = informative_proof(group)
        form = size_form(row.bytes for row in rows)
        if rows:
            page.heading(group.label)
            _size_heads(page, "tuned")
        for row in rows:
            _proof_size(page, form(row.bytes), row)
        alike |= len({form(row.bytes) for row in rows}) < len(rows)
    if any(informative_proof(group) for group in proof.groups):
        page.blank()
        _gain_note(page)
    if alike:
        page.wrapped(EDGE_NOTE, style="dim")
    rules = [rule for rule in proof.rules if not brief or rule.verdict != "holds"]
    if rules:
        page.blank()
    for rule in rules:
        _proof_rule(page, rule)


def informative_proof(group: ProofGroupRow) -> list[ProofSizeRow]:
    """Return the most informative sizes of a proof.

    For each range of adjacent sizes whose rule has the same choice, these are the first size, the
    last size, the size with the largest gain, and the next size on each side. Sizes that are
    slower, not decided or not what the default ran are always included. If no size has a rule, only
    sizes that are not what the default ran are returned.
    """
    rows = group.sizes
    if not any(row.choice for row in rows):
        return [row for row in rows if row.verdict == "not alike"]
    kept = {
        index for index, row in enumerate(rows) if row.verdict in ("slower", "not alike", "open")
    }
    runs: list[list[int]] = []
    for index, row in enumerate(rows):
        if index and rows[index - 1].choice == row.choice:
            runs[-1].append(index)
        else:
            runs.append([index])
    for run in runs:
        if rows[run[0]].choice:
            best = max(run, key=lambda index: rows[index].gain or 0.0)
            kept |= {run[0] - 1, run[0], best, run[-1], run[-1] + 1}
    return [row for index, row in enumerate(rows) if index in kept]


def _proof_size(page: _Page, size: str, row: ProofSizeRow) -> None:
    if row.default_us is None or row.tuned_us is None:
        page.wrapped(row.words, label=f"{size:>10}", indent=13, style="dim")
        return
    alone = row.verdict == "left alone"
    colour = {"slower": "red", "not alike": "red", "faster": "green"}.get(row.verdict, "dim")
    note = "" if row.verdict in ("faster", "left alone", "alike") else f"  {row.words}"
    _size_line(
        page,
        (size, words.time_text(row.default_us), words.time_text(row.tuned_us), _gain(row)),
        _interval(row),
        (row.words, "dim") if alone else (row.choice or "", ""),
        styles=(colour, "dim" if alone else ""),
        note=(note, colour),
    )


def _proof_rule(page: _Page, row: ProofRuleRow) -> None:
    colour = {"holds": "green", "removed": "red"}.get(row.verdict, "yellow")
    form = size_form((row.min_bytes, row.max_bytes))
    parts = [
        f"{row.group} {words.range_text(row.min_bytes, row.max_bytes, '-', form)} {row.choice}"
    ]
    if row.gain is not None:
        parts.append(gain_text(row.gain))
        parts.append(words.interval_text(row.gain_low, row.gain_high))
        per_size = words.per_size_text(row.least, row.most)
        parts += [f"({per_size})"] if per_size else []
        parts += [f"expected {row.expected:.2f}x"] if row.expected is not None else []
    page.wrapped(
        "  ".join(part for part in parts if part),
        label=row.verdict,
        indent=INDENT + 1,
        style=colour if row.verdict != "holds" else "",
    )
    if row.reason:
        page.wrapped(row.reason, indent=INDENT + 1, label="", style="dim")


def _findings(page: _Page, report: Report) -> None:
    page.heading("findings")
    if not report.findings:
        page.wrapped(report.no_shapes, indent=2)
    for finding in report.findings:
        where = f", {finding.where}" if finding.where else ""
        more = f" ({len(finding.more)} more like this: --json lists them)" if finding.more else ""
        page.wrapped(
            f"{finding.heading}{where}. {finding.sentence}{more}",
            label=f"{finding.number:>4}",
            indent=6,
            style=REMARKS[finding.kind].style,
        )
    if report.check_first:
        page.heading("check first, where tuning does not help")
        for number, step in enumerate(report.check_first, 1):
            page.wrapped(step, label=f"{number:>4}", indent=6)


def _rules(page: _Page, report: Report) -> None:
    page.heading("rules")
    if not any(group.rules for group in report.groups):
        page.wrapped("none: nothing is changed, and no file needs to be deployed", indent=2)
    for group in report.groups:
        if not group.rules:
            continue
        page.line(f"  {group.label}")
        form = size_form(end for rule in group.rules for end in (rule.min_bytes, rule.max_bytes))
        for rule in group.rules:
            _rule(page, rule, form)


def _rule(page: _Page, rule: RuleRow, form: Callable[[int], str]) -> None:
    interval = words.interval_text(rule.gain_low, rule.gain_high)
    sizes = f"{form(rule.min_bytes):>12} - {form(rule.max_bytes):<10}"
    if rule.max_bytes >= MAX_BYTES:
        sizes = f"{form(rule.min_bytes):>12} {'and more':<12}"
    state = (rule.state.value, "yellow" if rule.state is RuleState.CANDIDATE else "green")
    if page.narrow:
        page.line(f"  {sizes.strip()}  {rule.choice}")
        page.line("    ", (_gain(rule), "green"), f"  {interval}  " if interval else "  ", state)
    else:
        page.line(
            f"{sizes} {rule.choice:<16}",
            (_gain(rule), "green"),
            f"  {interval}   " if interval else "   ",
            state,
        )
    per_size = words.per_size_text(rule.least, rule.most)
    parts = [per_size] if per_size else []
    parts += [words.sms_text(rule.channels, rule.default_channels)]
    parts += [rule.reason, counted(rule.timings, "timing")]
    indent = 4 if page.narrow else 26
    page.wrapped("; ".join(parts), indent=indent, style="dim")
    if rule.decided_by:
        page.wrapped(f"to decide: {rule.decided_by}", indent=indent)


def _left_alone(page: _Page, report: Report) -> None:
    groups = [group for group in report.groups if group.left_alone]
    if not groups:
        return
    page.heading("sizes without a rule")
    for group in groups:
        page.line(f"  {group.label}")
        form = size_form(
            end for left in group.left_alone for end in (left.min_bytes, left.max_bytes)
        )
        for left in group.left_alone:
            sizes = words.range_text(left.min_bytes, left.max_bytes, "-", form)
            if page.narrow:
                page.line(("    " + sizes, "dim"))
                page.wrapped(left.reason, indent=6)
            else:
                page.wrapped(left.reason, label=f"{sizes:>24}", indent=26)


def _next(page: _Page, report: Report) -> None:
    if report.remarks:
        page.heading("how it was measured")
        for remark in report.remarks:
            page.wrapped(remark.replace("`", ""), label="   -", indent=6)
    page.heading("next")
    commands = report.commands
    for label, command in (
        ("prove", commands.prove),
        ("deploy", commands.deploy),
        ("rebuild", commands.rebuild),
        ("measure", commands.reproduce),
    ):
        if command:
            # Users copy the command, so it must stay on one line.
            page.line((f"  {label:<9}", "dim"), command)
    page.wrapped(commands.reproduce_note, indent=11, style="dim")


def _gain(row: SizeRow | RuleRow | ProofSizeRow) -> str:
    return "unknown" if row.gain is None else f"{row.gain:.2f}x"


def _interval(row: SizeRow | RuleRow | ProofSizeRow | ProofRuleRow) -> str:
    if row.gain_low is None or row.gain_high is None:
        return ""
    return f"{row.gain_low:.2f}-{row.gain_high:.2f}"
