# SPDX-License-Identifier: Apache-2.0
"""Topo convert: write a topology file for NCCL_TOPO_FILE."""

from pathlib import Path
from typing import NamedTuple

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nccl_xml_writer import write_topology
from nccltune.formats.topology.sysfs import read_sysfs
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.topology import Dialect
from nccltune.topology.files.load import load_topology
from nccltune.topology.files.vm_file import (
    parse_bus_ids,
    parse_pcie,
    with_bus_ids,
    with_cpus,
    with_links,
)
from nccltune.topology.hardware.machine import this_machine
from nccltune.topology.lint.check import lint_topology
from nccltune.topology.lint.issue import Issue


class ConvertRequest(NamedTuple):
    """The source of a topology and the facts that it may lack.

    The source is the file `path`, or this machine. Bus ids are `A,B`. `pcie` (`5x16`) describes
    links without a known generation and width.
    """

    path: Path | None = None
    gpu_ids: str | None = None
    nic_ids: str | None = None
    pcie: str | None = None


class ConvertResult(NamedTuple):
    """The text of the file, the devices left out for want of a bus id, and its problems."""

    xml: str
    left_out: list[str]
    issues: list[Issue]


def convert(request: ConvertRequest, output: Path | None = None) -> ConvertResult:
    """Return the text of a file for NCCL_TOPO_FILE, and write it to `output` if given.

    Raises InputError for what cannot be read or written, an invalid bus id or link.
    """
    gpu_ids = parse_bus_ids(request.gpu_ids) if request.gpu_ids is not None else []
    nic_ids = parse_bus_ids(request.nic_ids) if request.nic_ids is not None else []
    topology = this_machine() if request.path is None else load_topology(request.path)
    made_up = topology.dialect is Dialect.SMI
    left_out: list[str] = []
    if made_up or gpu_ids or nic_ids:
        topology, left_out = with_bus_ids(topology, gpu_ids, nic_ids)
    links = parse_pcie(request.pcie) if request.pcie is not None else None
    topology = with_cpus(with_links(topology, links), read_sysfs(), made_up=made_up)
    source = Path(topology.source).name
    text = write_topology(
        topology,
        comments=[
            f"Written by nccltune topo convert from {source}. NCCL adds GPUs, NVLinks and NICs "
            "itself."
        ],
    )
    # Read the text again, so that the checks cover what was written and not the source.
    again = read_topology(text.encode(), str(output) if output is not None else "output")
    issues = [one for one in lint_topology(again) if one.severity is not Severity.NOTE]
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}", where=str(output), hint="name another file"
            ) from None
    return ConvertResult(text, left_out, issues)
