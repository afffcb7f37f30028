# SPDX-License-Identifier: Apache-2.0
"""Render the text that nccl-tests prints, for runs that never took place."""

from collections.abc import Mapping, Sequence

from nccltune.model.collective import Collective

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
    program = f"{collective.nccl_tests_name}_perf"
    ranks = len(hosts) * gpus
    lines = [
        f"# nccl-tests version 2.17.6 nccl-headers={nccl} nccl-library={nccl}",
        f"# Collective test starting: {program}",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 2(factor) warmup iters: 5"
        " iters: 20 agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        host, bus = hosts[rank // gpus], buses[rank % gpus % len(buses)]
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {pid + rank:6d} on {host:>10} device {rank % gpus:2d}"
            f" [0000:{bus}:00] NVIDIA H100 80GB HBM3"
        )
    if not times:
        line = f"{hosts[0]}: Test NCCL failure common.cu:1279 'unhandled system error / '"
        return "\n".join([*lines, "#", line, f" .. {hosts[0]} pid {pid}: Test failure common.cu"])
    lines += [
        "#",
        "#                                                              out-of-place     "
        "                  in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
        "     time   algbw   busbw  #wrong ",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)        "
        "     (us)  (GB/s)  (GB/s)         ",
    ]
    scattered = collective is Collective.ALLTOALL
    redop = "none" if scattered else "sum"
    for size, both in times.items():
        count = size // 4 // (ranks if scattered else 1)
        cells = ""
        for time_us in both:
            algbw = size / (time_us * 1e3)
            busbw = algbw * collective.bus_factor(ranks)
            cells += f"  {time_us:7.2f} {algbw:7.2f} {busbw:7.2f}       0"
        lines.append(f"{size:12d}  {count:12d}     float  {redop:>6}      -1{cells}")
    lines += ["# Out of bounds values : 0 OK", "#", f"# Collective test concluded: {program}", ""]
    return "\n".join(lines)
