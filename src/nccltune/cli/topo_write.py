# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo write`: a topology file for NCCL, from what is known."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import json_option, print_json, stderr, write_exact

if TYPE_CHECKING:
    from nccltune.model.topology import Topology
    from nccltune.topology.lint.issue import Issue

EPILOG = """\b
Examples:
  nccltune topo write topo.txt --pcie 5 --gpus 0000:05:00.0,0000:06:00.0 \\
      --nics mlx5_0=0000:07:00.0 -o vm.xml    the host's nvidia-smi topo -m, the VM's bus ids
  nccltune topo write dump.xml --pcie 5 -o vm.xml    a VM's own dump, links mended
  nccltune topo write --cpus 2 --switches 4 --pcie 4x16 --gpus ... --nics ... -o vm.xml
  NCCL_TOPO_FILE=$PWD/vm.xml NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH ...    use it
"""


@click.command(epilog=EPILOG)
@click.argument("what", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--gpus", metavar="BUS-ID,...", help="Bus ids of GPUs in nvidia-smi's order.")
@click.option("--nics", metavar="[NAME=]BUS-ID,...", help="Bus ids of NICs, by name or in order.")
@click.option("--cpus", type=click.IntRange(1, 64), help="NUMA nodes, where there is no FILE.")
@click.option("--switches", type=click.IntRange(1, 128), help="Switches, where there is no FILE.")
@click.option(
    "--pcie", metavar="GEN[xLANES]",
    help="What links have that FILE does not tell of, such as 5x16.",
)  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write here; else stdout.")
@json_option()
def command(
    what: Path | None,
    gpus: str | None,
    nics: str | None,
    cpus: int | None,
    switches: int | None,
    pcie: str | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Write a file for NCCL_TOPO_FILE: the tree of switches that a virtual machine does not show.

    The tree comes from FILE (the host's nvidia-smi topo -m, a topology XML whose links are
    wrong), from --cpus and --switches, over which GPUs and NICs are spread evenly in order, or
    from this machine. Bus ids of GPUs and NICs must be those inside the virtual machine; those of
    switches are made up, which NCCL allows. What is not told of CPUs is taken from this machine:
    write the file on the virtual machine it is for. Exit code 1 where the checks of topo lint
    still find something in what was written.
    """
    from nccltune.formats.sysfs_topology import read_sysfs
    from nccltune.formats.topology_xml import read_topology
    from nccltune.formats.topology_xml_write import write_topology
    from nccltune.model.errors import InputError
    from nccltune.topology.lint.check import lint_topology
    from nccltune.topology.lint.issue import Severity
    from nccltune.topology.vm_file import (
        parse_bus_ids,
        parse_pcie,
        with_bus_ids,
        with_cpus,
        with_links,
    )

    gpu_ids = parse_bus_ids(gpus) if gpus is not None else []
    nic_ids = parse_bus_ids(nics) if nics is not None else []
    topology, made_up = _tree(what, cpus, switches, len(gpu_ids), len(nic_ids))
    left_out: list[str] = []
    if made_up or gpu_ids or nic_ids:
        topology, left_out = with_bus_ids(topology, gpu_ids, nic_ids)
    topology = with_links(topology, parse_pcie(pcie) if pcie is not None else None)
    topology = with_cpus(topology, read_sysfs(), made_up=made_up)
    text = write_topology(
        topology, skeleton=True,
        comments=[f"Written by nccltune topo write from {Path(topology.source).name}. NCCL adds "
                  "GPUs, NVLinks and NICs itself."],
    )  # fmt: skip
    # What is written must say the same to a reader.
    again = read_topology(text.encode(), str(output) if output is not None else "output")
    issues = [one for one in lint_topology(again) if one.severity is not Severity.NOTE]
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}", where=str(output), hint="name another file"
            ) from None
    _talk(left_out, issues, output)
    if as_json:
        print_json(
            {
                "file": str(output) if output else None,
                "xml": text,
                "left_out": left_out,
                "issues": issues,
            }
        )
    elif output is None:
        write_exact(text)
    return int(bool(issues))


def _tree(
    what: Path | None, cpus: int | None, switches: int | None, gpus: int, nics: int
) -> "tuple[Topology, bool]":
    """Where the tree comes from, and whether its devices' bus ids are made up."""
    from nccltune.model.errors import InputError
    from nccltune.model.topology import Dialect
    from nccltune.topology.load import load_topology
    from nccltune.topology.machine import this_machine
    from nccltune.topology.vm_file import even_tree

    if cpus is not None or switches is not None:
        if what is not None:
            raise InputError("--cpus and --switches are for a tree without a file",
                             hint="leave out either")  # fmt: skip
        if not gpus:
            raise InputError("no GPU is given", where="--gpus", hint="list their bus ids: --gpus")
        count = cpus or 1
        return even_tree(count, switches or count, gpus, nics), True
    topology = load_topology(what) if what is not None else this_machine()
    return topology, topology.dialect is Dialect.SMI


def _talk(left_out: list[str], issues: "list[Issue]", output: Path | None) -> None:
    err = stderr()
    if left_out:
        err.print(
            f"note: left out for want of a bus id (--nics NAME=BUS-ID): {', '.join(left_out)}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    for issue in issues:
        err.print(f"{issue.severity.value}: {issue.message}", markup=False, soft_wrap=True)
        err.print(f"  hint: {issue.hint}", markup=False, soft_wrap=True)
    if output is not None:
        err.print(
            f"next: NCCL_TOPO_FILE={output.resolve()} and compare busbw with and without it",
            style="dim", markup=False, soft_wrap=True,
        )  # fmt: skip
