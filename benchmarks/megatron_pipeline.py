# SPDX-License-Identifier: Apache-2.0
"""Steps a second of a pipeline as in Megatron-LM with one connection: NCCL, and copy engines.

python benchmarks/megatron_pipeline.py --library libnccltune-sendrecv.so \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 4] [--ranks-per-gpu 1] [--tensor 2] \\
    [--chunks 1] [--rounds 5] [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. Pipeline stages of tensor-parallel layers, in plain PyTorch: 1F1B, or
interleaved with --chunks above 1, with batched isend and irecv between the stages and an all-reduce
over the tensor-parallel ranks in each layer. CUDA_DEVICE_MAX_CONNECTIONS is 1, as Megatron-LM
requires it. A round runs all candidates, one after the other, each in processes of its own. The
table has the median (min - max) of the rounds. Losses and the sums of all weights must be the same
in all runs, bit for bit, and the library must carry messages by copy engine. With --ranks-per-gpu
above 1 (NCCL 2.31 or newer) ranks share a GPU under an MPS daemon and compete for it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import shared_gpu
from common import MESSAGES, MIB, exit_on_term, told
from sendrecv_candidates import candidate_options, environment
from sendrecv_pipeline import Runs, model_of, round_options, run_round, run_rounds, status_of, table

PROGRAM = Path(__file__).with_name("megatron_pipeline_rank.py")
MODEL = {
    "hidden": 4096,
    "layers": 2,
    "length": 4096,
    "microbatch": 1,
    "microbatches": 16,
    "chunks": 1,
    "tensor": 1,
    "steps": 20,
    "warm-up": 5,
}


def count_messages(report: str) -> dict[str, int]:
    """Return the messages by copy engine and all messages of all ranks, as the library counts."""
    found = [(route, int(number)) for route, number, _ in MESSAGES.findall(report)]
    carried = sum(number for route, number in found if route.startswith("copy engine"))
    return {"by copy engine": carried, "messages": sum(number for _, number in found)}


def call(args: argparse.Namespace, runs: Runs) -> None:
    settings = environment(args, runs.candidate)
    settings |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_NVLS_ENABLE": "0"}
    # Deterministic products, which PyTorch asks for.
    settings["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if args.ranks_per_gpu > 1:
        settings |= shared_gpu.one_node_variables(args.ranks_per_gpu)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        settings["NCCLTUNE_SENDRECV_STATS"] = str(counts)
        program = [str(PROGRAM), "--ranks-per-gpu", str(args.ranks_per_gpu)]
        reports = run_round(args, runs, program, [settings] * args.ranks)
        text = counts.read_text() if counts.exists() else ""
    runs.losses[-1] = [value for report in reports for value in report["losses"]]
    runs.messages.append(count_messages(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    candidate_options(parser)
    shared_gpu.add_options(parser)
    round_options(parser, MODEL)
    args = parser.parse_args()
    args.ranks = args.gpus * args.ranks_per_gpu
    stages, left = divmod(args.ranks, args.tensor)
    if left or (args.chunks > 1 and args.microbatches % stages):
        parser.error(
            "the number of ranks must be a multiple of --tensor, --microbatches one of the stages"
        )
    exit_on_term()
    shared_gpu.use_mps(args)

    facts, all_runs = run_rounds(args, call, ["messages"])
    print(told(facts | all_runs[0].said), end="\n\n")
    sent = args.microbatch * args.length * args.hidden * 2 / MIB
    ranks = f"{args.ranks} ranks on {args.gpus} GPUs"
    print(f"n = {args.rounds} rounds, {ranks}, messages of {sent:.4g} MiB: {model_of(args)}\n")
    print(table(all_runs), end="\n\n")
    for runs in all_runs[1:]:
        carried, messages = runs.messages[-1].values()
        print(f"- {runs.candidate.name}: {carried} of {messages} messages by copy engine")
    unused = args.device == "cuda" and not all_runs[-1].messages[-1]["by copy engine"]
    sys.exit(1 if unused else status_of(all_runs))


if __name__ == "__main__":
    main()
