# SPDX-License-Identifier: Apache-2.0
"""Settings that some ranks of a communicator have, and logs that cannot show it."""

import pytest

from nccltune.formats.nccl_log.shared_settings import settings_apart
from tests.unit.doctor.evidence.test_nccl_init import info, init

START, NETWORK = "Bootstrap : Using eth0:10.0.0.1<0>", "Using network IB"


def _rank(number: int, *settings: str, comm: str = "commId 0xabc", ranks: int = 4) -> str:
    named = [f"{one.replace('=', ' set by environment to ')}." for one in settings]
    words = "".join(info(number, word) for word in (START, *named, NETWORK))
    return words + init(number, "COMPLETE", comm, ranks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _rank(0, "NCCL_ALGO=Ring") + _rank(1, "NCCL_ALGO=Ring") + _rank(2) + _rank(3),
            ["NCCL_ALGO Ring: ranks 0, 1 (h0); not set: ranks 2, 3 (h1)"],
        ),
        (
            _rank(0, "NCCL_NET=IB", "NCCL_SHM_DISABLE=1") + _rank(1, "NCCL_NET=Socket"),
            ["NCCL_NET IB: rank 0 (h0); Socket: rank 1 (h0)"],
        ),
        (
            info(0, "NCCL version 2.27.6+cuda12.9")
            + info(1, "NCCL version 2.28.3+cuda12.9")
            + _rank(0)
            + _rank(1),
            ["NCCL version 2.27.6+cuda12.9: rank 0 (h0); 2.28.3+cuda12.9: rank 1 (h0)"],
        ),
        (
            _rank(0).replace(NETWORK, "Using network IB")
            + _rank(2).replace(NETWORK, "Using network AWS Libfabric"),
            ["Using network IB: rank 0 (h0); AWS Libfabric: rank 2 (h1)"],
        ),
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
        # Lines of a rank were left out.
        (_rank(0, "NCCL_ALGO=Ring") + init(1, "COMPLETE"), []),
        (_rank(0, "NCCL_ALGO=Ring") + info(1, NETWORK) + init(1, "COMPLETE"), []),
        # NCCL before 2.19 logs no commId.
        (
            _rank(0, "NCCL_ALGO=Ring", comm="", ranks=2) + _rank(1, comm="", ranks=2),
            ["NCCL_ALGO Ring: rank 0 (h0); not set: rank 1 (h0)"],
        ),
        (_rank(0, "NCCL_ALGO=Ring", comm="") + _rank(1, comm=""), None),
        # Two communicators that the log does not tell apart.
        (
            _rank(0, "NCCL_ALGO=Ring")
            + _rank(1, "NCCL_ALGO=Tree")
            + _rank(1, "NCCL_ALGO=Tree").replace("h0:", "h9:"),
            None,
        ),
    ],
)
def test_settings_that_ranks_do_not_share(text: str, said: list[str] | None) -> None:
    found = settings_apart(text)
    assert (found and [f"{one.name} {one.said}" for one in found]) == said
