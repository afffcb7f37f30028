# SPDX-License-Identifier: Apache-2.0
"""Reports of NCCL's own diagnostics, in the forms of 2.31 and 2.32."""

from nccltune.formats.nccl_log.diagnostics import Diagnostics, read_diagnostics, remarks

RAS = """\
alpha:12 NCCL DIAG === RAS Diagnostics ===
alpha:12 NCCL DIAG [OK]   GPU inventory: 4x H200 per node consistent across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [OK]   CUDA driver version: 13000 consistent across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x1a
alpha:12 NCCL DIAG [INFO] NCCL environment: mismatch across 8 ranks in comm 0x1a for NCCL_ALGO
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=(unset) on rank(s) {0,1,2,3}
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_ALGO=Ring on rank(s) {4,5,6,7}
alpha:12 NCCL DIAG [INFO] NCCL environment: NCCL_COMM_ID=somebody:77 on rank(s) {0,1,2,...} (N=8)
alpha:12 NCCL DIAG RAS diagnostics completed in 12.3 ms across 8 ranks
"""


def read(text: str) -> list[Diagnostics]:
    return read_diagnostics(text.splitlines())


def test_a_ras_report_by_check() -> None:
    (report,) = read(RAS)
    assert not report.active
    assert (report.completed_ms, report.peers) == (12.3, 8)
    first, *_ = report.results
    assert (first.check, first.ok, first.comm, first.ranks) == ("GPU inventory", True, "0x1a", 8)
    assert [item.check for item in report.remarks] == ["NVLink"] + 4 * ["NCCL environment"]
    assert "NCCL_ALGO=Ring on rank(s) {4,5,6,7}" in report.remarks[3].text
    assert "somebody" not in report.remarks[4].text
    # A link that is down is a hardware problem; a difference is not.
    assert list(remarks([report]).values()) == [True] + 4 * [False]


def test_prefixes_and_lines_of_a_launcher_are_ignored() -> None:
    tagged = "".join(f"[1,0]<stdout>:{line}\nsomething\n" for line in RAS.splitlines())
    assert [item.text for item in read(tagged)[0].results] == [
        item.text for item in read(RAS)[0].results
    ]


def test_peer_accesses_of_2_31_and_2_32() -> None:
    texts = {
        "[OK]   p2p: all 56 directed GPU P2P edges verified": (56, 56, 0),
        "[OK]   p2p: all 6 directed GPU P2P edges verified (skipped indirect=2)": (6, 6, 2),
        "[INFO] p2p: 52/56 directed GPU P2P edges verified": (52, 56, 0),
        "[OK]   p2p: verified P2P access in both directions between every GPU pair (56 peer "
        "accesses)": (56, 56, 0),
        "[INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification": (52, 56, 0),
    }
    for text, expected in texts.items():
        (report,) = read(f"NCCL DIAG === NCCL Diagnostics ===\nNCCL DIAG {text}")
        assert report.active
        assert report.p2p is not None
        assert (report.p2p.passed, report.p2p.tested, report.p2p.skipped) == expected


def test_a_failed_pair_names_gpus_path_and_advice() -> None:
    (report,) = read(
        "alpha:12 NCCL DIAG === NCCL Diagnostics ===\n"
        "alpha:12 NCCL DIAG [INFO] p2p: write mismatch srcRank=1 srcCudaDev=1 srcNvmlDev=5 "
        "dstRank=2 dstCudaDev=2 dstNvmlDev=6 path=PIX handle=LEGACY_CUDA_IPC expected=0x01 "
        "got=0x02 verify=0x02; check the affected pair with 'nvidia-smi topo -p2p p'\n"
        "alpha:12 NCCL DIAG [INFO] p2p: only 55/56 GPU-to-GPU peer accesses passed verification\n"
        "alpha:12 NCCL DIAG NCCL diagnostics completed in 245.3 ms across 8 ranks"
    )
    (failure,) = report.p2p_failures
    assert (failure.what, failure.path, failure.handle) == (
        "write mismatch", "PIX", "LEGACY_CUDA_IPC",
    )  # fmt: skip
    assert (failure.source_device, failure.target_device) == (5, 6)
    assert list(remarks([report]).values()) == [True, True]
    first, second = remarks([report])
    assert first.startswith("GPU 5 and GPU 6 (PIX, LEGACY_CUDA_IPC): write mismatch: check the")
    assert second == "p2p: only 55/56 GPU-to-GPU peer accesses passed verification"


def test_network_bandwidth_in_gigabytes_with_the_slow_ranks() -> None:
    (report,) = read(
        "alpha:12 NCCL DIAG === NCCL Diagnostics ===\n"
        "alpha:12 NCCL DIAG [INFO] net bw: 200.0/392.0/400.0 Gbit/s min/median/max cross-nic bw "
        "(across 8 ranks) in comm 0x7a\n"
        "alpha:12 NCCL DIAG [INFO] net bw: cross-nic rank 3 (alpha): 200.0 Gbit/s, >30% off median "
        "392.0 Gbit/s in comm 0x7a"
    )
    (found,) = report.networks
    assert (found.mode, found.low_gb_per_s, found.median_gb_per_s) == ("cross-nic", 25.0, 49.0)
    assert found.slow == {3: 25.0}
    assert report.completed_ms is None


def test_reports_that_did_not_run_or_begin_anew_stay_apart() -> None:
    reports = read(
        "BUSY: diagnostics already in progress\n"
        "alpha:12 NCCL DIAG INFO RAS diagnostics skipped: NCCL_RAS_ENABLE=0\n"
        + RAS
        + RAS.replace("0x1a", "0x2b")
    )
    assert [report.not_run for report in reports] == [
        "another one was running", "NCCL_RAS_ENABLE=0", None, None,
    ]  # fmt: skip
    assert {item.comm for item in reports[3].results if item.comm} == {"0x2b"}


def test_a_check_of_a_later_version_is_kept_as_text() -> None:
    (report,) = read("alpha:1 NCCL DIAG [INFO] Xid/SXid: Xid 79 detected on host beta. Reset it")
    (item,) = report.remarks
    assert (item.check, item.ok) == ("Xid/SXid", False)
    assert item.text.startswith("Xid 79 detected")


def test_other_lines_are_ignored() -> None:
    assert read("alpha:12:12 [0] NCCL INFO NCCL DIAG is no prefix\nNCCL DIAG\n") == []


def test_impossible_numbers_are_ignored() -> None:
    digits = "9" * 100_000
    (report,) = read(
        "NCCL DIAG === NCCL Diagnostics ===\n"
        f"NCCL DIAG [OK]   p2p: all {digits} directed GPU P2P edges verified\n"
        f"NCCL DIAG NCCL diagnostics completed in 1.0 ms across {digits} ranks"
    )
    assert (report.p2p, report.completed_ms) == (None, None)
