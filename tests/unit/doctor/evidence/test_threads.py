# SPDX-License-Identifier: Apache-2.0
"""Lines that people paste in threads, with the rule and the advice that fit, and what does not."""

from pathlib import Path

import pytest

from nccltune.doctor.examine import examine
from nccltune.doctor.rulebase import rule_base
from tests.unit.doctor.evidence.node import pasted_facts

BTL = "[n1][[463,1],0][btl_tcp_{0}] {1}\n"
MPI = BTL.format("endpoint.c:9:mca_btl_tcp_endpoint_complete_connect", "connect() failed: No route")
PAIRS = BTL.format("proc.c:9:mca_btl_tcp_proc_create_interface_graph", "Unable to find a pairing")
SYSTEM = "RuntimeError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.{}.8\n"
NVML = "Failed to initialize NVML: {}\n"
MODPOST = "ERROR: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu'\n"
GONE = "n:1:2 [0] misc/shmutils.cc:9 NCCL WARN unlink shared memory /dev/shm/nccl-a failed, error: "
SCRIPT = "#!/bin/bash\n#SBATCH --gpus-per-task=1\n"
THREADS = [
    (MPI, "ucx-error", "btl_tcp_if_include", "connection-failed"),
    (PAIRS, "optional-step-failed", "btl_tcp_disable_family 6", "ucx-error"),
    ("WARNING: There was an error initializing an OpenFabrics device.\n", "optional-step-failed",
     "--mca btl ^openib", "launcher-failed"),
    ("c.c:1 UCX  WARN  transport 'ud' is not available, please use one or more of: self, tcp\n",
     "optional-step-failed", "UCX_TLS", "ucx-error"),
    (SYSTEM.format(7), "nccl-failed", "WSL wants", ""),
    (SYSTEM.format(18), "nccl-failed", "/dev/shm", ""),
    (NVML.format("Driver/library version mismatch"), "gpu-not-visible", "libraries of its own", ""),
    (NVML.format("Unknown Error"), "gpu-not-visible", "daemon-reload", ""),
    (f"{MODPOST}nvidia-driver-7 0/1 CrashLoopBackOff\n", "gpu-not-visible", "its open modules", ""),
    ("x:1:2 [8] transport/p2p.cc:5 NCCL WARN failed to peer with device 9(=9): 711 peer mapping "
     "resources exhausted\n", "peer-limit", "NCCL_CUMEM_ENABLE=0", "peer-import"),
    ("".join(f"h1:{n}:{n} [0] NCCL INFO Bootstrap : Using eth1:10.0.0.{n}<0>\n" for n in "45")
     + "h1:5:9 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 'invalid argument'\n",
     "peer-import", "NCCL_HOSTID", "gpu-ordinal"),
    (f"{GONE}No such file or directory\n", "shm-access", "RemoveIPC=no", ""),
    ("include/socket.h:9 WARN Socket creation failed : Address family not supported by protocol\n",
     "peer-address", "--network=host", "connection-failed"),
    ("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping\n",
     "driver-kernel-lines", "560", ""),
    ("nvidia-container-cli.real: initialization error: driver error: failed to process request\n",
     "gpu-not-visible", "load the driver", ""),
    (f"{SCRIPT}srun train\n\nRuntimeError: CUDA error: invalid device ordinal\n", "gpu-ordinal",
     "--gpu-bind=none", ""),
    ("ibgda.cpp:1: NULL value Unable to create ah.\n"
     "src/host/transport/t.cpp:9: non-zero status: 7 connect EPS failed\n", "other-library",
     "NVSHMEM_IB_GID_INDEX", ""),
    ("[n:1:0:1] log.c:1  Transport retry count exceeded on mlx5_0:1/RoCE (hw_synd 0/0)\n"
     "[n:1:0:1] log.c:1  DCI QP 0x14 [rqpn 0x2 sgix 0 dgid fe80::5:1 tc 0]\n", "ucx-error",
     "an address of one link", ""),
    ("[Rank 0]: Error 22 (Invalid argument) at (x.c:8):Failed to modify QP (libibverbs)\n",
     "roce-qp-error", "GID", ""),
    ("  what():  a work item: status 12 (Ib failure: Cannot allocate memory)\n", "rdma-memory",
     "memlock=-1", ""),
    ("InvalidArgumentError: No OpKernel was registered to support Op 'NcclAllReduce' used by X\n",
     "nccl-symbol", "HierarchicalCopyAllReduce", ""),
    ("node: Test HIP failure common.cu:9 'hipErrorInvalidDevice'\n", "gpu-ordinal", "/dev/kfd", ""),
    ("n:1:1 [0] transport/p2p.cc:9 NCCL WARN Cuda failure 1 'invalid argument'\n"
     "n:1:1 [0] init.cc:9 NCCL WARN commReclaim: cleanup comm 0x9 rank 0 failed in destroy/abort,"
     " error 1\n", "error-echo", "destroy the process group first", "peer-import"),
    ("n:1:1 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enP7s7:10.0.0.1<0>\n",
     "half-socket", "MTU 9000", ""),
    ("n1.5388PSM2 no hfi units are active (err=23)\nFatal error in PMPI_Init: Other MPI error\n",
     "ucx-error", "FI_PROVIDER", ""),
    ("NVRM: Xid (PCI:0000:01:00): 119, pid=4, Timeout waiting for RPC from GSP!\n", "xid-fault",
     "update it", ""),
    # Commands of two processes are no environment.
    ("CUDA_VISIBLE_DEVICES=0 worker -f s\nCUDA_VISIBLE_DEVICES=1 worker -f s\nSegmentation fault\n",
     "process-died", "Signal 11", "settings-contradict"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rule", "said", "other"), THREADS)
def test_a_thread_has_its_cause(
    text: str, rule: str, said: str, other: str, tmp_path: Path
) -> None:
    facts = pasted_facts(tmp_path, "post.txt", text)
    judged = {one.rule: one for one in examine({"n1": facts}, rule_base(), "x").rules}
    found = {name for name, one in judged.items() if one.verdict.value == "finding"}
    assert rule in found
    assert said in judged[rule].remedy
    assert other not in found
