# SPDX-License-Identifier: Apache-2.0
"""Training steps a second of a PyTorch pipeline (interleaved 1F1B): native NCCL, and copy engines.

python benchmarks/sendrecv_pipeline.py --library libnccltune-sendrecv.so \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 4] [--virtual 2] [--microbatch 4] \\
    [--rounds 5] [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. A transformer cut into stages, some on each GPU, round robin, trained by
torch.distributed.pipelining as it comes; what goes from stage to stage is microbatch x length x
hidden bf16 numbers. A round runs all candidates, one after the other, each in processes of its own;
shown is the median (min - max) of the rounds. Losses must be the same in all runs, bit for bit.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import MIB, exit_on_term, machine, run_ranks, save, shown, told
from sendrecv_candidates import Candidate, candidate_options, candidates, environment

PROGRAM = Path(__file__).with_name("sendrecv_pipeline_rank.py")
MODEL = {
    "hidden": 2048,
    "heads": 16,
    "layers": 1,
    "length": 4096,
    "microbatch": 4,
    "microbatches": 16,
    "virtual": 2,
    "steps": 20,
    "warm-up": 5,
}
SECONDS = 200


@dataclass
class Runs:
    """Of one candidate, by round: steps a second of the slowest rank, losses of the last one, by
    rank what its GPU did in a step, and the library's counts of messages."""

    candidate: Candidate
    steps_per_s: list[float] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    gpu_ms: list[list[dict[str, float]]] = field(default_factory=list)
    messages: list[dict[str, int]] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)


def model_of(args: argparse.Namespace) -> dict[str, int]:
    """The numbers of the model, by the names of their options."""
    return {name: getattr(args, name.replace("-", "_")) for name in args.model}


def run_round(
    args: argparse.Namespace,
    runs: Runs,
    program: Sequence[str],
    environments: Sequence[dict[str, str]],
    facts: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Run a process for each environment, and add a round. Return what the ranks reported.

    `facts` are those that a rank reports beside versions.
    """
    words = [sys.executable, *program, "--device", args.device]
    for name, value in model_of(args).items():
        words += [f"--{name}", str(value)]
    with tempfile.TemporaryDirectory() as folder:
        reports = run_ranks(Path(folder), words, environments, SECONDS)
    if reports is None:
        sys.exit(f"error: {runs.candidate.name} failed")
    runs.steps_per_s.append(min(report["steps_per_s"] for report in reports))
    runs.losses.append(reports[-1]["losses"])
    runs.said = {name: reports[0][name] for name in ("torch", "nccl", *facts)}
    runs.said["parameters"] = sum(report["parameters"] for report in reports)
    return reports


def call(args: argparse.Namespace, runs: Runs) -> None:
    settings = environment(args, runs.candidate)
    # Deterministic products, which PyTorch asks for.
    settings["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    reports = run_round(args, runs, [str(PROGRAM)], [settings] * args.gpus)
    runs.gpu_ms.append([report["gpu_ms"] for report in reports])


def table(all_runs: list[Runs]) -> str:
    first = all_runs[0]
    lines = ["| | steps a second | against native | losses |", "| --- | --- | --- | --- |"]
    for runs in all_runs:
        against = statistics.median(runs.steps_per_s) / statistics.median(first.steps_per_s)
        same = all(losses == first.losses[0] for losses in runs.losses)
        lines.append(
            f"| {runs.candidate.name} | {shown(runs.steps_per_s)} | {against:.3f}x "
            f"| {'the same' if same else '**OTHERS**'} |"
        )
    return "\n".join(lines)


def work(runs: Runs) -> str:
    """What a GPU does in a step: the mean over ranks and rounds."""
    ranks = [rank for reports in runs.gpu_ms for rank in reports]
    names = sorted({name for rank in ranks for name in rank})
    means = [statistics.mean(rank.get(name, 0.0) for rank in ranks) for name in names]
    return ", ".join(f"{name} {mean:.1f} ms" for name, mean in zip(names, means, strict=True))


def round_options(parser: argparse.ArgumentParser, model: dict[str, int]) -> None:
    """Add the options of a training in rounds; `model` are its numbers with their defaults."""
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    for name, value in model.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.set_defaults(model=tuple(model))
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path)


def run_rounds(
    args: argparse.Namespace,
    call: Callable[[argparse.Namespace, Runs], None],
    kept: Sequence[str] = (),
    chosen: Sequence[Candidate] | None = None,
) -> tuple[dict[str, object], list[Runs]]:
    """Run all candidates in each round and save after each. Return the machine and the runs.

    `kept` names fields of Runs that are saved beside speeds and losses. Without `chosen`, the
    candidates are those of the options of send/recv.
    """
    facts, all_runs = machine(), [Runs(each) for each in chosen or candidates(args)]
    fields = ("steps_per_s", "losses", *kept)
    for number in range(args.rounds):
        for runs in all_runs:
            call(args, runs)
            last = runs.steps_per_s[-1]
            print(f"round {number + 1}, {runs.candidate.name}: {last:.4g} steps/s", file=sys.stderr)
        rows = [
            {"name": runs.candidate.name, "settings": runs.candidate.settings}
            | {name: getattr(runs, name) for name in fields}
            for runs in all_runs
        ]
        save(args.json, {"machine": facts, "model": model_of(args), "candidates": rows})
    return facts, all_runs


def status_of(all_runs: list[Runs]) -> int:
    """Return the exit status: 0 if all runs have the same losses, bit by bit."""
    alike = all(losses == all_runs[0].losses[0] for runs in all_runs for losses in runs.losses)
    return 0 if alike and all_runs[0].losses[0] else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    candidate_options(parser)
    round_options(parser, MODEL)
    args = parser.parse_args()
    exit_on_term()

    facts, all_runs = run_rounds(args, call, ["gpu_ms"])
    print(told(facts | all_runs[0].said), end="\n\n")
    sent = args.microbatch * args.length * args.hidden * 2 / MIB
    sizes = f"messages of {sent:.4g} MiB: {model_of(args)}"
    print(f"n = {args.rounds} rounds, {args.gpus} GPUs, {sizes}\n")
    print(table(all_runs), end="\n\n")
    for runs in all_runs:
        print(f"- {runs.candidate.name}, a GPU in a step: {work(runs)}")
    sys.exit(status_of(all_runs))


if __name__ == "__main__":
    main()
