# SPDX-License-Identifier: Apache-2.0
"""Facts of results of tests and checks, and of failures stated in outputs."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class NcclTest(FactRecord):
    """One record of the fact `tests`."""

    file: Annotated[str | None, "where it stood"] = None
    collective: Annotated[str | None, ("all_reduce, all_gather, reduce_scatter, sendrecv, ...")] = (
        None
    )
    nodes: Annotated[int | None, "different hosts"] = None
    hosts: Annotated[list[str] | None, "hosts of its ranks"] = None
    ranks: Annotated[int | None, "ranks"] = None
    min_bytes: Annotated[int | None, "smallest size"] = None
    max_bytes: Annotated[int | None, "largest size"] = None
    sizes: Annotated[int | None, "different sizes"] = None
    avg_busbw_gb_per_s: Annotated[float | None, "as the tool printed it"] = None
    peak_busbw_gb_per_s: Annotated[float | None, "highest of all sizes"] = None
    peak_bytes: Annotated[int | None, "the size of that one"] = None
    nics: Annotated[int | None, "NICs in use, where a log beside it names them"] = None
    algorithm: Annotated[
        str | None, ("ring, tree, ... where it was forced or the log names it")
    ] = None


TESTS = records(
    "tests",
    NcclTest,
    meaning="runs of nccl-tests",
    read="output of nccl-tests, text or JSON",
)


class RasCheck(FactRecord):
    """One record of the fact `ras.checks`."""

    name: Annotated[str | None, "NCCL environment, GPU inventory, ..."] = None
    status: Annotated[str | None, "OK, INFO, FAIL"] = None
    text: Annotated[str | None, "its text"] = None


RAS_CHECKS = records(
    "ras.checks",
    RasCheck,
    meaning="checks of NCCL's own diagnostics (2.31 and newer)",
    read="NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS, ncclras -D",
)


class StatedFailure(FactRecord):
    """One record of the fact `failures`."""

    kind: Annotated[
        str | None,
        (
            "no_gpu, no_smi, gpu_lost, gpu_busy, driver_old, no_kernel, fabric, device, gpu_fault, "
            "gpu_memory, shm, gloo, gloo_loopback, torch_store, watchdog, nccl, "
            "wrong, launcher, limit, died, network; of NCCL's warnings also cuda, peer_import, "
            "imex, nvls, nvlink_p2p, rdma_no_answer, rdma_failover, "
            "rdma_flushed, rdma_protection, rdma_not_ready, rdma_failed, rdma_no_path, "
            "rdma_address, rdma_memory, rdma_gpu_memory, verbs, rdma_event, gid_type, nics_mixed, "
            "ofi, ras, no_interface, peer_gone, local_socket, shm_access, calls_differ, usage, "
            "versions_differ, topology_file, setting, optional, stray_command, search, peer_limit, "
            "cumem_host, capture, device_api, internal, rdma_queue_event, warning; "
            "cuda_runtime, ranks_apart, hsa_resources, host_memory"
        ),
    ] = None
    text: Annotated[str | None, "the line"] = None
    count: Annotated[int | None, "how many such lines there are"] = None
    where: Annotated[str | None, "file and line"] = None


FAILURES = records(
    "failures",
    StatedFailure,
    meaning=(
        "lines that state a failure outright: of NCCL, CUDA, the driver, PyTorch, launchers, "
        "nvidia-smi; of lines alike but for numbers the first"
    ),
    read="logs and outputs of programs and launchers; nvidia-smi",
)


TEXT_LINES = fact(
    "log.text_lines",
    int,
    meaning="number of lines that were read of logs and outputs of programs",
    read="logs and outputs of programs and launchers; nvidia-smi",
)


class KernelFailure(FactRecord):
    """One record of the fact `kernel.failures`."""

    kind: Annotated[
        str | None,
        "gpu_lost, xid_fault, xid_nvlink, xid_program, peermem, driver, pcie, memory, machine, "
        "nic, amdgpu, iommu, hung, nvlink_state",
    ] = None
    text: Annotated[str | None, "the line without its time"] = None
    count: Annotated[int | None, "how often it was seen"] = None
    where: Annotated[str | None, "the first such line, in a program's output"] = None


KERNEL_FAILURES = records(
    "kernel.failures",
    KernelFailure,
    meaning=(
        "lines of the kernel's log that state a failure of a GPU, its driver, PCIe, memory, a NIC "
        "or a task"
    ),
    read="dmesg; journalctl -k",
)
