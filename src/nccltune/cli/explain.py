# SPDX-License-Identifier: Apache-2.0
"""`nccltune explain`: what any tuner plugin decides, offline."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import nccl_version_option, scale_options
from nccltune.cli.output import print_json, stdout, styled
from nccltune.cli.progress import working
from nccltune.cli.size_options import collectives_from, explained_collectives, sizes_option
from nccltune.cli.verb import AdvancedOption, verb

if TYPE_CHECKING:
    from nccltune.tune.explain import DecidedRange, Explained

EPILOG = """\b
Examples:
  nccltune explain studies/h200x4
  nccltune explain --tuner /opt/site/libnccl-tuner.so --nodes 4 --ranks 32
"""
_NARROW = 66
"""Below this width in columns a range takes two lines."""


@verb(epilog=EPILOG)
@click.argument("config", required=False, type=click.Path(path_type=Path), metavar="[STUDY|CONFIG]")
@click.option(
    "--tuner",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Any tuner plugin  [default: ours]",
)
@nccl_version_option(" to play  [default: that of the rules]")
@scale_options(" of the communicator.")
@explained_collectives()
@sizes_option("1K-1G", " to ask about.")
@click.option("--registered", is_flag=True, help="As for registered buffers or a CUDA graph.")
@click.option(
    "--pipe-ops",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    cls=AdvancedOption,
    help="Operations that NCCL announces to pipeline.",
)
def command(
    config: Path | None,
    tuner: Path | None,
    nccl_version: str | None,
    nodes: int | None,
    ranks: int | None,
    collectives: str | None,
    sizes: str,
    registered: bool,
    pipe_ops: int,
    as_json: bool,
) -> None:
    """Load a tuner plugin as NCCL would and print what it decides, to the byte.

    The argument is a study or a tuner configuration; the plugin reads it through
    NCCL_TUNER_CONFIG_FILE. The plugin runs in a process of its own: one that crashes or hangs is
    named and does no harm. `default` means that NCCL decides.
    """
    from nccltune.app.explain import ExplainRequest, explain_config
    from nccltune.model.sizes import parse_range

    request = ExplainRequest(
        config=config,
        tuner=tuner,
        nccl_version=nccl_version,
        nodes=nodes,
        ranks=ranks,
        collectives=None if collectives is None else collectives_from(collectives),
        sizes=parse_range(sizes),
        registered=registered,
        pipe_ops=pipe_ops,
    )
    with working("asking the plugin"):
        found = explain_config(request)
    if as_json:
        print_json({"explained": found})
        return
    for item in found:
        _show(item)


def _sms(one: "DecidedRange") -> str:
    """Return the SMs of a decision.

    It is empty if the choice fails, or if NCCL decides and the number of SMs is unknown.
    """
    from nccltune.report.words import sms_text

    if one.decides == "default":
        return "" if one.channels is None else f"  SMs {one.channels}"
    return "" if one.decides == "fails" else "  " + sms_text(one.channels, one.default_channels)


def _show(item: "Explained") -> None:
    from nccltune.report.words import size_form

    out = stdout()
    interface = "" if item.interface is None else f" (interface v{item.interface})"
    out.print(f"plugin     {item.tuner}{interface}, as NCCL {item.nccl} loads it")
    for line in item.log:
        style = "yellow" if line.level == "WARN" else "dim"
        out.print(styled((f"{line.level.lower():<11}{line.text}", style)))
    for warning in item.warnings:
        out.print(styled((f"{'warning':<11}{warning}", "yellow")))
    for collective, ranges in item.collectives.items():
        out.print(styled((f"{collective.value:<14}{item.scale}", "bold")))
        form = size_form(end for one in ranges for end in (one.min_bytes, one.max_bytes))
        for one in ranges:
            low, high = form(one.min_bytes), form(one.max_bytes)
            style = "dim" if one.decides == "default" else "green"
            exact = f"{one.min_bytes}-{one.max_bytes} bytes{_sms(one)}"
            if out.width < _NARROW:
                out.print(styled(f"{low:>9} - {high:<9} ", (one.decides, style)))
                out.print(styled((f"{'':>4}{exact}", "dim")))
            else:
                out.print(
                    styled(f"{low:>9} - {high:<9} ", (f"{one.decides:<16}", style), (exact, "dim"))
                )
            for warning in dict.fromkeys(one.warnings):
                out.print(styled(f"{'':>22}", (warning, "yellow")))
