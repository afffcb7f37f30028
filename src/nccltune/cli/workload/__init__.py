# SPDX-License-Identifier: Apache-2.0
"""`nccltune workload`: what a job sends.

show.py            show what recordings of a job hold
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune workload show traces/
  nccltune tune studies/h200x4 --workload traces/
"""
SECTIONS = {"Verbs": {"show": "show bytes, calls and time by communicator, collective and size"}}
"""Every verb with its one-line help."""


@click.group(cls=LazyGroup, sections=SECTIONS, package="nccltune.cli.workload", epilog=EPILOG)
def command() -> None:
    """Read what a job sends from logs, profiler traces and dumps."""
