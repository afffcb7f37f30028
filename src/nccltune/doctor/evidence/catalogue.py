# SPDX-License-Identifier: Apache-2.0
"""List of everything that is read on a node.

`gather` reads the running node by this list. The shell script for other nodes is made from the same
list.
"""

from typing import NamedTuple

from nccltune.doctor.evidence.parsers.gpu_query import QUERY, QUERY_CAPABILITY, QUERY_FABRIC
from nccltune.doctor.evidence.parsers.services import ASKED

QUICK_S, GPU_S = 1.4, 6.0
"""Time limits in seconds for a tool, and for a tool that uses the GPU driver.

Without persistence mode the GPU driver starts again at each call. That takes seconds on a node with
many GPUs.
"""


class Values(NamedTuple):
    """A group of small files, each with one value.

    `patterns` match the files. `links` match paths that are listed but not read: a symbolic link
    with its target, another path with an empty value.
    """

    name: str
    patterns: tuple[str, ...]
    links: tuple[str, ...] = ()


class Text(NamedTuple):
    """A file of several lines. Its text is kept, except what `gather.plain` removes."""

    name: str
    path: str


class ToolCommand(NamedTuple):
    """A tool to run.

    `fine` lists the exit codes that mean success. A `slow` tool runs only when its output is
    written to a file. On the running node, rules get the same data from other items.
    """

    name: str
    words: tuple[str, ...]
    deadline_s: float = QUICK_S
    fine: tuple[int, ...] = (0,)
    slow: bool = False


_PCI = "/sys/bus/pci/devices/*/"
_NET = "/sys/class/net/*/"
_RDMA = "/sys/class/infiniband/*/"
PCI_CLASSES = ("0x02", "0x03", "0x0604", "0x0680")
"""PCI classes that rules use: network, display and 3D, PCI bridges, other bridges (NVSwitch)."""

