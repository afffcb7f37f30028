# SPDX-License-Identifier: Apache-2.0
"""GPUs and NVLinks that files leave to detection: assumed from device ids or shape, or refused."""

import pytest
from msgspec.structs import replace

from nccltune.cli.topo.show_screen import headline
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.formats.topology.nvidia_smi_matrix import read_matrix, smi_topology
from nccltune.model.errors import InputError
from nccltune.model.topology import Dialect
from nccltune.topology.flows.expect import expect
from nccltune.topology.hardware.build import link_graph
from nccltune.topology.hardware.change import devices_of
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out, nvlink_is_unknown
from tests.unit.formats.topology.test_nvidia_smi_matrix import switched
from tests.unit.topology.samples import L40S, NDV2, NDV4, NDV5, P4D, sample, skeleton, skeleton_xml

A100_SXM = 'class="0x030200" vendor="0x10de" device="0x20b2"'
H100_SXM = 'class="0x030200" vendor="0x10de" device="0x2330"'
A100_PCIE = 'class="0x030200" vendor="0x10de" device="0x20b5"'


def title(topology):
    whole = filled(topology)
    return headline(link_graph([whole]), detected=nvlink_is_unknown(whole))


@pytest.mark.parametrize(
    ("shape", "nodes", "low", "high"),
    [
        # Known bus bandwidths of all-reduce in GB/s, on one node and on two: p4d 235 and 45 to 90,
        # ND v5 460 to 483 and 370 to 487, ND v2 at least 110 on one.
        (P4D, 1, 230, 270),
        (P4D, 2, 80, 91),
        (P4D | {"gpu_facts": A100_SXM}, 1, 230, 270),
        (NDV4, 1, 230, 270),
        (NDV5, 1, 460, 500),
        (NDV5, 2, 487, 550),
        (NDV2, 1, 110, 140),
    ],
)
def test_clouds_files_give_what_their_machines_reach(shape, nodes, low, high):
    found = expect(skeleton(**shape), nodes=nodes)
    assert low <= found.busbw_gb_per_s <= high
    assert not found.sure
    assert any("NVLink" in note and "assumed" in note for note in found.notes)


@pytest.mark.parametrize("inside", ["", "<gpu/>", '<gpu gdr="1"/>'])
def test_a_gpu_element_without_its_capability_leaves_nvlink_open(inside):
    topology = skeleton(**NDV5 | {"gpu_facts": H100_SXM, "gpu_inside": inside})
    assert leaves_nvlink_out(topology)
    assert expect(topology).busbw_gb_per_s > 400
    assert "8 NIC ports" in title(topology)


def test_devices_without_a_class_are_known_by_their_ids():
    shape = NDV5 | {
        "gpu_facts": 'vendor="0x10de" device="0x2335"',
        "nic_facts": 'vendor="0x15b3" device="0x1021"',
    }
    assert title(skeleton(**shape)) == (
        "8 GPUs (sm90) · NVLink through NVSwitches (assumed) · 8 NIC ports · 2 CPUs"
    )
    efa = shape | {"nic_facts": 'vendor="0x1d0f" device="0xefa1"'}
    assert "8 NIC ports" in title(skeleton(**efa))


def test_a_gpu_without_nvlink_among_others_is_counted():
    rows = [line.split("\t") for line in switched(4, 18).split("\n")]
    for row in rows[1:5]:
        row[1:5] = [
            cell if "GPU2" not in (row[0], name) or cell == "X" else "SYS"
            for cell, name in zip(row[1:5], rows[0][1:5], strict=True)
        ]
    text = "\n".join("\t".join(row) for row in rows)
    alone = smi_topology(read_matrix(text.encode(), "t"), sm=90)
    assert "NVLink through NVSwitches of 3 of the 4 GPUs" in title(alone)
    whole = smi_topology(read_matrix(switched(4, 18).encode(), "t"), sm=90)
    assert "NVLink through NVSwitches · " in title(whole)


def test_a_file_that_leaves_nvlink_out_does_not_deny_it():
    assert "no NVLink" not in title(skeleton(**P4D))
    assert "NVLink left to detection" in title(sample("skeleton-vm"))
    assert "NVLink left to detection" in title(skeleton(**L40S | {"gpu_facts": A100_PCIE}))
    assert "no NVLink" in title(skeleton(**L40S))
    assert "no NVLink" in title(sample("switch-l40s"))


