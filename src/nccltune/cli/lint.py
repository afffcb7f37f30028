# SPDX-License-Identifier: Apache-2.0
"""`nccltune lint`: check a tuner configuration."""

from pathlib import Path

import click

from nccltune.cli.output import json_option, next_step, print_json, stdout, styled

EPILOG = """\b
Examples:
  nccltune lint studies/h200x4
  nccltune lint /etc/nccl-tuner.conf --json
"""


@click.command(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@json_option()
def command(config: Path, as_json: bool) -> int:
    """Check a tuner configuration, or the one of a study.

    Lines that cannot be read, gaps, overlaps, rules that never apply, suspicious units, and what
    NVIDIA's example plugin would read differently. Exit code 1 if anything is wrong; notes alone
    are no reason.
    """
    from nccltune.formats.tuner_csv import read_rules
    from nccltune.model.scale import count
    from nccltune.tune.lint import LintIssue, NumberedRule, Severity, lint_rules

    path = config / "tuner.conf" if config.is_dir() else config
    read = read_rules(path)
    issues = [
        LintIssue(Severity.ERROR, "unreadable", problem.line, problem.message, problem.hint)
        for problem in read.problems
    ]
    issues += [
        LintIssue(Severity.NOTE, "nvidia", note.line, note.message, note.hint)
        for note in read.notes
    ]
    issues += lint_rules(
        [NumberedRule(item.line, item.rule) for item in read.rules], read.header.get("nccl")
    )
    bad = [issue for issue in issues if issue.severity is not Severity.NOTE]
    if as_json:
        print_json({"config": str(path), "rules": len(read.rules), "issues": issues})
        return int(bool(bad))
    out = stdout()
    styles = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
    for issue in issues:
        where = f"{path}:{issue.line}" if issue.line else str(path)
        style = styles[issue.severity]
        out.print(styled(f"{where}: ", (f"{issue.severity.value}", style), f": {issue.message}"))
        if issue.hint:
            out.print(styled("  ", ("hint:", "cyan"), f" {issue.hint}"))
    words = count(len(read.rules), "rule")
    if bad:
        errors = sum(issue.severity is Severity.ERROR for issue in issues)
        out.print(f"{words}, {count(errors, 'error')}, {count(len(bad) - errors, 'warning')}")
    else:
        out.print(f"{words}, nothing wrong")
        next_step("nccltune explain", config)
    return int(bool(bad))
