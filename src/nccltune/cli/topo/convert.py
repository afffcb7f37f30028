# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo convert`: write a topology file for NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import PATH, binds, output_option
from nccltune.cli.output import hint, is_json, print_json, stderr, write_exact
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.topo_convert import ConvertRequest

EPILOG = """\b
Examples:
  nccltune topo convert topo.txt --pcie 5 --gpu-ids 0000:05:00.0,0000:06:00.0 \\
      --nic-ids mlx5_0=0000:07:00.0 -o vm.xml    the host's nvidia-smi topo -m, the VM's bus ids
  nccltune topo convert dump.xml --pcie 5 -o vm.xml    a VM's own dump
  NCCL_TOPO_FILE=$PWD/vm.xml NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH ...    use it
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("path", required=False, type=PATH, metavar="[FILE]")
@click.option("--gpu-ids", metavar="BUS-ID,...", help="Bus ids of GPUs in nvidia-smi's order.")
@click.option(
    "--nic-ids", metavar="[NAME=]BUS-ID,...", help="Bus ids of NICs, by name or in order."
)
@click.option(
    "--pcie", metavar="GEN[xLANES]", help="Links that FILE does not describe, such as 5x16."
)
@output_option("output", "the XML file  [default: stdout]", metavar="FILE")
@binds(request="nccltune.app.topo_convert:ConvertRequest")
def command(request: ConvertRequest, output: Path | None, dry_run: bool) -> int:
    """Write a file for NCCL_TOPO_FILE: the tree of switches that a virtual machine does not show.

    The tree comes from FILE (the host's nvidia-smi topo -m, a topology XML whose links are
    wrong) or from this machine. Bus ids of GPUs and NICs must be those inside the virtual machine;
    those of switches are made up, which NCCL allows. What FILE does not describe of CPUs is taken
    from this machine: write the file on the virtual machine it is for. Exit code 1 where `nccltune
    lint` still finds something in what was written.
    """
    from nccltune.app.topo_convert import convert

    written = None if dry_run else output
    xml, left_out, issues = convert(request, written)
    err = stderr()
    if left_out:
        err.print(
            f"note: left out for want of a bus id (--nic-ids NAME=BUS-ID): {', '.join(left_out)}",
            soft_wrap=True,
        )
    for issue in issues:
        err.print(f"{issue.severity.value}: {issue.message}", soft_wrap=True)
        err.print(f"  hint: {issue.hint}", soft_wrap=True)
    if written is not None:
        hint(f"next: NCCL_TOPO_FILE={written.resolve()} and compare busbw with and without it")
    if is_json():
        file = str(output) if output else None
        print_json({"file": file, "xml": xml, "left_out": left_out, "issues": issues})
    elif written is None:
        write_exact(xml)
    return int(bool(issues))
