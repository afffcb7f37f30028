# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv`: a library that uses copy engines for NCCL's send/recv.

sweep.py           find the size from which copy engines are faster
env.py             print the settings that load the library
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune sendrecv sweep -o studies/h200x4
  eval "$(nccltune sendrecv env studies/h200x4)"
"""
SECTIONS = {
    "Verbs": {
        "sweep": "find the size from which copy engines are faster than NCCL",
        "env": "print the settings that load the send/recv library",
    }
}
"""Every verb with its one-line help."""
_MOVED = {
    "fairness": "ab NCCLTUNE_SENDRECV_CHUNK=67108864 -- COMMAND",
    "settings": "ab NCCL_MIN_P2P_NCHANNELS=64 --collectives sendrecv",
}


@click.group(
    cls=LazyGroup, sections=SECTIONS, package="nccltune.cli.sendrecv", moved=_MOVED, epilog=EPILOG
)
def command() -> None:
    """Measure and deploy what makes sends and receives faster."""
