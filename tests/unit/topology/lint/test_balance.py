# SPDX-License-Identifier: Apache-2.0
"""Issues of `topo lint` about the placement of GPUs and NICs."""

import pytest

from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.lint.check import LintResult, lint_files
from tests.unit.topology.samples import L40S, NDV2, NDV4, NDV5, P4D, skeleton_xml

A100_SXM = 'class="0x030200" vendor="0x10de" device="0x20b2"'


def lint(*changes: tuple[str, str], **shape: object) -> LintResult:
    text = skeleton_xml(**shape)  # type: ignore[arg-type]
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return lint_files([("x.xml", text.encode())])


def severities(checked: LintResult) -> dict[str, str]:
    return {issue.id: issue.severity.value for issue in checked.issues}


def message(checked: LintResult, identity: str) -> str:
    (issue,) = [issue for issue in checked.issues if issue.id == identity]
    return issue.message


@pytest.mark.parametrize("shape", [P4D, NDV4, NDV5])
def test_clouds_files_have_a_note_and_nothing_wrong(shape):
    assert severities(lint(**shape)) == {"nvlink-detected": "note"}


def test_a_balanced_node_without_nvlink_has_nothing():
    assert severities(lint(**L40S)) == {"shared-uplink": "note"}


def test_the_only_nic_is_across_the_socket_for_half_of_the_gpus():
    checked = lint(**L40S | {"nics": 1})
    assert severities(checked)["nic-other-cpu"] == "warning"
    assert message(checked, "nic-other-cpu").startswith(
        "0003:00:00.0, 0004:00:00.0: GPUs of CPU 1, which has no NIC; their path to 0101:00:00.0"
    )
    assert checked.is_bad
    dump = lint((">" + "</pci>", '><gpu sm="89"/></pci>'), **L40S | {"nics": 1})
    assert "nic-other-cpu" not in severities(dump), "a dump's NIC without a port is not used"
    port = '<nic><net name="mlx5_0" dev="0" speed="100000" port="1" gdr="1"/></nic>'
    nic = 'class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16"'
    dump = lint(
        ("></pci>", '><gpu sm="89" rank="0"/></pci>'), (nic + "/>", f"{nic}>{port}</pci>"),
        **L40S | {"nics": 1},
    )  # fmt: skip
    assert severities(dump)["nic-other-cpu"] == "warning"


def test_without_switches_the_socket_counts_as_well():
    checked = lint(**NDV2)
    assert severities(checked)["nic-other-cpu"] == "warning"
    assert "PXN" in message(checked, "nic-other-cpu")


def test_a_switch_without_a_nic_where_others_have_one():
    shape = L40S | {"switches": 4, "nics": 2}
    assert severities(lint(**shape))["nic-other-switch"] == "warning"
    linked = lint(**shape | {"gpu_facts": A100_SXM})
    assert severities(linked)["nic-other-switch"] == "note"
    assert "nic-other-switch" not in severities(lint(**shape | {"nics": 4}))


def test_four_gen4_gpus_share_a_gen3_uplink():
    uplink = 'class="0x060400" link_speed="16.0 GT/s PCIe"'
    slow = uplink.replace("16.0", "8.0")
    checked = lint((uplink, slow), **L40S | {"gpus": 8})
    assert severities(checked)["narrow-switch"] == "warning"
    messages = [issue.message for issue in checked.issues if issue.id == "narrow-switch"]
    assert messages[0] == (
        "ffff:ff:01.0: 4 GPUs with 96 GB/s in all share an uplink of 12 GB/s (Gen3 x16), less than "
        "one device's 24"
    )
    assert len(messages) == 2


def test_a_narrow_uplink_counts_as_a_slow_one():
    text = 'class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16"'
    checked = lint((text, text.replace('"16"', '"8"')), **L40S)
    assert severities(checked)["narrow-switch"] == "warning"


def test_gpus_that_nvlink_joins_may_share_an_uplink():
    assert "shared-uplink" in severities(lint(**L40S))
    assert "shared-uplink" not in severities(lint(**L40S | {"gpu_facts": A100_SXM}))
    alone = lint(**L40S | {"cpus": 1, "switches": 1})
    assert "shared-uplink" not in severities(alone)


