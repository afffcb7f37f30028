# SPDX-License-Identifier: Apache-2.0
"""Files that users add to a node: topology, graphs, tests, diagnostics, cloud documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.doctor.evidence.collect import collect
from nccltune.doctor.facts import Facts
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import GPU, NIC, folder_facts, put, run_made
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.topology.samples import FOLDER

TOPOLOGY = f"""\
<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" device="0xc030"
         link_speed="" link_width="0">
      <pci busid="{GPU}" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:84:00.0" count="18" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="{NIC}" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" gdr="1"/>
        </nic>
      </pci>
    </pci>
    <pci busid="0000:ff:00.0" class="0x030200" link_speed="" link_width="0">
      <gpu dev="1" sm="90" rank="1" gdr="1">
        <nvlink target="0000:FF:00.0" count="2" tclass="0x030200"/>
      </gpu>
    </pci>
  </cpu>
</system>
"""
GRAPH = """\
<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20"
         latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel>
      <net dev="0"/>
      <gpu dev="0"/>
      <gpu dev="5"/>
      <net dev="0"/>
    </channel>
  </graph>
</graphs>
"""
TEST = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   100 on         h1 device  0 [0x00] NVIDIA H100
#  Rank  1 Group  0 Pid   101 on         h2 device  0 [0x00] NVIDIA H100
#
#                                            out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    100.0   10.49   10.49      0    100.0   10.49   10.49      0
     4194304       1048576     float     sum      -1    200.0   20.97   20.97      0    200.0   20.97   20.97      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 15.7300
"""  # noqa: E501


def with_files(root: Path, folder: Path, **files: str) -> Facts:
    """Return the facts of the made-up node and of more files; `__` in a name stands for its dot."""
    paths = []
    for name, text in files.items():
        put(folder, name.replace("__", "."), text)
        paths.append(folder / name.replace("__", "."))
    return collect(root, environment={}, runner=run_made, files=paths)


def test_topology_and_graphs(root: Path, tmp_path: Path) -> None:
    facts = with_files(root, tmp_path, topology__xml=TOPOLOGY, graph__xml=GRAPH)
    devices = {one["bus_id"]: one for one in facts.named("topo.devices")}
    switch = devices["0000:01:00.0"]
    assert (switch["kind"], switch["speed"], switch["width"]) == ("bridge", "", 0)
    assert switch["numa"] == 0
    assert devices[NIC]["kind"] == "nic"
    gpus = {one["index"]: one for one in facts.named("topo.gpus")}
    assert (gpus[0]["nvlinks"], gpus[0]["nvlink_to_itself"]) == (18, False)
    assert gpus[1]["nvlink_to_itself"] is True
    xgmi = with_files(root, tmp_path, topology__xml=(FOLDER / "rccl.xml").read_text())
    assert not any("nvlinks" in one for one in xgmi.named("topo.gpus"))
    assert facts.named("topo.given") is False
    assert facts.named("graph.ends") == [
        {
            "channel": 0,
            "gpu": 0,
            "nic": "mlx5_0",
            "kind": "PIX",
            "best_nic": "mlx5_0",
            "best_kind": "PIX",
        }
    ]


def test_given_topology_and_graph_are_compared_with_the_machine(root: Path, tmp_path: Path) -> None:
    files = {"given-topology__xml": TOPOLOGY, "given-graph__xml": GRAPH}
    facts = with_files(root, tmp_path, **files)
    assert facts.named("topo.given") is True
    assert facts.named("topo.missing_devices") == ["0000:ff:00.0"]
    assert facts.named("graph.given_gpus") == 2
    assert facts.named("graph.missing_devices") == ["GPU 5"]
    assert facts["topo.devices"].source == f"{tmp_path}/given-topology.xml"
    broken = with_files(root, tmp_path, **{"given-topology__xml": "<system version='1'><pci>"})
    assert any("given-topology.xml" in line for line in broken.unread)
    assert "topo.devices" not in broken


def test_a_setting_that_names_a_topology_counts_as_given(root: Path) -> None:
    facts = collect(root, environment={"NCCL_TOPO_FILE": "/x/topo.xml"}, runner=run_made)
    assert (facts.named("topo.given"), facts["topo.given"].source) == (True, "NCCL_TOPO_FILE")


