# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo`: analyze, tune, verify and report a recording, without a GPU."""

import shlex
from pathlib import Path

import click

from nccltune.cli.options import output_option
from nccltune.cli.output import print_result, stdout
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune demo
  nccltune demo --recording h200x4-1-node -o studies/node
"""


@verb(epilog=EPILOG, dry_run=True)
@click.option("--recording", metavar="NAME", help="Which recording  [default: h200x4-as-4-nodes]")
@output_option("output", "the study  [default: studies/NAME]")
def command(recording: str | None, output: Path | None, dry_run: bool) -> None:
    """Analyse, tune, verify and report a recording of 4 x H200.

    Real measurements, our own plugin loaded as NCCL would load it, the rules verified in a replay
    of the recording, and a report to open. The result is an ordinary study. Takes a few seconds.
    """
    from nccltune.app.demo import demo
    from nccltune.cli.demo_screen import DemoScreen, show
    from nccltune.examples import DEMO, example

    name = recording or DEMO
    path = output or Path("studies") / name
    if dry_run:
        words = (
            f"Would copy the recording {name} to {path}, analyze, tune, verify in a replay and "
            "write the report there. Nothing was written."
        )
        plan = {"recording": str(example(name)), "study": str(path)}
        print_result(plan, stdout().print, words)
        return
    screen = DemoScreen(path, f"nccltune verify {shlex.quote(str(path))}", quiet=True)
    found = screen.run(lambda: demo(name, path, screen))
    plugin = {"asked": found.asked, "as_predicted": found.agreed}
    document = {"tuning": found.tuning, "plugin": plugin, "proof": found.proof}
    print_result(document, show, found)
