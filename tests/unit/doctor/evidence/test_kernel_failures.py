# SPDX-License-Identifier: Apache-2.0
"""Failures that lines of the kernel state."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.parsers.failures import (
    parse_failures,
)
from nccltune.doctor.evidence.parsers.kernel_log import failure_kinds
from tests.unit.doctor.evidence.node import folder_facts, put

KERNEL = [
    ("gpu_lost", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."),
    ("xid_fault", "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error"),
    ("xid_fault", "NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC from GSP"),
    ("xid_fault", "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 3 LTSSM"),
    ("driver_call", "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 4"),
    (None, "nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Severity 0 Engine instance 4"),
    ("xid_program", "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, MMU Fault"),
    ("xid_nvlink", "NVRM: Xid (PCI:0000:3b:00): 74, pid=1, NVLink"),
    ("xid_fault", "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to "
     "0x1 (GPU Reset Required)"),
    (None, "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
     "Required) to 0x0 (None)"),
    ("nvlink_state", "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer1's "
     "postRxDetLinkMask failed!"),
    ("nvlink_state", "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect "
     "Link mask!"),
    ("driver_call", "NVRM: knvlinkSendInbandData_IMPL: Failed to send inband data: 0"),
    (None, "NVRM: knvlinkSetUniqueFabricBaseAddress_GV100: Fabric base addr 0x8 is assigned"),
    ("driver", "NVRM: RmInitAdapter failed! (0x26:0x56:1463)"),
    ("driver", "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required "
     "[NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827"),
    ("peermem", "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)"),
    ("peermem", "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument"),
    ("driver", "NVRM: API mismatch: the client has the version 570, but"),
    (None, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.10"),
    ("pcie", "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0"),
    (None, "pcieport 0000:00:01.0: AER: enabled with IRQ 30"),
    ("pcie", "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0:1"),
    ("pcie", "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link"),
    ("pcie_corrected", "pcieport 0000:40:01.1: AER: Multiple Corrected error received: 0000:41:00"),
    ("pcie_corrected", "pcieport 0000:40:01.1: AER: Correctable error message received from 41:0"),
    ("pcie_corrected", "nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical"),
    ("memory", "Memory cgroup out of memory: Killed process 100 (python)"),
    ("machine", "mce: [Hardware Error]: Machine check events logged"),
    (None, "amdgpu 0000:9e:00.0: {1}[Hardware Error]: Accelerator Check Architecture events"),
    ("amdgpu", "amdgpu 0000:83:00.0: uncorrectable hardware error(ERREVENT_ATHUB) detected!"),
    ("amdgpu", "amdgpu: probe of 0000:83:00.0 failed with error -12"),
    ("amdgpu", "amdgpu 0000:06:00.0: amdgpu: ring gfx_0.1.0 timeout, signaled seq=6, emitted"),
    (None, "amdgpu 0000:06:00.0: amdgpu: ring comp_1.0.0 uses VM inv eng 4 on hub 0"),
    ("nic", "mlx5_core 0000:19:00.0: poll_health:800: device's health compromised"),
    (None, "mlx5_core 0000:19:00.0: mlx5_cmd_out_err:808:(pid 9): ACCESS_REG(0x805) op_mod(0x0)"
     " failed, status bad parameter(0x3), syndrome (0x15c356), err(-22)"),
    ("nic", "mlx5_core 0000:19:00.0: ACCESS_REG(0x805) timeout. Will cause a leak of a command"),
    (None, "mlx5_core 0000:19:00.0: firmware version: 28.39.1002"),
    ("iommu", "arm-smmu-v3 arm-smmu-v3.3.auto: event: F_TRANSLATION client: 0002:01:00.0 sid: 0x1"),
    (None, "arm-smmu-v3 arm-smmu-v3.3.auto: allocated 524288 entries for evtq"),
    ("hung", "INFO: task nvidia-smi:100 blocked for more than 120 seconds."),
    (None, "usb 1-1: new device"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("GPU 3 reported XID 79 and the job hung", "gpu_lost"),
        ("Xid (PCI:0000:41:00): 74, pid=1, NVLink", "xid_nvlink"),
        ("Nov 28 10:00:01 n7 nvidia-persistenced[12]: Xid (PCI:0000:41:00): 94", "xid_fault"),
        ("dcgm saw an XID-119 on gpu 4", "xid_fault"),
        ("Xid error code 31", "xid_program"),
        ("gpu 3 gave xid 31", "xid_program"),
        ("we got xid 31 on a GPU", "xid_program"),
        ("RPC request xid 79 lost", None),
        ("postgres: transaction xid 31 aborted", None),
        ("no Xid 79 in dmesg", None),
        ("there was never any SXid on this node", None),
        ("Xid 79: not seen", None),
        ("dhclient: DHCPREQUEST, xid 0x3f2a", None),
        ("Xids on 3 nodes: 8 GPUs", None),
    ],
)
def test_an_xid_without_a_mark_of_the_kernel(line: str, kind: str | None, tmp_path: Path) -> None:
    put(tmp_path, "n1/notes.txt", f"{line}\n")
    (facts,) = folder_facts(tmp_path)
    found = facts.named("kernel.failures") if "kernel.failures" in facts else []
    assert [one["kind"] for one in found] == ([kind] if kind else [])


def test_lines_of_the_kernel_in_an_output_have_their_own_places(tmp_path: Path) -> None:
    time = "10.144.17.123: kern: warning: [2026-05-03T08:51:37.497011880Z]: "
    xids = ("74, NVLink: fatal error", "48, DBE")
    lines = [f"{time}NVRM: Xid (PCI:0000:4e:00): {xid}\n" for xid in xids]
    put(tmp_path, "n1/a.txt", "$ talosctl dmesg\n" + "\n".join(lines))
    (facts,) = folder_facts(tmp_path)
    found = facts.named("kernel.failures")
    assert [one["where"].rpartition("/")[2] for one in found] == ["a.txt:2", "a.txt:4"]
    assert facts["kernel.failures"].source.endswith("a.txt")


def test_lines_of_the_kernel() -> None:
    assert failure_kinds([line for _, line in KERNEL]) == [kind for kind, _ in KERNEL]


@pytest.mark.parametrize(
    ("kind", "line", "beside"),
    [
        ("verbs", "Failed to open device", "hca_id: mlx4_2"),
        ("watchdog",
         "[rank0]:[W519 04:25:53.6 ProcessGroupNCCL.cpp:4561] [PG ID 0 Rank 0]  using GPU 0 to "
         "perform barrier as devices used by this process are currently unknown.",
         "[Rank 4] Watchdog caught a timeout: ran for 600039 milliseconds before timing out."),
        ("gpu_lost", "1c:00.0 VGA compatible controller: NVIDIA Corporation TU102GL (rev ff)",
         "1c:00.1 Ethernet controller: NVIDIA Corporation (rev ff)"),
    ],
    ids=["devinfo", "barrier", "lspci"],
)  # fmt: skip
def test_lines_that_state_a_failure_beside_others(kind: str, line: str, beside: str) -> None:
    found = [(one.kind, one.text) for one in parse_failures(f"{line}\n{beside}\n")]
    assert (kind, line) in found
    assert beside in [text for _, text in found] or kind != "watchdog"
    assert kind == "gpu_lost" or parse_failures(f"{line}\nstep 1\n") == ()


def test_a_context_switch_that_times_out_after_a_wrong_instruction() -> None:
    """It follows from the program's Xid on the same GPU before it, and from none after it."""
    first, late, other = (
        f"NVRM: Xid (PCI:0000:{gpu}:00): {xid}, pid=1"
        for gpu, xid in (("cb", 13), ("cb", 109), ("0a", 109))
    )
    assert failure_kinds([first, late, other]) == ["xid_program", "xid_program", "xid_fault"]
    assert failure_kinds([late, first]) == ["xid_fault", "xid_program"]


