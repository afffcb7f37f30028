# SPDX-License-Identifier: Apache-2.0
"""`nccltune tune`: find the rules of a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import STUDY, binds, option, output_option, tune_options
from nccltune.cli.output import hanging, hint, next_step, print_result, stdout, styled, warn_unsaved
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.model.numbers import size_form
from nccltune.model.rule import RuleState
from nccltune.model.scale import count
from nccltune.report.words import range_text

if TYPE_CHECKING:
    from nccltune.app.tune import SavedTuning
    from nccltune.tune.result import TunedGroup, TuneOptions, Tuning

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
  nccltune tune studies/h200x4 --workload traces/
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@output_option("output", "the configuration  [default: STUDY/tuner.conf]", metavar="FILE")
@option("--workload")
@tune_options()
@binds(options="nccltune.tune.result:TuneOptions")
def command(study: Path, options: TuneOptions, output: Path | None, dry_run: bool) -> None:
    """Find the few size ranges in which a choice beats NCCL's default beyond noise.

    Writes a tuner configuration (NVIDIA's CSV, read by our plugin and by NVIDIA's example) and
    the evidence for each rule to STUDY/tuning.json. A rule is judged over its whole range of sizes.
    All other sizes keep NCCL's default.
    """
    from msgspec import to_builtins

    from nccltune.app.tune import tune_path

    with working("searching rules"):
        found = tune_path(study, options, output, save=not dry_run)
    warn_unsaved(found.unsaved)
    # An error in writing a file that the user named is raised. So with `output`, `unsaved` can only
    # have an error about STUDY/tuning.json.
    is_saved = not dry_run and (output is not None or not found.unsaved)
    wrote = f"Wrote {found.config}" if is_saved else "Not saved"
    wrote = f"Would write {found.config}" if dry_run else wrote
    document = {**to_builtins(found.tuning), "left_out": [*found.left_out]}
    print_result(document, show_result, found, study, wrote)


_NARROW = 66
"""On a terminal with fewer columns, a range takes two lines."""


def show_result(found: SavedTuning, study: Path, wrote: str) -> None:
    """Print the tuning, the text `wrote` about the written file, and the next step."""
    from nccltune.cli.rule_screen import counted_rules, left_alone_words
    from nccltune.cli.worth_screen import show_worth

    tuning = found.tuning
    show(tuning)
    if tuning.worth is not None:
        show_worth(tuning.worth)
    for words in found.left_out:
        hanging(stdout(), "left out   ", 11, words, "dim")
    stdout().print(f"{wrote} ({counted_rules(tuning)}). {left_alone_words(tuning)}".rstrip())
    next_after_tune(tuning, study)


def next_after_tune(tuning: Tuning, study: Path) -> None:
    """Print the next step: prove the rules, measure choices, or read the report."""
    from nccltune.app.tune import verify_command
    from nccltune.study.files import Study

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
    from nccltune.cli.rule_screen import rule_words
    from nccltune.tune.result import ran_instead

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
