# SPDX-License-Identifier: Apache-2.0
"""Render the text that nccl-tests prints, for runs that never took place."""

from collections.abc import Mapping, Sequence

from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, Point

Times = Mapping[int, tuple[float, float]]
"""Times in us by size: out of place and in place."""


def nccl_tests_log(
    hosts: Sequence[str],
    times: Times,
    *,
    gpus: int = 1,
    collective: Collective = Collective.ALLREDUCE,
    nccl: str = "22803",
    buses: Sequence[str] = ("1b", "2b", "3b", "4b", "5b", "6b", "7b", "8b"),
    pid: int = 4000,
) -> str:
    """Return the output of a run with `gpus` ranks on each host. No times: the run failed."""
    made = Made(
        tuple(Point(size, *both) for size, both in times.items()),
        collective,
        ranks=len(hosts) * gpus,
        hosts=tuple(hosts),
        pid=pid,
        one_process=False,
        headers=int(nccl),
        loaded=int(nccl),
        gpu="NVIDIA H100 80GB HBM3",
        buses=tuple(buses),
    )
    if times:
        return made.text()
    line = f"{hosts[0]}: Test NCCL failure common.cu:1279 'unhandled system error / '"
    return "\n".join([*made.head(), line, f" .. {hosts[0]} pid {pid}: Test failure common.cu"])
