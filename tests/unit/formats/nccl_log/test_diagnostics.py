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
    first, *_ = report.results
    assert (first.check, first.ok) == ("GPU inventory", True)
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
    for text in (
        "p2p: 52/56 directed GPU P2P edges verified",
        "p2p: only 52/56 GPU-to-GPU peer accesses passed verification",
    ):
        reports = read(f"NCCL DIAG === NCCL Diagnostics ===\nNCCL DIAG [INFO] {text}")
        assert remarks(reports) == {text: True}


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


def test_reports_that_did_not_run_or_begin_anew_stay_apart() -> None:
    reports = read(
        "BUSY: diagnostics already in progress\n"
        "alpha:12 NCCL DIAG INFO RAS diagnostics skipped: NCCL_RAS_ENABLE=0\n"
        + RAS
        + RAS.replace("0x1a", "0x2b")
    )
    assert [len(report.results) for report in reports] == [7, 7]
    assert "in comm 0x2b" in reports[1].results[0].text


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
        f"NCCL DIAG [INFO] p2p: write mismatch srcRank=1 srcCudaDev=1 srcNvmlDev={digits} "
        "dstRank=2 dstCudaDev=2 dstNvmlDev=6 path=PIX handle=LEGACY_CUDA_IPC"
    )
    assert report.p2p_failures == []
