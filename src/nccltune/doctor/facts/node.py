# SPDX-License-Identifier: Apache-2.0
"""Facts of the node, its CPUs, kernel, limits and shared memory."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records

NODE_COLLECTED = fact(
    "node.collected",
    bool,
    meaning=(
        "the facts are of a node with collected files of its own; false for the node that the "
        "doctor runs on"
    ),
    read="the folder of nodes",
)
NODE_BOOT_ID = fact(
    "node.boot_id",
    str,
    meaning=(
        "changes with each boot, the same in all containers of a host; NCCL's host hash has it"
    ),
    read="/proc/sys/kernel/random/boot_id",
)
NODE_VIRTUAL = fact(
    "node.virtual",
    bool,
    meaning="a virtual machine",
    read="hypervisor flag in /proc/cpuinfo; systemd-detect-virt --vm",
)
NODE_CONTAINER = fact(
    "node.container",
    bool,
    meaning="this was read in a container",
    read="/.dockerenv, /run/.containerenv, /proc/1/cgroup; systemd-detect-virt --container",
)
NODE_VCPUS = fact(
    "node.vcpus",
    int,
    meaning="logical CPUs online on the node, not those a process may use",
    read="/sys/devices/system/cpu/online; lscpu",
)
NODE_SYSFS_PCI = fact(
    "node.sysfs_pci",
    bool,
    meaning="/sys/bus/pci/devices is there and not empty",
    read="/sys/bus/pci/devices",
)
NODE_SHM_DEVICE = fact(
    "node.shm_device",
    str,
    meaning="device number of /dev/shm (st_dev); containers that share it have the same one",
    read="stat /dev/shm",
)
NODE_SERVICES = fact(
    "node.services",
    dict[str, str],
    meaning=(
        "state of a service by its name without .service: active, inactive, failed, not-found. "
        "Asked: nvidia-fabricmanager, nvidia-persistenced, nvidia-imex, opensm, irqbalance"
    ),
    read="systemctl is-active",
)
NODE_MODULES = fact(
    "node.modules",
    list[str],
    meaning="kernel modules loaded, with underscores",
    read="/proc/modules; lsmod",
)
NODE_PEERMEM = fact(
    "modules.peermem",
    bool,
    meaning="whether nvidia_peermem is loaded, where only a filter for it says so",
    read="lsmod | grep peermem",
)
NODE_SOFTWARE = fact(
    "node.software",
    dict[str, str],
    meaning=(
        "version of what is installed, by name: libfabric, efa-installer, aws-ofi-nccl, ofed, "
        "rdma-core, cuda, fastsocket; empty where it is there and the version is not known"
    ),
    read="packages, version files, library names",
)
NODE_FABRIC = fact(
    "node.fabric",
    str,
    meaning=(
        "NVLink fabric: none (no NVSwitch), nvswitch (in the node), mnnvl (across nodes: NVL72 "
        "and its kind)"
    ),
    read="/proc/driver/nvidia-nvswitch, nvidia-smi -q (Fabric), GPU names",
)
CPU_VENDOR = fact(
    "cpu.vendor",
    str,
    meaning="GenuineIntel, AuthenticAMD, ARM, ...",
    read="/proc/cpuinfo vendor_id; lscpu",
)
CPU_FAMILY = fact(
    "cpu.family",
    int,
    meaning="as /proc/cpuinfo counts: Zen 1 and 2 are 23, Zen 3 and 4 are 25, Zen 5 is 26",
    read="/proc/cpuinfo cpu family",
)
CPU_SOCKETS = fact(
    "cpu.sockets",
    int,
    meaning="processors in the node",
    read="physical id in /proc/cpuinfo; lscpu",
)
CPU_NUMA_NODES = fact(
    "cpu.numa_nodes",
    int,
    meaning="NUMA nodes that have CPUs",
    read="/sys/devices/system/node; lscpu",
)
CPU_NODES_WITHOUT_MEMORY = fact(
    "cpu.nodes_without_memory",
    list[int],
    meaning="NUMA nodes that have CPUs and no memory",
    read="numactl -H",
)
CPU_GOVERNORS = fact(
    "cpu.governors",
    list[str],
    meaning="the different scaling governors in use; empty where the kernel scales no clock",
    read="/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
)


class IdleState(FactRecord):
    """One record of the fact `cpu.idle_states`."""

    name: Annotated[str | None, "C1, C6, ..."] = None
    latency_us: Annotated[int | None, "time to wake"] = None
    disabled: Annotated[bool | None, "switched off"] = None


CPU_IDLE_STATES = records(
    "cpu.idle_states",
    IdleState,
    meaning="idle states of CPU 0; empty where there are none",
    read="/sys/devices/system/cpu/cpu0/cpuidle/state*/{name,latency,disable}",
)
KERNEL_CMDLINE = fact(
    "kernel.cmdline",
    str,
    meaning="the kernel's command line",
    read="/proc/cmdline",
)
KERNEL_RELEASE = fact(
    "kernel.release",
    str,
    meaning="the kernel's release",
    read="uname -r",
)
KERNEL_NUMA_BALANCING = fact(
    "kernel.numa_balancing",
    int,
    meaning="kernel.numa_balancing: 0 off",
    read="/proc/sys/kernel/numa_balancing; sysctl",
)


class KernelLine(FactRecord):
    """One record of the fact `kernel.log`."""

    text: Annotated[str | None, "the line without its time"] = None
    count: Annotated[int | None, "how often it was seen"] = None


KERNEL_LOG = records(
    "kernel.log",
    KernelLine,
    meaning=(
        "different lines of the kernel's log since boot that name PCIe, a link, NVRM, mlx5, an "
        "Xid, AER or IOMMU; at most 2,000"
    ),
    read="dmesg; journalctl -k",
)
KERNEL_HUGE_PAGES = fact(
    "kernel.huge_pages",
    int,
    meaning="huge pages reserved, of all sizes",
    read="HugePages_Total in /proc/meminfo",
)


class IommuGroup(FactRecord):
    """One record of the fact `kernel.iommu_groups`."""

    group: Annotated[str | None, "its number"] = None
    type: Annotated[str | None, "identity, DMA, DMA-FQ, auto, blocked"] = None
    devices: Annotated[list[str] | None, "bus ids"] = None


KERNEL_IOMMU_GROUPS = records(
    "kernel.iommu_groups",
    IommuGroup,
    meaning="IOMMU groups that hold a GPU or a NIC; empty where there is no IOMMU",
    read="/sys/kernel/iommu_groups/*/{type,devices}",
)
LIMITS_MEMLOCK_KIB = fact(
    "limits.memlock_kib",
    int,
    meaning="memory a process may lock (soft limit); -1 is unlimited",
    read="ulimit -l; /proc/self/limits",
)
LIMITS_STACK_KIB = fact(
    "limits.stack_kib",
    int,
    meaning="stack of a process (soft limit); -1 is unlimited",
    read="ulimit -s; /proc/self/limits",
)
LIMITS_OPEN_FILES = fact(
    "limits.open_files",
    int,
    meaning="files a process may hold open (soft limit); -1 is unlimited",
    read="ulimit -n; /proc/self/limits",
)
LIMITS_CPUS = fact(
    "limits.cpus",
    list[int],
    meaning="CPUs this process may run on",
    read="sched_getaffinity; Cpus_allowed_list in /proc/self/status",
)
SHM_BYTES = fact(
    "shm.bytes",
    int,
    meaning="size of /dev/shm; 0 where it is not mounted",
    read="df /dev/shm; statvfs",
)
SHM_FREE_BYTES = fact(
    "shm.free_bytes",
    int,
    meaning="what is free of it",
    read="df /dev/shm; statvfs",
)
SHM_NCCL_FILES = fact(
    "shm.nccl_files", int, meaning="number of nccl-* files listed in it", read="ls -l /dev/shm"
)
LOGIND_REMOVE_IPC = fact(
    "logind.remove_ipc",
    bool,
    meaning=(
        "systemd-logind removes shared memory at logout (RemoveIPC, on by default); false where "
        "logind does not run"
    ),
    read="/etc/systemd/logind.conf, /etc/systemd/logind.conf.d/*.conf",
)
CONTAINER_NUMA_CALLS = fact(
    "container.numa_calls",
    bool,
    meaning="NUMA system calls are allowed (set_mempolicy); false where seccomp forbids them",
    read="get_mempolicy with MPOL_F_MEMS_ALLOWED, CapEff in /proc/self/status",
)
