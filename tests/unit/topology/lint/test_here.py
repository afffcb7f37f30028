# SPDX-License-Identifier: Apache-2.0
"""A file compared with the machine that uses it."""

from pathlib import Path

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.topology.lint.check import lint_files
from nccltune.topology.lint.here import check_here
from tests.unit.formats.topology.test_sysfs import GPU, Machine, one_switch
from tests.unit.topology.samples import FOLDER

FILE = (
    '<system version="1"><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400" '
    'link_speed="16.0 GT/s PCIe" link_width="16">{}</pci></cpu></system>'
)


def pci(bus_id: str, code: str) -> str:
    link = 'link_speed="16.0 GT/s PCIe" link_width="16"'
    return f'<pci busid="{bus_id}" class="{code}" {link}/>'


def test_a_file_that_fits(tmp_path: Path) -> None:
    one_switch(Machine(tmp_path))
    devices = [("0000:19:00.0", "0x030200"), ("0000:81:00.0", "0x030200"),
               ("0000:1A:00.0", "0x020700")]  # fmt: skip
    text = FILE.format("".join(pci(*device) for device in devices))
    assert list(check_here(read_topology(text.encode(), "vm.xml"), tmp_path)) == []


def test_a_file_for_another_machine(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.device("pci0000:00/0000:00:06.0", GPU)
    text = FILE.format(pci("0000:19:00.0", "0x030200"))
    checked = lint_files([("vm.xml", text.encode())], here=tmp_path)
    assert [(issue.id, issue.devices) for issue in checked.issues] == [
        ("bus-id-absent", ("0000:19:00.0",)),
        ("not-in-file", ("0000:00:06.0",)),
    ]
    assert checked.is_bad


def test_nothing_is_compared_unless_asked() -> None:
    assert lint_files([("dgx.xml", (FOLDER / "dgx.xml").read_bytes())]).issues == ()
