# SPDX-License-Identifier: Apache-2.0
"""The report for a terminal: the page's order, condensed."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nccltune.model.finding import FindingKind
from nccltune.model.sizes import format_bytes
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

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_WIDTH = 120
"""Longer lines are hard to read, however wide the terminal is."""
INDENT = 11
_SIZE_HEADS = f"{'size':>10}{'default':>12}{'tuned':>12}{'gain':>8}   {'95 % CI':<12}choice"
_ASCII = str.maketrans(
    {"·": "-", "–": "-", "—": "-", "×": "x", "µ": "u", "…": "...", "’": "'", "“": '"', "”": '"'}
)
_COLOUR = {
    "gain": "bold green",
    "right": "bold green",
    "unknown": "bold yellow",
    FindingKind.BAD_CROSSOVER: "yellow",
    FindingKind.DIP: "yellow",
    FindingKind.PLATEAU: "yellow",
    FindingKind.NOT_A_TUNING_PROBLEM: "red",
    FindingKind.BELOW_EXPECTED: "red",
    FindingKind.AS_EXPECTED: "green",
    FindingKind.WRONG_RESULTS: "bold red",
    FindingKind.SUSPECT_RUN: "bold red",
}


def render(report: Report, console: "Console") -> None:
    """Print the report. Colour, width and encoding are those of `console`; nothing depends on
    colour alone."""
    page = _Page(console)
    page.wrapped(report.verdict, style=_COLOUR[report.tone])
    page.blank()
    _facts(page, report)
    _sizes(page, report)
    if report.proof is not None:
        page.heading("proof: default against tuned, interleaved in one run")
        page.wrapped(report.proof.sentence, label="verify", indent=INDENT)
        page.wrapped(report.proof.how, label="measured", indent=INDENT)
        _proof(page, report.proof)
    _findings(page, report)
    _rules(page, report)
    _left_alone(page, report)
    _next(page, report)


def size_table(report: Report, console: "Console") -> None:
    """Print only the table of default and tuned times at the sizes that tell most."""
    _sizes(_Page(console), report)


def proof_tables(proof: ProofReport, console: "Console", *, brief: bool = False) -> None:
    """Print only the tables of a proof: sizes that tell most, then the rules (if `brief` those
    that do not hold)."""
    _proof(_Page(console), proof, brief=brief)


class _Page:
    """Writes wrapped, coloured lines; without UTF-8 in plain ASCII."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self.width = min(console.width, MAX_WIDTH)
        self._ascii = not console.encoding.lower().replace("-", "").startswith("utf")

    def line(self, *parts: "str | tuple[str, str]") -> None:
        """One line of parts, each plain or with a style; never wrapped."""
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
        """A paragraph; `label` stands before its first line, which starts at `indent`."""
        first, *others = textwrap.wrap(
            words.unbroken(self._safe(text)), max(20, self.width - indent), break_on_hyphens=False
        ) or [""]
        self.line((label.ljust(indent), "dim" if label else ""), (first, style))
        for other in others:
            self.line(" " * indent, (other, style))

    def heading(self, text: str) -> None:
        """A heading with a line of space before it."""
        self.blank()
        self.line((text, "bold"))

    def blank(self) -> None:
        """An empty line."""
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
    for group in report.groups:
        if group.rules:
            page.heading(group.label)
            page.line((_SIZE_HEADS, "dim"))
            for row in telling_sizes(group):
                _size(page, row)


def _size(page: _Page, row: SizeRow) -> None:
    default = "unknown" if row.default_us is None else words.time_text(row.default_us)
    gain, interval = _gain(row), _interval(row)
    if row.choice is None:
        gain, interval = ("" if row.default_us is None else "1.00x"), "left alone"
    page.line(
        f"{format_bytes(row.bytes):>10}{default:>12}{words.time_text(row.tuned_us):>12}",
        (f"{gain:>8}", "green" if row.choice else "dim"),
        (f"   {interval:<12}", "" if row.choice else "dim"),
        row.choice or "",
    )


def telling_sizes(group: GroupRow) -> list[SizeRow]:
    """The sizes worth a line: of each rule the first, the last and the one it helps most, and the
    size left alone on either side."""
    kept = set()
    for rule in group.rules:
        inside = [
            index
            for index, row in enumerate(group.sizes)
            if rule.first_bytes <= row.bytes <= rule.last_bytes
        ]
        best = max(inside, key=lambda index: group.sizes[index].gain or 1.0)
        kept |= {inside[0] - 1, inside[0], best, inside[-1], inside[-1] + 1}
    return [row for index, row in enumerate(group.sizes) if index in kept]


def _proof(page: _Page, proof: ProofReport, *, brief: bool = False) -> None:
    if proof.replay and not brief:
        page.wrapped(f"of {proof.replay}", label="replay", indent=INDENT, style="yellow")
    if proof.remark:
        page.wrapped(proof.remark, label="note", indent=INDENT, style="yellow")
    for group in proof.groups:
        rows = telling_proof(group)
        if rows:
            page.heading(group.label)
            page.line((_SIZE_HEADS, "dim"))
        for label, row in zip(_size_labels(rows), rows, strict=True):
            _proof_size(page, label, row)
    rules = [rule for rule in proof.rules if not brief or rule.verdict != "holds"]
    if rules:
        page.blank()
    for rule in rules:
        _proof_rule(page, rule)


