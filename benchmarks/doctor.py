# SPDX-License-Identifier: Apache-2.0
"""How long the doctor takes: this node, and folders of collected nodes of 8 GPUs and 10 NICs.

python benchmarks/doctor.py [ROUNDS [NODES]]

The nodes are made up at the size of real ones (half a megabyte each: lspci of 200 devices, a log of
700 lines). As in a real cluster they differ in host names, addresses, counters and the log; one in
fifty has a fault.
"""

import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

GPUS, NICS, DEVICES = 8, 10, 200
COMMAND = [sys.executable, "-m", "nccltune"]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {rounds}")
    report("nccltune doctor, this node", rounds, lambda: run([]))
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sorted({1, most // 10, most} - {0}):
            path = Path(folder) / str(nodes)
            for number in range(nodes):
                make_node(path / f"node{number:04d}", number)
            size = sum(file.stat().st_size for file in path.rglob("*.txt")) / 1e6
            name = f"{nodes} collected nodes ({size:.0f} MB)"
            report(name, rounds, lambda path=path: run([str(path)]))
            print(parts(path))


def report(name: str, rounds: int, measured: Callable[[], None]) -> None:
    times = []
    work = []
    for round_ in range(rounds + 1):
        started, worked = time.perf_counter(), cpu()
        measured()
        if round_:
            times.append(time.perf_counter() - started)
            work.append(cpu() - worked)
    print(
        f"{name:<36} {statistics.median(times):6.2f} s  ({min(times):.2f}-{max(times):.2f}), "
        f"CPU {statistics.median(work):.2f} s"
    )


def cpu() -> float:
    """Processor time of what was started, its own children included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(arguments: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "doctor", "--json", *arguments], stdout=subprocess.DEVNULL, check=False
    )
    assert done.returncode in (0, 1), done.returncode


def parts(path: Path) -> str:
    """Where the time goes, once, in this process."""
    started = time.perf_counter()
    from nccltune.doctor.evidence.many_nodes import read_nodes
    from nccltune.doctor.examine import examine
    from nccltune.doctor.rulebase import rule_base

    base = rule_base()
    loaded = time.perf_counter()
    nodes = read_nodes(path)
    read = time.perf_counter()
    examine(nodes, base, "")
    asked = time.perf_counter()
    return (
        f"  rules {loaded - started:.2f} s, files {read - loaded:.2f} s, "
        f"{len(base.rules)} rules asked {asked - read:.2f} s"
    )


def make_node(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    for name, text in texts(number).items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def bus(index: int) -> str:
    return f"0000:{index:02x}:00.0"


def texts(number: int) -> dict[str, str]:
    faulty = number % 50 == 7
    nics = [f"mlx5_{nic}" for nic in range(NICS)]
    gpu_rows = [
        f"{gpu}, 0000{bus(20 + gpu)}, NVIDIA H200, 570.86.15, 143771 MiB, Enabled, 0 %, 5, 5, "
        f"{8 if faulty and gpu == 3 else 16}, 16, 0x0000000000000001, 1980 MHz, 1980 MHz, 33, 0, "
        "Disabled"
        for gpu in range(GPUS)
    ]
    return {
        "system": (
            f"/proc/sys/kernel/hostname:node{number:04d}\n"
            "/proc/sys/kernel/osrelease:6.8.0-45-generic\n"
            f"/proc/sys/kernel/numa_balancing:{int(faulty)}\n"
            f"/proc/sys/kernel/random/boot_id:00000000-0000-0000-0000-{number:012d}\n"
            "/sys/class/dmi/id/sys_vendor:Supermicro\n"
        ),
        "nvidia-smi": (
            "index, pci.bus_id, name, driver_version, memory.total [MiB], persistence_mode, "
            "utilization.gpu [%], pcie.link.gen.current, pcie.link.gen.max, "
            "pcie.link.width.current, pcie.link.width.max, clocks_event_reasons.active, "
            "clocks.current.sm [MHz], clocks.max.sm [MHz], temperature.gpu, "
            "ecc.errors.uncorrected.volatile.total, mig.mode.current\n" + "\n".join(gpu_rows) + "\n"
        ),
        "nvidia-smi-new": "index, compute_cap, fabric.state, fabric.status\n"
        + "".join(f"{gpu}, 9.0, Completed, Success\n" for gpu in range(GPUS)),
        "nvlink": "".join(
            f"GPU {gpu}: NVIDIA H200 (UUID: GPU-{number:08d}-{gpu:04d})\n"
            + "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
            for gpu in range(GPUS)
        ),
        "topo": topo(nics),
        **{f"p2p-{kind}": matrix() for kind in "rwnap"},
        "lspci": "\n".join(device(index, index == 90 and faulty) for index in range(DEVICES)),
        "rdma": "".join(port(nic) for nic in nics),
        "counters": "".join(
            f"/sys/class/infiniband/{nic}/ports/1/counters/{counter}:{value}\n"
            for nic in nics
            for counter, value in (
                ("link_downed", 0),
                ("symbol_error", 0),
                ("port_rcv_data", 7 * number),
                *((f"other_{index}", number + index) for index in range(40)),
            )
        ),  # fmt: skip
        "env": "NCCL_IB_HCA=mlx5\n" + ("NCCL_P2P_DISABLE=1\n" if faulty else ""),
        "limits": (
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max stack size            8388608              unlimited            bytes     \n"
            "Max open files            1048576              1048576              files     \n"
            "Max locked memory         unlimited            unlimited            bytes     \n"
        ),
        "modules": "nvidia_peermem 16384 0 - Live 0x0\n"
        + "".join(f"module_{index} 16384 0 - Live 0x0\n" for index in range(150)),
        "dmesg": "".join(
            f"[ {index}.0] mlx5_core {bus(40 + index % NICS)}: line {index} of node {number}\n"
            for index in range(200)
        ),
        "nccl-log": log(number),
    }


def topo(nics: list[str]) -> str:
    names = [f"GPU{gpu}" for gpu in range(GPUS)] + [f"NIC{nic}" for nic in range(NICS)]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for row, name in enumerate(names):
        cells = []
        for column in range(len(names)):
            both_gpus = row < GPUS and column < GPUS
            near = row % GPUS == column % GPUS
            cells.append(
                " X " if row == column else "NV18" if both_gpus else "PIX" if near else "SYS"
            )
        rows.append(name + "\t" + "\t".join(cells) + "\t0-95\t0\t\tN/A")
    legend = "\n".join(f"  NIC{index}: {nic}" for index, nic in enumerate(nics))
    return "\n".join(rows) + f"\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n{legend}\n"


def matrix() -> str:
    head = " \t" + "\t".join(f"GPU{gpu}" for gpu in range(GPUS))
    rows = [
        f" GPU{row}\t" + "\t".join("X" if row == column else "OK" for column in range(GPUS)) + "\t"
        for row in range(GPUS)
    ]
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", ""])


def device(index: int, degraded: bool) -> str:
    is_gpu, is_nic = 20 <= index < 20 + GPUS, 40 <= index < 40 + NICS
    if is_gpu:
        title = "3D controller [0302]: NVIDIA Corporation GH100 [H200] [10de:2335]"
    elif is_nic:
        title = "Infiniband controller [0207]: Mellanox Technologies MT2910 [15b3:1021]"
    else:
        title = "PCI bridge [0604]: Broadcom / LSI PEX890xx [1000:c030]"
    sign = "+" if degraded else "-"
    filler = "".join(f"\tRegion {line}: Memory at {line:08x} (64-bit)\n" for line in range(24))
    return (
        f"{bus(index)} {title}\n{filler}"
        "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
        "\t\tDevCtl:\tCorrErr- NonFatalErr+\n"
        "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-\n"
        "\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        "\t\tLnkSta:\tSpeed 32GT/s, Width x16\n"
        "\tCapabilities: [220 v1] Access Control Services\n"
        f"\t\tACSCtl:\tSrcValid{sign} TransBlk- ReqRedir{sign} CmpltRedir- UpstreamFwd- "
        "EgressCtrl- DirectTrans-\n"
    )


def port(nic: str) -> str:
    base = f"/sys/class/infiniband/{nic}"
    return "".join(
        f"{base}/{name}:{value}\n"
        for name, value in (
            ("fw_ver", "28.39.1002"), ("device/numa_node", "0"), ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"), ("ports/1/rate", "400 Gb/sec (4X NDR)"),
            ("ports/1/link_layer", "InfiniBand"), ("ports/1/sm_lid", "0x1"),
        )
    )  # fmt: skip


def log(number: int) -> str:
    lead = f"node{number:04d}:{4000 + number}:{5000 + number} [0] NCCL INFO "
    return (
        "NCCL version 2.28.9+cuda13.0\n"
        + lead + "Bootstrap: Using eth0:192.0.2.1<0>\n"
        + lead + "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.1<0>\n"
        + lead + "Using network IB\n"
        + "".join(f"{lead}comm 0x{number:x}{line:x} line {line} of a log\n" for line in range(500))
        + "".join(
            f"{lead}Channel {line:02d}/0 : {line}[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
            for line in range(200)
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
