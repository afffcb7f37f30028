# SPDX-License-Identifier: Apache-2.0
"""Facts from the files and tools of a node, live and through a folder."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nccltune.doctor.evidence.catalogue import ToolCommand
from nccltune.doctor.evidence.collect import collect, facts_of
from nccltune.doctor.evidence.gather import gather, write_evidence
from nccltune.doctor.evidence.script import collect_script
from nccltune.doctor.evidence.tools import Output
from nccltune.doctor.facts import Facts, catalogue
from nccltune.model.errors import InputError
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import (
    ENVIRONMENT,
    FAR,
    GPU,
    NIC,
    folder_facts,
    make_node,
    put,
    run_made,
)


@pytest.fixture(scope="module")
def facts(root: Path) -> Facts:
    return facts_of(gather(root, environment=ENVIRONMENT, runner=run_made, thorough=True))


def of(facts: Facts, fact: str, /, **wanted: Any) -> dict[str, Any]:
    """Return the only record of a fact with these values."""
    found = [one for one in facts.named(fact) if all(one.get(k) == v for k, v in wanted.items())]
    assert len(found) == 1, (fact, wanted, facts.named(fact))
    return dict(found[0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node.virtual", True),
        ("node.container", False),
        ("node.vcpus", 8),
        ("node.sysfs_pci", True),
        ("node.shm_device", "27"),
        ("node.services", {"nvidia-fabricmanager": "failed", "opensm": "not-found"}),
        ("node.modules", ["nvidia", "nvidia_peermem"]),
        ("node.fabric", "nvswitch"),
        ("cpu.vendor", "GenuineIntel"),
        ("cpu.sockets", 2),
        ("cpu.numa_nodes", 2),
        ("cpu.governors", ["performance", "powersave"]),
        ("cpu.idle_states", [{"name": "C6", "latency_us": 133, "disabled": False}]),
        ("kernel.cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt password=(redacted) quiet"),
        ("kernel.numa_balancing", 1),
        ("kernel.huge_pages", 128),
        ("limits.memlock_kib", 8192),
        ("limits.cpus", [0, 1, 2, 3, 8]),
        ("shm.bytes", 65536 * 1024),
        ("logind.remove_ipc", False),
        ("gpu.driver", "570.1.2"),
        ("gpu.open_driver", True),
        ("gpu.dmabuf", True),
        ("gpu.peer_memory", ["nv_mem"]),
        ("imex.channels", ["channel0"]),
        ("rdma.devices_seen", True),
        ("rdma.verbs", True),
        ("rdma.dev", True),
        ("cloud.provider", "aws"),
        ("cloud.machine_type", "p5.48xlarge"),
        ("nccl.version", "2.27.5"),
        ("nccl.libraries", [{"path": "/usr/lib/libnccl.so.2", "version": "2.27.5"}]),
        ("topo.given", False),
        ("kernel.iommu_groups", [{"group": "7", "type": "DMA-FQ", "devices": [GPU]}, {"group": "8",
         "type": "DMA-FQ", "devices": [NIC]}]),
        (
            "hca_counters",
            [
                {"hca": "mlx5_0", "port": 1, "counter": c, "value": v}
                for c, v in (("link_downed", 3), ("packet_seq_err", 9))
            ],
        ),
    ],
)  # fmt: skip
def test_facts(facts: Facts, name: str, value: object) -> None:
    assert facts.named(name) == value


def test_records(facts: Facts) -> None:
    link = of(facts, "pci.links", bus_id=NIC)
    # The slot of the NIC is of Gen4: the link cannot be faster than that.
    assert (link["name"], link["speed_gt_per_s"], link["speed_gt_per_s_max"]) == ("mlx5_0", 8, 16)
    assert (link["width"], link["width_max"], link["max_read_request"]) == (8, 16, 4096)
    assert link["ats"] is False
    assert of(facts, "pci.links", bus_id=GPU)["name"] == "GPU 0"
    bridge = of(facts, "pci.bridges", bus_id="0000:00:01.0")
    assert (bridge["acs_source_validation"], bridge["acs_request_redirect"]) == (True, True)
    assert of(facts, "pci.bridges", bus_id="0000:01:00.0")["acs_request_redirect"] is False
    assert bridge["leads_on"] is True
    # Fields that lspci did not print are unknown.
    assert "acs_control" not in of(facts, "pci.bridges", bus_id="0000:02:00.0")
    gpu = of(facts, "gpus", index=0)
    assert (gpu["numa"], gpu["cpus"], gpu["sm"]) == (0, [0, 1, 2, 3], 90)
    assert (gpu["nvlinks_active"], gpu["nvlinks"]) == (2, 2)
    far = of(facts, "gpus", index=1)
    assert (far["bus_id"], far["nvlinks_active"]) == (FAR, 1)
    assert of(facts, "gpu.p2p", a=1, b=0, kind="nvlink")["status"] == "CNS"
    assert of(facts, "gpu.nic_paths", gpu=0) == {"gpu": 0, "nic": "mlx5_0", "kind": "PIX"}
    assert of(facts, "gpu.nic_paths", gpu=1)["kind"] == "SYS"
    nic = of(facts, "nics", name="eth0")
    assert (nic["driver"], nic["bus_id"], nic["rdma"]) == ("mlx5_core", NIC, "mlx5_0")
    assert (nic["virtual"], nic["speed_mbit_per_s"], nic["mtu"]) == (False, 400000, 1500)
    assert nic["driver_version"] == "6.8.0"
    bridge = of(facts, "nics", name="docker0")
    assert (bridge["driver"], bridge["virtual"]) == ("bridge", True)
    hca = of(facts, "hcas", name="mlx5_0")
    assert (hca["state"], hca["rate_gbit_per_s"]) == ("ACTIVE", 400)
    # An MTU of 1500 leaves RoCE 1024.
    assert (hca["mtu"], hca["bus_id"], hca["driver"]) == (1024, NIC, "mlx5_core")
    assert [gid["index"] for gid in facts.named("gids")] == [0, 3]
    assert of(facts, "gids", index=3)["gid"].startswith("0000:0000:0000:0000:0000:ffff:")
    assert of(facts, "gids", index=0)["link_local"] is True
    assert any("Xid" in line["text"] for line in facts.named("kernel.log"))


def test_settings_and_plugins(facts: Facts) -> None:
    settings = {(one["name"], one["kind"]): one for one in facts.named("settings")}
    assert settings["NCCL_ALGO", "environment"]["in_force"] is True
    assert settings["NCCL_ALGO", "system_conf"]["in_force"] is False
    assert settings["NCCL_ALGO", "system_conf"]["where"] == "/etc/nccl.conf:2"
    assert settings["NCCL_IB_HCA", "user_conf"]["in_force"] is True
    assert settings["NCCL_IB_HCA", "system_conf"]["in_force"] is False
    assert settings["NCCL_DEBUG", "profile"] == {
        "name": "NCCL_DEBUG",
        "value": "INFO",
        "kind": "profile",
        "where": "/root/.bashrc:1",
        "in_force": False,
    }
    assert settings["NCCL_SECRET_TOKEN", "environment"]["value"] == "(redacted)"
    assert not any(name in ("PATH", "OTHER", "API_TOKEN") for name, _ in settings)
    (plugin,) = facts.named("plugins")
    assert plugin == {
        "path": "/usr/lib/libnccl-net-made.so",
        "kind": "net",
        "named_by": "NCCL_NET_PLUGIN=made",
        "tuner_symbols": ["ncclTunerPlugin_v4"],
    }


def test_unread_sources_are_listed(facts: Facts) -> None:
    assert "nvidia-imex-ctl: is not installed" in facts.unread
    assert any("without root rights" in line for line in facts.unread)
    assert "log.net" not in facts
    assert "gpu.paths" not in facts


def test_written_evidence_gives_the_same_facts(root: Path, facts: Facts, tmp_path: Path) -> None:
    evidence = gather(root, environment=ENVIRONMENT, runner=run_made, thorough=True)
    target = write_evidence(evidence, tmp_path)
    assert target == tmp_path / "node7"
    (other,) = folder_facts(tmp_path)
    assert {name: fact.value for name, fact in other.items()} == {
        name: fact.value if name != "node.collected" else True for name, fact in facts.items()
    }
    names = ("lspci -D -nn -vvv: ", "node7/lspci.txt: ")
    unread, other_unread = (
        {line.removeprefix(name) for line in listed}
        for listed, name in zip((facts.unread, other.unread), names, strict=True)
    )
    assert unread == other_unread
    assert other["limits.open_files"].source == "node7/limits.txt:3"
    text = "".join(path.read_text() for path in target.iterdir())
    for secret in ("secret", "abc", "--key", "1111-2222", "API_TOKEN"):
        assert secret not in text


def test_a_node_supplies_every_fact_but_these(facts: Facts) -> None:
    # `Facts.add` refuses other names and types. These facts no node can supply by itself.
    never = {
        name
        for name in catalogue()
        if name not in facts and not name.startswith(("log.", "topo.", "graph.", "cloud."))
    }
    assert never == {
        "container.numa_calls",
        "counters_once",
        "cpu.nodes_without_memory",
        "gpu.copies",
        "gpu.copy_ranges",
        "gpu.link_errors",
        "gpu.nvlink_groups",
        "gpu.p2p_test",
        "gpu.paths",
        "imex.nodes",
        "modules.peermem",
        "nic_counters",
        "pci.acs_lines",
        "pci.link_lines",
        "ras.checks",
        "rdma.fabric_links",
        "rdma.rail_pings",
        "rdma.tests",
        "shm.nccl_files",
        "tests",
        "vm_host.bridges",
    }


def test_files_given_beside_the_node_add_facts(root: Path, tmp_path: Path) -> None:
    put(tmp_path, "nccl.log", texts.LOG)
    put(tmp_path, "job.sbatch", texts.JOB)
    put(tmp_path, "metadata/cloud-metadata.json", '{"compute": {"vmSize": "Standard_ND96"}}')
    put(tmp_path, "gpu-bandwidth.txt", texts.NVBANDWIDTH)
    found = collect(
        root,
        environment={},
        runner=run_made,
        files=[
            tmp_path / "nccl.log",
            tmp_path / "job.sbatch",
            tmp_path / "metadata" / "cloud-metadata.json",
            tmp_path / "gpu-bandwidth.txt",
        ],
    )
    assert (found.named("log.net"), found.named("log.bootstrap")) == ("IB", "docker0")
    assert found.named("log.vias")[0] == {
        "direction": "receive",
        "via": "NET/IB/0/GDRDMA",
        "gdr": True,
        "count": 2,
    }
    # The version in a log takes precedence over that of a library.
    assert found.named("nccl.version") == "2.27.5"
    assert found.named("cloud.machine_type") == "Standard_ND96"
    assert of(found, "gpus", index=1)["h2d_gb_per_s"] == 12.4
    assert of(found, "gpu.copies", a=1, b=0)["gb_per_s"] == 274.5
    assert found["gpu.copies"].source.endswith("gpu-bandwidth.txt:19")
    job = of(found, "settings", name="NCCL_PROTO")
    assert (job["kind"], job["in_force"]) == ("job_file", False)
    assert job["where"] == f"{tmp_path}/job.sbatch:4"
    assert of(found, "settings", name="NCCL_ALGO", kind="log")["in_force"] is True
    put(tmp_path, "poem.txt", "roses are red\n")
    with pytest.raises(InputError, match="its kind is not recognised"):
        collect(root, environment={}, runner=run_made, files=[tmp_path / "poem.txt"])
    put(tmp_path, "words.txt", "a throughput of 12.5 GB/s\n")
    with pytest.raises(InputError, match="states a bandwidth in words"):
        collect(root, environment={}, runner=run_made, files=[tmp_path / "words.txt"])
    with pytest.raises(InputError, match="no such file"):
        collect(root, environment={}, runner=run_made, files=[tmp_path / "absent"])


def test_nvidia_smi_in_xml_and_topo(root: Path, tmp_path: Path) -> None:
    put(tmp_path, "n/nvidia-smi-q-x.xml", texts.SMI_XML)
    put(tmp_path, "n/nvidia-smi-topo-m.txt", texts.TOPO)
    put(tmp_path, "n/ibstat.txt", texts.IBSTAT)
    put(tmp_path, "n/show_gids.txt", texts.GIDS)
    put(tmp_path, "n/perfquery.1.txt", texts.PERFQUERY.replace(":.1\n", ":.0\n"))
    put(tmp_path, "n/perfquery.2.txt", texts.PERFQUERY.replace("12", "15"))
    put(tmp_path, "n/ib_write_bw.txt", texts.PERFTEST)
    put(tmp_path, "n/rail-pings.txt", texts.PINGS)
    put(tmp_path, "n/host-lspci.txt", texts.LSPCI)
    put(tmp_path, "n/imex.txt", texts.IMEX)
    (found,) = folder_facts(tmp_path)
    assert found.node == "n"
    assert of(found, "gpus", index=0)["bus_id"] == GPU
    assert of(found, "gpu.paths", a=0, b=1)["links"] == 18
    assert of(found, "gpu.nic_paths", gpu=1, nic="mlx5_bond_1")["kind"] == "PXB"
    assert of(found, "hcas", name="mlx5_1")["sm_lid"] == 0
    assert of(found, "gids", index=3)["type"] == "RoCE v2"
    symbol = of(found, "hca_counters", counter="symbol_error")
    assert (symbol["value"], symbol["earlier"]) == (15, 12)
    assert of(found, "rdma.tests", hca="mlx5_0")["gbit_per_s"] == 195.5
    assert of(found, "rdma.rail_pings", to_rail=1)["reached"] is False
    assert len(found.named("vm_host.bridges")) == 2
    assert of(found, "imex.nodes", node="192.0.2.5")["status"] == "UNAVAILABLE"


def test_the_script_collects_the_same_facts_in_sh(tmp_path: Path) -> None:
    script = tmp_path / "collect.sh"
    script.write_text(collect_script())
    assert re.search(r"@[A-Z_]+@", script.read_text()) is None
    environment = {**os.environ, "NCCL_ALGO": "Ring", "NCCL_A_TOKEN": "abc"}
    done = subprocess.run(
        ["/bin/sh", str(script), str(tmp_path / "out"), "here"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == f"wrote {tmp_path}/out/here\n"
    (scripted,) = folder_facts(tmp_path / "out")
    live = facts_of(gather(environment=environment, runner=lambda _: {}))
    for fact in ("kernel.release", "limits.open_files", "cpu.vendor", "node.container"):
        assert scripted.named(fact) == live.named(fact), fact
    values = {one["name"]: one["value"] for one in scripted.named("settings")}
    assert (values["NCCL_ALGO"], values["NCCL_A_TOKEN"]) == ("Ring", "(redacted)")
    # Other tests make and remove interfaces meanwhile.
    for name in ("lo", "eth0"):
        states = [
            [nic["mtu"] for nic in facts.named("nics") if nic["name"] == name]
            for facts in (scripted, live)
        ]
        assert states[0] == states[1]
    assert [link["bus_id"] for link in scripted.named("pci.links")] == [
        link["bus_id"] for link in live.named("pci.links")
    ]


def test_without_lspci_the_configuration_space_is_read(root: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def noted(commands: list[ToolCommand]) -> Mapping[str, Output]:
        asked.extend(command.name for command in commands)
        return run_made(commands)

    make_node(tmp_path)
    config = bytearray(4096)
    config[0x100:0x104] = (0x000D | 1 << 16).to_bytes(4, "little")
    config[0x106:0x108] = (0x0005).to_bytes(2, "little")
    for place in ("0000:01:00.0", "0000:02:01.0"):
        put(tmp_path, f"/sys/bus/pci/devices/{place}/config", bytes(config))
    found = collect(tmp_path, environment={}, runner=noted)
    assert "nvidia-smi" in asked
    assert "lspci" not in asked
    bridge = of(found, "pci.bridges", bus_id="0000:02:01.0")
    assert (bridge["acs_source_validation"], bridge["acs_request_redirect"]) == (True, True)
    assert "acs_control" not in of(found, "pci.bridges", bus_id="0000:00:01.0")
    assert not any("without root" in line for line in found.unread)
    # Without the rights the kernel gives 64 bytes.
    put(tmp_path, "/sys/bus/pci/devices/0000:01:00.0/config", bytes(64))
    put(tmp_path, "/sys/bus/pci/devices/0000:02:01.0/config", bytes(64))
    found = collect(tmp_path, environment={}, runner=noted)
    assert "acs_control" not in of(found, "pci.bridges", bus_id="0000:02:01.0")
    assert any("without root rights" in line for line in found.unread)


@pytest.mark.parametrize(
    ("cgroup", "mounts", "container"),
    [
        ("0::/init.scope\n", "/dev/sda1 / ext4 rw 0 0\n", False),
        ("0::/\n", "overlay / overlay rw,lowerdir=/var/lib/x 0 0\n", True),
        ("0::/\n", "rootfs / rootfs rw 0 0\n/dev/sda1 / ext4 rw 0 0\n", False),
        ("1:cpu:/kubepods/pod1\n", "/dev/sda1 / ext4 rw 0 0\n", True),
    ],
)
def test_containers(cgroup: str, mounts: str, container: bool, tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/cgroup", cgroup)
    put(tmp_path, "/proc/self/mounts", mounts)
    facts = collect(tmp_path, environment={})
    assert facts.named("node.container") is container
    raw = gather(tmp_path, environment={}).get("mounts")
    assert raw is not None
    assert b"lowerdir" not in raw.data