def telling_proof(group: ProofGroupRow) -> list[ProofSizeRow]:
    """The sizes of a proof worth a line: of each run of one choice the first, the last and the one
    that gains most, the sizes left alone on either side, and whatever is not as it should be."""
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


def _size_labels(rows: Sequence[ProofSizeRow]) -> list[str]:
    """Sizes for people; in bytes where two of them, on both sides of an edge, look alike."""
    short = [format_bytes(row.bytes) for row in rows]
    return [
        f"{row.bytes} B" if short.count(label) > 1 else label
        for row, label in zip(rows, short, strict=True)
    ]


def _proof_size(page: _Page, size: str, row: ProofSizeRow) -> None:
    if row.default_us is None or row.tuned_us is None:
        page.line(f"{size:>10}   ", (row.words, "dim"))
        return
    alone = row.verdict == "left alone"
    colour = {"slower": "red", "not alike": "red", "faster": "green"}.get(row.verdict, "dim")
    note = "" if row.verdict in ("faster", "left alone", "alike") else f"  {row.words}"
    page.line(
        f"{size:>10}{words.time_text(row.default_us):>12}{words.time_text(row.tuned_us):>12}",
        (f"{_gain(row):>8}", colour),
        (f"   {_interval(row):<12}", "dim" if alone else ""),
        (row.words, "dim") if alone else row.choice or "",
        (note, colour),
    )


def _proof_rule(page: _Page, row: ProofRuleRow) -> None:
    colour = {"holds": "green", "removed": "red"}.get(row.verdict, "yellow")
    sizes = words.range_text(row.min_bytes, row.max_bytes, "-")
    gain = "" if row.gain is None else f"{row.gain:.2f}x ({_interval(row)})"
    expected = "" if row.expected is None or row.gain is None else f", expected {row.expected:.2f}x"
    page.wrapped(
        f"{row.group} {sizes} {row.choice} {gain}{expected}",
        label=row.verdict,
        indent=INDENT + 1,
        style=colour if row.verdict != "holds" else "",
    )
    if row.reason:
        page.wrapped(row.reason, indent=INDENT + 1, label="", style="dim")


def _findings(page: _Page, report: Report) -> None:
    page.heading("findings")
    if not report.findings:
        page.line("  nothing: the curves are as they should be")
    for finding in report.findings:
        where = f", {finding.where}" if finding.where else ""
        page.wrapped(
            f"{finding.heading}{where}. {finding.sentence}",
            label=f"{finding.number:>4}",
            indent=6,
            style=_COLOUR.get(finding.kind, ""),
        )
    if report.check_first:
        page.heading("check first (not a tuning problem)")
        for number, step in enumerate(report.check_first, 1):
            page.wrapped(step, label=f"{number:>4}", indent=6)


def _rules(page: _Page, report: Report) -> None:
    page.heading("rules")
    if not any(group.rules for group in report.groups):
        page.line("  none: nothing is changed, and no file needs to be deployed")
    for group in report.groups:
        if not group.rules:
            continue
        page.line(f"  {group.label}")
        for rule in group.rules:
            _rule(page, rule)


def _rule(page: _Page, rule: RuleRow) -> None:
    interval = _interval(rule)
    low, high = format_bytes(rule.min_bytes), format_bytes(rule.max_bytes)
    page.line(
        f"{low:>12} - {high:<10} {rule.choice:<16}",
        (_gain(rule), "green"),
        f"  {interval}   " if interval else "   ",
        ("sure", "green") if rule.sure else ("not sure", "yellow"),
    )
    page.wrapped(f"{rule.reason}; {words.counted(rule.timings, 'timing')}", indent=26, style="dim")


def _left_alone(page: _Page, report: Report) -> None:
    groups = [group for group in report.groups if group.left_alone]
    if not groups:
        return
    page.heading("left alone on purpose")
    for group in groups:
        page.line(f"  {group.label}")
        for left in group.left_alone:
            sizes = words.range_text(left.min_bytes, left.max_bytes, "-")
            page.wrapped(left.reason, label=f"{sizes:>24}", indent=26)


def _next(page: _Page, report: Report) -> None:
    if report.remarks:
        page.heading("how it was measured")
        for remark in report.remarks:
            page.wrapped(remark, label="   -", indent=6)
    page.heading("next")
    commands = report.commands
    for label, command in (("deploy", commands.deploy), ("reproduce", commands.reproduce)):
        if command:
            # A command is copied: it must not be cut into lines.
            page.line((f"  {label:<11}", "dim"), command)


def _gain(row: SizeRow | RuleRow | ProofSizeRow) -> str:
    return "unknown" if row.gain is None else f"{row.gain:.2f}x"


def _interval(row: SizeRow | RuleRow | ProofSizeRow | ProofRuleRow) -> str:
    if row.gain_low is None or row.gain_high is None:
        return ""
    return f"{row.gain_low:.2f}-{row.gain_high:.2f}"
