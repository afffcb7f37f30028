# SPDX-License-Identifier: Apache-2.0
"""Facts of GPUs, their paths and copies, and of the IMEX domain."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class NodeGpu(FactRecord):
    """One record of the fact `gpus`."""

    index: Annotated[int | None, "NVML's number"] = None
    name: Annotated[str | None, "NVIDIA H200"] = None
    bus_id: Annotated[str | None, "bus id"] = None
    sm: Annotated[int | None, "compute capability, 90 is 9.0"] = None
    numa: Annotated[int | None, "NUMA node, -1 where the firmware gives none"] = None
    cpus: Annotated[list[int] | None, "CPUs near it (CPU affinity); empty where none"] = None
    pcie_gen: Annotated[int | None, "PCIe generation now"] = None
    pcie_gen_max: Annotated[int | None, "the highest that the GPU and its slot can"] = None
    pcie_width: Annotated[int | None, "lanes now"] = None
    pcie_width_max: Annotated[int | None, "lanes it has"] = None
    utilization_pct: Annotated[
        int | None, ("how busy when this was read; an idle GPU lowers its link")
    ] = None
    persistence: Annotated[bool | None, "persistence mode"] = None
    slowdowns: Annotated[
        list[str] | None,
        (
            "clock event reasons active that are a fault or a limit: hw_slowdown, "
            "hw_thermal_slowdown, hw_power_brake_slowdown, sw_thermal_slowdown, sw_power_cap"
        ),
    ] = None
    sm_clock_mhz: Annotated[int | None, "now"] = None
    sm_clock_max_mhz: Annotated[int | None, "highest"] = None
    temperature_c: Annotated[int | None, "now"] = None
    power_w: Annotated[float | None, "power drawn now"] = None
    power_limit_w: Annotated[float | None, "limit of the power, in force"] = None
    power_default_w: Annotated[float | None, "limit that the model comes with"] = None
    ecc_uncorrected: Annotated[int | None, "uncorrected memory errors since boot"] = None
    remap_pending: Annotated[bool | None, "a row or page is left out at the next reset"] = None
    remap_failed: Annotated[bool | None, "a row of memory could not be remapped"] = None
    recovery_action: Annotated[
        str | None, "what the driver asks for: none, reset, reboot, drain_p2p, drain_and_reset"
    ] = None
    mig: Annotated[bool | None, "MIG is on"] = None
    nvlinks_active: Annotated[int | None, "NVLinks up"] = None
    nvlinks: Annotated[int | None, "NVLinks it has"] = None
    nvlinks_down: Annotated[list[int] | None, "numbers of the NVLinks that are not up"] = None
    fabric_state: Annotated[str | None, ("not_supported, not_started, in_progress, completed")] = (
        None
    )
    fabric_health: Annotated[str | None, "healthy, unhealthy, limited_capacity"] = None
    fabric_status: Annotated[str | None, "success, or what failed, once completed"] = None
    h2d_gb_per_s: Annotated[float | None, "host to device copy, measured (nvbandwidth)"] = None
    d2h_gb_per_s: Annotated[float | None, "device to host copy, measured (nvbandwidth)"] = None


GPUS = records(
    "gpus",
    NodeGpu,
    meaning="NVIDIA GPUs; empty where there are none",
    read="nvidia-smi -q -x; nvidia-smi nvlink -s; nvbandwidth; libcuda and NVML; sysfs",
)
GPU_DRIVER = fact(
    "gpu.driver",
    str,
    meaning="version of the NVIDIA driver",
    read="/proc/driver/nvidia/version; nvidia-smi",
)
GPU_OPEN_DRIVER = fact(
    "gpu.open_driver",
    bool,
    meaning="the open kernel modules are loaded",
    read="Open Kernel Module in /proc/driver/nvidia/version",
)
GPU_DMABUF = fact(
    "gpu.dmabuf",
    bool,
    meaning="the driver exports GPU memory as dma-buf (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)",
    read="libcuda; open driver with kernel 5.12 or newer",
)
GPU_PEER_MEMORY = fact(
    "gpu.peer_memory",
    list[str],
    meaning="registered peer memory clients (nv_mem, nv_mem_nc); empty where none",
    read="/sys/kernel/mm/memory_peers/*/version",
)


class PeerStatus(FactRecord):
    """One entry of `gpu.p2p`."""

    a: Annotated[int | None, "GPU"] = None
    b: Annotated[int | None, "GPU"] = None
    kind: Annotated[str | None, "read, write, nvlink, atomics, pcie"] = None
    status: Annotated[str | None, "OK, NS, CNS, GNS, TNS, DR, U"] = None


GPU_P2P = records(
    "gpu.p2p",
    PeerStatus,
    meaning="state of peer access between two GPUs, by the driver",
    read="nvidia-smi topo -p2p r|w|n|a|p",
)


class GpuCopy(FactRecord):
    """One record of the fact `gpu.copies`."""

    a: Annotated[int | None, "GPU that reads or writes (the row)"] = None
    b: Annotated[int | None, "GPU it reads from or writes to (the column)"] = None
    kind: Annotated[str | None, "read, write; p2p for p2pBandwidthLatencyTest"] = None
    gb_per_s: Annotated[float | None, "bandwidth"] = None


GPU_COPIES = records(
    "gpu.copies",
    GpuCopy,
    meaning="copies between two GPUs by the copy engine, measured one at a time",
    read="nvbandwidth -t device_to_device_memcpy_read_ce; p2pBandwidthLatencyTest",
)


class CopyRange(FactRecord):
    """One record of the fact `gpu.copy_ranges`."""

    what: Annotated[str | None, "host to GPU, GPU to host, GPU to GPU"] = None
    lowest_gb_per_s: Annotated[float | None, "of all GPUs or pairs"] = None
    highest_gb_per_s: Annotated[float | None, "of all GPUs or pairs"] = None
    like: Annotated[str | None, "links whose copies reach the highest rate"] = None
    model: Annotated[str | None, "the GPUs' model and its link; null where not known"] = None
    normal: Annotated[bool | None, "the rates are what that link gives"] = None
    slow: Annotated[list[str] | None, "pairs far below the others or their NVLinks"] = None


GPU_COPY_RANGES = records(
    "gpu.copy_ranges",
    CopyRange,
    meaning="measured copies of each kind, beside the link of the GPUs' model",
    read="nvbandwidth; p2pBandwidthLatencyTest",
)


class PeerTest(FactRecord):
    """One record of the fact `gpu.p2p_test`."""

    a: Annotated[int | None, "GPU (the row)"] = None
    b: Annotated[int | None, "GPU (the column)"] = None
    without_gb_per_s: Annotated[float | None, "bandwidth without P2P"] = None
    with_gb_per_s: Annotated[float | None, "bandwidth with P2P"] = None


GPU_P2P_TEST = records(
    "gpu.p2p_test",
    PeerTest,
    meaning="copies between two GPUs without and with P2P, measured",
    read="p2pBandwidthLatencyTest",
)


class GpuPath(FactRecord):
    """One record of the fact `gpu.paths`."""

    a: Annotated[int | None, "GPU"] = None
    b: Annotated[int | None, "GPU"] = None
    kind: Annotated[
        str | None, "NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, NODE, SYS; AMD: XGMI, PCIE"
    ] = None
    links: Annotated[int | None, "NVLinks between the two (NV18), 0 without"] = None


GPU_PATHS = records(
    "gpu.paths",
    GpuPath,
    meaning="path kind between two GPUs, both ways once (a < b)",
    read="nvidia-smi topo -m; rocm-smi --showtopo; topology dump",
)
GPU_NVLINK_GROUPS = fact(
    "gpu.nvlink_groups",
    list[str],
    meaning="GPUs that NVLink, C2C or xGMI joins, directly or through others: '0 1'; '2' alone",
    read="as gpu.paths",
)


class NicPath(FactRecord):
    """One record of the fact `gpu.nic_paths`."""

    gpu: Annotated[int | None, "GPU"] = None
    nic: Annotated[str | None, "mlx5_0, or the interface without RDMA"] = None
    kind: Annotated[str | None, "PIX, PXB, P2C, PHB, NODE, SYS"] = None


GPU_NIC_PATHS = records(
    "gpu.nic_paths",
    NicPath,
    meaning="path kind between a GPU and a NIC by the hardware, not by what NCCL made of it",
    read="nvidia-smi topo -m; sysfs; topology dump",
)
IMEX_CHANNELS = fact(
    "imex.channels",
    list[str],
    meaning="channel devices this process sees; empty where none",
    read="/dev/nvidia-caps-imex-channels",
)


class ImexMember(FactRecord):
    """One record of the fact `imex.nodes`."""

    node: Annotated[str | None, "address"] = None
    status: Annotated[str | None, "READY, UNAVAILABLE, ..."] = None
    version: Annotated[str | None, "driver version there"] = None


IMEX_NODES = records(
    "imex.nodes",
    ImexMember,
    meaning="nodes of the IMEX domain",
    read="nvidia-imex-ctl -H -N",
)
