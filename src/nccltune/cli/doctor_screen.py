# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune doctor` on a terminal: the verdict, the findings, and rules in full."""

from rich.console import Console

from nccltune.cli.output import hanging
from nccltune.doctor.result import (
    Evidence,
    Examination,
    RuleResult,
    RuleVerdict,
    node_names,
    read_words,
)
from nccltune.doctor.rule import DoctorRule
from nccltune.doctor.sources import link
from nccltune.doctor.summary import (
    count_words,
    deciding_words,
    node_words,
    unused_words,
    verdict_words,
)
from nccltune.report.words import printable

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_INDENT = 12
_SHOWN = 6


def show(out: Console, examined: Examination, *, everything: bool) -> None:
    """Print the whole screen. `everything` also lists the rules without a finding."""
    many = len(examined.nodes) > 1
    findings = examined.of(RuleVerdict.FINDING)
    colour = "green" if not findings else "yellow" if not examined.is_wrong else "red"
    words = f"{verdict_words(examined)} · {count_words(examined)}"
    _line(out, ("verdict", f"bold {colour}"), words)
    _line(out, ("looked at", "bold"), node_words(examined))
    _show_unused(out, unused_words(examined), everything=everything)
    for judged in findings:
        out.print()
        _show_finding(out, judged, many=many, everything=everything)
    if everything:
        out.print()
        for verdict in (RuleVerdict.CANNOT_TELL, RuleVerdict.OK, RuleVerdict.NOT_APPLICABLE):
            for judged in examined.of(verdict):
                _show_other(out, judged)
        for node in examined.nodes:
            for problem in node.unread:
                _line(out, ("unread", "dim"), f"{node.name}: {problem}", "dim")
    deciding = deciding_words(examined)
    if deciding:
        out.print()
        _line(out, ("undecided", "dim"), deciding, "dim")


def _show_unused(out: Console, lines: list[str], *, everything: bool) -> None:
    shown = lines if everything else lines[:_SHOWN]
    for number, line in enumerate(shown):
        lead = "not used" if number == 0 else ""
        _line(out, (lead, "yellow"), line)
    if len(lines) > len(shown):
        _line(out, "", f"and {len(lines) - len(shown)} more: --all")


def _show_finding(out: Console, judged: RuleResult, *, many: bool, everything: bool) -> None:
    severity = judged.severity.value
    style = _STYLES[severity]
    number = f", {judged.number}" if judged.number is not None else ""
    title = f"{judged.title}  ({judged.rule}{number})"
    _line(out, (severity, style), title, "bold")
    evidence = judged.evidence if everything else judged.evidence[:_SHOWN]
    for index, item in enumerate(evidence):
        lead = "evidence" if index == 0 else ""
        _line(out, (f"  {lead}", "dim"), _evidence_words(item, many=many))
    left = len(judged.evidence) - len(evidence)
    if left:
        _line(out, "", f"and {left} more: --all")
    _line(out, ("  check", "dim"), judged.check)
    _line(out, ("  remedy", "dim"), judged.remedy)
    for line in judged.commands:
        _line(out, "", f"$ {line}")
    if judged.cost:
        _line(out, ("  cost", "dim"), judged.cost)
    # Leave out URLs, because they are long. `--rule`, the HTML page and `--json` have them.
    short = [text.partition(" (https://")[0] for text in judged.source]
    source = "; ".join(short) + (f"; NCCL {judged.nccl}" if judged.nccl else "")
    _line(out, ("  source", "dim"), source, "dim")


def _evidence_words(item: Evidence, *, many: bool) -> str:
    where = f" — {node_names(item.nodes)}" if many and item.nodes else ""
    read = f"  [{read_words(item.read)}]" if item.read else ""
    return f"{item.text}{where}{read}"


def _show_other(out: Console, judged: RuleResult) -> None:
    verdict = judged.verdict.value.replace("_", " ")
    verdict = {"not applicable": "no matter"}.get(verdict, verdict)
    style = {"ok": "green", "cannot tell": "yellow"}.get(verdict, "dim")
    why = f": not known: {', '.join(judged.missing)}" if judged.missing else ""
    _line(out, (verdict, style), f"{judged.title}  ({judged.rule}){why}")


def explain(out: Console, rule: DoctorRule) -> None:
    """Print one rule in full."""
    text = rule.text
    number = f", {text.number}" if text.number is not None else ""
    style = _STYLES[text.severity.value]
    _line(out, (text.severity.value, style),
          f"{text.title}  ({rule.id}{number})", "bold")  # fmt: skip
    compared = f"{text.compare.what}: {text.compare.value}" if text.compare else None
    if text.compare is not None and text.compare.tolerance is not None:
        compared = f"{compared}, not {text.compare.tolerance:.0%} below the median"
    commands = "\n".join(f"$ {line}" for line in text.remedy.commands)
    for lead, words in (
        ("looks at", f"each {text.scope.value}" if text.scope == "node" else "nodes together"),
        ("needs", ", ".join(rule.asked)),
        ("applies", text.applies),
        ("NCCL", text.nccl.words if text.nccl else None),
        ("finding", text.finding or compared or f"the function {text.code}"),
        ("evidence", text.evidence),
        ("check", text.check),
        ("remedy", text.remedy.text),
        ("", commands),
        ("cost", text.remedy.cost),
        ("by hand", text.by_hand),
    ):
        for at, part in enumerate((words or "").splitlines()):
            shown = lead if at == 0 else ""
            _line(out, (shown, "dim"), part)
    for line in text.fix:
        _line(out, ("script", "dim"), line)
    for source in text.source:
        _line(out, ("source", "dim"), link(source))


def _line(out: Console, lead: str | tuple[str, str], words: str, style: str = "") -> None:
    plain, colour = (lead, "") if isinstance(lead, str) else lead
    # Evidence is text of other programs. Its escape sequences must not reach the terminal.

    hanging(out, (plain.ljust(_INDENT), colour), _INDENT, printable(words), style)
