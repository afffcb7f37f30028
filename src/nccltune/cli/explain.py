# SPDX-License-Identifier: Apache-2.0
"""`nccltune explain`: list what any tuner plugin decides, without running NCCL."""

from typing import Any

import click

from nccltune.cli.options import FILE, PATH, option, scale_options
from nccltune.cli.output import print_result
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune explain studies/h200x4
  nccltune explain --tuner /opt/site/libnccl-tuner.so --nodes 4 --ranks 32
"""


@verb(epilog=EPILOG)
@click.argument("config", required=False, type=PATH, metavar="[STUDY|CONFIG]")
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
def command(collectives: str | None, sizes: str, **options: Any) -> None:
    """Load a tuner plugin as NCCL would and print what it decides, to the byte.

    The argument is a study or a tuner configuration; the plugin reads it through
    NCCL_TUNER_CONFIG_FILE. The plugin runs in a process of its own: one that crashes or hangs is
    named and does no harm. `default` means that NCCL decides.
    """
    from nccltune.app.explain import ExplainRequest, explain_config
    from nccltune.cli.explain_screen import show
    from nccltune.cli.requests import collectives_from, struct_from
    from nccltune.model.sizes import parse_range

    request = struct_from(
        ExplainRequest,
        options,
        collectives=None if collectives is None else collectives_from(collectives),
        sizes=parse_range(sizes),
    )
    with working("asking the plugin"):
        found = explain_config(request)
    print_result({"explained": found}, show, found)
