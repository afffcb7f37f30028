# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: find problems of one or many nodes, with evidence and remedies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import FILE, PATH, output_option
from nccltune.cli.output import (
    hanging,
    hint,
    is_json,
    print_json,
    print_result,
    stdout,
    warn_unsaved,
    write_exact,
)
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.report.words import printable

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.doctor.result import Evidence, Examination, RuleResult
    from nccltune.doctor.rule import DoctorRule

EPILOG = """\b
Examples:
  nccltune doctor
  nccltune doctor nccl.log job.sbatch topo.xml
  nccltune doctor --collect-script > collect.sh   # run it on every node, then:
  nccltune doctor collected/ --html checks.html
  nccltune doctor --fix-script > fix.sh
  nccltune doctor --rule gdr-read
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("paths", nargs=-1, type=PATH, metavar="[FOLDER|FILES...]")
@click.option("--all", "show_all", is_flag=True, help="Show every rule, not only the findings.")
@click.option("--html", help="Write one HTML page, too.", **FILE)
@click.option("--fix-script", is_flag=True, help="Print what would be changed; change nothing.")
@click.option("--rule", metavar="ID", help="Explain one rule by its name or number.")
@output_option("study", "the study that keeps the result, and what the platform is.")
@click.option(
    "--collect",
    type=PATH,
    metavar="FOLDER",
    help="Only write this node's files into FOLDER, to be read elsewhere.",
)
@click.option("--collect-script", is_flag=True, help="Print a shell script that collects so.")
def command(
    paths: tuple[Path, ...],
    show_all: bool,
    html: Path | None,
    fix_script: bool,
    rule: str | None,
    study: Path | None,
    collect: Path | None,
    collect_script: bool,
    dry_run: bool,
) -> int:
    """Check this node, or collected files of many, against the rule base.

    Without arguments it looks at this node. FILES (an NCCL log, job files, a topology, test
    results; - for standard input) are looked at besides, and those of another host alone. A FOLDER
    holds what was collected, a folder a node. Nothing is changed. Exit code 1 for an error or a
    warning that was found; notes alone are no reason.
    """
    from nccltune.app import doctor
    from nccltune.doctor.evidence.gather import collect_to
    from nccltune.doctor.evidence.script import collect_script as script_to_collect
    from nccltune.doctor.rulebase import rule_base
    from nccltune.doctor.script import fix_script as script_to_fix

    alone = {"--rule": rule, "--collect": collect, "--collect-script": collect_script or None}
    _check([name for name, value in alone.items() if value is not None], fix_script, paths)
    if rule is not None:
        found = rule_base().rule(rule)
        document = {"family": found.family, "needs": sorted(found.needs), "rule": found.text}
        print_result(document, explain, stdout(), found)
        return 0
    if collect_script:
        script = script_to_collect()
        print_result({"script": script}, click.echo, script, nl=False)
        return 0
    if collect is not None:
        path = collect if dry_run else collect_to(collect)
        words = f"Would collect this node's files into {path}." if dry_run else f"collected  {path}"
        print_result({"collected": str(path)}, stdout().print, words)
        return 0
    with working("looking at the nodes"):
        checked = doctor.examine_paths(paths)
    examined = checked.examination
    if checked.files_alone:
        hint("looked at the files alone, not at this node")
    if study is not None and not dry_run:
        unsaved = doctor.keep(checked, study)
        warn_unsaved(unsaved)
        if not unsaved:
            hint(f"wrote {study / 'platform.json'} and doctor.json")
    if html is not None and not dry_run:
        doctor.write_page(examined, html)
    if fix_script:
        write_exact(script_to_fix(examined))
    elif is_json():
        print_json(examined)
    else:
        show(stdout(), examined, everything=show_all)
        if html is not None:
            stdout().print(f"{'Would write' if dry_run else 'page      '} {html}")
    return int(examined.is_wrong)


def _check(alone: list[str], fix_script: bool, paths: tuple[Path, ...]) -> None:
    """Raise InputError if one of `alone` is given beside others, --fix-script or paths."""
    from nccltune.model.errors import InputError

    if len(alone) > 1:
        raise InputError(f"{alone[0]} and {alone[1]} are two different things; take one")
    if alone and (fix_script or paths):
        raise InputError(f"{alone[0]} takes neither --fix-script nor files")
    if fix_script and is_json():
        raise InputError("--fix-script prints a script, and --json has its lines; take one")


_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_INDENT = 12
_SHOWN = 6


def show(out: Console, examined: Examination, *, everything: bool) -> None:
    """Print the whole screen. `everything` also lists the rules without a finding."""
    from nccltune.doctor.result import RuleVerdict
    from nccltune.doctor.summary import (
        count_words,
        deciding_words,
        node_words,
        unused_words,
        verdict_words,
    )

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
    if judged.check:
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
    from nccltune.doctor.result import node_names, read_words

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
    from nccltune.doctor.examine import link

    text = rule.text
    number = f", {text.number}" if text.number is not None else ""
    style = _STYLES[text.severity.value]
    _line(out, (text.severity.value, style),
          f"{text.title}  ({rule.id}{number})", "bold")  # fmt: skip
    compared = f"{text.compare.what}: {text.compare.value}" if text.compare else None
    if text.compare is not None and text.compare.tolerance is not None:
        compared = f"{compared}, not {text.compare.tolerance:.0%} below the median"
    commands = "\n".join(f"$ {line}" for line in text.commands)
    for lead, words in (
        ("looks at", f"each {text.scope.value}" if text.scope == "node" else "nodes together"),
        ("needs", ", ".join(rule.asked)),
        ("applies", text.applies),
        ("NCCL", text.nccl.words if text.nccl else None),
        ("finding", text.finding or compared or f"the function {text.code}"),
        ("evidence", text.evidence),
        ("check", text.check),
        ("remedy", text.remedy),
        ("", "\n".join(f"if {where}: {words}" for where, words in text.also)),
        ("", commands),
        ("cost", text.cost),
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