def test_a_table_of_nccl_tests_is_one_record(root: Path, tmp_path: Path) -> None:
    (record,) = with_files(root, tmp_path, all_reduce__out=TEST).named("tests")
    assert record == {
        "file": f"{tmp_path}/all_reduce.out",
        "collective": "all_reduce",
        "nodes": 2,
        "hosts": ["h1", "h2"],
        "ranks": 2,
        "min_bytes": 1 << 20,
        "max_bytes": 4 << 20,
        "sizes": 2,
        "avg_busbw_gb_per_s": 15.73,
        "peak_busbw_gb_per_s": pytest.approx(20.97, rel=1e-3),
        "peak_bytes": 4 << 20,
    }


def test_a_run_of_one_rank_is_no_test_and_its_average_is_no_other_ones(
    root: Path, tmp_path: Path
) -> None:
    alone = nccl_tests_log(["h1"], {1 << 20: (0.2, 0.2), 1 << 30: (0.2, 0.2)})
    facts = with_files(root, tmp_path, all_reduce__out=TEST + alone + "# Avg bus bandwidth : 0\n")
    (record,) = facts.named("tests")
    assert record["peak_busbw_gb_per_s"] == pytest.approx(20.97, rel=1e-3)
    assert "avg_busbw_gb_per_s" not in record


def test_a_header_without_a_row_is_a_test_without_sizes(root: Path, tmp_path: Path) -> None:
    header = TEST.split("     1048576")[0]
    (record,) = with_files(root, tmp_path, all_reduce__out=header).named("tests")
    assert record == {
        "file": f"{tmp_path}/all_reduce.out",
        "hosts": ["h1", "h2"],
        "nodes": 2,
        "ranks": 2,
        "sizes": 0,
    }
    failed = header + "h1: Test NCCL failure common.cu:1279 'unhandled system error'\n"
    assert not with_files(root, tmp_path / "2", all_reduce__out=failed).named("tests")


def test_a_test_with_its_log(root: Path, tmp_path: Path) -> None:
    """One file with a table, the log and the diagnostics of the same run."""
    diagnostics = "h1:1:2 [0] NCCL DIAG [OK] ECC: no errors\n"
    facts = with_files(root, tmp_path, all_reduce__out=TEST + texts.LOG + diagnostics)
    (record,) = facts.named("tests")
    assert (record["nics"], record["algorithm"]) == (2, "ring")
    assert facts.named("log.net") == "IB"
    assert facts.named("ras.checks")[0]["name"] == "ECC"
    # An unbuffered log precedes the table.
    facts = with_files(root, tmp_path, all_reduce_2__out=texts.LOG * 20 + TEST)
    assert (facts.named("tests")[0]["sizes"], facts.named("log.ranks")) == (2, 16)


def test_diagnostics(root: Path, tmp_path: Path) -> None:
    text = (
        "h1:1:2 [0] NCCL INFO x\n"
        "h1:1:2 [0] NCCL DIAG === NCCL Diagnostics ===\n"
        "h1:1:2 [0] NCCL DIAG [OK] ECC: no errors\n"
    )
    facts = with_files(root, tmp_path, diagnostics__txt=text)
    checks = facts.named("ras.checks")
    assert [(one["name"], one["status"]) for one in checks] == [("ECC", "OK")]


CLOUDS: list[tuple[str, Any, dict[str, object]]] = [
    (
        "gcloud",
        {
            "selfLink": "x",
            "machineType": "https://x/zones/z/machineTypes/a3-highgpu-8g",
            "resourcePolicies": ["https://x/resourcePolicies/near"],
            "resourceStatus": {"physicalHost": "/b/r/h"},
            "networkPerformanceConfig": {"totalEgressBandwidthTier": "TIER_1"},
        },
        {
            "cloud.machine_type": "a3-highgpu-8g",
            "cloud.placement": "near",
            "cloud.physical_host": "/b/r/h",
        },
    ),
    (
        "gcloud",
        {"selfLink": "x", "machineType": "x/n2-standard-8", "networkInterfaces": []},
        {"cloud.machine_type": "n2-standard-8", "cloud.placement": ""},
    ),
    (
        "cloud-metadata",
        {"instance": {"machineType": "projects/1/g2", "attributes": {"physical_host": "/b"}}},
        {"cloud.machine_type": "g2", "cloud.physical_host": "/b"},
    ),
    ("cloud-metadata", {"instanceType": "p5.48xlarge"}, {"cloud.machine_type": "p5.48xlarge"}),
    (
        "cloud-metadata",
        {"compute": {"vmSize": "Standard_ND96isr_H100_v5", "placementGroupId": ""}},
        {"cloud.machine_type": "Standard_ND96isr_H100_v5", "cloud.placement": ""},
    ),
    (
        "aws-topology",
        {"Instances": [{"GroupName": "g", "NetworkNodes": ["nn-1", "nn-2"]}]},
        {"cloud.placement": "g", "cloud.physical_host": "/nn-1/nn-2"},
    ),
    (
        "aws-instance-type",
        {"InstanceTypes": [{"NetworkInfo": {"NetworkPerformance": "3200 Gigabit"}}]},
        {"cloud.line_rate_gbit_per_s": 3200.0},
    ),
]


