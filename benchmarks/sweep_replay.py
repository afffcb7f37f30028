# SPDX-License-Identifier: Apache-2.0
"""What an adaptive sweep costs and what its table is worth, on the recorded studies.

python benchmarks/sweep_replay.py [SEEDS]

Beside it: the full grid in one communicator (8 rounds), and what a site does today: a process for
each forced choice over a fixed grid, one mean a size. Timings are drawn from the recording and
seconds are recorded ones: calls, warm-up and 0.3 ms a timing; a process start is 2.8 s, as measured
on the same machine. Tables are judged by the recording's medians.
"""

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from nccltune.analyze.timings import Timings, sort_samples
from nccltune.model.choice import DEFAULT, AnyChoice
from nccltune.model.rule import Rule
from nccltune.model.study import Study
from nccltune.tune.search import search

EXAMPLES = Path(__file__).parents[1] / "examples"
RECORDINGS = {"h200x4-1-node": "1K-1G", "h200x4-as-4-nodes": "1K-64M"}
COLLECTIVES = "allreduce,allgather,reducescatter"
START_S = 2.8
TESTS_WARMUP, TESTS_ITERATIONS = 1, 20
"""Of nccl-tests 2.19 by default; it also repeats everything in place, which is left out here."""


class Result(NamedTuple):
    points: int
    seconds: float
    gain: float
    regret: float


def sweep(folder: Path, name: str, seed: int, *options: str) -> tuple[Path, dict[str, float]]:
    study = folder / "-".join([name, str(seed), *options])
    command = [sys.executable, "-m", "nccltune.cli", "sweep", "-o", str(study), "--json"]
    command += ["--replay", str(EXAMPLES / name), "--sizes", RECORDINGS[name]]
    command += ["--collectives", COLLECTIVES, "--seed", str(seed), *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("NCCL_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return study, json.loads(done.stdout)["sweep"]


def timings_of(study: Path) -> list[Timings]:
    return sort_samples(Study(study).samples()).timings


def rules_of(timings: Sequence[Timings]) -> list[Rule]:
    return [item.rule for group in search(timings) for item in group.rules]


def logs(rules: Sequence[Rule], truth: Timings) -> list[float]:
    """The log time at every recorded size with these rules."""
    scale, collective = truth.condition.scale, truth.condition.collective
    found = []
    for size in truth.sizes:
        choice: AnyChoice = next(
            (r.choice for r in rules if r.matches(collective, size, scale.nodes, scale.ranks)),
            DEFAULT,
        )
        time = truth.median(size, choice)
        assert time is not None
        found.append(math.log(time))
    return found


def judged(
    points: int, seconds: float, rules: Sequence[Rule], best: Sequence[Rule], name: str
) -> Result:
    wanted = COLLECTIVES.split(",")
    truth = [
        item for item in timings_of(EXAMPLES / name) if item.condition.collective.value in wanted
    ]
    gains, regrets = [], []
    for item in truth:
        ours, default, other = logs(rules, item), logs([], item), logs(best, item)
        gains += [b - a for a, b in zip(ours, default, strict=True)]
        regrets += [a - b for a, b in zip(ours, other, strict=True)]
    return Result(points, seconds, math.fsum(gains) / len(gains), math.fsum(regrets) / len(regrets))


def fixed_grid(full: Sequence[Timings], best: Sequence[Rule], name: str) -> Result:
    """A process for each choice: the first round of the full grid alone, as nccl-tests times it."""
    points, seconds = 0, 0.0
    for item in full:
        seconds += START_S * len(item.choices)
        for by_choice in item.cells.values():
            for choice, series in by_choice.items():
                first = series[0, 0]
                by_choice[choice] = {(0, 0): first}
                points += 1
                seconds += 1e-6 * first * (TESTS_WARMUP + TESTS_ITERATIONS)
    return judged(points, seconds, rules_of(full), best, name)


def told(label: str, results: Sequence[Result], ours: Sequence[Result]) -> None:
    ratio = median(r.seconds / o.seconds for r, o in zip(results, ours, strict=True))
    worst = max(result.regret for result in results)
    print(
        f"| {label} | {median(r.points for r in results):.0f} | "
        f"{median(r.seconds for r in results):.1f} s | {ratio:.1f} | "
        f"{100 * median(r.gain for r in results):.2f} % | "
        f"{100 * median(r.regret for r in results):+.2f} % ({100 * worst:+.2f} %) |"
    )


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {seeds} seeds\n")
    for name, sizes in RECORDINGS.items():
        ours, full, fixed = [], [], []
        for seed in range(1, seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                study, said = sweep(Path(folder), name, seed)
                whole, whole_said = sweep(Path(folder), name, seed, "--exhaustive")
                rules, best = rules_of(timings_of(study)), rules_of(timings_of(whole))
                ours.append(
                    judged(int(said["points"]), said["seconds"] + START_S, rules, best, name)
                )
                full.append(
                    judged(
                        int(whole_said["points"]), whole_said["seconds"] + START_S, best, best, name
                    )
                )
                fixed.append(fixed_grid(timings_of(whole), best, name))
        print(f"## {name}, {COLLECTIVES}, {sizes}\n")
        print("| | timings | seconds with start | times ours | mean gain | regret (worst) |")
        print("| --- | --- | --- | --- | --- | --- |")
        told("adaptive sweep", ours, ours)
        told("full grid, 8 rounds, one communicator", full, ours)
        told("a process a choice, fixed grid, one mean a size", fixed, ours)
        print()


if __name__ == "__main__":
    main()
