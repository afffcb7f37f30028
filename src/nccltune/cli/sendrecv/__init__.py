# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv`: settings of NCCL's send/recv, and the library that copies instead.

settings.py        settings of NCCL's own send/recv
sweep.py           from which size on copy engines pay
fairness.py        the chunk that lets other messages through
env.py             the settings that load the library
settings_screen.py the settings that won
sweep_screen.py    both by size, and the threshold
fairness_screen.py messages and traffic for each chunk
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune sendrecv settings -o studies/h200x4
  nccltune sendrecv sweep -o studies/h200x4
  eval "$(nccltune sendrecv env studies/h200x4)"
"""
SECTIONS = {
    "Verbs": {
        "settings": "compare settings of NCCL's own send/recv in alternating runs",
        "sweep": "find the size from which copy engines are faster than NCCL",
        "fairness": "find the chunk that lets other messages pass large ones",
        "env": "print the settings that load the send/recv library",
    }
}
"""Every verb with its one-line help."""


@click.group(cls=LazyGroup, sections=SECTIONS, package="nccltune.cli.sendrecv", epilog=EPILOG)
def command() -> None:
    """Measure and deploy what makes sends and receives faster."""