@pytest.mark.parametrize(("item", "document", "wanted"), CLOUDS)
def test_facts_of_cloud_documents(
    item: str, document: object, wanted: dict[str, object], tmp_path: Path
) -> None:
    put(tmp_path, f"n/{item}.json", json.dumps(document))
    (facts,) = folder_facts(tmp_path)
    found = {name: fact.value for name, fact in facts.items() if name.startswith("cloud.")}
    assert found == wanted


@pytest.mark.parametrize(
    ("vendor", "product", "tag", "provider"),
    [
        ("Google", "Google Compute Engine", "", "gcp"),
        ("Amazon EC2", "p4d.24xlarge", "Amazon EC2", "aws"),
        ("Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77", "azure"),
        ("Microsoft Corporation", "Virtual Machine", "1234", "none"),
        ("QEMU", "x", "OracleCloud.com", "oracle"),
        ("Alibaba Cloud", "Alibaba Cloud ECS", "", "alibaba"),
        ("IBM:Cloud Compute Server 1.0", "x", "ibmcloud", "ibm"),
        ("Supermicro", "SYS-821GE", "", "none"),
    ],
)
def test_cloud_providers_by_dmi(
    vendor: str, product: str, tag: str, provider: str, tmp_path: Path
) -> None:
    dmi = "/sys/class/dmi/id/"
    text = f"{dmi}sys_vendor:{vendor}\n{dmi}product_name:{product}\n{dmi}chassis_asset_tag:{tag}\n"
    put(tmp_path, "n/system.txt", text)
    (facts,) = folder_facts(tmp_path)
    assert facts.named("cloud.provider") == provider


def test_logs_of_several_ranks(tmp_path: Path) -> None:
    put(tmp_path, "n/rank0.log", texts.LOG)
    put(tmp_path, "n/rank1.log", texts.LOG.replace("nRanks 16", "nRanks 8").replace("IB/0", "IB/1"))
    (facts,) = folder_facts(tmp_path)
    assert facts.named("log.ranks") == 16
    assert facts["log.net"].source == "n/rank0.log"
    assert {one["via"]: one["count"] for one in facts.named("log.vias")} == {
        "NET/IB/0/GDRDMA": 2,
        "NET/IB/1/GDRDMA": 2,
        "P2P/CUMEM": 2,
    }
    lines = [one["text"] for one in facts.named("log.lines")]
    assert [number for number, line in enumerate(lines) if "made up trouble" in line] == [0, 1]


def test_gpus_of_a_device_list_without_a_table(tmp_path: Path) -> None:
    rank = "#  Rank  {0} Group  0 Pid  7 on h1 device  {0} [0000:0{0}:00] NVIDIA B300 SXM6 AC\n"
    put(tmp_path, "n1/nccl.log", rank.format(0) + rank.format(1) + "NCCL version 2.24.3+cuda12.6\n")
    (facts,) = folder_facts(tmp_path)
    assert facts.named("log.gpu_names") == ["NVIDIA B300 SXM6 AC"]


def test_rules_of_a_tuner_plugin_in_a_log(tmp_path: Path) -> None:
    lead = "h1:10:20 [0] NCCL INFO TUNER/ExamplePlugin: "
    rule = "Loaded config: allreduce [0-65536] tree/ll channels={} nodes={} ranks={} pipeOps=any"
    rules = [rule.format(-1, 4, 32), rule.format(2, 32, 8), rule.format(2, -1, -1)]
    lines = ["Initializing tuner for 4 nodes, 32 ranks, 4 NVL domains", *rules]
    put(tmp_path, "n1/nccl.log", "".join(f"{lead}{line}\n" for line in lines))
    put(tmp_path, "n2/nccl.log", "".join(f"{lead}{line}\n" for line in rules))
    first, second = folder_facts(tmp_path)
    found = first.named("log.tuner_rules")
    assert [(one["channels"], one["applies"]) for one in found] == [
        (-1, True),
        (2, False),
        (2, True),
    ]
    assert first.named("log.tuner_scales") == ["4 nodes, 32 ranks"]
    # Without a scale only the impossible rule is known not to apply.
    assert [one.get("applies") for one in second.named("log.tuner_rules")] == [None, False, None]
