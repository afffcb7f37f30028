# SPDX-License-Identifier: Apache-2.0
"""What people post has its cause, and a sound node has none."""

from pathlib import Path

import pytest

from nccltune.doctor.examine import examine
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence.node import folder_facts, pasted_facts, put
from tests.unit.doctor.evidence.texts import ACS, MLXLINK, P2P_BANDWIDTH

LOCKED = "open files (-n) 1048576\nmax locked memory       (kbytes, -l) 64"
ETHTOOL = """\
Settings for e1:
        Supported link modes:   10baseT/Half 10baseT/Full
                                1000baseT/Full
        Supported pause frame use: No
        Advertised link modes:  40000baseCR4/Full
        Speed: {}
        Duplex: Full
        Link detected: {}
"""
PERFTEST = """\
                    Send BW Test
 Dual-port       : OFF          Device         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             92.10              91.98              0.17
"""
# What people post, in own words of that shape, with the rule that names its cause.
SAMPLE = """[CUDA Bandwidth Test] - Starting...
 Device 0: NVIDIA A100-PCIE-40GB
 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(MB/s)
   33554432\t\t\t6102.4
"""
WAIVED = """Device 0: NVIDIA GeForce RTX 2080 Ti
Device 1: NVIDIA GeForce RTX 2080 Ti
Running host_to_device_memcpy_ce.
Waiving device_to_device_memcpy_read_ce.
"""
POWER = """GPU 00000000:1C:00.0
    Product Name                      : Tesla V100-SXM2-32GB
    Power Readings
        Power Draw                    : 148.90 W
        Enforced Power Limit          : 150.00 W
        Default Power Limit           : 300.00 W
"""
EFA_MR = (
    "x:9 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: I"
)
POSTED = [
    ("Failed to find reverse path from remNode 0/41000 nlinks 2 to node 0/61000",
     "nvlink-p2p-disabled"),
    ("w1: Message truncated : received 524288 bytes instead of 65536", "calls-differ"),
    ("mpirun -np 3 ./all_reduce_perf\n[1723337199.099229] [a:13 :0] tl_shm.c:6 TL_SHM ERROR x",
     "ucx-error"),
    ("[250.266922] nvidia-peermem nv_get:127 ERROR detected invalid context",
     "driver-kernel-lines"),
    ("ibrc.cpp:420: non-zero status: 22 ibv_modify_qp failed.", "roce-qp-error"),
    ("[  +0.000316] pcieport 0000:00:03.0: AER: Corrected error received: 0:3", "pcie-corrected"),
    ("Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152:\nCUDA error 401 'x'",
     "nvls-setup"),
    ("NET/OFI Couldn't enable endpoint. RC: -12, ERROR: Cannot allocate memory", "rdma-memory"),
    ("Unable to write to EQ: x. err: Unknown error -12 (-12) prov_errno: 1 prov/efa/src/rxr.h:9",
     "rdma-memory"),
    ("$ fi_info -p efa\nfi_getinfo: -61 (No data available)", "ofi-no-provider"),
    ("[Thu Oct 10 03:06:53 2024] main[25]: segfault at 7f79 ip 7f7c error 4 in libnccl.so.2[7f]",
     "library-crashed"),
    ("[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0",
     "xid-fault"),
    ("h:1:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to lo", "bootstrap-interface"),
    ("Error: rank 27 and rank 19 both on CUDA device 53000", "gpu-ordinal"),
    ("Original reason for aborting was: Timeout at NCCL sequence 42", "collective-timeout"),
    ("ibv_create_cq(cqe=64) failed: Cannot allocate memory", "rdma-memory"),
    (f"ibv_create_cq(cqe=64) failed: Cannot allocate memory\nulimit -a\n{LOCKED}", "memlock"),
    (ETHTOOL.format("100Mb/s", "yes"), "nic-link"),
    (f"{ETHTOOL.format('1000Mb/s', 'yes')}# ethtool e2\n{ETHTOOL.format('Unknown!', 'no')}",
     "nic-link"),
    ("3: e1: <NO-CARRIER,BROADCAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT", "nic-link"),
    (f"root@a:~# mlxlink -d mlx5_1\n\n{MLXLINK}", "port-down"),
    (f"$ sudo mlxlink -d 0000:ca:00.0 -c -m\n{MLXLINK}", "port-down"),
    (MLXLINK.partition("Width")[0], "port-down"),
    ("$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n     95 DMA-FQ", "iommu-translates"),
    ("# cat /sys/kernel/iommu_groups/*/type\nDMA\nDMA-FQ\nDMA-FQ", "iommu-translates"),
    ("     12 DMA-FQ", "iommu-translates"),
    ("[    0.100000] DMAR: IOMMU enabled\n[    1.100000] iommu: Default domain type: Translated",
     "iommu-translates"),
    ("[Nov28 18:40] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.", "gpu-lost"),
    ("[Mar 3 10:15] mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error",
     "nic-kernel-errors"),
    ("DEV PORT INDEX GID IPv4 VER DEV\n--- ---- -----\nn_gids_found=0", "gids-none"),
    (PERFTEST, "rdma-measured"),
    (P2P_BANDWIDTH, "p2p-slower"),
    *((f" Completion with error at client\n Failed status {status}: wr_id 0 syndrom 0x51", rule)
      for status, rule in ((4, "rdma-protection"), (10, "rdma-protection"), (7, "rdma-failed"),
                           (12, "rdma-no-answer"), (13, "rdma-not-ready"))),
    (WAIVED, "p2p-not-ok"),
    ("$ df -h | grep shm\nshm   64M   1.2M  63M   2% /dev/shm", "shm-small"),
    ("tmpfs    65536   0  65536   0% /dev/shm", "shm-small"),
    ("Device=0 CANNOT Access Peer Device=1\n" + P2P_BANDWIDTH, "p2p-not-ok"),
    (SAMPLE, "copies-slow"),
    ("$ nvidia-smi topo -p2p n\n GPU0 GPU1\n GPU0 X NS\n GPU1 NS X\n\nLegend:\n  X = Self\n"
     "$ nvidia-smi topo -p2p w\n GPU0 GPU1\n GPU0 X CNS\n GPU1 CNS X", "p2p-not-ok"),
    ("$ env | grep NCCL\nNCCL_IB_GID_INDEX=2\n$ show_gids\nDEV PORT INDEX GID IPv4 VER DEV\n"
     "m 1 2 0000:0000:0000:0000:0000:ffff:c0a8:0a02 10.0.0.2 v1 e1\n"
     "m 1 3 0000:0000:0000:0000:0000:ffff:c0a8:0a02 10.0.0.2 v2 e1", "gid-v1"),
    ("$ env | grep NCCL\nNCCL_IB_GID_INDEX=3\n$ show_gids\nDEV PORT INDEX GID IPv4 VER DEV\n"
     "m 1 7 0000:0000:0000:0000:0000:ffff:c0a8:0a02 10.0.0.2 v2 e1", "gid-absent"),
    ("# ls /dev/infiniband\nrdma_cm umad0 umad1\n# ibv_devices\nNo IB devices found",
     "socket-despite-rdma"),
    ("[   12.100000] arm-smmu-v3 arm-smmu-v3.11.auto: event 0x10 received:", "iommu-faults"),
    ("$ sysctl kernel.numa_balancing\nkernel.numa_balancing = 1", "numa-balancing"),
    ("h1:~# cat /proc/sys/kernel/numa_balancing\n1", "numa-balancing"),
    ("cuMemAlloc() of a 64 bytes GPU buffer\nCouldn't allocate MR", "gpu-memory-not-registered"),
    ('DCGM_FI_DEV_XID_ERRORS{gpu="3",Hostname="n7"} 79', "health-check-failed"),
    ("a:~# ip link\n4: e1: <UP> mtu 9000 state UP\nb:~# ip link\n4: e1: <UP> mtu 1500 state UP",
     "mtu-two-in-a-text"),
    (ACS.format("-"), "acs-validates"),
    (POWER, "gpu-power-limited"),
    (POWER.replace("Power Readings", "GPU Power Readings").replace("Enforced", "Current"),
     "gpu-power-limited"),
    ("Node #0 - 10.0.0.1 - READY - Version: 570.1\n"
     "$ ls -l /dev/nvidia-caps-imex-channels\nls: cannot access "
     "'/dev/nvidia-caps-imex-channels/': No such file or directory", "imex-channel"),
    ("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 0 MB\nnode 1 cpus: 2 3\n"
     "node 1 size: 64307 MB", "numa-without-memory"),
    (f"$ ulimit -a\n{LOCKED}", "memlock-limited"),
    (f"CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n$ ulimit -a\n{LOCKED}", "memlock"),
]  # fmt: skip
CARDS = "| NVIDIA-SMI 470.103.01   Driver Version: 470.103.01   CUDA Version: 11.4     |\n"
PORTS = "".join(
    f"CA 'm{n}'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n\t\tLink layer: Ethernet\n"
    for n in "01"
)
INSPECT = '        "HostConfig": {{\n            "IpcMode": "{}",\n            "ShmSize": 67108864'
CQE = "a:1:2 [0] transport/net_ib/p2p.cc:9 NCCL WARN NET/IB: Got CQE with error (devIndex=0)\n"
LISTING = """$ ip a
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 state UNKNOWN
    inet 127.0.0.1/8 scope host lo
2: e1: <UP,LOWER_UP> mtu 1500 state UP
    inet 10.0.1.8/16 brd 10.0.255.255 scope global e1
3: e2: <UP,LOWER_UP> mtu 1500 state UP
    inet 10.0.2.8/{} brd 10.0.255.255 scope global e2
"""
PORT = "{}: flags={}<{}BROADCAST>  mtu 1500\n        inet {}  netmask 255.255.255.0\n"
UP = "4163", "UP,"
IFCONFIG = PORT.format("eth0", *UP, "10.0.0.5") + PORT.format("eth1", *UP, "10.0.0.6")
BESIDE = """4: {0}0: <UP,LOWER_UP> mtu 4092 state UP
    inet 10.20.0.1/{2} brd 10.20.255.255 scope global {0}0
{3}5: {1}: <UP,LOWER_UP> mtu 4092 state UP
    inet 10.20.1.1/{2} brd 10.20.255.255 scope global {1}
"""
QUERIED = """Errors for "gn7 mlx5_3"
   GUID 0x946dae0300d0a1c2 port 1: [LinkDownedCounter == {0} ({0}.000)] [PortXmitWait == 98 (98)]
"""
MODULES = "$ lsmod | grep nvidia\nnvidia_peermem 16384 0\nnvidia 54566912 3 nvidia_peermem\n"
FABRIC = "GPU 00000008:01:00.0\n    Product Name : NVIDIA GB200\n    Fabric\n        State : {}\n"
POSTED += [
    (INSPECT.format("private"), "shm-small"),
    (f'"Id": "a",\n{INSPECT.format("private")}\n"Id": "b",\n{INSPECT.format("private")}',
     "shm-small"),
    (CQE, "rdma-failed"),
    ('"Env": [\n  "PATH=/bin",\n  "NCCL_P2P_DISABLE=1"\n],\n"IpcMode": "host",',
     "override-environment"),
    (LISTING.format(16), "interfaces-one-subnet"),
    (IFCONFIG, "interfaces-one-subnet"),
    (BESIDE.format("ib", "ib1", 16, ""), "interfaces-one-subnet"),
    (BESIDE.format("bond", "bond1", 16, ""), "interfaces-one-subnet"),
    (QUERIED.format(25), "port-errors-since-boot"),
    (f"{CARDS}With NCCL_P2P_DISABLE=1 it works, otherwise it hangs.", "workaround-named"),
    (f"a:~$ ibstat\n{PORTS}a:~$ export NCCL_IB_HCA=m0", "device-list-partial"),
    ("[    1.311070] iommu: Default domain type: Translated\n"
     "[    1.832114] AMD-Vi: AMD IOMMUv2 loaded and initialized", "iommu-translates"),
    (FABRIC.format("In Progress"), "fabric-unhealthy"),
    (FABRIC.format("Completed\n        Status : Insufficient Resources")
     .replace("    Fabric", "--\n    Fabric"), "fabric-unhealthy"),
    ("$ show_gids\nDEV PORT INDEX GID IPv4 VER DEV\nm 1 0 fe80:0000:0000:0000:0000:0000:0000:0001"
     " v1 e1\nm 1 3 fd93:0000:0000:0000:0000:0000:0000:0001 v2 e1\nNET/IB: Got completion"
     " from peer a with status=12 localGid fe80::1 remoteGidsfe80::2 hca m", "gid-link-local"),
]  # fmt: skip
DEVICES = "# Using devices\n#   Rank  0 Pid  7 on  a device  0 [0x03] A100\n"
POSTED += [
    ("it shows: `INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'`", "gdr-disabled"),
    (
        "$ nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv,noheader\n"
        "0, None\n1, Reset   <= unusable",
        "gpu-recovery-action",
    ),
    ("GPU 00000000:4E:00.0\n    GPU Recovery Action               : Reboot", "gpu-recovery-action"),
    (f"{DEVICES}#   Rank  1 Pid  8 on  a device  1 [0x04] A100\n", "test-without-rows"),
    (PERFTEST.replace("#iterations", "iterations"), "rdma-measured"),
    (P2P_BANDWIDTH[P2P_BANDWIDTH.index("Bidirectional") :], "copies-measured"),
]
HARMLESS = [
    (INSPECT.format("host"), "shm-small"),
    (INSPECT.format("host") + INSPECT.format("private"), "shm-small"),
    (f'"Id": "a",\n{INSPECT.format("host")}\n"Id": "b",\n{INSPECT.format("private")}',
     "shm-small"),
    ('"Id": "a",\n"Env": ["NCCL_P2P_DISABLE=1"]\n"Id": "b",\n"Env": ["NCCL_DEBUG=INFO"]',
     "override-environment"),
    (f"{CQE}{CQE.replace('Got CQE with error', 'Got completion from peer a with status=12')}",
     "rdma-failed"),
    (LISTING.format(24), "interfaces-one-subnet"),
    (LISTING.format(16).replace(": e2", ": docker0"), "interfaces-one-subnet"),
    *((BESIDE.format(*words), "interfaces-one-subnet") for words in (
        ("ib", "eth1", 16, ""), ("ib", "ib1", 16, "b:~# ip a\n"), ("ib", "ib1", 24, ""),
        ("wg", "wg1", 16, ""), ("br", "br1", 16, ""), ("ib", "ib0", 16, ""),
        ("ib", "ib1@ib0", 16, ""), ("macvlan", "macvlan1", 16, ""), ("ib", "ib1", 32, ""))),
    (BESIDE.format("ib", "ib1", 16, "").replace("5:", "4:"), "interfaces-one-subnet"),
    (PORT.format("eth0", *UP, "10.0.0.5") + PORT.format("eth1", "4098", "", "10.0.0.6"),
     "interfaces-one-subnet"),
    (QUERIED.format(1), "port-errors-since-boot"),
    (f"{CARDS}With NCCL_IB_DISABLE=1 it works, but this cluster has no RDMA.", "workaround-named"),
    (f"{CARDS}Does it work with NCCL_P2P_DISABLE=1, or else why not?", "workaround-named"),
    (f"a:~$ ibstat\n{PORTS}We did not set NCCL_IB_HCA=m0.", "device-list-partial"),
    (QUERIED.format(99).replace("port 1:", "port ALL:"), "port-errors-since-boot"),
    (FABRIC.format("Completed"), "fabric-unhealthy"),
    ("[pid = 7, dev = 0] device name = [NVIDIA GeForce RTX 4090]\nallocated GPU buffer of a 64\n"
     "Calling ibv_reg_dmabuf_mr(fd=5)\n65536  5000  97.1  96.9  0.18",
     "gpu-memory-not-registered"),
    (f"{DEVICES}#   Rank  1 Pid  8 on  a device  1", "test-without-rows"),
    (f"# nThread 1 nGpus 4 minBytes 8\n{DEVICES}#   Rank  1 Pid  7 on  a device  1 [0x04] A100\n",
     "test-without-rows"),
    (f"{DEVICES}#   Rank  1 Pid  8 on  b device  0 [0x03] A1", "test-without-rows"),
    (f"{DEVICES}#   Rank  1 Pid  8 on  b device  0 [0x03] A100\n 8  2  5.1  0.1\n"
     "# Out of bounds values : 0 OK", "test-without-rows"),
    ("$ nvidia-smi --query-gpu=index,gpu_recovery_action --format=csv\n"
     "index, gpu_recovery_action\n0, None", "gpu-recovery-action"),
    ("shm      1.0G  883M  142M  87% /dev/shm", "shm-small"),
    (f"$ ulimit -a\n{LOCKED}", "memlock"),
    ("[    1.100000] iommu: Default domain type: Translated", "iommu-translates"),
    (f"CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 100\n{PERFTEST}", "rdma-measured"),
    (ETHTOOL.format("1000Mb/s", "yes"), "nic-link"),
    (SAMPLE.replace("6102.4", "24102.4"), "copies-slow"),
    ("$ nvidia-smi topo -p2p n\n GPU0 GPU1\n GPU0 X NS\n GPU1 NS X\n\nLegend:\n  X = Self\n"
     "$ nvidia-smi topo -p2p r\n GPU0 GPU1\n GPU0 X OK\n GPU1 OK X", "p2p-not-ok"),
    ('DCGM_FI_DEV_XID_ERRORS{gpu="3",Hostname="n7"} 0', "health-check-failed"),
    ('DCGM_FI_DEV_XID_ERRORS{gpu="3",Hostname="n7"} 31', "health-check-failed"),
    ("4: e1: <UP> mtu 9000 state UP\n4: e1: <UP> mtu 9000 state UP", "mtu-two-in-a-text"),
    (SAMPLE.replace("PINNED", "PAGEABLE"), "copies-slow"),
    (WAIVED.replace("Device 1", "Other"), "p2p-not-ok"),
    (WAIVED.replace("device_to_device_mem", "multinode_device_to_device_mem"), "p2p-not-ok"),
    (WAIVED.replace("device_to_device", "all_to_host"), "p2p-not-ok"),
    ("The job ended: Failed status 4 of the build", "rdma-protection"),
    (POWER.replace("150.00", "300.00"), "gpu-power-limited"),
    ("Node #0 - 10.0.0.1 - READY - Version: 570.1\n$ ls -l /dev/nvidia-caps-imex-channels\n"
     "crw-rw-rw- 1 root root 234, 0 May 12 19:06 channel0", "imex-channel"),
    ("4: docker0: <NO-CARRIER,BROADCAST,UP> mtu 1500 qdisc x state DOWN", "nic-link"),
    (f"$ mlxlink -d mlx5_1\n{MLXLINK.replace('Polling', 'Active')}", "port-down"),
    ("$ cat /sys/kernel/iommu_groups/*/type | sort | uniq -c\n  95 identity", "iommu-translates"),
    ("$ cat /sys/kernel/iommu_groups/*/type | uniq -c\n  9 identity\n  3 DMA", "iommu-translates"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule"), POSTED)
def test_what_people_post_has_its_cause(text: str, rule: str, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", f"{text}\n")
    (facts,) = folder_facts(tmp_path)
    judged = examine({"n1": facts}, rule_base(), "x")
    assert rule in {one.rule for one in judged.of(RuleVerdict.FINDING)}


@pytest.mark.parametrize(("text", "rule"), HARMLESS)
def test_what_people_post_of_a_sound_node_is_no_cause(text: str, rule: str, tmp_path: Path) -> None:
    put(tmp_path, "n1/paste.txt", f"{text}\n")
    (facts,) = folder_facts(tmp_path)
    assert len(facts) > 0
    judged = examine({"n1": facts}, rule_base(), "x")
    assert rule not in {one.rule for one in judged.of(RuleVerdict.FINDING)}


def _log(*messages: str) -> str:
    return "".join(f"h1:1:2 [0] {message}\n" for message in messages)


@pytest.mark.parametrize(
    ("text", "rule", "said"),
    [
        *(
            (
                _log(
                    f"NCCL INFO NCCL_SOCKET_IFNAME set by environment to {value}",
                    "bootstrap.cc:9 NCCL WARN Bootstrap : no socket interface found",
                ),
                "no-interface",
                f"NCCL_SOCKET_IFNAME={value} is {said}",
            )
            for value, said in (
                ("10.1.2.3", "an address"),
                ("^lo,eth", "a list of what to leave out"),
                ("=eth9", "exact names"),
                ("eth9", "beginnings of names"),
            )
        ),
        *(
            (
                _log(f"NCCL INFO NET/IB : Using [0]mlx5_0:1/{kind} ; OOB ib0:10.0.0.1<0>",
                     "x.cc:9 NCCL WARN Call to ibv_modify_qp failed with error No such device"),
                "roce-qp-error",
                said,
            )
            for kind, said in (("IB", "InfiniBand has no GID"), ("RoCE", "No such device and No"))
        ),
        *(
            (
                _log("NCCL INFO NCCL_IB_GID_INDEX set by environment to 5.",
                     f"x.cc:9 NCCL WARN Call to ibv_modify_qp failed with error {error}"),
                "roce-qp-error",
                said,
            )
            for error, said in (
                ("No such device", "NCCL_IB_GID_INDEX is 5: No such device and No data"),
                ("Invalid argument", "Before 2.21 set NCCL_IB_GID_INDEX on each node"),
            )
        ),
        *(
            (
                "".join(f"{host}:1:2 [0] NCCL INFO Channel 00 : {ring} [receive] via NET/IB/{via}\n"
                        for host, ring, via in lines),
                "gdr-unused",
                said,
            )
            for lines, said in (
                ((("a1", "3[b000] -> 0[7000]", "1/GDRDMA"), ("a2", "0[7000] -> 2[7000]", "0")),
                 "Look at a2 first: load nvidia-peermem there"),
                ((("a1", "9[0] -> 0[0]", "0(3)/GDRDMA"), ("a2", "0[0] -> 8[0]", "0/Shared")),
                 "Look at a2 first"),
                # Another GPU may be farther, and a host that has it for one GPU has the module.
                ((("a1", "3[b000] -> 0[7000]", "1/GDRDMA"), ("a2", "0[7000] -> 2[b000]", "0")),
                 "See gdr-disabled"),
                ((("a1", "3[b000] -> 0[7000]", "1/GDRDMA"), ("a2", "0[7000] -> 2[7000]", "0"),
                  ("a2", "0[7000] -> 3[b000]", "1/GDRDMA")), "See gdr-disabled"),
                ((("a1", "3[b000] -> 0[7000]", "1"), ("a2", "0[7000] -> 2[7000]", "0")),
                 "See gdr-disabled"),
            )
        ),
        *(
            (
                _log(f"NCCL INFO NCCL version {version}",
                     f"NCCL INFO Using 256 threads, Min Comp Cap {least}, Trees disabled",
                     "enqueue.cc:9 NCCL WARN Cuda failure 'invalid device function'"),
                "gpu-not-supported",
                said,
            )
            for version, least, said in (
                ("2.4.8+cuda10.2", 8, "By the log the GPU is newer than this NCCL"),
                ("2.4.8+cuda10.2", 3, "A GPU newer than the build: update"),
                ("2.7.8+cuda11.0", 8, "A GPU newer than the build: update"),
            )
        ),
        *(
            (
                _log("NCCL INFO Failed to open libibverbs.so[.1]",
                     f"NCCL INFO NET/Socket : Using [0]{name}:10.0.0.1<0>",
                     "NCCL INFO Using network Socket"),
                "sockets-between-nodes",
                f"libibverbs cannot be opened: where the nodes have InfiniBand or RoCE{said}, that",
            )
            for name, said in (("ib0", ", as ib0 shows"), ("eth0", ""))
        ),
        (_log("init:2 NCCL WARN NET/OFI aws-ofi-nccl initialization failed",
         "NCCL INFO Using network Socket"), "sockets-between-nodes",
         "The network plugin did not start"),
        (_log("NCCL INFO Using network FastSocket"), "sockets-between-nodes",
         "Google FastSocket is TCP"),
        (_log("NCCL INFO Using network Socket"), "sockets-between-nodes",
         "NCCL_IB_DISABLE=1, NCCL_NET=Socket, or"),
        *(
            (
                f"mpirun {given}all_reduce_perf -b 8\n# Out of bounds values : 4 FAILED\n",
                "wrong-results",
                f"Data was corrupted on its way: no figure of this run counts. {said}",
            )
            for given, said in (
                ("-x NCCL_PROTO=LL128 ", "NCCL_PROTO makes NCCL take LL128"),
                ("-x NCCL_PROTO=^LL ", "NCCL_PROTO makes NCCL take LL128"),
                ("-x NCCL_PROTO=^LL128 ", "Run it on each node"),
                ("-x NCCL_PROTO=Simple ", "Run it on each node"),
                ("", "Run it on each node"),
            )
        ),
        *((f"{lsmod}[pid = 7, dev = 0] device name = [{gpu}]\nallocated GPU buffer of a 64\n{call}"
           "Couldn't allocate MR with error=14\n", "gpu-memory-not-registered", said)
          for lsmod, gpu, call, said in (
              (MODULES, "GeForce RTX 4090", "", "GeForce cards have no GPUDirect RDMA"),
              (MODULES, "NVIDIA L40S", "", "nvidia-peermem is loaded: see"),
              ("", "NVIDIA L40S", "", "Load nvidia-peermem"),
              ("", "NVIDIA L40S", "Calling ibv_reg_dmabuf_mr(fd=5)\n", "dma-buf wants"))),
        ("Verification error @ element 1: val = 0.0, ref = 4.0\n", "wrong-results",
         "Data was corrupted on its way: no figure of this run counts. It was a copy within one"),
    ],
)  # fmt: skip
def test_a_remedy_names_what_the_log_shows(text: str, rule: str, said: str, tmp_path: Path) -> None:
    facts = pasted_facts(tmp_path, "run.log", text)
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    assert judged[rule].remedy.startswith(said)


SENT = "misc/socket.cc:9 NCCL WARN socketStartConnect: Connect to {}<9> failed : Software caused {}"
WAITS = "NCCL WARN NET/IB : Got completion from peer a<9> with error 12, opcode 0"
ROCE, CHANGED = "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE", "NCCL WARN NET/IB : Got async event"
OFI = "x:9 NCCL WARN NET/OFI Request 0x1 completed with error"
RAILS = "x:9 NCCL WARN NET/OFI Unexpected number of remote rails for dev 0. Expected 3 but got 2"
FASTRAK = "client.cc:9 NCCL WARN NET/FasTrak 1:2 : Buffer registration request does not have a {}"
TORCH = "[c10d] The client socket has timed out after 6ms while trying to connect to ({}, 4)."
GLIBC = "NCCL INFO NET/Plugin: Plugin load returned 2 : libc.so.6: version `GLIBC_2.32' not found "
SHM = "misc/shmutils.cc:{} NCCL WARN {}"
MADE = SHM.format(9, "Error while creating shared memory segment /dev/shm/nccl-a (size 9)")
OFF = "NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"
OFI_FILE = "NCCL INFO NET/OFI Running on p5, Setting NCCL_TOPO_FILE environment variable to {}"
OFI_IS = "NCCL INFO NET/OFI Initializing aws-ofi-nccl {}"
NO_ARCH = "x:9 NCCL WARN Attribute arch of node cpu not found"
HANG = "Our job hangs after the start, without an error."
START = "NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1000 commId 0x5 - Init START"
TWO = START.replace("nranks 1", "nranks 2")


@pytest.mark.parametrize(
    ("lines", "rule", "said", "unsaid"),
    [
        ((SENT.format("169.254.1.1", "b"),), "connection-failed", "169.254.x.x", "127.x.x.x"),
        ((SENT.format("127.0.0.1", "b"),), "connection-failed", "127.x.x.x", "172.17"),
        ((SENT.format("172.18.0.1", "b"),), "connection-failed", "172.17", "before NCCL 2.24"),
        ((SENT.format("10.0.0.1", "connection abort"),), "connection-failed",
         "before NCCL 2.24", "fe80"),
        (("NCCL INFO NET/OFI Selected provider is efa", OFI), "ofi-operation", "AWS", "Slingshot"),
        (("NCCL INFO NET/OFI Selected provider is cxi", OFI), "ofi-operation", "Slingshot", "AWS"),
        *((lines, "connection-failed", said, unsaid) for lines, said, unsaid in (
            ((TORCH.format("10.0.0.1"),), "MASTER_ADDR (", "IFNAME"),
            ((TORCH.format("fe80::1"),), "VLLM_HOST_IP", "IFNAME"),
            (("[/third_party/gloo/gloo/transport/tcp/pair.cc:1] no error",), "GLOO_SOCKET_IFNAME=<",
             "NCCL_SOCKET_IFNAME=<"),
            ((TORCH.format("10.0.0.1"), SENT.format("10.0.0.1", "b")), "IFNAME=<INT", "fe80"),
            ((SENT.format("10.0.0.1", "b"),), "NCCL_SOCKET_IFNAME", "MASTER_ADDR"))),
        ((TORCH.format("172.17.0.1"),), "container-address", "MASTER_ADDR (", "IFNAME"),
        ((SENT.format("172.17.0.1", "b"),), "container-address", "IFNAME", "MASTER_ADDR"),
        ((RAILS,), "ofi-operation", "FORCE_NUM_RAILS", "security group"),
        ((RAILS, OFI), "ofi-operation", "security group", "Endpoints"),
        ((OFI,), "ofi-operation", "security group", "RAILS"),
        *(((OFI_IS.format(version), OFI_FILE.format(file), NO_ARCH), "topology-file-unread", *words)
          for version, file, *words in (
              ("1.14.1", "/a/p5.xml", "have arch and vendor", "update the plugin"),
              ("1.9.2", "/a/p5.xml", "update the plugin", "have arch and vendor"),
              ("1.14.1", "/proc/self/fd/31", "Correct the path", "plugin"))),
        ((FASTRAK.format("valid fd set."),), "tcpx-daemon", "no other rank", "GID"),
        ((FASTRAK.format("RxDM is not up"),), "tcpx-daemon", "sidecar", "no other rank"),
        *((("init.cc:9 NCCL WARN " + line,), "rocm-host-settings", said, unsaid)
          for line, said, unsaid in (
              ("HSA_NO_SCRATCH_RECLAIM is not set", "HSA_NO_SCRATCH_RECLAIM=1 ...", "numa"),
              ('Missing "iommu=pt" from kernel command line', "PASSTHROUGH", "numa"),
              ('Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment', "every rank", "kernel"),
              ("NUMA auto balancing enabled", "kernel.numa_balancing=0", "HSA_"))),
        *((("NCCL INFO RCCL version 2.30.4", "NCCL INFO GPU 0 arch gfx1201",
            f"NCCL INFO GPU 1 arch {arch}", "[FATAL ERROR]: HIP failure: 'invalid device function"),
           "gpu-not-supported", said, unsaid)
          for arch, said, unsaid in (("gfx1200", "names gfx1200, gfx1201: run", "NVCC"),
                                     ("gfx1201", "HSA_OVERRIDE_GFX_VERSION", "names gfx"))),
        *(
            ((f"NCCL INFO x\n{line}", SENT.format("10.0.0.1", "b")), "connection-failed",
             "NCCL_SOCKET_IFNAME=b0 names is", "<INTERFACE>")
            for line in ("NCCL_SOCKET_IFNAME=b0", "- NCCL_SOCKET_IFNAME=b0",
                         "NCCL_SOCKET_IFNAME: b0", "- NCCL_SOCKET_IFNAME: b0",
                         "-e NCCL_SOCKET_IFNAME=b0")
        ),
        (("NCCL INFO x\nOr NCCL_SOCKET_IFNAME: b0 ?", SENT.format("10.0.0.1", "b")),
         "connection-failed", "<INTERFACE>", "b0"),
        (("NCCL INFO NCCL_SOCKET_IFNAME set by environment to ^lo", SENT.format("10.0.0.1", "b")),
         "connection-failed", "IFNAME=^lo does not leave out", "names is"),
        (("NCCL INFO x", *8 * [""], "failed (exitcode: -6) local_rank: 1"), "process-died",
         "Signal 6", "Signal 9"),
        (("x:9 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
          "NCCL INFO NCCL_IB_GID_INDEX set by environment to 0.", "NCCL INFO NCCL version 2.21.5"),
         "rdma-no-path", "take the setting away", "before NCCL 2.21"),
        (("x:9 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
          "NCCL INFO x\n#  Rank  0 Pid  1 on  a device  0 [0x1] NVIDIA GeForce RTX 3090"),
         "rdma-gpu-memory", "GeForce cards, as these are", "peermem"),
        (("x:9 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported",),
         "rdma-gpu-memory", "NCCL_DMABUF_ENABLE=0 ...", "or use dma-buf"),
        (("x.cc:9 NCCL WARN Cuda failure 900 'operation not permitted when stream is capturing'",),
         "graph-capture", "A capture forbids this call", "R465"),
        (("x.cc:1 NCCL WARN [Service thread] Accept failed Success",
          "x.cc:3 NCCL WARN [Proxy Service 3] Failed to execute operation Close from rank 3"),
         "error-echo", "nothing failed here", "The cause"),
        (("dist_init_method: file:///x/vox.init", "include/socket.h:9 NCCL WARN Connect"
          " to 10.38.1.2<21724> failed : Connection refused"), "connection-failed",
         "one that an earlier run left", "No route"),
        (("misc/socket.cc:9 NCCL WARN Accept failed: Interrupted system call",), "nccl-internal",
         "A signal came", "one version of NCCL"),
        (("include/shm.h:2 NCCL WARN Call to shm_open failed : Permission denied", "include/shm.h:4"
          " NCCL WARN Error while creating shared memory segment a (size 4)"), "shm-access",
         "chmod 1777", "too small"),
        (("/hipify/src/enqueue.cc:9 NCCL WARN HIP failure 'the operation cannot be performed in the"
          " present state'",), "cuda-failed", "AMD_LOG_LEVEL=3", "CUDA_LAUNCH_BLOCKING"),
        (("sharp_plugin.c:3 NCCL WARN SHARP group create: Streaming Tree lock failed (-18)",),
         "sharp-failed", "one group at a time", "firmware"),
        (("NCCL INFO x\nPrimary job  terminated normally, but 1 process returned",),
         "launcher-failed", "This is an effect", "first line"),
        (("NCCL INFO x\nThere are not enough slots available in the system",),
         "launcher-failed", "first line", "an effect"),
        (("NCCL INFO x\nORTE was unable to reliably start one or more daemons.",),
         "launcher-failed", "its daemons had started", "ssh"),
        ((EFA_MR,), "rdma-gpu-memory", "FI_EFA_SET_CUDA_SYNC_MEMOPS=0", "GDR_LEVEL"),
        (("NCCL INFO NCCL version 2.18.3", EFA_MR), "rdma-gpu-memory", "AWS EFA", "MEMOPS"),
        *(
            ((f"NCCL INFO x\n{HANG}",
              f"NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes {nodes} localRanks 2 localRank 0 MNNVL 0",
              f"{START[:-10]}Init COMPLETE"), "hang-described", said, unsaid)
            for nodes, said, unsaid in ((1, "the first call on one", "Between nodes"),
                                        (2, "Between nodes", "NCCL_SOCKET_IFNAME="))
        ),
        ((START, f"NCCL INFO Connected all rings\n{HANG}"), "hang-described", "NCHANNELS", "IB_"),
        ((f"{START}\n{HANG}",), "hang-described", "All ranks started", "did not start"),
        ((OFI,), "ofi-operation", "AWS", "Endpoints"),
        ((f"{GLIBC}(required by libnccl-net.so)",), "net-plugin-not-loaded", "older", "PATH"),
        ((f"{GLIBC[:51]}/x.so: undefined symbol: a",), "net-plugin-not-loaded", "ldd", "newer"),
        ((SHM.format(7, "Cuda failure 'invalid argument'"), MADE), "cuda-failed",
         "refused to register", "--shm-size"),
        ((MADE,), "shm-no-space", "--shm-size", "register"),
        ((OFF, "NCCL INFO RCCL version 2.7.8"), "gdr-disabled", "amdkfd", "nvidia-peermem"),
        ((OFF,), "gdr-disabled", "nvidia-peermem", "amdkfd"),
        ((ROCE, "NCCL INFO NCCL version 2.18.3", WAITS), "rdma-no-answer", "index 0", "changed"),
        ((ROCE, "NCCL INFO NCCL version 2.18.3", f"{CHANGED} : GID table change", WAITS),
         "rdma-no-answer", "GID table of a NIC changed", "index 0"),
        ((ROCE, "NCCL INFO NCCL version 2.21.5", WAITS), "rdma-no-answer", "show_gids", "index 0"),
        ((f"{WAITS} localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.1.1",), "rdma-no-answer",
         "ping -I 10.0.0.1 10.0.1.1", "show_gids"),
        *((("NCCL INFO Channel 00/0 : 1[1000] -> 0[2000] [receive] via NET/IB/0",
            f"NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 0 (distance {words})"),
           "gdr-unused", said, unsaid)
          for words, said, unsaid in (
              ("7 > 4", "LEVEL=SYS", "See"), ("6 > 4", "LEVEL=PHB", "See"),
              ("9 > 6", "LEVEL=SYS", "See"), ("4 > 3", "See", "a CPU"))),
        ((TWO, "NCCL INFO Bootstrap timings total 1"), "init-open", "did not start", "s started"),
        ((TWO, TWO.replace("rank 0", "rank 1"), "NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1"),
         "init-open", "ranks started", "did not start"),
        ((START, "NCCL INFO comm 0x1 rank 0 nRanks 1 nNodes 1"), "init-open", "no peer", "P2P"),
        (("p2p.cc:9 NCCL WARN failed to open CUDA IPC handle : 217 peer access",), "peer-import",
         "no P2P", "srun"),
        (("misc/socket.cc:9 NCCL WARN ncclSocketInit: family 5 is neither AF_INET(2) nor 10",
          "NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth2"),
         "peer-address", "NCCL_SOCKET_IFNAME=eth2", "eth0"),
        (("x:9 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. Error: Bad",),
         "rdma-gpu-memory", "AWS EFA has no peermem", "modprobe"),
        ((PERFTEST,), "rdma-measured", "nothing is wrong", "Below that"),
        ((PERFTEST.replace("91.98", "60.98"),), "rdma-measured", "4 queue pairs", "DGX Spark"),
        ((PERFTEST.replace("91.98", "13.08").replace("mlx5_0", "rocep1s0f1"),), "rdma-measured",
         "power cable", "mlx5"),
    ],
)  # fmt: skip
def test_a_remedy_says_what_the_evidence_asks_for(
    lines: tuple[str, ...], rule: str, said: str, unsaid: str, tmp_path: Path
) -> None:
    facts = pasted_facts(tmp_path, "run.log", _log(*lines))
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}[rule]
    text = " ".join((judged.remedy, *judged.commands))
    assert judged.verdict is RuleVerdict.FINDING
    assert (said in text, unsaid in text) == (True, False), text


@pytest.mark.parametrize(
    ("setting", "commands"),
    [
        ("P2P_LEVEL set by environment to LOC", ["nccltune ab --unset NCCL_P2P_LEVEL"]),
        ("P2P_DISABLE set by environment to 0", []),
        ("DEBUG set by environment to INFO", []),
    ],
)
def test_only_a_setting_that_is_there_is_taken_away(
    setting: str, commands: list[str], tmp_path: Path
) -> None:
    text = _log(f"NCCL INFO NCCL_{setting}", "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct")
    facts = pasted_facts(tmp_path, "run.log", f"{text}\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    assert list(judged["nvlink-bypassed"].commands) == commands
    assert judged["nvlink-bypassed"].verdict is RuleVerdict.FINDING


def test_findings_that_name_no_cause_come_after_one_that_does(tmp_path: Path) -> None:
    text = "EngineCore failed to start.\nRuntimeError: [gloo/x.cc:8] Gloo connectFullMesh failed\n"
    facts = pasted_facts(tmp_path, "run.out", text)
    found = examine({"n1": facts}, rule_base(), "x").of(RuleVerdict.FINDING)
    assert [one.rule for one in found] == ["gloo-failed", "process-died"]
    text = _log(
        "NCCL INFO NCCL_IB_HCA set by environment to mlx5_1",
        "NCCL INFO NCCL version 2.18.5+cuda12.2",
        "NCCL INFO NET/IB : Using [0]mlx5_1:1/IB [1]mlx5_10:1/IB ; OOB b0:10.0.0.1<0>",
        "NCCL INFO Using network IB",
    )
    facts = pasted_facts(tmp_path / "b", "run.log", text)
    found = examine({"n1": facts}, rule_base(), "x").of(RuleVerdict.FINDING)
    assert [one.rule for one in found][:2] == ["device-list-takes-more", "relaxed-ordering"]
