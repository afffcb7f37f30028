# SPDX-License-Identifier: Apache-2.0
"""Training steps a second of stock clients of NCCL, with and without what nccltune adds.

python benchmarks/clients.py --job ddp|fsdp|megatron [--gpus 4] [--nodes 1] [--pipeline 4] \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--rounds 5] [--json FILE]

Needs GPUs and PyTorch; megatron also megatron-core. A process a GPU. ddp and fsdp: a transformer of
PyTorch under DistributedDataParallel or fully_shard as they come. megatron: a GPT of megatron-core
with local layers, cut into --pipeline stages, the rest of the GPUs tensor-parallel. With --nodes
the ranks pass for nodes on the loopback. A round runs native NCCL and all candidates, one after the
other, each in processes of its own; shown is the median (min - max) of the rounds, and of a step,
by PyTorch's profiler, for how long the GPU communicates and for how long it does nothing else.
"""

import argparse
import os
import statistics
import sys
from pathlib import Path

from common import exit_on_term, told
from net_loopback import NODES
from sendrecv_candidates import Candidate
from sendrecv_pipeline import Runs, model_of, round_options, run_round, run_rounds, shown

PROGRAM = Path(__file__).with_name("clients_rank.py")
MODEL = {
    "hidden": 2048,
    "layers": 16,
    "length": 1024,
    "microbatch": 4,
    "microbatches": 8,
    "pipeline": 4,
    "steps": 20,
    "warm-up": 5,
}


def candidates(args: argparse.Namespace) -> list[Candidate]:
    found = [Candidate("native", {})]
    for text in args.candidate:
        name, _, listed = text.partition(":")
        settings = dict(each.split("=", 1) for each in listed.split(",") if each)
        found.append(Candidate(name, settings))
    return found


def call(args: argparse.Namespace, runs: Runs) -> None:
    kept = {name: value for name, value in os.environ.items() if "NCCLTUNE" not in name}
    node = [
        NODES | {"NCCL_HOSTID": f"node{rank * args.nodes // args.gpus}"} if args.nodes > 1 else {}
        for rank in range(args.gpus)
    ]
    environments = [kept | each | runs.candidate.settings for each in node]
    program = [str(PROGRAM), "--job", args.job]
    reports = run_round(args, runs, program, environments, ["megatron-core"])
    runs.gpu_ms.append([report["step_ms"] for report in reports])


def apart(runs: Runs, first: Runs) -> float:
    """The largest relative difference of a loss to the first run of native NCCL."""
    pairs = [
        (loss, own)
        for losses in runs.losses
        for loss, own in zip(losses, first.losses[0], strict=True)
    ]
    return max((abs(loss - own) / abs(own) for loss, own in pairs), default=0.0)


def table(all_runs: list[Runs]) -> str:
    """Return a row a candidate. A round's ratio is to native NCCL in the same round."""
    first = all_runs[0]
    lines = [
        "| | steps a second | against native, by round | communication, ms a step"
        " | of it alone | losses differ by |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for runs in all_runs:
        pairs = zip(runs.steps_per_s, first.steps_per_s, strict=True)
        ratios = [own / other for own, other in pairs]
        ranks = [rank for reports in runs.gpu_ms for rank in reports]
        whole, total, alone = (
            statistics.mean(rank.get(name, 0.0) for rank in ranks)
            for name in ("step", "communication", "alone")
        )
        part = f"{total:.1f} | {alone:.1f} ({alone / whole:.1%} of {whole:.1f})" if whole else " | "
        lines.append(
            f"| {runs.candidate.name} | {shown(runs.steps_per_s)} | {shown(ratios)}x | {part} "
            f"| {apart(runs, first):.2g} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--job", choices=["ddp", "fsdp", "megatron"], required=True)
    parser.add_argument("--candidate", action="append", default=[], metavar="NAME:VARIABLE=VALUE")
    parser.add_argument("--nodes", type=int, default=1)
    round_options(parser, MODEL)
    args = parser.parse_args()
    exit_on_term()

    facts, all_runs = run_rounds(args, call, ["gpu_ms"], candidates(args))
    print(told(facts | all_runs[0].said), end="\n\n")
    where = f"{args.gpus} GPUs, nodes: {args.nodes}"
    print(f"n = {args.rounds} rounds, {args.job}, {where}: {model_of(args)}\n")
    print(table(all_runs))
    sys.exit(0 if all_runs[0].losses[0] else 1)


if __name__ == "__main__":
    main()
