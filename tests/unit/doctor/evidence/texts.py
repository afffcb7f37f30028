# SPDX-License-Identifier: Apache-2.0
"""Output of tools, in their forms and with made-up content."""

LSPCI = """\
0000:00:01.0 PCI bridge [0604]: Intel Corporation Made Up Root Port A [8086:1a00] (rev 04) \
(prog-if 00 [Normal decode])
\tControl: I/O+ Mem+ BusMaster+
\tIOMMU group: 3
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr+ NonFatalErr+
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #1, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)
\tCapabilities: [220 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport

0000:00:1f.0 ISA bridge [0601]: Intel Corporation Made Up [8086:1b81]
\tControl: I/O+ Mem+

0000:01:00.0 PCI bridge [0604]: Broadcom / LSI PEX890xx [1000:c030] (rev b0)
\tCapabilities: [68] Express (v2) Upstream Port, IntMsgNum 0
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 32GT/s, Width x16
\tKernel driver in use: pcieport

0000:03:00.0 Infiniband controller [0207]: Mellanox Technologies MT2910 [ConnectX-7] [15b3:1021]
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr- NonFatalErr+
\t\t\tRlxdOrd- ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-
\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\tCapabilities: [1c0 v1] Address Translation Service (ATS)
\t\tATSCap:\tInvalidate Queue Depth: 00
\t\tATSCtl:\tEnable-, Smallest Translation Unit: 00

0000:04:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\tCapabilities: <access denied>
"""

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            unlimited            unlimited            bytes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
"""
ULIMIT = """\
real-time non-blocking time  (microseconds, -R) unlimited
core file size              (blocks, -c) 0
max locked memory           (kbytes, -l) 64
open files                          (-n) 32768
stack size                  (kbytes, -s) unlimited
"""
DF = """\
Filesystem     1024-blocks  Used Available Capacity Mounted on
shm                  65536   512     65024       1% /dev/shm
"""
LSMOD = """\
Module                  Size  Used by
nvidia_peermem         16384  0
mlx5-core            2207744  1 mlx5_ib
"""
PROC_MODULES = "nvidia 14299136 4 nvidia_uvm,nvidia_peermem, Live 0x0000000000000000 (O)\n"
LSCPU = """\
Architecture:             x86_64
CPU(s):                   192
On-line CPU(s) list:      0-191
Vendor ID:                AuthenticAMD
Model name:               Made Up 96-Core Processor
CPU family:               25
Model:                    17
Socket(s):                2
NUMA node(s):             8
Flags:                    fpu vme sse2
"""
CPUINFO = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Made Up
flags\t\t: fpu sse2 hypervisor
physical id\t: 0
physical id\t: 1
"""
STATUS = """\
Name:\tsh
CapEff:\t00000000a80425fb
Seccomp:\t2
Cpus_allowed_list:\t0-3,8
"""
SMI_CSV = """\
index, pci.bus_id, name, driver_version, memory.total [MiB], persistence_mode, \
utilization.gpu [%], pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, \
pcie.link.width.max, clocks_event_reasons.active, clocks.current.sm [MHz], clocks.max.sm [MHz], \
temperature.gpu, ecc.errors.uncorrected.volatile.total, mig.mode.current
0, 00000000:04:00.0, NVIDIA H100 80GB HBM3, 570.1.2, 81559 MiB, Disabled, 3 %, 1, 5, 16, 16, \
0x0000000000000044, 345 MHz, 1980 MHz, 33, 0, Disabled
1, 00000000:84:00.0, NVIDIA H100 80GB HBM3, 570.1.2, 81559 MiB, Enabled, 0 %, 5, 5, 8, 16, \
0x0000000000000001, 1980 MHz, 1980 MHz, 36, [N/A], Enabled
"""
SMI_SM = "index, compute_cap\n0, 9.0\n1, 9.0\n"
SMI_FABRIC = """\
index, fabric.state, fabric.status
0, Completed, Success
1, In Progress, N/A
"""
SMI_XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<driver_version>570.1.2</driver_version>
\t<gpu id="00000000:04:00.0">
\t\t<product_name>NVIDIA H100 80GB HBM3</product_name>
\t\t<product_architecture>Hopper</product_architecture>
\t\t<persistence_mode>Disabled</persistence_mode>
\t\t<mig_mode>
\t\t\t<current_mig>Disabled</current_mig>
\t\t</mig_mode>
\t\t<serial>1234567890123</serial>
\t\t<uuid>GPU-00000000-1111-2222-3333-444444444444</uuid>
\t\t<pci>
\t\t\t<pci_bus_id>00000000:04:00.0</pci_bus_id>
\t\t\t<pci_gpu_link_info>
\t\t\t\t<pcie_gen>
\t\t\t\t\t<max_link_gen>5</max_link_gen>
\t\t\t\t\t<current_link_gen>1</current_link_gen>
\t\t\t\t</pcie_gen>
\t\t\t\t<link_widths>
\t\t\t\t\t<max_link_width>16x</max_link_width>
\t\t\t\t\t<current_link_width>16x</current_link_width>
\t\t\t\t</link_widths>
\t\t\t</pci_gpu_link_info>
\t\t</pci>
\t\t<clocks_throttle_reasons>
\t\t\t<clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
\t\t\t<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
\t\t\t<clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
\t\t\t<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
\t\t</clocks_throttle_reasons>
\t\t<fb_memory_usage>
\t\t\t<total>81559 MiB</total>
\t\t</fb_memory_usage>
\t\t<utilization>
\t\t\t<gpu_util>3 %</gpu_util>
\t\t</utilization>
\t\t<ecc_errors>
\t\t\t<volatile>
\t\t\t\t<sram_uncorrectable>0</sram_uncorrectable>
\t\t\t\t<dram_uncorrectable>0</dram_uncorrectable>
\t\t\t</volatile>
\t\t</ecc_errors>
\t\t<temperature>
\t\t\t<gpu_temp>33 C</gpu_temp>
\t\t</temperature>
\t\t<clocks>
\t\t\t<sm_clock>345 MHz</sm_clock>
\t\t</clocks>
\t\t<max_clocks>
\t\t\t<sm_clock>1980 MHz</sm_clock>
\t\t</max_clocks>
\t\t<fabric>
\t\t\t<state>Completed</state>
\t\t\t<status>Success</status>
\t\t</fabric>
\t</gpu>
</nvidia_smi_log>
"""
SMI_TEXT = """\
==============NVSMI LOG==============

