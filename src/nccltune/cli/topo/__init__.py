# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo`: a machine's hardware as NCCL sees it.

show.py              show the tree and the paths
what_if.py           compute the bandwidth limit after a change
convert.py           write a topology file for NCCL
show_screen.py       tree, links and paths
what_if_screen.py    the bandwidth limit now and after each change
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune topo show                        this machine
  nccltune topo show topo.xml
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo convert topo.txt -o vm.xml    from nvidia-smi topo -m > topo.txt
  nccltune lint node*.xml                   check topology files
"""
SECTIONS = {
    "Verbs": {
        "show": "show the machine as a tree: links, bandwidths, NCCL's paths",
        "what-if": "compute what a setting, a NIC elsewhere or more nodes would change",
        "convert": "write a topology file for NCCL, for a virtual machine that shows no tree",
    }
}
"""Every verb with its one-line help."""
_MOVED = {
    "calibrate": "topo what-if --calibration FILE",
    "write": "topo convert",
    "lint": "lint FILES",
}


@click.group(
    cls=LazyGroup, sections=SECTIONS, package="nccltune.cli.topo", moved=_MOVED, epilog=EPILOG
)
def command() -> None:
    """Read, draw and write what NCCL takes a machine's hardware to be."""
