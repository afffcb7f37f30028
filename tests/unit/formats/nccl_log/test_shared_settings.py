# SPDX-License-Identifier: Apache-2.0
"""Settings that some ranks of a communicator have, and logs that cannot show it."""

import pytest

from nccltune.formats.nccl_log.shared_settings import shared_settings
from tests.unit.doctor.evidence.test_nccl_init import info, init

START, NETWORK = "Bootstrap : Using eth0:10.0.0.1<0>", "Using network IB"


def _rank(number: int, *settings: str, comm: str = "commId 0xabc", ranks: int = 4) -> str:
    named = [f"{one.replace('=', ' set by environment to ')}." for one in settings]
    words = "".join(info(number, word) for word in (START, *named, NETWORK))
    return words + init(number, "COMPLETE", comm, ranks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_rank(0, "NCCL_ALGO=Ring") + _rank(1, "NCCL_ALGO=Ring") + _rank(2) + _rank(3), [
         "NCCL_ALGO Ring: ranks 0, 1 (h0); not set: ranks 2, 3 (h1)"]),
        (_rank(0, "NCCL_BUFFSIZE=9") + _rank(2), [
         "NCCL_BUFFSIZE 9: rank 0 (h0); not set: rank 2 (h1)"]),
        (_rank(0, "NCCL_NET=IB", "NCCL_SHM_DISABLE=1") + _rank(1, "NCCL_NET=Socket"), [
         "NCCL_NET IB: rank 0 (h0); Socket: rank 1 (h0)"]),
        (info(0, "NCCL version 2.27.6+cuda12.9") + info(1, "NCCL version 2.28.3+cuda12.9") + _rank(
         0) + _rank(1), ["NCCL version 2.27.6: rank 0 (h0); 2.28.3: rank 1 (h0)"]),
        # NCCL does not compare the version of CUDA.
        (info(0, "NCCL version 2.27.6+cuda12.2") + info(1, "NCCL version 2.27.6+cuda12.9") + _rank(
         0) + _rank(1), []),
        (_rank(0).replace(NETWORK, "Using network IB") + _rank(2).replace(NETWORK,
         "Using network AWS Libfabric"), [
         "Using network IB: rank 0 (h0); AWS Libfabric: rank 2 (h1)"]),
        # An interface may differ, and a setting that is logged where it is needed be missing.
        (_rank(0, "NCCL_SOCKET_IFNAME=a", "NCCL_SHM_DISABLE=1") + _rank(2), []),
        # Ray leaves out equal lines.
        (
            _rank(0, "NCCL_ALGO=Ring").replace("Ring.", "Ring [repeated 2x across cluster]")
            + _rank(1),
            [],
        ),
        (_rank(0, "NCCL_ALGO=Ring") + ".\n.\n" + _rank(1), []),
        (_rank(0, "NCCL_ALGO=Ring") + "。。。\n" + _rank(1), []),
        # Another communicator is another run.
        (_rank(0, "NCCL_ALGO=Ring") + _rank(1, "NCCL_ALGO=Tree", comm="commId 0xd"), None),
        (_rank(0, "NCCL_ALGO=Ring"), None),
        # NICs of another node may have other names; the ranks of one node (0 and 1) need all.
        (_rank(0, "NCCL_IB_HCA=a") + _rank(1, "NCCL_IB_HCA=b"), [
         "NCCL_IB_HCA a: rank 0 (h0); b: rank 1 (h0)"]),
        (_rank(0, "NCCL_IB_HCA=a") + _rank(2, "NCCL_IB_HCA=b"), []),
        # Lines of a rank were left out.
        (_rank(0, "NCCL_ALGO=Ring") + init(1, "COMPLETE"), []),
        (_rank(0, "NCCL_ALGO=Ring") + info(1, NETWORK) + init(1, "COMPLETE"), []),
        # NCCL before 2.19 logs no commId.
        (_rank(0, "NCCL_ALGO=Ring", comm="", ranks=2) + _rank(1, comm="", ranks=2), [
         "NCCL_ALGO Ring: rank 0 (h0); not set: rank 1 (h0)"]),
        (_rank(0, "NCCL_ALGO=Ring", comm="") + _rank(1, comm=""), None),
        # Two communicators that the log does not tell apart.
        (
            _rank(0, "NCCL_ALGO=Ring")
            + _rank(1, "NCCL_ALGO=Tree")
            + _rank(1, "NCCL_ALGO=Tree").replace("h0:", "h9:"),
            None,
        ),
    ],
)  # fmt: skip
def test_settings_that_ranks_do_not_share(text: str, said: list[str] | None) -> None:
    found = shared_settings(text).apart()
    assert (found and [f"{one.name} {one.said}" for one in found]) == said


def _printed(rank: int, version: str, before: int | None = None) -> str:
    """Lines of a rank with a version that names no process between them."""
    return (
        info(rank if before is None else before, START)
        + f"NCCL version {version}\n"
        + info(rank, NETWORK)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_printed(0, "2.20.5+cuda12.4") + _printed(2, "2.19.3+cuda12.3"),
         ["NCCL version 2.20.5: h0", "NCCL version 2.19.3: h1"]),
        (info(0, NETWORK) + info(2, f"{NETWORK}ext_v8"),
         [f"{NETWORK}: h0", f"{NETWORK}ext_v8: h1"]),
        (_printed(0, "2.20.5+cuda12.4") + _printed(2, "2.20.5+cuda12.2"), []),
        (_printed(0, "2.20.5+cuda12.4"), None),
        # One host with two versions was used twice.
        (_printed(0, "2.20.5") + _printed(1, "2.19.3") + _printed(2, "2.19.3"), None),
        # Lines of two processes: the version is of either.
        (_printed(0, "2.20.5") + _printed(2, "2.19.3", before=0), None),
        # Communicators say who belongs together.
        (_printed(0, "2.20.5") + _printed(2, "2.19.3") + _rank(0, ranks=1), None),
    ],
)  # fmt: skip
def test_versions_of_hosts(text: str, said: list[str] | None) -> None:
    assert shared_settings(text).host_versions() == said


def test_nodes_of_a_whole_communicator() -> None:
    whole = "".join(_rank(number, ranks=4) for number in range(4))
    assert shared_settings(whole).nodes() == 2
    assert shared_settings(_rank(0, ranks=4) + _rank(2, ranks=4)).nodes() == 0
