# SPDX-License-Identifier: Apache-2.0
"""`nccltune tune`: from a study to a few rules."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.context import STUDY, open_sorted, options_from, tune_options
from nccltune.cli.output import (
    hanging,
    json_option,
    next_step,
    print_json,
    saving,
    stdout,
    styled,
    working,
)

if TYPE_CHECKING:
    from nccltune.tune.result import RuleEvidence, TunedGroup, Tuning

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
"""
_NARROW = 66
"""Below this many columns a range takes two lines."""


@click.command(epilog=EPILOG)
@STUDY
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The configuration to write  [default: STUDY/tuner.conf]",
)
@tune_options
@json_option()
def command(study: Path, output: Path | None, as_json: bool, **options: Any) -> None:
    """Find the few size ranges in which a choice beats NCCL's default beyond noise.

    Writes a tuner configuration (NVIDIA's CSV, read by our plugin and by NVIDIA's example) and
    the evidence for each rule to STUDY/tuning.json. A rule is judged over its whole range of sizes.
    All other sizes keep NCCL's default.
    """
    from datetime import UTC, datetime

    from nccltune.model.scale import count
    from nccltune.tune.study import tune, write

    with working("searching rules"):
        opened, found = open_sorted(study)
        tuning = tune(
            opened.name,
            opened.platform(),
            found,
            options_from(options),
            created=datetime.now(UTC).date().isoformat(),
        )
    with saving(output) as saved:
        tuning = write(opened, tuning, output)
    path = output or opened.config_path
    if as_json:
        print_json(tuning)
        return
    show(tuning)
    rules = count(len(tuning.rules), "rule")
    # A file that the user named was written, or there was an error.
    verb = f"Wrote {path}" if saved.done or output is not None else "Not saved"
    stdout().print(f"{verb} ({rules}). {left_alone_words(tuning)}", markup=False)
    next_step("nccltune report", study)


def show(tuning: "Tuning") -> None:
    """The rules and what was left alone, a block for every collective and scale."""
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


def rule_words(item: "RuleEvidence") -> str:
    """Return a rule's gain, its interval, the gains of single sizes, whether it is sure, and its
    SMs: `1.21x  95 % CI 1.15-1.28  (per size 1.03-1.43)  sure  SMs 16 (default 24)`."""
    from nccltune.report.words import gain_text, interval_text, per_size_text, sms_text

    parts = ["gain unknown" if item.gain is None else gain_text(item.gain)]
    parts.append(interval_text(item.gain_low, item.gain_high))
    per_size = per_size_text(item.least, item.most)
    parts += [f"({per_size})"] if per_size else []
    parts.append("sure" if item.sure else "not sure")
    parts += [] if item.written else ["not written"]
    parts.append(sms_text(item.channels, item.default_channels))
    return "  ".join(part for part in parts if part)


def left_alone_words(tuning: "Tuning") -> str:
    """How many of the sizes have no rule."""
    sizes = sum(len(group.decisions) for group in tuning.groups)
    alone = sum(item.sizes for group in tuning.groups for item in group.left_alone)
    return f"Left alone on purpose: {alone} of {sizes} sizes."
