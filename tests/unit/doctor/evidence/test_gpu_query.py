# SPDX-License-Identifier: Apache-2.0
"""GPUs that nvidia-smi shows: in its table, in parts of `-q` and in CSV."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers.gpu_query import parse_gpu_query
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, put


@pytest.mark.parametrize("text", [texts.SMI_XML, texts.SMI_TEXT, texts.SMI_CSV])
def test_gpu_query_reads_the_same_from_xml_text_and_csv(text: str) -> None:
    found = parse_gpu_query(text)
    gpu = found.gpus[0]
    assert (gpu.index, gpu.bus_id, gpu.name) == (0, "0000:04:00.0", "NVIDIA H100 80GB HBM3")
    assert (found.driver, gpu.persistence) == ("570.1.2", False)
    assert (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (1, 5, 16, 16)
    assert set(gpu.slowdowns or ()) == {"sw_power_cap", "hw_thermal_slowdown"}
    assert (gpu.utilization_pct, gpu.temperature_c) == (3, 33)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (345, 1980)
    assert (gpu.ecc_uncorrected, gpu.mig) == (0, False)
    if text is not texts.SMI_CSV:
        assert (gpu.sm, gpu.fabric_state) == (90, "completed")


def test_gpu_query_csv() -> None:
    both = parse_gpu_query(texts.SMI_CSV + texts.SMI_SM + texts.SMI_FABRIC).gpus
    assert [(gpu.sm, gpu.fabric_state) for gpu in both] == [(90, "completed"), (90, "in_progress")]
    assert (both[1].slowdowns, both[1].ecc_uncorrected, both[1].pcie_width) == ([], None, 8)
    (other,) = parse_gpu_query("index, clocks.sm, pcie.link.gen.gpucurrent\n0, 800 MHz, 4\n").gpus
    assert (other.sm_clock_mhz, other.pcie_gen, other.mig) == (800, 4, None)
    assert (
        len(parse_gpu_query("memory.used [MiB], memory.free [MiB]\n8 MiB, 9 MiB\nHi, a\n").gpus)
        == 1
    )
    failed = parse_gpu_query('Field "fabric.state" is not a valid field to query.\n')
    assert failed.gpus == []
    assert failed.problem == 'Field "fabric.state" is not a valid field to query.'


def test_gpu_query_leaves_entities_alone() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bb">]><nvidia_smi_log><gpu id="x"><product_name>&b;'
    assert parse_gpu_query(bomb + "</product_name></gpu>").gpus[0].name == "&b;"
    assert parse_gpu_query("<nvidia_smi_log>" + "<gpu id=" * 1000).unread == 1000


def test_gpus_of_a_part_of_the_output_have_no_number() -> None:
    block = "GPU 00000000:{0}:00.0\n    Persistence Mode    : Enabled\n"
    two = "Attached GPUs   : {0}\n" + block.format("1A") + block.format("84")
    assert [gpu.index for gpu in parse_gpu_query(two.format(2)).gpus] == [0, 1]
    assert [gpu.index for gpu in parse_gpu_query(two.format(8)).gpus] == [None, None]
    one = "Attached GPUs   : 8\n" + block.format("84")
    assert parse_gpu_query(one).gpus[0].index is None
    assert parse_gpu_query("$ nvidia-smi -q -i 4\n" + one).gpus[0].index == 4
    xml = "<nvidia_smi_log><attached_gpus>{0}</attached_gpus>" + (
        '<gpu id="00000000:84:00.0"><product_name>A</product_name></gpu></nvidia_smi_log>'
    )
    assert [parse_gpu_query(xml.format(n)).gpus[0].index for n in (1, 8)] == [0, None]


TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.10              Driver Version: 570.86.10      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   33C    P0             71W /  700W |       1MiB /  81559MiB |      3%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3         Off  |   00000000:3B:00.0 Off |                    7 |
| N/A   35C    P0             71W /  700W |       1MiB /  81559MiB |      0%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
"""


def test_the_table_of_nvidia_smi() -> None:
    found = parse_gpu_query(TABLE)
    first, second = found.gpus
    assert (first.index, first.bus_id, first.name) == (0, "0000:19:00.0", "NVIDIA H100 80GB HBM3")
    assert (first.persistence, first.utilization_pct) == (True, 3)
    assert (first.temperature_c, found.driver) == (33, "570.86.10")
    assert (second.persistence, second.ecc_uncorrected) == (False, 7)
    assert (first.mig, second.mig) == (False, True)


FABRIC = """\
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : 2
        ClusterUUID                       : 0b6e40c4-0000-4357-9ba6-5291dd461278
        Health
            Summary                       : %s
            Bandwidth                     : Full
--
"""


def test_the_fabric_of_each_gpu_without_its_title(tmp_path: Path) -> None:
    put(tmp_path, "n1/pasted.txt", "".join(FABRIC % one for one in ("Healthy", "Unhealthy")))
    (facts,) = folder_facts(tmp_path)
    found = [(one["fabric_health"], one["fabric_status"]) for one in facts.named("gpus")]
    assert found == [("healthy", "success"), ("unhealthy", "success")]
    failed = FABRIC.replace("Success", "Insufficient Resources") % "Healthy"
    titled = parse_gpu_query(f"=NVSMI LOG=\nGPU 00000000:19:00.0\n{failed}")
    pasted = "$ nvidia-smi -q | grep -A2 Fabric\n" + FABRIC.partition("        Status")[0]
    put(tmp_path, "n2/pasted.txt", pasted.replace("Completed", "In Progress"))
    _, in_progress = folder_facts(tmp_path)
    part = in_progress.named("gpus")
    assert [one["fabric_state"] for one in part] == ["in_progress"]
    assert [(one.bus_id, one.fabric_status) for one in titled.gpus] == [
        ("0000:19:00.0", "insufficient_resources")
    ]


ROWS = """\
GPU 00000000:9C:00.0
    Remapped Rows
        Uncorrectable Error               : 4
        Pending                           : Yes
        Remapping Failure Occurred        : No
"""


def test_remapped_rows() -> None:
    (gpu,) = parse_gpu_query(ROWS).gpus
    assert (gpu.bus_id, gpu.remap_pending, gpu.remap_failed) == ("0000:9c:00.0", True, False)
    section = ROWS.partition("\n")[2]
    (lone,) = parse_gpu_query(section).gpus
    assert (lone.index, lone.remap_pending) == (None, True)
    assert [one.index for one in parse_gpu_query(section * 2).gpus] == [0, 1]
    (asked,) = parse_gpu_query(f"$ nvidia-smi -q -i 5 | grep -A4 Remapped\n{section}").gpus
    assert asked.index == 5
    rows = "<remapped_row_pending>No</remapped_row_pending>"
    gpu = f'<gpu id="0"><remapped_rows>{rows}</remapped_rows><product_name>x</product_name></gpu>'
    (other,) = parse_gpu_query(f"<nvidia_smi_log>{gpu}").gpus
    assert (other.remap_pending, other.remap_failed) == (False, None)
    pages = "GPU 00000000:9C:00.0\n    Retired Pages\n        Pending Page Blacklist    : Yes\n"
    assert [one.remap_pending for one in parse_gpu_query(pages + ROWS).gpus] == [True, True]


def test_gpu_query_columns_in_any_order() -> None:
    head = "name, pcie.link.width.current, driver_version\n"
    text = f"{head}NVIDIA L40S, 8, 550.1\nNVIDIA L40S, 16, 550.1\n"
    found = parse_gpu_query(text)
    assert [(one.index, one.pcie_width) for one in found.gpus] == [(0, 8), (1, 16)]
    assert found.driver == "550.1"