Timestamp                                              : Mon Jan  1 00:00:00 2026
Driver Version                                         : 570.1.2
Attached GPUs                                          : 1
GPU 00000000:04:00.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    Product Architecture                               : Hopper
    Persistence Mode                                   : Disabled
    MIG Mode
        Current                                        : Disabled
    PCI
        Bus Id                                         : 00000000:04:00.0
        GPU Link Info
            PCIe Generation
                Max                                    : 5
                Current                                : 1
            Link Width
                Max                                    : 16x
                Current                                : 16x
    Clocks Event Reasons
        Idle                                           : Active
        SW Power Cap                                   : Active
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Active
    FB Memory Usage
        Total                                          : 81559 MiB
    Utilization
        GPU                                            : 3 %
    ECC Errors
        Volatile
            SRAM Uncorrectable                         : 0
            DRAM Uncorrectable                         : 0
    Temperature
        GPU Current Temp                               : 33 C
    Clocks
        SM                                             : 345 MHz
    Max Clocks
        SM                                             : 1980 MHz
    Fabric
        State                                          : Completed
        Status                                         : Success
"""
NVLINK = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-1111-2222-3333-444444444444)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-1111-2222-3333-555555555555)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
"""
P2P = """\
 \t\x1b[4mGPU0\tGPU1\t\x1b[0m
 GPU0\tX\tOK\t
 GPU1\tCNS\tX\t

Legend:

  X    = Self
  OK   = Status Ok
"""
TOPO = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\t0-3\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tPXB\t\t\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t
NIC1\tSYS\tPXB\tSYS\t X \t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_1
"""
TOPO_OLD = """\
        GPU0    GPU1    mlx5_0  CPU Affinity
