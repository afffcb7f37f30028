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
    from rich.text import Text

    from nccltune.tune.result import TunedGroup, Tuning

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
"""


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
    the evidence for each rule to STUDY/tuning.json. Everything else is left as NCCL has it.
    """
    from datetime import UTC, datetime

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
    rules = len(tuning.rules)
    # A file that the user named was written, or there was an error.
    verb = f"Wrote {path}" if saved.done or output is not None else "Not saved"
    stdout().print(
        f"{verb} ({rules} rule{'' if rules == 1 else 's'}). {left_alone_words(tuning)}",
        markup=False,
    )
    next_step("nccltune report", study)


def show(tuning: "Tuning") -> None:
    """The rules and what was left alone, a block for every collective and scale."""
    for group in tuning.groups:
        _show_group(group)


def _show_group(group: "TunedGroup") -> None:
    from nccltune.model.scale import count
    from nccltune.model.sizes import format_bytes

    out = stdout()
    heading = (
        f"{group.collective.value:<14}{group.scale}, {count(len(group.decisions), 'size')}, "
        f"{count(group.rounds, 'round')}"
    )
    out.print(styled((f"{heading}", "bold")))
    lines: list[tuple[int, int, str, Text]] = []
    for item in group.rules:
        if item.gain is None or item.least is None or item.most is None:
            gain = styled(("gain unknown", "dim"))
        else:
            interval = f"  ({item.least:.2f}-{item.most:.2f})"
            gain = styled((f"{item.gain:.2f}x", "green"), interval)
        sure = ("sure", "") if item.sure else ("not sure", "yellow")
        gain.append("   ").append(*sure)
        lines.append((item.rule.min_bytes, item.rule.max_bytes, item.rule.choice.label, gain))
    lines += [
        (item.min_bytes, item.max_bytes, "default", styled(item.reason))
        for item in group.left_alone
    ]
    for low, high, choice, words in sorted(lines, key=lambda line: line[:3]):
        end = "" if low == high else f"- {format_bytes(high)}"
        lead = f"{format_bytes(low):>9} {end:<11} {choice:<16}"
        if choice == "default":
            hanging(out, lead, len(lead), words.plain, "dim")
        else:
            out.print(styled(lead).append_text(words))
    if any(not item.sure for item in group.rules):
        out.print(styled((f"{'':>22}not sure: {group.rules[0].reason}", "yellow")))


def left_alone_words(tuning: "Tuning") -> str:
    """How many of the sizes have no rule."""
    sizes = sum(len(group.decisions) for group in tuning.groups)
    alone = sum(item.sizes for group in tuning.groups for item in group.left_alone)
    return f"Left alone on purpose: {alone} of {sizes} sizes."