PCI = Values(
    "pci",
    tuple(
        _PCI + name
        for name in (
            "class",
            "vendor",
            "device",
            "numa_node",
            "current_link_speed",
            "current_link_width",
            "max_link_speed",
            "max_link_width",
            "local_cpulist",
        )
    ),
    ("/sys/bus/pci/devices/*", _PCI + "driver", _PCI + "iommu_group"),
)
VALUES = (
    PCI,
    Values("iommu", ("/sys/kernel/iommu_groups/*/type",)),
    Values(
        "net",
        (
            *(_NET + name for name in ("operstate", "speed", "mtu", "uevent")),
            _NET + "device/numa_node",
        ),
        ("/sys/class/net/*", _NET + "device", _NET + "device/driver", _NET + "device/infiniband/*"),
    ),
    Values(
        "rdma",
        (
            _RDMA + "fw_ver",
            _RDMA + "device/numa_node",
            *(
                _RDMA + "ports/*/" + name
                for name in ("state", "phys_state", "rate", "link_layer", "sm_lid", "gids/*")
            ),
            _RDMA + "ports/*/gid_attrs/types/*",
            _RDMA + "ports/*/gid_attrs/ndevs/*",
        ),
        ("/sys/class/infiniband/*", _RDMA + "device", _RDMA + "device/driver"),
    ),
    Values("counters", (_RDMA + "ports/*/counters/*", _RDMA + "ports/*/hw_counters/*")),
    Values(
        "cpu",
        (
            "/sys/devices/system/cpu/online",
            "/sys/devices/system/node/node*/cpulist",
            "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            *(
                f"/sys/devices/system/cpu/cpu0/cpuidle/state*/{name}"
                for name in ("name", "latency", "disable")
            ),
        ),
    ),
    Values(
        "system",
        (
            *(
                f"/sys/class/dmi/id/{name}"
                for name in ("sys_vendor", "product_name", "chassis_asset_tag", "board_vendor")
            ),
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/osrelease",
            "/proc/sys/kernel/numa_balancing",
            "/proc/sys/kernel/random/boot_id",
            "/proc/sys/net/ipv4/tcp_rmem",
            "/proc/sys/net/ipv4/tcp_wmem",
            "/proc/sys/net/core/rmem_max",
            "/proc/sys/net/core/wmem_max",
            "/sys/kernel/mm/memory_peers/*/version",
            "/sys/kernel/mm/hugepages/*/nr_hugepages",
        ),
    ),
    Values(
        "devices",
        (),
        (
            "/.dockerenv",
            "/run/.containerenv",
            "/dev/infiniband/*",
            "/dev/nvidia-caps-imex-channels/*",
            "/dev/nvidia-nvswitch*",
            "/proc/driver/nvidia-nvswitch/devices/*",
            "/run/systemd/system",
            "/var/run/nvidia-topologyd/virtualTopology.xml",
        ),
    ),
)
TEXTS = (
    Text("cmdline", "/proc/cmdline"),
    Text("modules", "/proc/modules"),
    Text("limits", "/proc/self/limits"),
    Text("status", "/proc/self/status"),
    Text("cpuinfo", "/proc/cpuinfo"),
    Text("cgroup", "/proc/1/cgroup"),
    Text("mounts", "/proc/self/mounts"),
    Text("nvidia-version", "/proc/driver/nvidia/version"),
    Text("efa-packages", "/opt/amazon/efa_installed_packages"),
    Text("cuda-version", "/usr/local/cuda/version.json"),
    Text("virtual-topology", "/var/run/nvidia-topologyd/virtualTopology.xml"),
    Text("etc-nccl-conf", "/etc/nccl.conf"),
)
LOGIND = ("/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d/*.conf")
PROFILES = (
    "/etc/environment",
    "/etc/profile",
    "/etc/profile.d/*.sh",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "~/.bashrc",
    "~/.bash_profile",
    "~/.profile",
    "~/.zshrc",
)
"""Start-up files of shells. Only lines that set a variable with a prefix of `SETTINGS` are kept."""
SETTINGS = (
    "GLOO_",
    "NCCL_",
    "NCCLTUNE_",
    "FI_",
    "OFI_NCCL_",
    "UCX_",
    "CUDA_",
    "TORCH_NCCL_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)
"""Prefixes of the environment variables that are kept. No other variable is kept."""
_SMI = "nvidia-smi"
COMMANDS = (
    ToolCommand("df-shm", ("df", "-P", "/dev/shm")),  # noqa: S108  # read, never written
    ToolCommand("shm-device", ("stat", "-c", "%d", "/dev/shm")),  # noqa: S108
    # As root, lspci also reads the vital product data, which takes tenths of a second for each
    # device. Therefore lspci is a slow tool.
    ToolCommand("lspci", ("lspci", "-D", "-nn", "-vvv"), GPU_S, slow=True),
    ToolCommand("dmesg", ("dmesg",)),
    # For people who read the collected files. Facts are made of this output only if no sysfs was
    # collected.
    ToolCommand("addresses", ("ip", "-o", "addr"), slow=True),
    ToolCommand("ibv_devinfo", ("ibv_devinfo", "-v")),
    ToolCommand("virt", ("systemd-detect-virt", "--vm"), fine=(0, 1)),
    ToolCommand("ldconfig", ("ldconfig", "-p")),
    ToolCommand("ofed", ("ofed_info", "-s")),
    ToolCommand("nvidia-smi", (_SMI, f"--query-gpu={QUERY}", "--format=csv"), GPU_S),
    ToolCommand("nvidia-smi-sm", (_SMI, f"--query-gpu={QUERY_CAPABILITY}", "--format=csv"), GPU_S),
    ToolCommand("nvidia-smi-fabric", (_SMI, f"--query-gpu={QUERY_FABRIC}", "--format=csv"), GPU_S),
    ToolCommand("nvlink", (_SMI, "nvlink", "-s"), GPU_S),
    ToolCommand("topo", (_SMI, "topo", "-m"), GPU_S),
    *(
        ToolCommand(f"p2p-{kind}", (_SMI, "topo", "-p2p", kind), GPU_S)
        for kind in ("r", "w", "n", "a", "p")
    ),
    ToolCommand("imex", ("nvidia-imex-ctl", "-N"), GPU_S),
)
SERVICES = ASKED
PACKAGES = (
    "libfabric1",
    "libfabric",
    "libfabric-aws",
    "rdma-core",
    "libibverbs1",
    "google-fast-socket",
    "libnccl2",
    "aws-ofi-nccl",
    "libnccl-ofi",
)
ETHTOOL = ("-i", "-S")
PLUGIN_KINDS = ("net", "tuner", "profiler", "env")