DMAR = "DMAR: [DMA Read NO_PASID] Request device [{}] fault addr 0x7cd80000 [fault reason 0x01]"
PAGE = "{}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0013 address=0xec9023c0 flags=0x0020]"
GPU = "nvidia 0000:{}: enabling device (0006 -> 0007)"
NIC = "mlx5_core 0000:{}: firmware version: 20.31.1014"


@pytest.mark.parametrize(
    ("is_fault", "lines"),
    [
        (False, [DMAR.format("00:02.0")]),
        (False, [DMAR.format("00:02.0"), GPU.format("01:00.0")]),
        (False, [DMAR.format("00:14.0"), GPU.format("01:00.0")]),
        (False, [DMAR.format("04:00.0"), GPU.format("01:00.0"), NIC.format("17:00.0")]),
        (False, [PAGE.format("nvme 0000:04:00.0")]),
        (False, [PAGE.format("xhci_hcd 0000:00:14.0"), GPU.format("01:00.0")]),
        (True, [DMAR.format("01:00.0"), GPU.format("01:00.0")]),
        (True, [DMAR.format("17:00.0"), GPU.format("01:00.0")]),
        (True, [DMAR.format("17:00.4"), GPU.format("01:00.0"), NIC.format("17:00.0")]),
        (True, [DMAR.format("17:01.2"), GPU.format("01:00.0"), NIC.format("17:00.0")]),
        (True, [DMAR.format("17:00.0")]),
        (True, [DMAR.format("00:04.0")]),
        (True, [DMAR.format("00:02.0"), GPU.format("00:02.0")]),
        (True, [PAGE.format("nvidia 0000:0a:00.0"), NIC.format("17:00.0")]),
        (True, [PAGE.format("snd_hda_intel 0000:01:00.1"), GPU.format("01:00.0")]),
    ],
)
def test_faults_of_the_iommu_are_those_of_gpus_and_nics(
    is_fault: bool, lines: list[str], tmp_path: Path
) -> None:
    text = "".join(f"[    1.{number:06}] {line}\n" for number, line in enumerate(lines))
    put(tmp_path, "n1/dmesg.txt", text)
    (facts,) = folder_facts(tmp_path)
    kinds = [one["kind"] for one in facts.named("kernel.failures")]
    assert kinds == (["iommu"] if is_fault else [])
