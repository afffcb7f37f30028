# SPDX-License-Identifier: Apache-2.0
"""Failures in logs, tools and the kernel log become records with their line."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.parsers.failure_words import WORDS
from nccltune.doctor.evidence.parsers.failures import (
    completions,
    crash_frames,
    parse_failures,
    states_failure,
)
from nccltune.doctor.evidence.parsers.watchdog import ranks_apart
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import folder_facts, put

LINES = [
    ("no_gpu", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    ("no_gpu", "Failed to initialize NVML: Driver/library version mismatch"),
    ("no_gpu", "ImportError: libcuda.so.1: cannot open shared object file: No such file"),
    ("no_gpu", "h1: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'"),
    ("gpu_busy", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("gpu_busy", "nccl.cc:9 NCCL WARN Cuda failure 46 'CUDA-capable device(s) is/are busy or "
     "unavailable'"),
    ("gpu_lost", "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error"),
    ("driver_old", "h1: Test CUDA failure common.cu:892 'CUDA driver version is insufficient for "
     "CUDA runtime version'"),
    ("fabric", "CUDA error: system not yet initialized"),
    ("device", "[1,3]<stderr>:h1: Test CUDA failure common.cu:1007 'invalid device ordinal'"),
    ("gpu_fault", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("gpu_memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("cuda_runtime", "ImportError: libcudart.so.11.0: cannot open shared object file"),
    ("shm", "RuntimeError: unable to open shared memory object </torch_1> in read-write mode"),
    ("gloo", "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/x.cc:14]"),
    ("gloo", "[enforce fail at /third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr"),
    ("peer_gone", "RuntimeError: [/a/third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection "
     "closed by peer [192.0.2.8]:12345"),
    ("peer_gone", "[/a/third_party/gloo/gloo/transport/tcp/pair.cc:5] writev [192.0.2.8]:1: Broken "
     "pipe"),
    ("watchdog", "[/a/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
     "1800000ms for recv operation to complete"),
    ("network", "[/a/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:1: "
     "Connection refused"),
    ("limit", "OSError: [Errno 24] Too many open files"),
    ("no_kernel", "HIP error: invalid device function"),
    ("no_kernel", "CUDA error: no kernel image is available for execution on the device"),
    ("torch_usage", "NCCL watchdog thread terminated with exception: traceMap[thisSeq].second == "
     'kEventStart INTERNAL ASSERT FAILED at "c10d/TraceUtils.h":237, please report a bug'),
    ("torch_store", "[4] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
     "c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"),
    ("torch_store", "DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
    ("gpu_fault", "[PG 0 Rank 3] Process group watchdog thread terminated with exception: CUDA "
     "error: an illegal memory access was encountered"),
    ("remote", "[PG 0 Rank 3] Process group watchdog thread terminated with exception: NCCL error: "
     "remote process exited or there was a network error, NCCL version 2.21.5"),
    ("watchdog", "[Rank 1] NCCL watchdog thread terminated with exception: [Rank 1] Watchdog caught"
     " collective operation timeout: WorkNCCL(SeqNum=6)"),
    ("nccl", "h1: Test NCCL failure common.cu:961 'unhandled system error' / 'x'"),
    ("nccl", "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251"),
    ("wrong", "Invalid value when checking the pattern at 0x7fa640000000"),
    ("gloo_loopback", "[W9 ProcessGroupGloo.cpp:5] Warning: Unable to resolve hostname to a "
     "(local) address. Using the loopback address as fallback."),
    ("host_memory", "srun: error: n4: task 8: Out Of Memory"),
    ("tcpx_settings", "NCCL/NET (shim) mismatch recommended: NCCL_FASTRAK_USE_LLCM=1 (unset)"),
    ("ofi_failed", "libfabric:1:2::cxi:ep_data:x():1000<warn> n1: Cassini Event Queue overflow de"),
    ("ofi", "libfabric:1:2::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa output "
     "empty list"),
    ("ofi_failed", "PE 0: MPICH WARNING: OFI is failing to make progress on posting a receive."),
    ("port_taken", "RuntimeError: The server socket has failed to listen on any local network "
     "address. port: 29500, useIpv6: false, code: -98, message: EADDRINUSE"),
    ("nccl_symbol", "ImportError: libnccl.so.2: cannot open shared object file: No such file"),
    ("usage", "h1:1 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already "
     "checked in"),
    ("usage", "h1:1:2 [0] bootstrap.cc:99 NCCL WARN Bootstrap Root : mismatch in rank count from "
     "procs 8 : 4"),
    ("ucx", "ib_device.c:1171 UCX  ERROR ibv_create_ah(dlid=4) on mlx5_0 failed: timed out"),
    ("rdma_memory", "ib_log.c:246 UCX  ERROR mlx5_0: ibv_create_cq() failed: Cannot allocate "
     "memory. Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)"),
    ("no_interface", "'x' failed: invalid usage. Last NCCL warning(error): 'Bootstrap : no socket "
     "interface found'"),
    ("calls_differ", "ncclAllReduce failed. Last NCCL warning(error) log entry (may be unrelated) "
     "'Message truncated : received 4096 bytes instead of 64'."),
    ("rdma_abi", "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (x"),
    ("rdma_gpu_memory", "RDMA buffer MR registration failed: Bad address"),
    ("gpu_memory", "h1: Test CUDA failure common.cu:730 'out of memory'"),
    ("cuda_init", "h1: Test CUDA failure common.cu:732 'initialization error'"),
    ("nccl", "h1: Test CUDA failure common.cu:732 'invalid argument'"),
    ("ofi_gdr", "h1:1:2 [0] platform_config_endpoint:626 NCCL WARN NET/OFI GDR disabled on "
     "GDR-supported instance type p5.48xlarge"),
    ("ofi_failed", "libfabric:1:17::cxi:core:x():26<warn> n1: LE resources not recovered during "
     "flow control. FI_CXI_RX_MATCH_MODE=[hybrid|software] is required"),
    ("rdma_memory", "libfabric:1:17::efa:cq:x():92<warn> Unable to create extended CQ: Cannot "
     "allocate memory"),
    ("rdma_memory", "ib_md.c:309  UCX  ERROR ibv_reg_mr(address=0x7f2c, length=8650752, access=0xf"
     ") failed: Cannot allocate memory"),
    ("imex_channel", "error asserting ComputeDomain Ready: node not ready in ComputeDomain"),
    ("ras_report", "1 job process is considered dead (unreachable via the RAS network)"),
    ("sharp", "sharp_am[7]: error: FabricProvider must bind to port with master SM (SM LID:35"),
    ("fabric_manager", "NVSwitch driver failed with error:WARNING Nothing to do "
     "[NV_WARN_NOTHING_TO_DO]"),
    ("health", "Found XID errors: 63"),
    ("ofi_failed", "libfabric:1:17::cxi:core:x():1<warn> Failed to allocate CXI service"),
    ("vgpu", "[HAMI-core ERROR (pid:7 thread=9 memory_limit.c:8)]: Illegal device id: 1"),
    ("no_gpu", "[HAMI-core ERROR (pid:7 thread=9 libvgpu.c:874)]: cuInit failed:100"),
    ("other_library", "DeepEP dispatch forwarder timeout (RDMA meta), channel: 1, RDMA: 1, nvl: 6"),
    ("imex", "> [ERROR] Failed to get new memory reference with rc: 87"),
    ("late", "E0517 rendezvous.cc:31] This thread has been waiting for `acquire clique` for 20 "
     "seconds and may be stuck. Expected 8 threads to join the rendezvous"),
    ("custom_all_reduce", "Failed: Cuda error /w/custom_all_reduce.cuh:364 'invalid argument'"),
    ("nccl_symbol", "ImportError: librccl.so.1: cannot open shared object file: No such file"),
    ("rdma_no_path", "E12 rdma_endpoint.cpp:133] Failed to modify QP to RTR, check mtu, gid, peer "
     "lid: Connection timed out [110]"),
    ("rdma_memory", "Failed to create QP: Cannot allocate memory [12]"),
    ("topology_file", "n1:75:95 [2] graph/xml.h:101 NCCL WARN Attribute arch of node cpu not "
     "found"),
    ("efa_fork", "As a result, the libfabric EFA provider is operating in"),
    ("peer_access", "Failed: Cuda error /w/custom_all_reduce.cuh:307 'peer access is not supported "
     "between these two devices'"),
    ("nvls", "[ERROR] [tid 52] failed to find the GPU handle 12 in the multicast team request "
     "setup 42."),
    ("gpu_fault", "gpu_allocator.cc:414 CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory"),
    ("gid_type", "W0825 331 util_rdma.h:547] NET/IB: read failed in ncclIbRoceGetVersionNum: x"),
    ("rdma_no_answer", "NET/IB : Got completion from peer 192.0.2.9<41> with status=12 opcode=0"),
    ("rdma_memory", "E rdma.cc:9] Call to ibv_reg_mr failed with error Cannot allocate memory"),
    ("ofi_failed", "WARN: Function: create_nccl_ofi_component Line: 459: NET/OFI Couldn't open AV. "
     "RC: -22, ERROR: Invalid argument"),
    ("ofi", "n1: WARN: Function: find_ofi_provider Line: 5: NET/OFI Couldn't find any optimal "
     "provider"),
    ("rdma_memory", "libfabric:1:17::efa:mr:efa_mr_reg_impl():500<warn> Unable to register MR of "
     "8388608 bytes: Cannot allocate memory"),
    ("ofi_failed", "libfabric:4:17::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: "
     "Invalid address My EFA addr: fi_addr_efa://[fe80::13]:0:1"),
    ("rccl_needs", "[FATAL ERROR]: HSA_NO_SCRATCH_RECLAIM=1 must be set to avoid performance"),
    ("topology_file", "INTERNAL: NCCL operation ncclCommInitRank() failed: x. Last NCCL "
     "warning(error) log entry (may be unrelated) 'Attribute busid of node nic not found'."),
    ("nccl", "INTERNAL: NCCL operation ncclCommInitRank() failed: x. Last NCCL warning(error) log "
     "entry (may be unrelated) 'socketTryAccept: Accept failed: Bad file descriptor'."),
    ("peer_gone", "[c10d] recvValue failed on SocketImpl(fd=5): Connection reset by peer"),
    ("launcher", "kex_exchange_identification: read: Connection reset by peer"),
    ("torch_usage", "RuntimeError: CUDA error: device-side assert triggered"),
    ("torch_store", "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for "
     "clients. 1/2 clients joined."),
    ("container_address", "[E616 socket.cpp:9] [c10d] The client socket has timed out after 6000ms "
     "while trying to connect to (172.17.0.6, 46229)."),
    ("container_address", "[c10d] The client socket has failed to connect to [::ffff:172.17.0.6]:4 "
     "(errno: 110 - Connection timed out)."),
    ("died", "ray.exceptions.ActorDiedError: The actor died unexpectedly"),
    ("hsa_resources", "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate"),
    ("no_rdma", "Fatal error:  device '*': sys files not found (/sys/class/infiniband/*/ports)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "line"), LINES)
def test_a_line_that_states_a_failure(kind: str, line: str) -> None:
    text = f"step 1\nstep 2\n{line}\nstep 3\n"
    assert [(one.kind, one.text, one.line) for one in parse_failures(text)] == [(kind, line, 3)]


def test_each_word_states_a_failure_of_the_first_kind_that_it_fits() -> None:
    for word in (word for words in WORDS.values() for word in words):
        kind = next(kind for kind, words in WORDS.items() if any(one in word for one in words))
        assert [one.kind for one in parse_failures(f"[rank 1] E: {word}\n")] == [kind], word


def test_lines_that_state_no_failure() -> None:
    fine = (
        "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
        "# Out of bounds values : 0 OK\n"
        "h1:1:1 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file\n"
        "h1:1:1 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
        "echo 'command not found'\n"
        "INFO:0:jax._src.xla_bridge:9: Unable to initialize backend 'tpu': INTERNAL: Failed to "
        "open libtpu.so: libtpu.so: cannot open shared object file: No such file or directory\n"
        "sudo: unable to resolve host n1: Name or service not known\n"
        "echo '/dev/nvidia-caps-imex-channels/channel0'\n"
        "curl: (7) Failed to connect to 169.254.169.254 port 80: Connection refused\n"
        "SUCCESS:  nhc:  Health check passed:  check_ib_bw_gdr: IB_WRITE_BW passed\n"
        "libibverbs: Warning: couldn't load driver 'libvmw_pvrdma-rdmav34.so': "
        "libvmw_pvrdma-rdmav34.so: cannot open shared object file: No such file or directory\n"
        "mca_base_component_repository_open: unable to open mca_mtl: libpsm2.so.2: cannot open "
        "shared object file: No such file or directory (ignored)\n"
        "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open "
        "shared object file: No such file or directory\n"
        "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared "
        "object file: No such file or directory\n"
        "exitcode  : 0 (pid: 5)\n"
        "INFO: Function: ofi_init Line: 6: NET/OFI Could not set RDMAV_FORK_SAFE\n"
        "libfabric:4:17::efa:cq:x():688<warn> Unable to create extended CQ: Invalid argument\n"
        "libfabric:4:17::core:core:ofi_hmem_init():421<warn> Failed to initialize hmem: no device\n"
        "libfabric:4:17::cxi:corlibfabric:4::core:core:ze_hmem_dl_init():4<warn> Failed to dlopen\n"
        "Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No\n"
        "slurmstepd: error: _is_a_lwp: open() /proc/7/status failed: No such file or directory\n"
        "+ echo ':::SYSJSON No devices were found'\n0: :::SYSJSON {driver: No devices were found}\n"
        "srun: error: n1: task 0: Exited with exit code 1\nsudo: a: command not found\n"
        "The client socket has failed to connect to [a]:1 (errno: 113 - No route to host).\n"
        'No available shared memory broadcast block found\n:::MLLOG \n"POST /a HTTP/1.1" 200 OK\n'
        "INFO core.py:9 [shutdown] EngineCore: trigger received signal\nEngineDeadError: x\n"
        "loss 0.1 error 0.0\n"
    )
    assert parse_failures(fine) == ()


@pytest.mark.parametrize(("tries", "kinds"), [("3/34", []), ("13/34", ["network"])])
def test_a_connection_that_is_tried_often(tries: str, kinds: list[str]) -> None:
    line = f"NCCL INFO x: connect returned No route to host, retrying ({tries}) after sleep for 3 s"
    assert [one.kind for one in parse_failures(f"h1:1:2 [0] {line}\n")] == kinds
    docker = line.replace("connect", "connect to 172.17.0.1<41>")
    found = [one.kind for one in parse_failures(f"h1:1:2 [0] {docker}\n")]
    assert found == ["container_address" for _ in kinds]


@pytest.mark.parametrize(
    "line",
    ["ib_md.c:1 UCX  ERROR ibv_open_device(mlx5_9) failed: No such file",
     "n1:7:8 [0] transport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_9",
     "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (x"],
)  # fmt: skip
def test_a_nic_that_cannot_be_opened(line: str) -> None:
    nodes = "".join(f"#  Rank  {n} Pid  7 on n{n} device  0 [0x01] H200\n" for n in range(2))
    one = "n1:7:8 [0] NCCL INFO x\n"
    worked = "# Avg bus bandwidth    : 320.1\n"
    failed = {one.kind for one in parse_failures(f"{line}\n")}
    for text, is_harmless in (
        (f"{one}{line}\n{worked}", True),
        (f"{nodes}{line}\n{worked}", False),
        (f"{one.replace('x', 'comm 0x1 rank 0 nRanks 2 nNodes 2')}{line}\n{worked}", False),
        (f"{nodes}{one.replace('x', 'NET/IB : Using [0]mlx5_0:1/RoCE')}{line}\n{worked}", True),
        (f"{one}{worked}{line}\n", False),
    ):
        kinds = {"optional"} if is_harmless else failed & {"ucx", "verbs", "rdma_abi"}
        assert {one.kind for one in parse_failures(text)} == kinds != set()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("words", ["returned ", "Last NCCL warning(error)'"])
def test_long_lines_of_a_connection_or_of_xla_end(words: str) -> None:
    text = f"a:1:2 [0] NCCL INFO {words * (1_000_000 // len(words))}\nConnection refused\n"
    assert [(one.kind, one.line) for one in parse_failures(text)] == [("network", 2)]


TOLD = (
    "The admin said he saw Xid 79 on gpu-07 (GPU has fallen off the bus), and we rebooted it.",
    "A GPU had fallen off the bus last week.",
    "Once a node was lost: GPU is lost, it never happened again.",
    "Hello, with the new image all pods are in CrashLoopBackOff.",
)


@pytest.mark.parametrize("line", TOLD)
def test_prose_decides_nothing(line: str, tmp_path: Path) -> None:
    assert parse_failures(f"Hi all,\n{line}\n") == ()
    assert not states_failure(line.encode())
    (tmp_path / "post.txt").write_text(f"Hi all,\n{line}\n")
    assert read_elsewhere([tmp_path / "post.txt"]) is None
    (tmp_path / "post.txt").write_text(f"{line}\n{texts.TOPO}")
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    (facts,) = found.values()
    assert "failures" not in facts
    # What a program printed beside it counts.
    assert parse_failures(f"{line}\nRuntimeError: CUDA error: GPU is lost\n") != ()


@pytest.mark.parametrize(
    "line",
    [
        "train-worker-0   0/1     CrashLoopBackOff   5 (2m ago)   9m",
        "      Reason:       CrashLoopBackOff",
        'failed to "StartContainer" for "x" with CrashLoopBackOff: "back-off 5m0s"',
    ],
)
def test_a_pod_that_kubernetes_shows_counts(line: str) -> None:
    assert [one.kind for one in parse_failures(f"{line}\n")] == ["launcher"]


def test_lines_alike_but_for_numbers_are_one() -> None:
    text = "".join(f"srun: error: h{n}: task {n}: Exited with exit code 1\n" for n in range(64))
    (one,) = parse_failures(text)
    assert (one.line, one.times) == (1, 64)


def test_hostile_texts_take_bounded_time() -> None:
    assert parse_failures("No devices were found" * 20_000)[0].kind == "no_gpu"
    assert len(parse_failures("\n".join(f"srun: error: {'x' * n}" for n in range(3000)))) == 400
    assert ranks_apart("[rank0]:[PG 0 Rank 1] at work: WorkNCCL(SeqNum=" * 20_000) == ()
    assert completions("mlx5: x got completion with error: " * 20_000) == ()


def test_a_tool_that_fails_after_one_that_does_not(tmp_path: Path) -> None:
    text = (
        "# rdma link show\nlink bnxt_re0/1 state ACTIVE physical_state LINK_UP\n# ibv_devinfo\n"
        "libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1)\n"
    )
    put(tmp_path, "n1/pasted.txt", text)
    (facts,) = folder_facts(tmp_path)
    assert [one["kind"] for one in facts.named("failures")] == ["rdma_abi"]
    assert [one["name"] for one in facts.named("hcas")] == ["bnxt_re0"]


@pytest.mark.parametrize(("lid", "before"), [(7, "DOWN Polling"), (8, None)])
def test_the_last_reading_of_a_port_counts(lid: int, before: str | None, tmp_path: Path) -> None:
    row = "link mlx5_7/1 subnet_prefix fe80:: lid {} sm_lid 1 state {} physical_state {}\n"
    put(
        tmp_path,
        "n1/a.txt",
        row.format(7, "DOWN", "POLLING") + row.format(lid, "ACTIVE", "LINK_UP"),
    )
    (facts,) = folder_facts(tmp_path)
    assert [one.get("before") for one in facts.named("hcas")] == [before]


KERNEL_TEXT = """\
[  100.000001] AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x1 address=0x0]
Nov 27 10:00:00 n1 kernel: NVRM: Xid (PCI:0000:41:00): 74, pid=1, NVLink
[  101.000001] Out of memory: Killed process 7 (python)
"""


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("n1:1:1 [0] NCCL INFO NET/IB : mlx5_0 infiniband timeout failed\n", []),
        ("n1:1:1 [0] misc/socket.cc:9 NCCL WARN Net : Connection closed by remote peer\n",
         ["peer_gone"]),
        ("torch.OutOfMemoryError: CUDA out of memory. mlx5 failed\n", ["gpu_memory"]),
        ("WARN: Function: f Line: 4: NET/OFI Couldn't open AV. RC: -22\n", ["ofi_failed"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kernel_first", [True, False])
def test_the_kernel_and_a_program_in_one_text(
    program: str, kinds: list[str], kernel_first: bool, tmp_path: Path
) -> None:
    """Each line is of one of the two, and no line counts twice."""
    text = KERNEL_TEXT + program if kernel_first else program + KERNEL_TEXT
    put(tmp_path, "n1/pasted.txt", text)
    (facts,) = folder_facts(tmp_path)
    found = [(one["kind"], one["count"]) for one in facts.named("kernel.failures")]
    assert found == [("iommu", 1), ("xid_nvlink", 1), ("memory", 1)]
    failures = facts.named("failures") if "failures" in facts else []
    assert [one["kind"] for one in failures] == kinds


@pytest.mark.parametrize("stamp", ["", "[ 1304.5] ", "[1304.512345] ", "[  +0.5] "])
@pytest.mark.parametrize("beside", ["", "n1:1:1 [0] NCCL INFO Bootstrap: Using eth0\n"])
def test_a_line_of_the_kernel_is_known_without_its_stamp(
    stamp: str, beside: str, tmp_path: Path
) -> None:
    lines = [
        "mlx5_core 0000:5e:00.1 ens1f1: Link down",
        "mlx5_core 0000:5e:00.1 ens1f1: Link up",
        "pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0",
        "Out of memory: Killed process 5555 (python3) total-vm:912345678kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=7",
    ]
    for number, line in enumerate(lines):
        put(tmp_path, f"n{number}/pasted.txt", f"{beside}{stamp}{line}\n")
    nodes = list(folder_facts(tmp_path))
    found = [[one["kind"] for one in node.named("kernel.failures")] for node in nodes]
    assert found == [[], [], ["pcie_corrected"], ["memory"], ["memory"]]
    assert [one["text"] for node in nodes[:2] for one in node.named("kernel.log")] == lines[:2]
    assert [node.named("failures") for node in nodes if "failures" in node] in ([], [[]] * 5)


@pytest.mark.parametrize("tool", [texts.NVLINK, texts.TOPO, texts.IBSTAT, texts.LSPCI])
def test_a_program_that_fails_after_a_tool(tool: str, tmp_path: Path) -> None:
    put(tmp_path, "n1/pasted.txt", f"{tool}\nCUDA error: uncorrectable NVLink error detected\n")
    (facts,) = folder_facts(tmp_path)
    assert [one["kind"] for one in facts.named("failures")] == ["gpu_fault"]


def test_a_variable_that_a_library_prints_is_known_to_it(tmp_path: Path) -> None:
    name = "NCCL_NCHANNELS_PER_PEER"
    put(tmp_path, "n1/run.log", f"n1:1:1 [0] NCCL INFO {name} set by environment to 16.\n")
    put(tmp_path, "n2/job.sh", f"#!/bin/bash\nexport {name}=16\n")
    logged, written = folder_facts(tmp_path)
    (one,), (other,) = logged.named("settings"), written.named("settings")
    assert (one.get("meant"), other["meant"]) == (None, "NCCL_NCHANNELS_PER_NET_PEER")


def test_settings_with_their_errors_below(tmp_path: Path) -> None:
    text = "NCCL_IB_HCA=mlx5_0\nNCCL_ALGO=Ring\nNCCL_DEBUG=INFO\nsrun: error: h1: Exited\n"
    put(tmp_path, "n1/job.txt", text)
    (facts,) = folder_facts(tmp_path)
    assert [one["kind"] for one in facts.named("failures")] == ["launcher"]
    assert "NCCL_ALGO" in [one["name"] for one in facts.named("settings")]


def test_a_node_without_gpus_is_known_to_have_none(tmp_path: Path) -> None:
    put(tmp_path, "n1/nvidia-smi.txt", "No devices were found\n")
    put(tmp_path, "n2/nvidia-smi.txt", texts.SMI_CSV)
    put(tmp_path, "n3/collected.txt", "not read\tnvidia-smi: is not installed\n")
    first, second, third = folder_facts(tmp_path)
    assert (first.named("gpus"), len(second.named("gpus"))) == ([], 2)
    assert [one["kind"] for one in first.named("failures")] == ["no_gpu"]
    assert [one["kind"] for one in third.named("failures")] == ["no_smi"]
    # What nvidia-smi prints of GPUs that work says nothing of a failure of a job.
    assert second.named("failures") is None


@pytest.mark.parametrize("tag", ["", "[rank3]: "])
@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ("Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught "
         "collective operation timeout: WorkNCCL(SeqNum=5)", ["watchdog"]),
        ("Process group watchdog thread terminated with exception: CUDA error: an illegal memory "
         "access was encountered", ["gpu_fault"]),
        ("NCCL error: remote process exited or there was a network error", ["remote"]),
        ("something that no rule knows", ["nccl"]),
    ],
)  # fmt: skip
def test_an_exception_of_pytorch_is_what_it_says(tag: str, said: str, kinds: list[str]) -> None:
    thrown = "terminate called after throwing an instance of 'c10::DistBackendError'"
    # The lines of two ranks mix.
    text = f"{tag}{thrown}\n{tag}{thrown}\n{tag}  what():  [Rank 3] {said}\n" * 2
    assert [one.kind for one in parse_failures(text)] == kinds


MPI = """[n1:00956] *** Process received signal ***
[n1:00956] Signal: Segmentation fault (11)
[n1:00956] [ 0] /usr/lib/libc.so.6(+0x45330)[0x7d1d0c3eb330]
[n1:00956] [ 1] /opt/nccl/lib/libnccl.so.2(ncclTuningInit+0xbe)[0x7d1d0c8f372c]
[n1:00956] [ 2] ./all_reduce_perf(main+0x1)[0x55d1]
"""
UCX = """[n1:900  :0:950] Caught signal 11 (Segmentation fault: address not mapped)
==== backtrace (tid:    950) ====
 0 0x0000000000045330 __sigaction()  ???:0
 1 0x000000000009c1e4 ncclTransportP2pSetup()  ???:0