def test_gpus_without_nvlink_are_a_fact_and_bridges_are_not():
    l40s = expect(skeleton(**L40S | {"cpus": 1, "switches": 1}))
    assert (l40s.sure, l40s.notes) == (True, ())
    bridged = L40S | {"gpu_facts": A100_PCIE, "cpus": 1, "switches": 1}
    a100 = expect(skeleton(**bridged))
    assert a100.busbw_gb_per_s == pytest.approx(l40s.busbw_gb_per_s)
    assert not a100.sure
    assert "NVLink bridges" in a100.notes[0]


def test_a_nic_of_unknown_speed_is_an_upper_bound():
    """On two nodes the ceiling depends on NICs whose speed the file does not have."""
    found = expect(skeleton(**L40S), nodes=2)
    assert not found.sure
    assert any("speed not in the file" in note for note in found.notes)


@pytest.mark.parametrize(
    "shape",
    [
        {"switches": 2, "cpus": 2},
        {"gpus": 4, "nics": 4},
        {"gpu_facts": 'class="0x030200" vendor="0x10de" device="0x1234"'},
        {"gpu_facts": 'class="0x030000"'},
    ],
)
def test_unknown_gpus_are_refused(shape):
    topology = skeleton(**NDV4 | shape)
    assert nvlink_is_unknown(filled(topology))
    assert filled(topology).assumed == ()
    with pytest.raises(InputError, match="leaves NVLink to detection") as error:
        expect(topology)
    assert error.value.hint is not None
    assert "NCCL_TOPO_DUMP_FILE" in error.value.hint
    assert expect(topology, nodes=2, ranks_per_node=1).busbw_gb_per_s > 0


@pytest.mark.parametrize("name", ["switch-l40s", "dgx", "h200x4-dump", "nvlink-pairs", "rccl"])
def test_a_dump_is_not_filled_in(name):
    topology = sample(name)
    assert not leaves_nvlink_out(topology)
    assert filled(topology) is topology


def test_a_dump_of_nvlink_gpus_without_nvlink_stays_without():
    inside = '<gpu dev="0" sm="80" rank="0" gdr="1"/>'
    dump = skeleton(**P4D | {"gpu_facts": A100_SXM, "gpu_inside": inside})
    assert filled(dump) is dump


def test_one_gpu_with_its_capability_makes_a_dump():
    text = skeleton_xml(**P4D | {"gpu_facts": A100_SXM, "gpu_inside": "<gpu/>"})
    text = text.replace("<gpu/>", '<gpu dev="0" sm="80" rank="0"/>', 1)
    assert not leaves_nvlink_out(read_topology(text.encode(), "x.xml"))


@pytest.mark.parametrize("sm", ["0", "-1"])
def test_a_capability_that_is_none_counts_as_unknown(sm):
    topology = skeleton(**L40S | {"gpu_inside": f'<gpu sm="{sm}" rank="0"/>', "nics": 0})
    found = expect(topology)
    assert found.busbw_gb_per_s > 0
    assert any("compute capability" in note for note in found.notes)


def test_one_gpu_with_nvlinks_speaks_for_the_file():
    text = skeleton_xml(**P4D | {"gpu_facts": A100_SXM})
    link = '<gpu><nvlink target="fffffff:ffff:ff" count="12" tclass="0x068000"/></gpu></pci>'
    text = text.replace("></pci>", f">{link}", 1)
    assert not leaves_nvlink_out(read_topology(text.encode(), "x.xml"))


def test_matrices_of_nvidia_smi_name_every_nvlink():
    smi = replace(skeleton(**P4D), dialect=Dialect.SMI)
    assert not leaves_nvlink_out(smi)


@pytest.mark.parametrize(
    ("facts", "count", "links"),
    [
        (A100_SXM, 8, [12]),
        (A100_SXM, 4, [4, 4, 4]),
        (A100_SXM, 1, []),
        ('class="0x030200" device="0x1db1"', 8, [1, 1, 2, 2]),
        ('class="0x030200" device="0x1db5"', 2, [1]),
        ('class="0x030200" device="0x2901"', 8, [18]),
    ],
)
def test_nvlinks_of_each_gpu(facts, count, links):
    """6 links of a V100 in a cube mesh; 12 of an A100 and 18 of a B200 to NVSwitches."""
    topology = filled(skeleton(**NDV4 | {"gpus": count, "gpu_facts": facts}))
    for device in devices_of(topology):
        if device.gpu is not None:
            assert sorted(link.count for link in device.gpu.nvlinks) == links


def test_a_cube_mesh_has_no_more_gpus_than_its_corners():
    shape = NDV4 | {"gpus": 16, "gpu_facts": 'class="0x030200" device="0x1db1"'}
    assert filled(skeleton(**shape)).assumed == ()
