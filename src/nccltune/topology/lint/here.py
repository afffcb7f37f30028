# SPDX-License-Identifier: Apache-2.0
"""Compare a file for NCCL_TOPO_FILE with the machine that uses it."""

from collections.abc import Iterator
from pathlib import Path

from nccltune.formats.topology.sysfs import read_sysfs
from nccltune.model.finding import Severity
from nccltune.model.topology import Pci, Topology
from nccltune.topology.lint.issue import Issue, issue_about, placed, shortened


def check_here(topology: Topology, root: Path = Path("/")) -> Iterator[Issue]:
    """Report GPUs and NICs that only the file or only the machine has.

    `root` is the directory that contains `sys`.
    """
    folder = root / "sys" / "bus" / "pci" / "devices"
    here = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    leaves = [one.device for one in placed(topology) if _is_end(one.device)]
    yield from issue_about(
        topology, Severity.ERROR, "bus-id-absent",
        (device for device in leaves if device.bus_id.lower() not in here),
        "{}: not on this machine; NCCL then places the real device by sysfs",
        "bus ids of GPUs and NICs must be those of lspci -D on the machine that runs the job",
    )  # fmt: skip
    named = {device.bus_id.lower() for device in leaves}
    missing = [
        one.device.bus_id
        for one in placed(read_sysfs(root))
        if (one.device.gpu is not None or one.device.nets) and one.device.bus_id not in named
    ]
    if missing:
        yield Issue(
            severity=Severity.WARNING,
            id="not-in-file",
            source=topology.source,
            message=f"{shortened(missing)}: GPUs or NICs of this machine that are not in the file",
            hint="add them below their switches; otherwise NCCL places them by sysfs",
            devices=tuple(missing),
        )


def _is_end(device: Pci) -> bool:
    """Return whether the file describes a device as a GPU or a NIC without devices below it."""
    code = device.class_code or ""
    is_end = device.gpu is not None or bool(device.nets) or code.startswith(("0x03", "0x02"))
    return is_end and not device.children
