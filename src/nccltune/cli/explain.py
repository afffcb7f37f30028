# SPDX-License-Identifier: Apache-2.0
"""`nccltune explain`: list what any tuner plugin decides, without running NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nccltune.cli.options import FILE, PATH, binds, option, scale_options
from nccltune.cli.output import hanging, print_result, stdout, styled
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.model.numbers import size_form
from nccltune.report.words import sms_text

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.explain import ExplainRequest
    from nccltune.tune.explain import DecidedRange, ExplainResult

EPILOG = """\b
Examples:
  nccltune explain studies/h200x4
  nccltune explain --tuner /opt/site/libnccl-tuner.so --nodes 4 --ranks 32
"""


@verb(epilog=EPILOG)
@click.argument("config", required=False, type=PATH, metavar="[STUDY|CONFIG|FILE]")
@click.option("--tuner", help="Any tuner plugin  [default: ours]", **FILE)
@option("--nccl-version", more=" to play  [default: that of the rules]")
@scale_options(" of the communicator.")
@option("--collectives", default=None, more="  [default: those with rules, else all]")
@option("--sizes", default="1K-1G", more=" to ask about.")
@option("--registered", more=", or in a CUDA graph.")
@option(
    "--pipe-ops",
    more=", as NCCL passes them: numPipeOps.",
    default=1,
    show_default=True,
    advanced=True,
)
@binds(request="nccltune.app.explain:ExplainRequest")
def command(request: ExplainRequest, sizes: str) -> None:
    """Load a tuner plugin as NCCL would and print what it decides, to the byte.

    The argument is a study, a tuner configuration, or a file of measurements, whose rules are found
    first; the plugin reads them through NCCL_TUNER_CONFIG_FILE. The plugin runs in a process of its
    own: one that crashes or hangs is named and does no harm. `default` means that NCCL decides.
    """
    from nccltune.app.explain import explain_config
    from nccltune.model.sizes import parse_range

    with working("asking the plugin"):
        found = explain_config(request._replace(sizes=parse_range(sizes)))
    print_result({"explained": found}, show, found)


_NARROW = 66
"""On a terminal with fewer columns, a range takes two lines."""


def show(explained: list[ExplainResult]) -> None:
    """Print the decisions at each scale."""
    out = stdout()
    for item in explained:
        _show(out, item)


def _show(out: Console, item: ExplainResult) -> None:
    interface = "" if item.interface is None else f" (interface v{item.interface})"
    hanging(out, f"{'plugin':<11}", 11, f"{item.tuner}{interface}, as NCCL {item.nccl} loads it")
    for line in item.log:
        style = "yellow" if line.level == "WARN" else "dim"
        hanging(out, (f"{line.level.lower():<11}", style), 11, line.text, style)
    for warning in item.warnings:
        hanging(out, (f"{'warning':<11}", "yellow"), 11, warning, "yellow")
    if item.asked:
        words = f"{item.asked} sizes of each collective: a narrower range between two can be missed"
        hanging(out, (f"{'asked':<11}", "dim"), 11, words, "dim")
    for collective, ranges in item.collectives.items():
        out.print(styled((f"{collective.value:<14}{item.scale}", "bold")))
        form = size_form(end for one in ranges for end in (one.min_bytes, one.max_bytes))
        for one in ranges:
            low, high = form(one.min_bytes), form(one.max_bytes)
            style = "dim" if one.decides == "default" else "green"
            state = f"  {one.state}" if one.state else ""
            ends = "-".join(map(str, dict.fromkeys((one.min_bytes, one.max_bytes))))
            exact = f"{ends} bytes{_sms(one)}{state}{_ran(one)}"
            if out.width < _NARROW:
                out.print(styled(f"{low:>9} - {high:<9} ", (one.decides, style)))
                hanging(out, " " * 4, 4, exact, "dim")
            else:
                lead = f"{low:>9} - {high:<9} {one.decides:<14}  "
                hanging(out, (lead, style), len(lead), exact, "dim")
            for warning in dict.fromkeys(one.warnings):
                out.print(styled(f"{'':>22}", (warning, "yellow")))
        if collective in item.why_default:
            hanging(out, " " * 4, 4, item.why_default[collective], "dim")


def _ran(one: DecidedRange) -> str:
    if not one.default_ran:
        return ""
    verb = "NCCL ran" if one.decides == "default" else "instead of"
    return f"  {verb} {', '.join(one.default_ran)}"


def _sms(one: DecidedRange) -> str:
    """Return the SMs of a decision; empty if the plugin fails or their number is unknown."""
    if one.decides == "default":
        return "" if one.channels is None else f"  SMs {one.channels}"
    return "" if one.decides == "fails" else "  " + sms_text(one.channels, one.default_channels)
