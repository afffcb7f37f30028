# SPDX-License-Identifier: Apache-2.0
"""Make JSON results of nccl-tests, in the versions 1 to 3 of their layout."""

from typing import Any

from nccltune.model.collective import Collective
from tests.unit.formats.maker import PER_RANK, PROGRAM, REDUCING, Point, bandwidths, points

SIZES = (1 << 12, 1 << 20)


def placement(
    collective: Collective, point: Point, time: float, ranks: int, key: str = "time"
) -> dict[str, Any]:
    algbw, busbw = bandwidths(collective, point.size, time, ranks)
    return {
        key: time / 3 if key == "cpu_time" else time,
        "alg_bw": round(algbw, 6),
        "bus_bw": round(busbw, 6),
        "nwrong": point.wrong,
    }


def made(
    shown: tuple[Point, ...] = points(*SIZES),
    collective: Collective = Collective.ALLREDUCE,
    *,
    version: int = 3,
    processes: int = 1,
    each: int = 4,
    env: tuple[str, ...] = ("HOME=/root", "NCCL_DEBUG=INFO"),
    args: tuple[str, ...] = (),
    hosts: tuple[str, ...] = ("alpha",),
    key: str = "time",
    iterations: tuple[float, ...] = (),
    pid: int = 100,
) -> dict[str, Any]:
    """Return what `-J` writes; `each` GPUs a process, of which only the first is listed."""
    ranks = processes * each
    results = []
    for point in shown:
        count = point.size // 4 // (ranks if collective in PER_RANK else 1)
        result: dict[str, Any] = {
            "size": point.size,
            "count": count,
            "type": "float",
            "redop": "sum" if collective in REDUCING else "none",
            "root": "    -1",
            "out_of_place": placement(collective, point, point.out_us, ranks, key),
            "in_place": placement(collective, point, point.in_us, ranks, key),
        }
        if iterations:
            for name in ("out_of_place", "in_place"):
                result[f"{name}_per_iter"] = {"skipped_iterations": 1, "times_us": list(iterations)}
        if version >= 2:
            result |= {"actual_iterations": 20, "experiment_name": ""}
        results.append(result)
    busbw = [result[name]["bus_bw"] for result in results for name in ("out_of_place", "in_place")]
    misspelt = version == 1
    average = {
        "bandwidith" if misspelt else "bandwidth": sum(busbw) / len(busbw) if busbw else 0.0,
        "okay": "unchecked",
    }
    return {
        "version": version,
        "start_time": "2026-11-21 03:26:03",
        "args": [f"/opt/{PROGRAM[collective]}", "-g", str(each), *args],
        "env": list(env),
        "nccl_version": 22903,
        "config": {
            "nthreads": 1,
            "ngpus": each,
            "iterations": 20,
            "aggregated_iterations": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "devices": [
                {
                    "rank": process * each,
                    "group": 0,
                    "pid": pid + process,
                    "hostname": hosts[process * len(hosts) // processes],
                    "device": 0,
                    "device_info": "NVIDIA H200",
                }
                for process in range(processes)
            ],
        },
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidith" if misspelt else "average_bus_bandwidth": average,
        "errors": [""],
        "end_time": "2026-11-21 03:26:07",
    }