@pytest.mark.parametrize(
    ("speed", "ports", "severity"),
    [
        ("16.0 GT/s PCIe", [100000], None),
        ("8.0 GT/s PCIe", [100000], None),
        ("16.0 GT/s PCIe", [200000], None),
        ("16.0 GT/s PCIe", [400000], "warning"),
        ("8.0 GT/s PCIe", [200000], "warning"),
        ("16.0 GT/s PCIe", [200000, 200000], "note"),
        ("32.0 GT/s PCIe", [400000], None),
    ],
)
def test_a_nic_in_a_slot_that_is_too_slow(speed, ports, severity):
    nets = "".join(
        f'<net name="mlx5_{number}" dev="{number}" speed="{port}"/>'
        for number, port in enumerate(ports)
    )
    link = f'link_speed="{speed}" link_width="16"/>'
    nic = f'<pci busid="0101:00:00.0" class="0x020700" {link}'
    checked = lint(
        ("></pci>", '><gpu sm="89"/></pci>'),
        (nic, nic.replace("/>", f"><nic>{nets}</nic></pci>")), **L40S | {"nics": 1, "speed": speed},
    )  # fmt: skip
    assert severities(checked).get("nic-slot") == severity


def test_cpus_with_different_numbers_of_gpus():
    checked = lint(**L40S | {"gpus": 5})
    assert severities(checked)["gpus-uneven"] == "note"
    assert message(checked, "gpus-uneven").endswith("CPU 0 has 2, CPU 1 has 3")


def test_a_dump_of_gpus_with_nvlink_that_has_none():
    inside = '<gpu sm="80" rank="0"/>'
    checked = lint(**P4D | {"gpu_facts": A100_SXM, "gpu_inside": inside, "nics": 0})
    assert severities(checked)["nvlink-absent"] == "warning"
    assert "A100-SXM4 without any NVLink" in message(checked, "nvlink-absent")
    pcie = lint(**L40S | {"gpu_inside": '<gpu sm="89"/>', "nics": 0})
    assert "nvlink-absent" not in severities(pcie)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (' link_width="-1"', ("link-width-negative", "error")),
        (' link_width="255"', ("link-width-odd", "error")),
        (' link_width="0"', ("link-width-zero", "warning")),
        ("", ("link-width-missing", "warning")),
    ],
)
def test_a_switch_whose_width_is_not_known(width, expected):
    switch = 'class="0x060400" link_speed="16.0 GT/s PCIe"'
    checked = lint((f'{switch} link_width="16"', f"{switch}{width}"), **L40S)
    assert expected in severities(checked).items()


def test_a_real_device_without_a_width_is_asked_for():
    link = 'class="0x030200" vendor="0x10de" device="0x26b9" link_speed="16.0 GT/s PCIe"'
    checked = lint((f'{link} link_width="16"', link), **L40S)
    assert severities(checked)["link-width-asked"] == "note"


SPARK = """<system version="1"><cpu numaid="0" arch="arm64">
<pci busid="0009:01:00.0" class="0x028000" link_speed="5.0 GT/s PCIe" link_width="1">
<nic><net name="wifi" dev="0" speed="10000"/></nic></pci>
<pci busid="000f:01:00.0" class="0x030000" vendor="0x10de" link_speed="2.5 GT/s PCIe"
 link_width="16"><gpu dev="0" sm="121" rank="0"><c2c bw="43125" count="8"/></gpu></pci>
<nic><net name="wg0" dev="1" speed="10000"/></nic></cpu></system>"""
C2C = '<c2c bw="43125" count="8"/>'


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", set()),
        (C2C, "", {"idle-gpu", "flat"}),
        ('"wifi" dev="0" speed="10000"', '"eth0" dev="0" speed="25000"', {"nic-slot"}),
    ],
)
def test_c2c_and_a_default_speed_are_no_faults(before, after, expected):
    checked = lint_files([("x.xml", SPARK.replace(before, after).encode())])
    assert severities(checked).keys() & {"idle-gpu", "flat", "nic-slot"} == expected


@pytest.mark.parametrize(
    ("before", "after", "sure"),
    [
        ("", "", {"NET wg0 -> NIC at CPU0": False, "NET wifi -> NIC 0009:01:00.0": False}),
        ("10000", "25000", {"NET wg0 -> NIC at CPU0": True, "NET wifi -> NIC 0009:01:00.0": True}),
        (
            "0x0280",
            "0x0200",
            {"NET wg0 -> NIC at CPU0": False, "NET wifi -> NIC 0009:01:00.0": True},
        ),
    ],
)
def test_a_default_speed_is_assumed_where_the_kernel_knows_none(before, after, sure):
    found = link_graph([read_topology(SPARK.replace(before, after).encode(), "x.xml")])
    nets = {one.name: one.sure for one in found.links if one.kind is LinkKind.NET}
    assert {name: one for name, one in nets.items() if name.startswith("NET")} == sure
