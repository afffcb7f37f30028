# SPDX-License-Identifier: Apache-2.0
"""What NCCL's RAS reports of ranks and processes."""

import json
from pathlib import Path

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.parsers.ras import ras_ranks

RAS = """\
#0-0 (3c1f0aa27be90d11) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 32 on node 192.0.2.4
  Rank 13 -- GPU 5 managed by process 33 on node 192.0.2.4
#0-1 (3c1f0aa27be90d12) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- [process information not found]
"""


def _ras_rank(rank: int, calls: int, error: int = 0) -> dict[str, object]:
    return {
        "rank": rank,
        "host": "192.0.2.4",
        "pid": 10 + rank,
        "cuda_dev": rank,
        "status": {"init_state": 0, "async_error": error},
        "collective_counts": {"AllReduce": calls, "Broadcast": 1},
    }


def test_ranks_that_ras_lists_below_a_statement(tmp_path: Path) -> None:
    (tmp_path / "post.txt").write_text(f"It hangs:\n{RAS}")
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    (rows,) = (facts.named("failures") for facts in found.values())
    assert {one["kind"] for one in rows} == {"ras_report"}
    assert [(one["text"], one["where"].rpartition(":")[2]) for one in rows][2:] == [
        (
            "2 ranks have launched up to operation 641: Rank 12 -- GPU 4 managed by process 32 on "
            "node 192.0.2.4; Rank 13 -- GPU 5 managed by process 33 on node 192.0.2.4",
            "5",
        ),
        (
            "Missing communicator data from 1 rank: Rank 21 -- [process information not found]",
            "9",
        ),
    ]
    report = {
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0x3c",
                "ranks": [_ras_rank(0, 7), _ras_rank(1, 6), _ras_rank(2, 7, error=6)],
                "missing_ranks": [
                    {
                        "rank": 3,
                        "host": "192.0.2.4",
                        "pid": 13,
                        "cuda_dev": 3,
                        "status": {"unresponsive": True, "considered_dead": True},
                    }
                ],
            }
        ],
    }
    (tmp_path / "post.txt").write_text(json.dumps(report, indent=2))
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    (rows,) = (facts.named("failures") for facts in found.values())
    assert [one["text"].removeprefix("communicator 0x3c: ") for one in rows] == [
        "no data from rank 3 (GPU 3, process 13 on 192.0.2.4), considered dead",
        "rank 2 (GPU 2, process 12 on 192.0.2.4) has the error 6 (ncclResult_t)",
        "AllReduce calls differ: rank 1 (GPU 1, process 11 on 192.0.2.4) at 6, 2 ranks at 7",
    ]
    assert ras_ranks('{"communicators_count": 1, "communicators": [{}]}') == ()
    assert ras_ranks("Errors\n\nWarnings\n\n    0  1  16  8  128  128   RUNNING  MISMATCH\n") == ()
