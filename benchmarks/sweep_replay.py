# SPDX-License-Identifier: Apache-2.0
"""What an adaptive sweep costs and what its table is worth, on the recorded studies.

python benchmarks/sweep_replay.py [SEEDS]

Beside it: the full grid in one communicator (8 rounds), and what a site does today: a process for
each forced choice over a fixed grid, one mean a size, the fastest taken. Timings are drawn from the
recording and seconds are recorded ones: calls, untimed calls and 0.3 ms a timing; a process start
is 2.8 s, as measured on a machine of the kind. Tables are judged by the recording's medians: the
regret is the time of the table's choice over that of the fastest one at each recorded size.
"""

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from nccltune.analyze.timings import Timings, sort_samples
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.study.files import Study
from nccltune.tune.search import search

EXAMPLES = Path(__file__).parents[1] / "examples"
RECORDINGS = {
    "h200x4-1-node": "1K-1G",
    "h200x4-as-2-nodes": "1K-64M",
    "h200x4-as-4-nodes": "1K-64M",
}
COLLECTIVES = "allreduce,allgather,reducescatter"
START_S = 2.8
TESTS_WARMUP, TESTS_ITERATIONS = 1, 20
"""Of nccl-tests 2.19 by default; it also repeats everything in place, which is left out here."""


class Result(NamedTuple):
    """Logs: the mean gain over the default, the mean regret, and that of the worst size."""

    points: int
    seconds: float
    gain: float
    regret: float
    worst: float


Table = Mapping[int, AnyChoice]


def sweep(folder: Path, name: str, seed: int, *options: str) -> tuple[Path, dict[str, float]]:
    study = folder / "-".join([name, str(seed), *options])
    command = [sys.executable, "-m", "nccltune", "sweep", "-o", str(study), "--json"]
    command += ["--replay", str(EXAMPLES / name), "--sizes", RECORDINGS[name]]
    command += ["--collectives", COLLECTIVES, "--seed", str(seed), *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NCCL_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return study, json.loads(done.stdout)["sweep"]


def timings_of(study: Path) -> list[Timings]:
    return sort_samples(Study(study).samples()).timings


def by_rules(timings: Sequence[Timings], truth: Timings) -> Table:
    """What the rules made of `timings` choose at the sizes of `truth`."""
    return chosen([item.rule for group in search(timings) for item in group.rules], truth)


def chosen(rules: Sequence[Rule], truth: Timings) -> Table:
    scale, collective = truth.condition.scale, truth.condition.collective
    return {
        size: next(
            (r.choice for r in rules if r.matches(collective, size, scale.nodes, scale.ranks)),
            DEFAULT,
        )
        for size in truth.sizes
    }


def fastest(timings: Timings) -> Table:
    found: dict[int, AnyChoice] = {}
    for size in timings.sizes:
        medians = {c: timings.median(size, c) or math.inf for c in timings.cells[size]}
        found[size] = min(medians, key=lambda choice: medians[choice])
    return found


def judged(points: int, seconds: float, tables: Mapping[Collective, Table], name: str) -> Result:
    gains, regrets = [], []
    for truth in timings_of(EXAMPLES / name):
        table = tables.get(truth.condition.collective)
        if table is None:
            continue
        best = fastest(truth)
        for size in truth.sizes:
            ours, default, least = (
                math.log(truth.median(size, choice) or math.nan)
                for choice in (table[size], DEFAULT, best[size])
            )
            gains.append(default - ours)
            regrets.append(ours - least)
    count = len(gains)
    return Result(
        points, seconds, math.fsum(gains) / count, math.fsum(regrets) / count, max(regrets)
    )


def swept(study: Path, said: dict[str, float], name: str) -> Result:
    found = timings_of(study)
    tables = {
        truth.condition.collective: by_rules(found, truth)
        for truth in timings_of(EXAMPLES / name)
        if truth.condition.collective.value in COLLECTIVES.split(",")
    }
    return judged(int(said["points"]), said["seconds"] + START_S, tables, name)


def fixed_grid(full: Path, name: str) -> Result:
    """A process for each choice: one timing of each point of the full grid, as nccl-tests does."""
    points, seconds, tables = 0, 0.0, {}
    for item in timings_of(full):
        seconds += START_S * len(item.choices)
        for by_choice in item.cells.values():
            for choice, series in by_choice.items():
                first = series[0, 0]
                by_choice[choice] = {(0, 0): first}
                points += 1
                seconds += 1e-6 * first * (TESTS_WARMUP + TESTS_ITERATIONS)
        tables[item.condition.collective] = fastest(item)
    return judged(points, seconds, tables, name)


def told(label: str, results: Sequence[Result], ours: Sequence[Result]) -> None:
    ratio = median(r.seconds / o.seconds for r, o in zip(results, ours, strict=True))
    print(
        f"| {label} | {median(r.points for r in results):.0f} | "
        f"{median(r.seconds for r in results):.1f} s ({min(r.seconds for r in results):.1f} - "
        f"{max(r.seconds for r in results):.1f}) | {ratio:.1f} | "
        f"{100 * math.expm1(median(r.gain for r in results)):.2f} % | "
        f"{100 * math.expm1(median(r.regret for r in results)):.2f} % "
        f"({100 * math.expm1(max(r.regret for r in results)):.2f} %) | "
        f"{100 * math.expm1(median(r.worst for r in results)):.1f} % |"
    )


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {seeds} seeds\n")
    for name, sizes in RECORDINGS.items():
        ours, full, fixed, walls = [], [], [], []
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                started = time.monotonic()
                study, said = sweep(Path(folder), name, seed)
                walls.append(time.monotonic() - started)
                whole, whole_said = sweep(Path(folder), name, seed, "--exhaustive")
                ours.append(swept(study, said, name))
                full.append(swept(whole, whole_said, name))
                fixed.append(fixed_grid(whole, name))
        print(f"## {name}, {COLLECTIVES}, {sizes}\n")
        print(
            "| | timings | seconds with start (least - most) | times ours | mean gain | "
            "regret, mean (worst seed) | worst size |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- |")
        told("adaptive sweep", ours, ours)
        told("full grid, 8 rounds, one communicator", full, ours)
        told("a process a choice, fixed grid, one mean a size", fixed, ours)
        print(f"\nThe replayed sweep itself took {median(walls):.2f} s.\n")


if __name__ == "__main__":
    main()
