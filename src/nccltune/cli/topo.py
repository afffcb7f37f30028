# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo`: a machine's hardware as NCCL sees it; a group of verbs, one file each."""

import click

from nccltune.cli import LazyGroup

EPILOG = """\b
Examples:
  nccltune topo show                        this machine
  nccltune topo show topo.xml --svg topo.svg
  nccltune topo lint node*.xml --json
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo write topo.txt -o vm.xml    from nvidia-smi topo -m > topo.txt
"""
VERBS = {
    "show": "the machine as a tree and a picture: links, bandwidths, NCCL's paths",
    "lint": "what is wrong with topology and graph files, and between nodes",
    "write": "a topology file for NCCL, for a virtual machine that shows no tree",
    "what-if": "what a setting, a NIC elsewhere or more nodes would do to the bandwidth",
}
"""Every verb with its one-line help; each lives in `topo_NAME.py`."""


@click.group(cls=LazyGroup, verbs=VERBS, prefix="topo_", epilog=EPILOG)
def command() -> None:
    """Read, draw, check and write what NCCL takes a machine's hardware to be."""
