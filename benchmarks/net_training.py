# SPDX-License-Identifier: Apache-2.0
"""Training steps a second of a BERT-Large-sized PyTorch model, each rank a node on the loopback.

python benchmarks/net_training.py --plugin libnccl-net-nccltune.so [--fastsocket PATH] \\
    [--ranks 2] [--ranks-per-gpu 1] [--batch 8] [--built-in 2x1]... [--rounds 3] [--nccl DIR] \\
    [--json FILE]

Needs GPUs and PyTorch; with --ranks-per-gpu, ranks share GPUs under NVIDIA's MPS daemon.
24 layers, hidden size 1024, 16 heads, 30,522 tokens: 335 million parameters under
DistributedDataParallel as it comes, AdamW, sequences of 128. Gradients are fp32 and what is
computed bf16 (autocast), or all is bf16 (--gradients bf16). Candidates: NCCL's own transport at its
default and with other threads x sockets, Fast Socket, ours without a setting. A round runs all one
after another, each in processes of its own; shown is the median (min - max) of the rounds. Losses
must be finite, and those of a step alike in all runs (--tolerance).
"""

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import shared_gpu
from common import machine, run_ranks, save, shown, told
from net_loopback import (
    DEFAULT,
    Candidate,
    built_in,
    check_network,
    environment,
    fast_socket,
    nccltune,
    numbers,
    parse,
    said_by_nccl,
)

PROGRAM = Path(__file__).with_name("net_training_rank.py")
MODEL = ("layers", "hidden", "vocabulary", "batch", "sequence", "steps", "warm_up")


@dataclass
class Runs:
    """Of one candidate: steps a second by round, None where it failed, and losses by rank."""

    candidate: Candidate
    steps_per_s: list[float | None] = field(default_factory=list)
    losses: list[list[list[float]]] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)


def program(args: argparse.Namespace) -> list[str]:
    words = [sys.executable, str(args.program)]
    for name in MODEL:
        words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    words += ["--gradients", args.gradients, "--device", args.device, "--backend", args.backend]
    return [*words, "--seconds", str(int(args.deadline) + 1)]


def node(args: argparse.Namespace, candidate: Candidate, rank: int, log: Path) -> dict[str, str]:
    settings = environment(candidate, log)
    settings |= shared_gpu.node_variables(rank, args.ranks, args.ranks)
    settings |= shared_gpu.visible_gpu(rank, args.ranks_per_gpu)
    if args.nccl:
        # Wheels of PyTorch find theirs before LD_LIBRARY_PATH is looked at.
        settings["LD_PRELOAD"] = str(Path(args.nccl).resolve() / "libnccl.so.2")
    if args.backend == "gloo":
        settings["GLOO_SOCKET_IFNAME"] = "lo"
    return settings


def call(args: argparse.Namespace, runs: Runs) -> None:
    """One run of one candidate."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = [node(args, runs.candidate, rank, folder) for rank in range(args.ranks)]
        reports = run_ranks(folder, program(args), nodes, args.deadline)
        said = said_by_nccl(folder)
    check_network(runs.candidate, said)
    if reports is None:
        print(f"{runs.candidate.name} was that", *said["warnings"][-10:], file=sys.stderr, sep="\n")
        runs.steps_per_s.append(None)
        return
    runs.said = said | {k: v for k, v in reports[0].items() if k not in ("losses", "steps_per_s")}
    runs.steps_per_s.append(min(report["steps_per_s"] for report in reports))
    runs.losses.append([report["losses"] for report in reports])


def farthest(all_runs: list[Runs]) -> tuple[float, bool]:
    """The largest relative difference of one loss from the first run's, and all are finite."""
    runs = [losses for candidate in all_runs for losses in candidate.losses]
    every = [[loss for rank in losses for loss in rank] for losses in runs]
    finite = all(math.isfinite(loss) for losses in every for loss in losses)
    first = every[0]
    apart = [
        abs(loss - other) / max(abs(other), 1e-9)
        for losses in every[1:]
        for loss, other in zip(losses, first, strict=True)
    ]
    return max(apart, default=0.0), finite


def table(all_runs: list[Runs]) -> str:
    whole = [[value for value in runs.steps_per_s if value is not None] for runs in all_runs]
    base = statistics.median(whole[0]) if whole[0] else None
    lines = ["| | steps a second | against the default | failed | first and last loss |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for runs, values in zip(all_runs, whole, strict=True):
        against = f"{statistics.median(values) / base:.2f}x" if values and base else "-"
        losses = runs.losses[0][0] if runs.losses else []
        ends = f"{losses[0]:.4f}, {losses[-1]:.4f}" if losses else "-"
        lines.append(
            f"| {runs.candidate.name} | {shown(values) if values else '-'} | {against} "
            f"| {runs.steps_per_s.count(None)} of {len(runs.steps_per_s)} | {ends} |"
        )
    return "\n".join(lines)


def result(args: argparse.Namespace, facts: dict[str, Any], all_runs: list[Runs]) -> dict[str, Any]:
    names = (*MODEL, "gradients", "ranks", "rounds")
    return {
        "machine": facts,
        "model": {name: getattr(args, name) for name in names},
        "candidates": [
            {
                "name": runs.candidate.name,
                "settings": runs.candidate.settings,
                "steps_per_s": runs.steps_per_s,
                "losses_by_round_and_rank": runs.losses,
                "said": runs.said,
            }
            for runs in all_runs
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fastsocket")
    parser.add_argument("--built-in", action="append", metavar="THREADSxSOCKETS[xCHANNELS]")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="sequences for each GPU and step")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--gradients", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024, help="a multiple of 64, of one head")
    parser.add_argument("--vocabulary", type=int, default=30522)
    parser.add_argument("--tolerance", type=float, default=0.01, help="of losses, relative")
    parser.add_argument("--deadline", type=float, default=150, help="seconds for one run")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--program", type=Path, default=PROGRAM, help="what each rank runs")
    args = parse(parser)

    candidates = [DEFAULT, *(built_in(*numbers(text)) for text in args.built_in or ["2x1"])]
    if args.fastsocket:
        candidates.append(fast_socket(args.fastsocket))
    candidates.append(nccltune(args.plugin))
    facts, all_runs = machine(), [Runs(candidate) for candidate in candidates]
    for number in range(args.rounds):
        for runs in all_runs:
            call(args, runs)
            last = runs.steps_per_s[-1]
            print(f"round {number + 1}, {runs.candidate.name}: {last} steps/s", file=sys.stderr)
            save(args.json, result(args, facts, all_runs))
            if not all_runs[0].losses:
                sys.exit("error: the first run has failed")
    print(told(facts | all_runs[-1].said), end="\n\n")
    print(f"n = {args.rounds} rounds, {args.ranks} ranks, {args.batch} sequences each\n")
    print(table(all_runs))
    apart, finite = farthest(all_runs)
    print(f"\nLosses: {'all finite' if finite else '**NOT FINITE**'}, at most {apart:.2g} apart")
    failed = any(None in runs.steps_per_s for runs in all_runs)
    sys.exit(0 if finite and apart <= args.tolerance and not failed else 1)


if __name__ == "__main__":
    main()
