# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv`: settings of NCCL's send/recv, and a library that uses copy engines instead.

settings.py        compare settings of NCCL's own send/recv
sweep.py           find the size from which copy engines are faster
env.py             print the settings that load the library
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
        "env": "print the settings that load the send/recv library",
    }
}
"""Every verb with its one-line help."""
_MOVED = {"fairness": "ab NCCLTUNE_SENDRECV_CHUNK=67108864 -- COMMAND"}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    package="nccltune.cli.sendrecv",
    moved=_MOVED,
    epilog=EPILOG,
)
def command() -> None:
    """Measure and deploy what makes sends and receives faster."""
