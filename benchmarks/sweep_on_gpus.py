# SPDX-License-Identifier: Apache-2.0
"""The adaptive sweep on GPUs, alternating with what a site does today, judged by the full grid.

python benchmarks/sweep_on_gpus.py --nccl-tests DIR -o results.json [--emulate-nodes N]

truth     the full grid in one communicator, before everything else (kept with --keep DIR)
ours      `nccltune sweep` of all collectives, from the start of the command to its end
theirs    nccl-tests as they run by default: a process (or an mpirun) for each collective and choice
          that NCCL can run, forced by NCCL_ALGO and NCCL_PROTO, and one without, over the same
          sizes; one mean a size. Both check results.
auto      `nccltune auto` once: the rules that its verify left, and what verify measured

A table holds which choice runs at each size. It is worth what its choices took in the full grid:
the best choice at a size is picked by the even rounds, and everything is timed by the odd ones, so
that no table is favoured by the noise it was picked from. With several nodes nccl-tests has to be
built with MPI.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sweep_replay import Table, by_rules, chosen, fastest

from nccltune.analyze.timings import Timings, sort_samples
from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import Sample
from nccltune.study.files import Study

PERF = {
    "allreduce": "all_reduce_perf",
    "allgather": "all_gather_perf",
    "reducescatter": "reduce_scatter_perf",
}


def run(command: list[str], environment: Mapping[str, str]) -> tuple[str, float]:
    start = time.monotonic()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-600:]} {done.stderr[-1500:]}")
    return done.stdout, seconds


def nccltune(options: argparse.Namespace, verb: str, study: Path, *more: str) -> tuple[Any, float]:
    command = ["nccltune", verb, "-o", str(study), "--json", "--sizes", options.sizes]
    if options.emulate_nodes > 1:
        command += ["--emulate-nodes", str(options.emulate_nodes)]
    if options.nccl:
        command += ["--nccl", options.nccl]
    out, seconds = run([*command, *more], dict(os.environ))
    return json.loads(out), seconds


def sweep(options: argparse.Namespace, study: Path, *more: str) -> tuple[dict[str, Any], float]:
    said, seconds = nccltune(options, "sweep", study, *more)
    return said["sweep"], seconds


def timings_of(study: Path) -> dict[Collective, Timings]:
    found = sort_samples(Study(study).samples()).timings
    return {item.condition.collective: item for item in found}


def part(timings: Timings, odd: int) -> Timings:
    """Every second round."""
    cells = {
        size: {
            choice: {key: us for key, us in series.items() if key[0] % 2 == odd}
            for choice, series in by_choice.items()
        }
        for size, by_choice in timings.cells.items()
    }
    return Timings(timings.condition, cells, timings.samples)


class Truth:
    """The full grid of one collective as a judge of tables."""

    def __init__(self, full: Timings) -> None:
        self.full = full
        self.best = fastest(part(full, 0))
        self._timed = part(full, 1)

    def worth(self, table: Table) -> dict[str, Any]:
        """Gain over the default and regret against the best, geometric means over sizes."""
        gains, regrets = {}, {}
        for size in self._timed.sizes:
            default, ours, best = (
                _us(self._timed, size, item) for item in (DEFAULT, table[size], self.best[size])
            )
            gains[size] = math.log(default / ours)
            regrets[size] = math.log(ours / best)
        return {
            "gain": math.exp(statistics.fmean(gains.values())),
            "regret": math.expm1(statistics.fmean(regrets.values())),
            "worst_regret": math.expm1(max(regrets.values())),
            "table": {size: choice_label(choice) for size, choice in sorted(table.items())},
        }


def _us(truth: Timings, size: int, choice: AnyChoice) -> float:
    series = truth.series(size, choice)
    if not series and isinstance(choice, Choice):  # channel counts are not in the full grid
        series = truth.series(size, choice.without_channels())
    return statistics.median(series.values())


class Theirs:
    """nccl-tests, a process for each choice."""

    def __init__(self, options: argparse.Namespace, ranks: int) -> None:
        self.options = options
        self.ranks = ranks

    def command(self, collective: Collective, size_range: tuple[str, str]) -> list[str]:
        program = str(Path(self.options.nccl_tests) / PERF[collective.value])
        low, high = size_range
        flags = ["-b", low, "-e", high, "-f", "2"]
        if self.options.emulate_nodes <= 1:
            return [program, *flags, "-t", str(self.ranks), "-g", "1"]
        node = f"$((OMPI_COMM_WORLD_RANK * {self.options.emulate_nodes} / {self.ranks}))"
        script = f'export NCCL_HOSTID=node{node}; exec "$0" "$@"'
        start = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(self.ranks)]
        return [*start, "bash", "-c", script, program, *flags, "-g", "1"]

    def table(self, collective: Collective, truth: Timings) -> tuple[Table, float, int]:
        """The fastest single mean at each size, the seconds it took and the processes."""
        low, high = self.options.sizes.split("-")
        found: dict[int, dict[AnyChoice, float]] = {}
        total, starts = 0.0, 0
        for choice in truth.choices:
            environment = dict(os.environ)
            if self.options.emulate_nodes > 1:
                environment["NCCL_SOCKET_IFNAME"] = "lo"
            if isinstance(choice, Choice):
                environment["NCCL_ALGO"] = choice.algorithm.value
                environment["NCCL_PROTO"] = choice.protocol.value
            out, seconds = run(self.command(collective, (low, high)), environment)
            total += seconds
            starts += 1
            for sample in samples_of(out):
                if not sample.in_place and sample.bytes in truth.cells:
                    found.setdefault(sample.bytes, {})[choice] = sample.time_us
        return {s: min(row, key=lambda c: row[c]) for s, row in found.items()}, total, starts


def samples_of(out: str) -> Iterator[Sample]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(out)
        file.flush()
        for reading in read_inputs(find_inputs([file.name]), ReadOptions(study="theirs")):
            for batch in reading.batches():
                yield from batch.samples


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nccl-tests", help="folder of the binaries; without, only ours")
    parser.add_argument("--emulate-nodes", type=int, default=1)
    parser.add_argument("--collectives", default="allreduce,allgather,reducescatter")
    parser.add_argument("--sizes", default="1K-64M")
    parser.add_argument("--nccl")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--their-turns", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--keep", type=Path, help="keep the full grid's study here")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    collectives = [Collective(name) for name in options.collectives.split(",")]
    report: dict[str, Any] = {"command": " ".join(sys.argv)}
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder, "full")
        said, seconds = sweep(
            options, full, "--exhaustive", "--rounds", str(options.rounds),
            "--collectives", options.collectives,
        )  # fmt: skip
        report["full"] = {"seconds": seconds, **said}
        report["platform"] = json.loads((full / "platform.json").read_text())
        print(f"full grid: {said['points']} timings, {seconds:.1f} s", flush=True)
        if options.keep:
            shutil.copytree(full, options.keep)
        full_timings = timings_of(full)
        truths = {c: Truth(full_timings[c]) for c in collectives}
        report["best"] = {c.value: t.worth(t.best) for c, t in truths.items()}
        report["rules of the full grid"] = {
            c.value: t.worth(by_rules([t.full], t.full)) for c, t in truths.items()
        }
        report["ours"], report["theirs"] = [], []
        ranks = next(iter(truths.values())).full.condition.scale.ranks
        for turn in range(options.turns):
            report["ours"].append(_ours(options, truths, Path(folder, str(turn)), turn + 1))
            _tell("ours", report["ours"][-1])
            if options.nccl_tests and turn < options.their_turns:
                report["theirs"].append(_theirs(Theirs(options, ranks), truths))
                _tell("theirs", report["theirs"][-1])
            options.output.write_text(json.dumps(report, indent=1))
        report["auto"] = _auto(options, truths, Path(folder, "auto"))
        _tell("auto", report["auto"])
        options.output.write_text(json.dumps(report, indent=1))
        if options.keep:
            shutil.copytree(
                Path(folder, "auto"), options.keep.with_name(options.keep.name + "-auto")
            )
    for name in ("best", "rules of the full grid"):
        print(name, {c: f"{row['gain']:.3f}x" for c, row in report[name].items()})
    return 0


def _ours(
    options: argparse.Namespace, truths: Mapping[Collective, "Truth"], study: Path, seed: int
) -> dict[str, Any]:
    said, seconds = sweep(options, study, "--collectives", options.collectives, "--seed", str(seed))
    swept = timings_of(study)
    worths = {c.value: truth.worth(by_rules([swept[c]], truth.full)) for c, truth in truths.items()}
    return {"seconds": seconds, "sweep": said, "tables": worths}


def _auto(
    options: argparse.Namespace, truths: Mapping[Collective, "Truth"], study: Path
) -> dict[str, Any]:
    _, seconds = nccltune(options, "auto", study, "--collectives", options.collectives)
    proof = json.loads((study / "proof.json").read_text())
    rules = [msgspec.convert(item["rule"], Rule) for item in proof["rules"]]
    tables = {}
    for collective, truth in truths.items():
        row = truth.worth(chosen(rules, truth.full))
        best = math.log(truth.worth(truth.best)["gain"])
        row["share_of_best"] = math.log(row["gain"]) / best if best > 0 else None
        tables[collective.value] = row
    verdicts = Counter(size["verdict"] for group in proof["groups"] for size in group["sizes"])
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    print(
        f"verify: {len(rules)} rules, {len(proof['dropped'])} narrowed or removed; {counts}; "
        f"noise {100 * proof['noise']:.1f} %; {proof['points']} points, {proof['seconds']:.1f} s"
    )
    return {"seconds": seconds, "tables": tables, "verdicts": verdicts, "proof": proof}


def _theirs(tests: Theirs, truths: Mapping[Collective, "Truth"]) -> dict[str, Any]:
    total, starts, worths = 0.0, 0, {}
    for collective, truth in truths.items():
        table, seconds, processes = tests.table(collective, truth.full)
        total += seconds
        starts += processes
        worths[collective.value] = truth.worth(table)
    return {"seconds": total, "processes": starts, "tables": worths}


def _tell(label: str, row: Mapping[str, Any]) -> None:
    tables = ", ".join(
        f"{name} {table['gain']:.3f}x regret {100 * table['regret']:.2f} % "
        f"(worst {100 * table['worst_regret']:.1f} %)"
        for name, table in row["tables"].items()
    )
    print(f"{label}: {row['seconds']:.2f} s; {tables}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
