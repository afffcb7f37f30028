# SPDX-License-Identifier: Apache-2.0
"""Each warning of NCCL is evidence of a finding, and its cause is that of the call that failed."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers import nccl_warnings
from nccltune.doctor.evidence.parsers.failures import parse_failures
from nccltune.doctor.evidence.parsers.nccl_warnings import WARNING, message_kind, warning_kind
from nccltune.doctor.examine import examine
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence.node import folder_facts, put

DONE = "transport/net_ib.cc:24 Got completion from peer 192.0.2.9<41000> with"
QP = "misc/ibvwrap.cc:11 Call to ibv_modify_qp failed with"
CALL = "misc/ibvwrap.cc:11 Call to"
# Own lines in the shape of NCCL's messages: kind, and source file with the message.
SHAPES = (
    ("rdma_failed", f"{DONE} status=1 opcode=0 len=0 vendor err 105 (Recv) hca mlx5_0"),
    ("rdma_failed", f"{DONE} error 2, opcode 0, len 0, vendor err 104"),
    ("rdma_protection", f"{DONE} status=4 opcode=0 len=0 vendor err 81 (Send) hca mlx5_0"),
    ("rdma_protection", f"{DONE} error 4, opcode 1, len 21938, vendor err 81"),
    ("rdma_flushed", f"{DONE} status=5 opcode=0 len=0 vendor err 244 (Recv) hca mlx5_0"),
    ("rdma_flushed", f"{DONE} status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_SEND(0) reqSize=0"),
    ("rdma_protection", f"{DONE} status=8 opcode=0 len=0 vendor err 94 (Recv) hca mlx5_0"),
    ("rdma_failed", f"{DONE} status=9 opcode=0 len=0 vendor err 138 (Send) hca mlx5_0"),
    ("rdma_protection", f"{DONE} status=10 opcode=0 len=0 vendor err 136 (Send) hca mlx5_0"),
    ("rdma_failed", f"{DONE} error 11, opcode 2, len 1048576, vendor err 137"),
    ("rdma_no_answer", f"{DONE} status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0"),
    ("rdma_no_answer", f"{DONE} status=IBV_WC_RETRY_EXC_ERR opcode=0"),
    ("rdma_not_ready", f"{DONE} error 13, opcode 0, len 0, vendor err 135"),
    ("rdma_failed", f"{DONE} status=21 opcode=0 len=0 vendor err 0 (Send) hca mlx5_0"),
    ("rdma_no_path", f"{QP} 110 Connection timed out, on dev mlx5_5:1, curr state INIT"),
    ("rdma_no_path", f"{QP} error Connection timed out errno 110"),
    ("rdma_no_path", f"{QP} 113 No route to host, on dev mlx5_5:1"),
    ("rdma_no_path", f"{QP} error Network is unreachable"),
    ("rdma_address", f"{QP} error Invalid argument"),
    ("rdma_address", f"{QP} 22 Invalid argument, on dev mlx5_0:1, next state RTR"),
    ("rdma_address", f"{QP} 61 No data available, on dev mlx5_0:1"),
    ("rdma_address", f"{QP} error No such device errno 19"),
    ("verbs", f"{QP} error Cannot allocate memory errno 12"),
    ("rdma_memory", f"{CALL} ibv_reg_mr failed with error Cannot allocate memory"),
    ("rdma_memory", f"{CALL} ibv_reg_mr_iova2 failed with error Cannot allocate memory errno 12"),
    ("rdma_memory", f"{CALL} ibv_create_cq failed with error Cannot allocate memory"),
    ("rdma_memory", f"{CALL} ibv_create_qp failed with error Cannot allocate memory"),
    ("rdma_gpu_memory", f"{CALL} ibv_reg_mr_iova2 failed with error Bad address"),
    ("rdma_gpu_memory", f"{CALL} ibv_reg_mr failed with error Invalid argument"),
    ("rdma_gpu_memory", f"{CALL} ibv_reg_dmabuf_mr failed with error Operation not supported"),
    ("rdma_gpu_memory", f"{CALL} ibv_reg_dmabuf_mr failed with error Bad file descriptor"),
    ("verbs", f"{CALL} ibv_create_qp failed with error Operation not supported errno 95"),
    ("verbs", f"{CALL} ibv_create_qp failed"),
    ("verbs", f"{CALL} ibv_open_device failed"),
    ("verbs", f"{CALL} ibv_query_gid failed with error Success errno 0"),
    ("ras", "ras/client_support.cc:160 Call to bind failed: Address already in use"),
    ("ports", "misc/socket.cc:409 Call to bind failed: Address already in use"),
    ("limit", "misc/socket.cc:420 Call to accept failed : Too many open files"),
    ("limit", "init.cc:90 pthread_create failed: Resource temporarily unavailable"),
    ("effect", "proxy.cc:1458 [Service thread] Accept failed Resource temporarily unavailable"),
    ("verbs", "transport/net_ib.cc:148 NET/IB : Unable to open device mlx5_bond_0"),
    ("rocm_host", 'init.cc:120 Missing "iommu=pt" from kernel command line which can lead to'),
    ("rocm_host", "init.cc:118 NUMA auto balancing enabled which can lead to variability"),
    ("late", "net_tcpx.cc:1231 0xa:0xb, nic 0, eth1, 192.0.2.1<1><-192.0.2.2<2> rx rx ctrl "
     "timeout cnt 70, nanos 10000000585"),
    ("effect", "misc/socket.cc:415 socketTryAccept: Accept failed: Bad file descriptor"),
    ("effect", "proxy.cc:1458 [Service thread] Accept failed Success"),
    ("optional", "misc/amdsmi_wrap.cc:214 RCCL_USE_AMD_SMI_LIB not set, but HIP_FABRIC_API is"),
    ("nccl_symbol", "init.cc:9 Invalid config blocking attribute value -2147483648"),
    ("optional", "misc/mlx5dvwrap.cc:73 Call to mlx5dv_get_data_direct_sysfs_path failed with "
     "error No such device errno 19"),
    ("peer_access", "init.cc:12 Cuda failure 217 'peer access is not supported between these'"),
    ("rocm_peer", "hipify/src/transport/p2p.cc:222 Cuda failure 'invalid argument'"),
    ("nic_fatal", "transport/net_ib.cu:80 NET/IB : Got async event : local catastrophic error"),
    ("rdma_event", "misc/ibvwrap.cu:220 Call to ibv_get_async_event failed"),
    ("sysfs", "misc/rocm_smi_wrap.cc:100 ROCm SMI init failure 8"),
    ("msccl", "misc/msccl/msccl_parser.cc:9 MSCCL: thread block 3 is missing"),
    ("optional", "misc/rocmwrap.cc:9 Failed to load ROCr missing symbol hsa_init"),
    ("rocm_peer", "transport/p2p.cc:220 hipIpcGetMemHandle failed : invalid argument"),
    ("gpu_memory", "include/alloc.h:40 HIP failure 'out of memory'"),
    ("sharp", "transport.cc:323 Cannot initialize CollNet, using point-to-point network instead"),
    ("versions_differ", "ras/ras.cc:500 NCCL version mismatch with remote peer 192.0.2.1<41>"),
    ("versions_differ", "init.cc:800 Mismatched NCCL version detected : rank 0 version 22304"),
    ("cuda", "enqueue.cc:1430 Cuda failure 1 'invalid argument'"),
    ("cuda_init", "init.cc:200 Cuda failure 'initialization error'"),
    ("capture", "enqueue.cc:900 Cuda failure 900 'operation not permitted when stream is captur'"),
    ("capture", "enqueue.cc:900 Cuda failure 'operation not permitted when stream is capturing'"),
    ("capture", "misc/strongstream.cc:9 NCCL cannot be captured in a graph if either it wasn't x"),
    ("peer_limit", "allocator.cc:79 Cuda failure 711 'peer mapping resources exhausted'"),
    ("peer_limit", "transport/p2p.cc:79 Cuda failure 'peer mapping resources exhausted'"),
    ("cumem_host", "transport/shm.cc:590 Cuda failure 217 'peer access is not supported between'"),
    ("cumem_host", "misc/shmutils.cc:129 Error while attaching to shared memory segment "
     "/dev/shm/nccl-x (size 0), error: No such file or directory (2)"),
    ("rdma_queue_event", "transport/net_ib.cc:100 NET/IB : mlx5_0:1 Got async event : local access "
     "violation work queue error"),
    ("rdma_queue_event", "transport/net_ib.cc:154 NET/IB : mlx5_1:1 async fatal event on QP (0x7): "
     "invalid request local work queue error"),
    ("rocm_host", "init.cc:155 HSA_NO_SCRATCH_RECLAIM is not set with rocm older than 6.4, this x"),
    ("device_api", "gin/gin_host.cc:9 GIN plugin x returned invalid context for connection 1"),
    ("device_api", "init.cc:9 GIN Error detected"),
    ("device_api", "register/register.cc:9 buffer 7 does not satisfy symmetric registration x"),
    ("device_api", "dev_runtime.cc:9 Window address must be suitably aligned."),
    ("internal", "proxy.cc:9 Proxy append on running operation"),
    ("internal", "misc/socket.cc:9 ncclSocketConnect: wrong socket state 3"),
    ("internal", "misc/utils.cc:9 Object pointer is NULL"),
    ("internal", "mem_manager.cc:9 MemManager: Barrier failed during resume"),
    ("internal", "transport/net_ib/p2p.cc:9 NET/IB: Sender expected a 'send' request but got 'x'"),
    ("internal", "init.cc:9 Failed to determine local ranks rank 1 hostHash 7 pidHash 7"),
    ("effect", "bootstrap.cc:279 [Rem Allocator] Allocation failed (segment 0, fd 130)"),
    ("effect", "register/register.cc:9 rank 1 deregister IPC buffer 7 peerRank 2 failed"),
    ("optional", "init.cc:9 minCTAs 64 is larger than #channels upper limit 32, cap it to 32"),
    ("optional", "transport/net_ib/init.cc:9 NET/IB: Error in mlx5dv_get_data_direct_sysfs_path x"),
    ("setting", "transport/net_ib/connect.cc:9 NET/IB: OOO RQ is force enabled but AR is not x"),
    ("setting", "misc/socket.cc:9 Net : No valid <IPv4_or_hostname>:<port> pair found"),
    ("graph", "transport/net_ib.cc:9 NET/IB : Local mergedDev x has a different number of devices"),
    ("no_verbs", "misc/ibvsymbols.cc:9 dlvsym failed on ibv_reg_mr_iova2 - undefined symbol x"),
    ("optional", "misc/cudawrap.cc:9 CUDA some PFN functions not found in the library"),
    ("no_gpu", "misc/nvmlwrap.cc:9 nvmlDeviceGetHandleByIndex(3) failed: Unknown Error"),
    ("limit", "include/alloc.h:9 Failed to malloc 4096 bytes"),
    ("usage", "misc/strongstream.cc:9 Fatal: host threads racing to launch NCCL on same device."),
    ("usage", "enqueue.cc:9 FP8 reduction support begins with sm90 capable devices."),
    ("no_transport", "proxy.cc:9 Rank 1 has no transport for send peer 2 on channel 0/1"),
    ("local_socket", "proxy.cc:9 ncclProxyClientGetFd call to tpRank 1 handle 0x7 failed : 3"),
    ("sharp", "transport/coll_net.cc:9 CollNet sizes: want=1 got=2"),
    ("verbs", "transport/net_ib/init.cc:9 NET/IB : Unable to query port_num 1"),
    ("network", "misc/socket.cc:9 socketPollConnect poll() returned 1, no POLLOUT events"),
    ("cuda_init", "transport/p2p.cc:275 Cuda failure 3 'initialization error'"),
    ("cuda", "init.cc:77 Cuda failure 999 'unknown error'"),
    ("gpu_unsupported", "init.cc:416 Cuda failure 'operation not supported'"),
    ("driver_old", "enqueue.cc:100 Cuda failure 'API call is not supported in the installed CUDA "
     "driver'"),
    ("not_permitted", "include/alloc.h:228 Cuda failure 800 'operation not permitted'"),
    ("nvls", "transport/nvls.cc:598 Cuda failure 1 'invalid argument'"),
    ("nvls", "transport/nvls.cc:254 Cuda failure 401 'the operation cannot be performed'"),
    ("nvls", "transport/nvls.cc:254 Failed to bind NVLink SHARP (NVLS) Multicast memory of size 7"),
    ("peer_import", "transport/p2p.cc:275 Cuda failure 101 'invalid device ordinal'"),
    ("peer_import", "transport/p2p.cc:275 Cuda failure 'invalid device ordinal'"),
    ("peer_import", "transport/p2p.cc:286 Cuda failure 400 'invalid resource handle'"),
    ("peer_import", "transport/p2p.cc:286 Cuda failure 217 'peer access is not supported'"),
    ("device", "init.cc:400 Cuda failure 101 'invalid device ordinal'"),
    ("device", "init.cc:700 Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3000"),
    ("gpu_memory", "transport/nvls.cc:12 Cuda failure 2 'out of memory'"),
    ("gpu_memory", "include/alloc.h:12 Cuda failure 'out of memory'"),
    ("gpu_fault", "enqueue.cc:12 Cuda failure 700 'an illegal memory access was encountered'"),
    ("gpu_fault", "enqueue.cc:12 Cuda failure 226 'Invalid access of peer GPU memory over nvlink'"),
    ("gpu_fault", "transport/p2p.cc:12 Cuda failure 220 'uncorrectable NVLink error detected'"),
    ("fabric", "init.cc:12 Cuda failure 802 'system not yet initialized'"),
    ("driver_old", "misc/cudawrap.cc:9 CUDA Driver version found is 11000. Minimum is 12"),
    ("driver_old", "init.cc:12 Cuda failure 35 'CUDA driver version is insufficient'"),
    ("no_kernel", "enqueue.cc:12 Cuda failure 209 'no kernel image is available for execution'"),
    ("no_gpu", "misc/nvmlwrap.cc:99 nvmlInit_v2() failed: Driver/library version mismatch"),
    ("no_gpu", "init.cc:9 Cuda failure 'CUDA driver is a stub library'"),
    ("optional", "misc/cudawrap.cc:99 Failed to find CUDA library libcuda.so.1 : cannot open"),
    ("imex", "mnnvl.cc:67 MNNVL (cliqueSize 8) is available but not working on this system."),
    ("nvlink_p2p", "graph/paths.cc:300 P2P is disabled between NVLINK connected GPUs 0 and 1."),
    ("gid_type", "transport/net_ib.cc:9 NET/IB: read failed in ncclIbRoceGetVersionNum: EINVAL"),
    ("nics_mixed", "transport/net_ib.cc:9 NET/IB : Attempted to connect incompatible devices: [0]"),
    ("nics_mixed", "transport/net_ib.cc:9 NET/IB : Can't merge net devices with different "
     "link_layer. i=1"),
    ("rdma_port", "transport/net_ib.cc:9 NET/IB : mlx5_2:1 Got async event : port error"),
    ("rdma_port", "transport/net_ib.cc:9 NET/IB : mlx5_17:1 Got async error event: port error"),
    ("rdma_port", "transport/net_ib/common.cc:9 NET/IB : mlx5_2:1 Got non-fatal async event: port "
     "active(9)"),
    ("rdma_event", "transport/net_ib/common.cc:9 NET/IB : mlx5_2:1 Got non-fatal async event: LID "
     "change(11)"),
    ("nic_fatal", "transport/net_ib/common.cc:9 NET/IB : mlx5_2:1 async fatal event: local "
     "catastrophic error"),
    ("rdma_event", "transport/net_ib/common.cc:9 NET/IB : mlx5_2:1 async fatal event on QP (0x1)"),
    ("rdma_event", "transport/net_ib.cc:9 NET/IB : mlx5_2:1 GID table changed"),
    ("ofi", "nccl_net_ofi_rdma_init:78 NET/OFI OFI fi_getinfo() call failed: No data available"),
    ("ofi", "nccl_net_ofi_create_plugin:25 NET/OFI Unable to find a protocol that worked."),
    ("ofi", "find_ofi_provider:300 NET/OFI No eligible providers were found"),
    ("ofi", "find_ofi_provider:606 NET/OFI Only EFA provider is supported"),
    ("ofi", "get_ofi_provider:312 NET/OFI Could not find any optimal provider"),
    ("ofi_failed", "set_ep:520 NET/OFI Unable to insert remote address into address vector for "
     "device 1. RC: -22"),
    ("ofi_failed", "create_nccl_ofi_component:459 NET/OFI Couldn't open AV. RC: -22, ERROR: x"),
    ("ofi_failed", "process_err_completion:1723 NET/OFI Operation with NULL context completed with "
     "error!"),
    ("ofi_failed", "ofi_process_cq:118 NET/OFI Request 0x7f completed with error. RC: 5. Error: "
     "UNDELIVERABLE. Completed length: 0"),
    ("ofi_failed", "domain_get_ep:969 NET/OFI Creating new endpoint for domain 0x7f failed: x"),
    ("tcpx", "init.cc:95 NET/FasTrak 2026-03-01: Timeout: RxDM not ready on a3-1 after 60 seconds"),
    ("tcpx", "fastrak_plugin.cc:78 NET/FasTrak 2026-03-01: Plug-in core initialization failed (x)"),
    ("tcpx", "net_tcpx.cc:90 NET/GPUDirectTCPX : no interface found"),
    ("tcpx", "buffer_mgmt_daemon/client.cc:7 NET/FasTrak 2210:27 : INVALID_ARGUMENT: Buffer "
     "registration request does not have a valid fd set."),
    ("tcpx", "client.cc:8 NET/FasTrak 2026-03-01: x: receive() error: 32: Broken pipe"),
    ("peer_gone", "net.cc:8 NET/FasTrak 2026-03-01: data socket: Broken pipe"),
    ("ofi_failed", "accept(x*):9 NET/OFI Unexpected number of remote rails for dev 0. Expected 3"),
    ("ofi_failed", "NET/OFI Unexpected number of remote control rails for dev 0. Expected 1"),
    (WARNING, "fastrak_plugin.cc:206 NET/FasTrak 2026-03-01: PXN is not supported"),
    ("sharp", "sharp_plugin.c:302 SHARP group create: Streaming Tree lock failed (-18)"),
    ("sharp", "p2p_plugin.c:30 NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"),
    ("gpu_memory", "include/alloc.h:296 Failed to CUDA calloc async 608 bytes"),
    ("rdma_gpu_memory", "reg_mr_ep:820 NET/OFI Unable to register memory (type = 2) for device 0. "
     "RC: -14, Error: Bad address"),
    ("rdma_memory", "reg_mr_ep:820 NET/OFI Unable to register memory (type = 1) for device 0. "
     "RC: -12, Error: Cannot allocate memory"),
    ("rdma_event", "transport/net_ib.cc:110 NET/IB : mlx5_0:1 unknown event type (18)"),
    ("no_interface", "include/socket.h:333 Call to bind failed : Cannot assign requested address"),
    ("network", "misc/socket.cc:538 socketStartConnect: Connect to 192.0.2.9<33271> failed : "
     "Cannot assign requested address"),
    ("no_verbs", "misc/ibvwrap.cc:63 Failed to open libibverbs.so[.1]"),
    ("foreign", "misc/socket.cc:530 socketFinalizeAccept: wrong magic a2f3 != 564ab9f2fc4b9d6c"),
    ("foreign", "misc/socket.cc:441 socketFinalizeAccept from h2<41>: wrong type 1 != 2"),
    ("networks_differ", "misc/socket.cc:441 socketFinalizeAccept from h2<41>: wrong type 4 != 3"),
    ("window", "src/allocator.cc:229 (ncclSpaceAlloc) Allocation failed. No suitable space found "
     "to accommodate size=0x21716 within limit=0x2d000"),
    ("ofi_tuner", "NET/OFI The tuner plugin can not be loaded when explicitly choosing an "
     "algorithm or protocol with NCCL_ALGO/NCCL_PROTO"),
    ("peer_import", "transport/p2p.cc:238 failed to open CUDA IPC handle : 217 peer access is not "
     "supported between these two devices"),
    ("device", "misc/nvmlwrap.cc:174 nvmlDeviceGetHandleByIndex() failed: Invalid Argument"),
    ("container_address", "misc/socket.cc:480 socketStartConnect: Connect to 172.17.0.2<38847> "
     "failed : Software caused connection abort"),
    ("network", "misc/socket.cc:480 socketStartConnect: Connect to 172.16.0.2<38847> failed : "
     "Connection refused"),
    ("peer_address", "include/socket.h:311 Socket creation failed : Address family not supported "
     "by protocol"),
    ("peer_address", "misc/socket.cc:9 ncclSocketInit: connecting to address  with family 59936 is "
     "neither AF_INET(2) nor AF_INET6(10)"),
    ("ofi_failed", "register_mr_buffers:700 NET/OFI Unable to register memory (type = 2) for "
     "device 0"),
    ("rdma_gpu_memory", "reg_mr:80 NET/OFI Network does not support CUDA buffers. Dev: 0"),
    ("rdma_memory", "nccl_ofi_rdma:9 NET/OFI Could not register memory on data rail 0. RC: -12, "
     "Error: Cannot allocate memory"),
    ("ofi", "platform_init:40 NET/OFI EFA provider requires at least libfabric version 1.22.0."),
    ("ofi_failed", "init_connect:274 NET/OFI Couldn't open CQ. RC: -22, ERROR: Invalid argument"),
    ("net_plugin", "create_plugin:259 NET/OFI aws-ofi-nccl initialization failed"),
    ("ofi_failed", "cm:12 NET/OFI CM connect failed: x"),
    ("ofi_failed", "rdma:12 NET/OFI Receiver eager queue full"),
    (WARNING, "freelist:12 NET/OFI MR cache destroyed while 3 memory segments still held"),
    ("tcpx", "connect.cc:700 update flow steering rule: local 192.0.2.1 <- remote 192.0.2.2, "
     "failed against receive-datapath-manager: x"),
    ("tcpx", "plugin/net.cc:9 NCCL_DEVICE_UNPACK plugin has incompatible version 7, not using it"),
    ("tcpx", "net_tcpx.cc:90 get_gpumem_dmabuf_pages_fd() failed!"),
    ("tcpx", "tcpx.h:400 fatal, rx data landed on host memory 2 times"),
    ("tcpx", "fastrak.cc:9 NET/FasTrak 2026-03-01: Failed to initialize LLCM: x"),
    ("no_net", "net.cc:579 Error: network gIB not found."),
    ("shm", "misc/shmutils.cc:72 Error: failed to extend /dev/shm/nccl-Ab1 to 9637892 bytes"),
    ("shm", "misc/shmutils.cc:72 Call to posix_fallocate failed : No space left on device"),
    ("shm", "misc/shmutils.cc:90 Error while creating shared memory segment /dev/shm/nccl-Ab1 "
     "(size 9637888)"),
    ("shm", "misc/shmutils.cc:90 Error while creating shared memory segment /dev/shm/nccl-Ab1 "
     "(size 9637888), error: No space left on device (28)"),
    ("shm_access", "misc/shmutils.cc:90 Error while creating shared memory segment "
     "/dev/shm/nccl-Ab1 (size 4096), error: Permission denied (13)"),
    ("shm_access", "misc/shmutils.cc:90 Error while attaching to shared memory segment "
     "/dev/shm/nccl-Ab1 (size 4096), error: No such file or directory (2)"),
    ("shm_access", "include/shm.h:28 Call to shm_open failed : Permission denied"),
    ("local_socket", "misc/ipcsocket.cc:9 UDS: Sending data over socket /tmp/nccl-1 failed : "
     "Connection refused (111)"),
    ("local_socket", "proxy.cc:9 ncclProxyCallBlockingUDS call to tpRank 1(ab) failed : 2"),
    ("no_interface", "bootstrap.cc:9 Bootstrap : no socket interface found"),
    ("no_interface", "bootstrap.cc:9 no device found matching =eth9, verify NCCL_OOB_NET_IFNAME"),
    ("no_interface", "misc/socket.cc:9 Net : No interface found in the same subnet as remote "
     "address 192.0.2.1<41>"),
    ("peer_gone", "misc/socket.cc:9 socketProgress: Connection closed by remote peer h2<41>"),
    ("peer_gone", "misc/socket.cc:9 Call to recv from h2<41> failed : Connection reset by peer"),
    ("network", "misc/socket.cc:9 socketStartConnect: Connect to h2<41> failed : No route to host"),
    ("network", "include/socket.h:9 Call to connect failed : Connection refused"),
    ("network", "misc/socket.cc:9 ncclSocketInit: Socket creation failed : Protocol not supported"),
    ("network", "misc/socket.cc:9 socketPollConnect: exceeded timeouts (10000)"),
    ("no_net", "init.cc:9 Failed to initialize any NET plugin"),
    ("no_net", "plugin/net.cc:9 Network IBX not found."),
    ("no_net", "net.cc:626 Error: network AWS Libfabric not found."),
    ("setting", "graph/tuning.cc:187 CollNet is not supported or fails to initialize, ignoring "
     "NCCL_ALGO=COLLNET"),
    ("optional", "net_fastsocket.cc:785 Maximum retry reached for accept 3."),
    ("calls_differ", "init.cc:1247 Mismatched collective detected, please check your calls"),
    ("calls_differ", "bootstrap.cc:9 Message truncated : received 64 bytes instead of 8"),
    ("calls_differ", "transport/net_ib.cc:9 NET/IB : req 0/1 tag 1 peer h2<41> collective mismatch "
     "error, local size 8 remote size 16"),
    ("usage", "misc/argcheck.cc:9 AllReduce : sendbuff 0x7f00 is not a valid pointer"),
    ("usage", "enqueue.cc:9 Error : mixing different streams within a group call is not"),
    ("topology_file", "graph/xml.cc:9 Could not open XML topology file /x.xml : No such file"),
    ("topology_file", "graph/search.cc:9 XML Import Channel : dev 7 not found."),
    (WARNING, "graph/xml.cc:9 No NVML device handle. Skipping nvlink detection."),
    ("setting", "enqueue.cc:9 Error : no algorithm/protocol available for function AllGather"),
    ("setting", 'graph/tuning.cc:9 Unrecognized element token "rinng" when parsing "rinng"'),
    (WARNING, "init.cc:9 MNNVL is not supported on this system"),
    ("nvlink_p2p", "graph/paths.cc:82 Failed to find reverse path from remNode 0/1 nlinks 2 to 0"),
    ("nvlink_p2p", "graph/search.cc:9 Could not find rev link for 1/0 -> 1/1"),
    ("sysfs", "graph/xml.cc:332 Could not find real path of /sys/class/pci_bus/0:1/../0:1:00.0"),
    ("sysfs", "misc/alt_rsmi.cc:653 Could not read node # 5"),
    ("sysfs", "graph/paths.cc:9 Error : could not find CPU close to GPU 1"),
    ("graph", "graph/rings.cc:38 Error : ring 2 does not loop back to start (7 != 2)"),
    ("graph", "graph/topo.h:230 Could not find NET with id 0"),
    ("graph", "init.cc:9 Detected mixed local Net device counts across ranks (min 1, max 2)."),
    ("search", "graph/search.cc:9 Could not find a path for pattern 1, falling back"),
    ("network", "socket.c:485 socketStartConnect: Connect to 192.0.2.1<9> failed : Software abort"),
    ("network", "os/linux.cc:9 socketStart: connect to 192.0.2.1<9> failed : Software abort"),
    ("gdrcopy", "misc/gdrwrap.cc:9 gdr_pin_buffer(addr 7, size 7) failed: 22"),
    ("ofi", "nccl_ofi_net.c:9 NET/OFI Disabling shared memory failed: Protocol not available"),
    ("rdma_failover", "transport/net_ib/p2p_resiliency.cc:9 NET/IB: The error is fatal (x)."),
    ("rdma_failed", "transport/net_ib/p2p.cc:9 NET/IB: Got CQE with error (devIndex=0, req=0x7)"),
    ("rdma_failed", "include/ibvwrap.h:9 ibv_post_send() failed with error Invalid argument"),
    ("rdma_address", "ibrc.cpp:420: non-zero status: 22 ibv_modify_qp failed."),
    ("rdma_memory", "net.c:9 ibv_reg_mr(0x7f,0x9) failed: Cannot allocate memory"),
    ("setting", "graph/topo.cc:9 TOPO/NET : x. Please specify a valid NCCL_NET_FORCE_MERGE."),
    ("usage", "init.cc:9 Invalid config splitShare attribute value 7"),
    ("usage", "enqueue.cc:9 Trying to send to self without a matching recv"),
    ("usage", "init.cc:9 Attempt to use communicator before the previous operation returned"),
    ("effect", "init.cc:9 commReclaim: cleanup comm 0x7 rank 1 failed in destroy/abort, error 3"),
    ("peer_import", "transport/p2p.cc:9 failed to peer with device 1(=1): 217 x"),
    ("nccl_symbol", "dev_runtime.cc:9 Too old. This application was compiled with NCCL version 2"),
    ("effect", "proxy.cc:9 [Proxy Service 0] Failed to execute operation Connect from rank 0"),
    ("no_transport", "transport.cc:9 No transport found for rank 0[1000] -> rank 1[2000]"),
    ("graph", "graph/paths.cc:9 Could not find intermediate GPU between GPU rank 0 and NIC 1"),
    (WARNING, "a message of a version that is not known"),
    ("optional", "src/init.cc:2065 MSCCL++: Cannot enable MSCCL++; environment is not compatible"),
    ("optional", "src/misc/api_trace.cc:283 [rocprofiler-sdk-rccl][24] rocprofiler-register failed "
     "with error code 4 : Library's API is not supported"),
    ("optional", "misc/nvmlwrap.cc:164 nvmlDeviceGetP2PStatus(0,0,READ) failed: "
     "Not Supported"),
    ("optional", "init.cc:471 Failed to find nvml device for busId 0000:00:00.0. This may affect"),
    ("no_kernel", "enqueue.cc:12 Cuda failure 98 'invalid device function'"),
    ("no_kernel", "enqueue.cc:58 Cuda failure 'named symbol not found'"),
    ("no_kernel", "src/enqueue.cc:47 Cuda failure 500 'named symbol not found'"),
    ("cuda", "misc/cudawrap.cc:36 Cuda failure 500 'named symbol not found'"),
    ("cuda", "enqueue.cc:58 Cuda failure 'invalid argument'"),
    ("optional", "transport/nvls.cc:703 rank 0 failed to NVLS register sendbuff 0x78 recvbuff 0x9"),
    ("effect", "misc/argcheck.cc:39 Broadcast : invalid root 0 (root should be in the 0..-1 range"),
    ("optional", "transport/p2p.cc:944 rank 3 failed to IPC register userbuff 0x7f buffSize 8"),
    ("stray_command", "proxy.cc:1111 [Service thread] Unknown command 790 from localRank -1"),
    ("effect", "proxy.cc:1111 [Service thread] Unknown command 790 from localRank 2"),
)  # fmt: skip


def _line(shape: str) -> str:
    file, _, message = shape.partition(" ")
    if ":" not in file:
        return f"h1:10:20 [0] NCCL WARN {shape}"
    return f"h1:10:20 [0] {file} NCCL WARN {message}"


@pytest.mark.parametrize(("kind", "shape"), SHAPES)
def test_a_warning_has_its_cause(kind: str, shape: str) -> None:
    assert warning_kind(_line(shape)) == kind
    assert [one.kind for one in parse_failures(f"step\n{_line(shape)}\n")] == [kind]


@pytest.mark.parametrize(
    ("version", "prefix"),
    [("", "[1,0]<stdout>:"), ("h1:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n", "(Worker) ")],
)
def test_every_warning_is_evidence_of_one_finding(
    tmp_path: Path, version: str, prefix: str
) -> None:
    lines = {f"n{number:03}": _line(shape) for number, (_, shape) in enumerate(SHAPES)}
    for node, line in lines.items():
        put(tmp_path, f"{node}/run.log", f"{version}{prefix}{line}\n")
    nodes = {facts.node: facts for facts in folder_facts(tmp_path)}
    said: dict[str, list[str]] = {node: [] for node in lines}
    for judged in examine(nodes, rule_base(), "x").rules:
        for item in judged.evidence:
            for node in item.nodes:
                said[node] += [judged.rule] * (lines[node] in item.text)
    assert {node: rules for node, rules in said.items() if len(rules) != 1} == {}


def test_each_kind_has_a_rule() -> None:
    kinds = {
        WARNING, "cuda", "verbs", "rdma_failed", "nvls", "peer_import",
        *(kind for _, kind in nccl_warnings._CUDA_ERRORS.values()),
        *(kind for _, kind in nccl_warnings._COMPLETIONS.values()),
        *(kind for *_, kind in nccl_warnings._VERBS),
        *(kind for *_, kind in nccl_warnings._MESSAGES),
    }  # fmt: skip
    findings = [rule.text.finding or "" for rule in rule_base().rules]
    for kind in kinds:
        assert any(f"'{kind}'" in finding for finding in findings), kind


def test_the_last_error_of_pytorch_is_a_warning() -> None:
    text = (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94, x\n"
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed.\n"
        "Last error:\n"
        "Call to ibv_modify_qp failed with error Connection timed out errno 110\n"
    )
    assert [one.kind for one in parse_failures(text)] == ["nccl", "nccl", "rdma_no_path"]
    said = "Cuda failure 1 'invalid argument'"
    text = f"h:1:2 [0] transport/nvls.cc:254 NCCL WARN {said}\nLast error:\n{said}\n"
    assert [one.kind for one in parse_failures(text)] == ["nvls", "nvls"]


def test_a_warning_of_an_old_nccl_is_one() -> None:
    text = "h:3:3 [0] {} WARN Socket creation failed : Address family not supported by protocol\n"
    found = parse_failures(text.format("include/socket.h:311") + text.format("a log:"))
    assert [(one.kind, one.line) for one in found] == [("peer_address", 1)]


def test_a_long_line_takes_bounded_time() -> None:
    line = (
        "h1:10:20 [0] NCCL WARN "
        + "Got completion Call to ibv_ Cuda failure '] a.h:1 WARN " * 20_000
    )
    assert parse_failures(line)[0].kind == "cuda"


def test_lines_that_differ_in_ports_and_addresses_are_searched_once() -> None:
    line = "Unknown words of 192.0.2.9<{}> at 0x{:x} in rank {}"
    before = nccl_warnings._message_kind.cache_info().misses
    kinds = {message_kind(line.format(20_000 + n, 0x7F0000 + n, n % 3)) for n in range(500)}
    assert kinds == {WARNING}
    assert nccl_warnings._message_kind.cache_info().misses == before + 3