"""
UCX_MAPS = """[n1:9:0:9] Caught signal 11 (Segmentation fault: address not mapped)
 0  /usr/lib/libucs.so.0(ucs_handle_error+0x2d4) [0x7fedc925c274]
 1  /opt/nccl/lib/libnccl.so(+0x120057) [0x7ff1c18c1057]
"""
GDB = """Program received signal SIGSEGV, Segmentation fault.
#0  0x00007ffff7a1c0a5 in raise () from /lib64/libc.so.6
#1  0x00007fffe8a1c0a5 in ncclSocketConnect (sock=0x7f) from /usr/lib/libnccl.so.2
"""


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [(MPI, 4, "libnccl.so.2(ncclTuningInit+0xbe)"), (UCX, 4, "ncclTransportP2pSetup()"),
     (UCX_MAPS, 3, "1  /opt/nccl/lib/libnccl.so(+0x120057)"),
     (GDB, 3, "ncclSocketConnect")],
)  # fmt: skip
def test_the_first_frame_outside_the_c_library(text: str, line: int, said: str) -> None:
    (found,) = crash_frames(text)
    assert (found.kind, found.line) == ("died", line)
    assert said in found.text


@pytest.mark.parametrize(
    "text",
    [MPI.replace("Segmentation fault", "Terminated"), UCX[: UCX.index(" 1 0x")], MPI[:90]],
)
def test_no_crash_and_no_frame(text: str) -> None:
    assert crash_frames(text) == ()


def test_what_calls_of_ranks_differ_in_is_shown() -> None:
    calls = ", but ".join(
        f"Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=18, OpType=A, "
        f"TensorShape=[328, {rank}], TensorDeviceTypes=TensorOptions(dtype=float (default), "
        f"device=cuda, {'x' * 99} (default), memory_format=(nullopt)))"
        for rank in (3, 0)
    )
    (one,) = parse_failures(f"[rank3]: Detected mismatch between collectives on ranks. {calls}.\n")
    assert (one.kind, "[328, 3]" in one.text, "[328, 0]" in one.text) == (
        "calls_differ",
        True,
        True,
    )
