# SPDX-License-Identifier: Apache-2.0
"""A made-up node: the kernel's files below a root, and the output of tools."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nccltune.doctor.evidence.catalogue import ToolCommand
from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.folder import read_folder
from nccltune.doctor.evidence.tools import Output
from nccltune.doctor.facts import Facts
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.elves import elf

SWITCH = "pci0000:00/0000:00:01.0/0000:01:00.0/"
GPU, NIC, FAR = "0000:04:00.0", "0000:03:00.0", "0000:84:00.0"
_GB200 = "0000:00:1f.0"
DEVICES = {
    # bus id: place, class, vendor, device, NUMA node, speed and width, now and at most
    "0000:00:01.0": ("pci0000:00/", "0x060400", "0x8086", "0x1a00", 0, "32.0 GT/s PCIe", 16),
    "0000:01:00.0": ("pci0000:00/0000:00:01.0/", "0x060400", "0x1000", "0xc030", 0, "32.0", 16),
    "0000:02:00.0": (SWITCH, "0x060400", "0x1000", "0xc030", 0, "16.0 GT/s PCIe", 16),
    "0000:02:01.0": (SWITCH, "0x060400", "0x1000", "0xc030", 0, "32.0 GT/s PCIe", 16),
    NIC: (SWITCH + "0000:02:00.0/", "0x020700", "0x15b3", "0x1021", 0, "32.0 GT/s PCIe", 16),
    GPU: (SWITCH + "0000:02:01.0/", "0x030200", "0x10de", "0x2330", 0, "32.0 GT/s PCIe", 16),
    FAR: ("pci0000:80/0000:80:01.0/", "0x030200", "0x10de", "0x2330", 1, "32.0 GT/s PCIe", 16),
    _GB200: ("pci0000:00/", "0x060100", "0x8086", "0x1b81", 0, "2.5 GT/s PCIe", 1),
}


def folder_facts(path: Path) -> Iterator[Facts]:
    """Return the facts of each node of a folder."""
    return (facts_of(evidence) for evidence in read_folder(path))


def put(root: Path, path: str, text: str | bytes) -> None:
    """Write a file below the root."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def link(root: Path, path: str, target: str) -> None:
    """Make a symbolic link below the root."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def make_node(root: Path) -> None:
    """Make a node with two GPUs, a ConnectX NIC beside one of them, and left-over settings."""
    for place, (above, kind, vendor, device, numa, speed, width) in DEVICES.items():
        folder = f"/sys/devices/{above}{place}"
        for name, value in (
            ("class", kind),
            ("vendor", vendor),
            ("device", device),
            ("numa_node", numa),
            ("local_cpulist", "0-3" if numa == 0 else "4-7"),
            ("current_link_speed", "8.0 GT/s PCIe" if place == NIC else speed),
            ("max_link_speed", speed),
            ("current_link_width", 8 if place == NIC else width),
            ("max_link_width", width),
        ):
            put(root, f"{folder}/{name}", f"{value}\n")
        link(root, f"/sys/bus/pci/devices/{place}", f"../../../devices/{above}{place}")
    link(root, f"/sys/devices/{DEVICES[NIC][0]}{NIC}/driver", "../../../bus/pci/drivers/mlx5_core")
    for place, group in ((GPU, 7), (NIC, 8)):
        folder = f"/sys/devices/{DEVICES[place][0]}{place}"
        link(root, f"{folder}/iommu_group", f"../../../kernel/iommu_groups/{group}")
        put(root, f"/sys/kernel/iommu_groups/{group}/type", "DMA-FQ\n")
    _network(root)
    _system(root)


def _network(root: Path) -> None:
    device = f"/sys/devices/{DEVICES[NIC][0]}{NIC}"
    target = device.removeprefix("/sys/")
    put(root, f"{device}/net/eth0/operstate", "up\n")
    put(root, f"{device}/net/eth0/speed", "400000\n")
    put(root, f"{device}/net/eth0/mtu", "1500\n")
    put(root, f"{device}/net/eth0/uevent", "INTERFACE=eth0\nIFINDEX=2\n")
    link(root, f"{device}/net/eth0/device", f"../../../{NIC}")
    link(root, "/sys/class/net/eth0", f"../../{target}/net/eth0")
    put(root, "/sys/devices/virtual/net/docker0/operstate", "down\n")
    put(root, "/sys/devices/virtual/net/docker0/uevent", "DEVTYPE=bridge\nINTERFACE=docker0\n")
    link(root, "/sys/class/net/docker0", "../../devices/virtual/net/docker0")
    port = f"{device}/infiniband/mlx5_0/ports/1"
    for name, value in (
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("link_layer", "Ethernet"),
        ("sm_lid", "0x0"),
        ("gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001"),
        ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("gids/3", "0000:0000:0000:0000:0000:ffff:c000:0204"),
        ("gid_attrs/types/0", "IB/RoCE v1"),
        ("gid_attrs/types/3", "RoCE v2"),
        ("gid_attrs/ndevs/0", "eth0"),
        ("counters/symbol_error", "0"),
        ("counters/link_downed", "3"),
        ("counters/port_rcv_data", "123456"),
        ("hw_counters/packet_seq_err", "9"),
    ):
        put(root, f"{port}/{name}", f"{value}\n")
    put(root, f"{device}/infiniband/mlx5_0/fw_ver", "28.39.1002\n")
    link(root, f"{device}/infiniband/mlx5_0/device", f"../../../{NIC}")
    link(root, "/sys/class/infiniband/mlx5_0", f"../../{target}/infiniband/mlx5_0")


def _system(root: Path) -> None:
    put(root, "/proc/sys/kernel/hostname", "node7\n")
    put(root, "/proc/sys/kernel/osrelease", "6.8.0-1-generic\n")
    put(root, "/proc/sys/kernel/numa_balancing", "1\n")
    put(root, "/proc/sys/kernel/random/boot_id", "00000000-0000-0000-0000-000000000001\n")
    put(root, "/proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt password=secret quiet -- --key x\n")
    put(root, "/proc/modules", texts.PROC_MODULES + "nvidia_peermem 16384 0 - Live 0x0\n")
    put(root, "/proc/self/limits", texts.LIMITS)
    put(root, "/proc/self/status", texts.STATUS)
    put(root, "/proc/cpuinfo", texts.CPUINFO)
    put(root, "/proc/1/cgroup", "0::/init.scope\n")
    put(root, "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for "
        "x86_64  570.1.2  Release Build\nGCC version: 13\n")  # fmt: skip
    put(root, "/sys/devices/system/cpu/online", "0-7\n")
    put(root, "/sys/devices/system/node/node0/cpulist", "0-3\n")
    put(root, "/sys/devices/system/node/node1/cpulist", "4-7\n")
    for cpu, governor in ((0, "powersave"), (1, "performance")):
        put(root, f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", governor)
    for name, value in (("name", "C6"), ("latency", "133"), ("disable", "0")):
        put(root, f"/sys/devices/system/cpu/cpu0/cpuidle/state2/{name}", value)
    put(root, "/sys/kernel/mm/memory_peers/nv_mem/version", "1.0\n")
    put(root, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "128\n")
    put(root, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    put(root, "/sys/class/dmi/id/product_name", "p5.48xlarge\n")
    put(root, "/dev/infiniband/uverbs0", "")
    put(root, "/dev/nvidia-caps-imex-channels/channel0", "")
    put(root, "/run/systemd/system/x", "")
    put(root, "/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n")
    put(root, "/etc/nccl.conf", "# left over\nNCCL_ALGO=Tree\nNCCL_IB_HCA=mlx5_9\nOTHER=x\n")
    put(root, "/root/.nccl.conf", "NCCL_IB_HCA=mlx5_0\n")
    put(root, "/root/.bashrc", "export NCCL_DEBUG='INFO'\nexport API_TOKEN=x\n")
    plugin = elf(["ncclNetPlugin_v9", "ncclTunerPlugin_v4", "init"])
    put(root, "/usr/lib/libnccl-net-made.so", plugin)
    put(root, "/usr/lib/libnccl.so.2.27.5", elf(["ncclGetVersion"]))
    link(root, "/usr/lib/libnccl.so.2", "libnccl.so.2.27.5")
    link(root, "/usr/lib/libibverbs.so.1", "libnccl.so.2.27.5")


ENVIRONMENT = {
    "NCCL_ALGO": "Ring",
    "NCCL_NET_PLUGIN": "made",
    "NCCL_SECRET_TOKEN": "abc",
    "PATH": "/bin",
}
_OUTPUTS = {
    "lspci": texts.LSPCI,
    "nvidia-smi": texts.SMI_CSV,
    "nvidia-smi-sm": texts.SMI_SM,
    "nvidia-smi-fabric": texts.SMI_FABRIC,
    "nvlink": texts.NVLINK,
    "p2p-r": texts.P2P,
    "p2p-n": texts.P2P,
    "df-shm": texts.DF,
    "shm-device": "27\n",
    "dmesg": texts.DMESG,
    "addresses": texts.ADDRESSES,
    "services": texts.SERVICES,
    "virt": "none\n",
    "ldconfig": "\tlibibverbs.so.1 (libc6,x86-64) => /usr/lib/libibverbs.so.1\n",
    "packages": "libfabric1 1.22.0-1\n",
}


def run_made(commands: list[ToolCommand]) -> Mapping[str, Output]:
    """Return the output of tools on this node; other tools are not installed."""
    found = {}
    for command in commands:
        text = _OUTPUTS.get(command.name)
        if command.name == "ethtool-i eth0":
            text = "driver: mlx5_core\nversion: 6.8.0\nbus-info: 0000:03:00.0\n"
        problem = None if text is not None else f"{command.words[0]}: is not installed"
        found[command.name] = Output((text or "").encode(), problem, 0.0)
    return found


def pasted_facts(folder: Path, name: str, text: str) -> Facts:
    """Return the facts of one file of a node."""
    put(folder, f"n1/{name}", text)
    (facts,) = folder_facts(folder)
    return facts
