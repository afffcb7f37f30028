# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune tune`: rules, and sizes without a rule."""

from pathlib import Path

from nccltune.app.tune import SavedTuning, verify_command
from nccltune.cli.output import hanging, hint, next_step, stdout, styled
from nccltune.cli.rule_screen import counted_rules, left_alone_words, rule_words
from nccltune.model.numbers import size_form
from nccltune.model.rule import RuleState
from nccltune.model.scale import count
from nccltune.report.words import range_text
from nccltune.study.files import Study
from nccltune.tune.result import TunedGroup, Tuning, ran_instead

_NARROW = 66
"""On a terminal with fewer columns, a range takes two lines."""


def show_result(found: SavedTuning, study: Path, wrote: str) -> None:
    """Print the tuning, the text `wrote` about the written file, and the next step."""
    tuning = found.tuning
    show(tuning)
    for words in found.left_out:
        hanging(stdout(), "left out   ", 11, words, "dim")
    stdout().print(f"{wrote} ({counted_rules(tuning)}). {left_alone_words(tuning)}".rstrip())
    next_after_tune(tuning, study)


def next_after_tune(tuning: Tuning, study: Path) -> None:
    """Print the next step: prove the rules, measure choices, or read the report."""
    ruled = [group for group in tuning.groups if group.rules]
    left = [item for group in tuning.groups for item in group.left_alone]
    states = {item.state for group in ruled for item in group.rules}
    if states - {RuleState.PROVEN}:
        words = "prove them: " if RuleState.CANDIDATE in states else ""
        hint(f"next: {words}{verify_command(Study(study), tuning)}")
    elif not ruled and not any(item.compared for item in left):
        hint(
            "next: measure other choices beside the default: nccltune sweep -o STUDY, or import "
            "runs with NCCL_ALGO and NCCL_PROTO set"
        )
    else:
        next_step("nccltune report", study)


def show(tuning: Tuning) -> None:
    """Print the rules and the sizes without a rule, in a block for each collective and scale."""
    for group in tuning.groups:
        _show_group(group)


def _show_group(group: TunedGroup) -> None:
    out = stdout()
    heading = (
        f"{group.collective.value:<14}{group.scale}, "
        f"{group.calls_title + ', ' if group.calls_title else ''}"
        f"{count(len(group.decisions), 'size')}, {count(group.rounds, 'round')}"
    )
    if all(row.default_us is None for row in group.decisions):
        heading += ", default not measured"
    out.print(styled((heading, "bold")))
    lines = []
    for item in group.rules:
        replaced = ran_instead([row for row in group.decisions if row.bytes in item.sizes])
        instead = f"  instead of {', '.join(replaced)}" if replaced else ""
        rule = item.rule
        words = rule_words(item) + instead
        lines.append((rule.min_bytes, rule.max_bytes, rule.choice.label, words))
    lines += [(item.min_bytes, item.max_bytes, "default", item.reason) for item in group.left_alone]
    form = size_form(end for low, high, _, _ in lines for end in (low, high))
    for low, high, choice, words in sorted(lines):
        sizes, style = range_text(low, high, "-", form), "dim" if choice == "default" else ""
        if out.width < _NARROW:
            out.print(styled(f"  {sizes}  ", (choice, "bold")))
            hanging(out, "    ", 4, words, style)
        else:
            first, rest = form(low), sizes.removeprefix(form(low)).strip()
            lead = f"{first:>9} {rest:<11} {choice:<16}"
            hanging(out, lead, len(lead), words, style)
    for item in group.rules:
        if item.state is RuleState.CANDIDATE and item.gain is not None:
            words = f"{range_text(item.rule.min_bytes, item.rule.max_bytes, '-', form)}: "
            words += item.reason + (
                f"; runs that decide: {item.decided_by}" if item.decided_by else ""
            )
            hanging(out, (f"{'candidate':<11}", "yellow"), 11, words)
