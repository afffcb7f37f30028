# SPDX-License-Identifier: Apache-2.0
"""`nccltune tune`: from a study to a few rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccltune.cli.options import STUDY, options_from, output_option, tune_options
from nccltune.cli.output import hanging, next_step, print_json, saving, stdout, styled
from nccltune.cli.progress import working
from nccltune.cli.rule_screen import rule_words
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.tune.result import TunedGroup, Tuning

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
"""
_NARROW = 66
"""Below this width in columns a range takes two lines."""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@output_option("output", "the configuration  [default: STUDY/tuner.conf]", metavar="FILE")
@tune_options()
def command(study: Path, output: Path | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Find the few size ranges in which a choice beats NCCL's default beyond noise.

    Writes a tuner configuration (NVIDIA's CSV, read by our plugin and by NVIDIA's example) and
    the evidence for each rule to STUDY/tuning.json. A rule is judged over its whole range of sizes.
    All other sizes keep NCCL's default.
    """
    from nccltune.app.tune import save_tuning, tune_path
    from nccltune.model.scale import count

    with working("searching rules"):
        opened, tuning = tune_path(study, options_from(options))
    is_saved = False
    if not dry_run:
        with saving(output) as saved:
            tuning = save_tuning(opened, tuning, output)
        # Writing a file that the user named either succeeded or raised an error.
        is_saved = saved.done or output is not None
    path = output or opened.config_path
    if as_json:
        print_json(tuning)
        return
    show(tuning)
    rules = count(len(tuning.rules), "rule")
    wrote = f"Wrote {path}" if is_saved else f"Would write {path}" if dry_run else "Not saved"
    stdout().print(f"{wrote} ({rules}). {left_alone_words(tuning)}")
    next_step("nccltune report", study)


def show(tuning: "Tuning") -> None:
    """Print the rules and the sizes left alone, in a block for each collective and scale."""
    for group in tuning.groups:
        _show_group(group)


def _show_group(group: "TunedGroup") -> None:
    from nccltune.model.scale import count
    from nccltune.report.words import range_text, size_form

    out = stdout()
    heading = (
        f"{group.collective.value:<14}{group.scale}, {count(len(group.decisions), 'size')}, "
        f"{count(group.rounds, 'round')}"
    )
    out.print(styled((heading, "bold")))
    lines = [
        (item.rule.min_bytes, item.rule.max_bytes, item.rule.choice.label, rule_words(item))
        for item in group.rules
    ]
    lines += [(item.min_bytes, item.max_bytes, "default", item.reason) for item in group.left_alone]
    form = size_form(end for low, high, _, _ in lines for end in (low, high))
    for low, high, choice, words in sorted(lines):
        sizes, style = range_text(low, high, "-", form), "dim" if choice == "default" else ""
        if out.width < _NARROW:
            out.print(styled(f"  {sizes}  ", (choice, "bold")))
            hanging(out, "    ", 4, words, style)
        else:
            first, _, rest = sizes.partition(" - ")
            lead = f"{first:>9} {'- ' + rest if rest else '':<11} {choice:<16}"
            hanging(out, lead, len(lead), words, style)
    for item in group.rules:
        if not item.sure:
            words = f"{range_text(item.rule.min_bytes, item.rule.max_bytes, '-', form)}: "
            words += item.reason + (
                f"; runs that decide: {item.decided_by}" if item.decided_by else ""
            )
            hanging(out, (f"{'not sure':<11}", "yellow"), 11, words)


def left_alone_words(tuning: "Tuning") -> str:
    """Return how many sizes have no rule."""
    sizes = sum(len(group.decisions) for group in tuning.groups)
    alone = sum(item.sizes for group in tuning.groups for item in group.left_alone)
    return f"Left alone on purpose: {alone} of {sizes} sizes."
