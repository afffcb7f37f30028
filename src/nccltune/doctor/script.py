# SPDX-License-Identifier: Apache-2.0
"""Make a shell script that fixes the findings. nccltune prints the script and never runs it."""

import shlex
import textwrap

import nccltune
from nccltune.doctor.result import Examination, Fix, RuleResult, RuleVerdict, node_names


def fix_script(examined: Examination) -> str:
    """Return the script: shell lines for findings that a script can fix, comments for the others.

    For several nodes, the lines of a fix run only on the hosts of the finding. So the same script
    may be run on all nodes.
    """
    lines = [
        "#!/bin/sh",
        f"# What nccltune {nccltune.__version__} would change, from {_one_line(examined.source)}.",
        "# Nothing was changed. Read it, take out what you do not want, and run it as root.",
        "set -eu",
    ]
    findings = examined.of(RuleVerdict.FINDING)
    for judged in findings:
        lines += ["", *_comment(f"{judged.severity}: {judged.title} ({judged.rule})")]
        if not judged.fix:
            lines += _comment(f"By hand: {judged.remedy}")
        elif judged.cost:
            lines += _comment(f"Cost: {judged.cost}")
        for fix in judged.fix:
            lines += _guarded(examined, fix)
        if judged.fix and not any(fix.lines for fix in judged.fix):
            lines += _comment(_nothing(judged))
    if not findings:
        lines += ["", "# Nothing was found, so there is nothing to change."]
    return "\n".join(lines) + "\n"


def _nothing(judged: RuleResult) -> str:
    return f"No line for this one: {judged.remedy}"


def _guarded(examined: Examination, fix: Fix) -> list[str]:
    if len(examined.nodes) == 1:
        return list(fix.lines)
    names = "|".join(shlex.quote(name) for name in fix.nodes)
    return [
        f"# on {_one_line(node_names(fix.nodes))}",
        'case "$(hostname)" in',
        f"{names})",
        *(f"  {line}" for line in fix.lines),
        "  ;;",
        "esac",
    ]


def _comment(words: str) -> list[str]:
    return textwrap.wrap(
        _one_line(words), 96, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def _one_line(words: str) -> str:
    """Return text for a shell comment. A line break would end the comment and becomes `?`."""
    return "".join(char if char.isprintable() else "?" for char in words)