GPU0     X      SOC     PHB     0-19
GPU1    SOC      X      SOC     20-39
mlx5_0  PHB     SOC      X
"""
IMEX = """\
Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

1/1/2026 00:00:00.000
Nodes:
Node #0   * 192.0.2.4 *    - READY                - Version: 570.1.2
Node #1   - 192.0.2.5      - UNAVAILABLE          - Version: 0.0.0

 Nodes From\\To  0   1
       0        C   I
Domain State: DEGRADED
"""
IMEX_JSON = """{"nodes": {"0": {"status": "READY", "host": "192.0.2.4", "version": "570.1.2"},
"1": {"host": 3}}, "status": "UP"}"""
NVBANDWIDTH = """\
nvbandwidth Version: v0.8

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.10     12.40

SUM host_to_device_memcpy_ce 67.50

Running device_to_host_memcpy_ce.
memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0     53.00       N/A
 1     54.00     20.00

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    276.00
 1    274.50       N/A

SUM device_to_device_memcpy_read_ce 550.50

Running device_to_device_bidirectional_memcpy_read_ce.
memcpy CE GPU(row) <-> GPU(column) Read1 bandwidth (GB/s)
           0         1
 0       N/A     99.00
 1     99.00       N/A

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
0       0.00    271.00
1        N/A      0.00
"""
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 5
\t\tSM lid: 1
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 10
\t\tSM lid: 0
\t\tLink layer: InfiniBand
"""
IBSTATUS = """\
Infiniband device 'mlx5_0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:0000:0000:0000:0001
\tbase lid:\t 0x5
\tsm lid:\t\t 0x1
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand
"""
DEVINFO = """\
hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.39.1002
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tsm_lid:\t\t\t1
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tphys_state:\t\tLINK_UP (5)
"""
RDMA_LINK = "link mlx5_2/1 state DOWN physical_state POLLING netdev eth2 netdev_index 4\n"
GIDS = """\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t0\tfe80:0000:0000:0000:0000:00ff:fe00:0001\t\t\tv1\teth0
mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c000:0204\t192.0.2.4  \tv2\teth0
n_gids_found=2
"""
ETHTOOL = """\
== eth0
driver: mlx5_core
version: 6.8.0
firmware-version: 28.39.1002 (MT_0000000838)
bus-info: 0000:03:00.0
== eth0
NIC statistics:
     rx_packets: 100
     rx_out_of_buffer: 7
     rx0_xsk_buff_alloc_err: 3
     rx_prio3_pause: 42
     tx_queue_0_dropped: 9
"""
RDMA_STATISTIC = (
    "link mlx5_0/1 rx_write_requests 5 out_of_buffer 2 packet_seq_err 9 np_cnp_sent 0\n"
)
PERFQUERY = """\
== mlx5_0 1
# Port counters: Lid 5 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............12
LinkDownedCounter:...............1
PortXmitData:....................123456
"""
DMESG = """\
[    1.000000] Linux version 6.8.0
[    4.100000] mlx5_core 0000:03:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s \
PCIe x8 link at 0000:00:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)
[Mon Jan  1 00:00:00 2026] NVRM: Xid (PCI:0000:04:00): 74, pid=1, NVLink: fatal error
2026-01-01T00:00:01,000000+00:00 mlx5_core 0000:03:00.0 eth0: Link down
Jan 01 00:00:02 host kernel: mlx5_core 0000:03:00.0 eth0: Link down
kern  :err   : [   99.0] usb 1-1: new device
"""
SERVICES = """\
Id=nvidia-fabricmanager.service
LoadState=loaded
ActiveState=failed

LoadState=not-found
ActiveState=inactive
Id=opensm.service
"""
ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 192.0.2.4/24 brd 192.0.2.255 scope global eth0\\       valid_lft forever
2: eth0    inet6 fe80::1/64 scope link \\       valid_lft forever preferred_lft forever
"""
LOG = """\
NCCL version 2.27.5+cuda12.9
h1:100:100 [0] NCCL INFO Bootstrap: Using docker0:172.17.0.1<0>
h1:100:101 [0] NCCL INFO NCCL_ALGO set by environment to Ring.
h1:100:101 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.4<0>
h1:100:101 [0] NCCL INFO Using network IB
h1:100:101 [0] NCCL INFO comm 0x55aa55aa55aa rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0
[2026-01-01 00:00:00] h1:100:101 [0] transport/net_ib.cc:99 NCCL WARN NET/IB : made up trouble
h1:101:103 [1] transport/net_ib.cc:99 NCCL WARN NET/IB : made up trouble
h1:100:101 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 12.0/12.0, type PIX/PIX, \
sameChannels 1
h1:100:101 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels
h1:100:101 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
h1:100:101 [0] NCCL INFO Channel 01/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
h1:100:101 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
JOB = """\
#!/bin/bash
#SBATCH --export=ALL,NCCL_DEBUG=INFO,PATH
# export NCCL_ALGO=Tree
export NCCL_PROTO="Simple" LD_LIBRARY_PATH=/opt/x:$LD_LIBRARY_PATH
mpirun -x NCCL_IB_HCA=mlx5_0,mlx5_1 -genv NCCL_NTHREADS 256 ./a.out
"""
MANIFEST = """\
kind: Pod
spec:
  containers:
  - env:
    - name: NCCL_SOCKET_IFNAME
      value: "eth0"
    - name: OTHER
      value: x
  data:
    NCCL_NET: Socket
"""
PERFTEST = """\
== h2
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 2          5000             0.05               0.04                 1.5
 65536      5000             196.00             195.50               0.37
---------------------------------------------------------------------------------------
"""
PINGS = """\
== 0 0
3 packets transmitted, 3 received, 0% packet loss, time 2003ms
== 0 1
3 packets transmitted, 0 received, 100% packet loss, time 2003ms
"""
PLUGINS = """\
== net\tNCCL_NET_PLUGIN=ofi\t/opt/made up/libnccl-net-ofi.so
0000000000001000 D ncclNetPlugin_v9
0000000000001040 D ncclNetPlugin_v8
                 U ncclTunerPlugin_v1
0000000000001080 D ncclTunerPlugin_v3
"""
TREE = """\
/sys/bus/pci/devices/0000:00:01.0/class:0x060400
/sys/bus/pci/devices/0000:03:00.0/max_link_speed:16.0 GT/s PCIe
/sys/class/infiniband/mlx5_0/ports/1/gids/3:fe80:0000:0000:0000:0000:0000:0000:0001
/sys/class/net/br0/uevent:DEVTYPE=bridge
/sys/class/net/br0/uevent:INTERFACE=br0
lrwxrwxrwx 1 root root 0 Jan  1 00:00 /sys/bus/pci/devices/0000:03:00.0 -> \
../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0
drwxr-xr-x 2 root root 0 Jan  1 00:00 /sys/class/net/eth0/device/infiniband/mlx5_0
"""
LISTED = """\
/etc/systemd/logind.conf:17:[Login]
/etc/systemd/logind.conf.d/50.conf:2:RemoveIPC=no
"""
MEMINFO = "HugePages_Total:     512\nHugePages_Free:        0\n"

ACS = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd{0}\n"
P2P_BANDWIDTH = """\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 800.51  21.48
     1  21.59 802.05
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 800.51   2.11
     1  26.10 802.05
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 800.51   9.99
     1   9.99 802.05
"""
MLXLINK = """\
Operational Info
----------------
State                              : Polling
Physical state                     : ETH_AN_FSM_ENABLE
Speed                              : IB-HDR
Width                              : 4x

Troubleshooting Info
--------------------
Recommendation                     : Cable is unplugged
"""
