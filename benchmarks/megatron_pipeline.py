# SPDX-License-Identifier: Apache-2.0
"""Steps a second of a pipeline as in Megatron-LM with one connection: NCCL, and copy engines.

python benchmarks/megatron_pipeline.py --library libnccltune-sendrecv.so \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 4] [--tensor 2] [--chunks 1] \\
    [--one-gpu] [--rounds 5] [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. Pipeline stages of tensor-parallel layers, in plain PyTorch: 1F1B, or
interleaved with --chunks above 1, with batched isend and irecv between the stages and an all-reduce
over the tensor-parallel ranks in each layer. CUDA_DEVICE_MAX_CONNECTIONS is 1, as Megatron-LM
requires it. A round runs all candidates, one after the other, each in processes of its own. The
table has the median (min - max) of the rounds. Losses and the sums of all weights must be the same
in all runs, bit for bit. With --one-gpu all ranks share a GPU (start MPS before), and the speed
means nothing.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from common import MIB, exit_on_term, run_ranks, told
from sendrecv_candidates import candidate_options, environment
from sendrecv_pipeline import Runs, run_rounds, status_of, table

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
SECONDS = 200
ONE_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}


def call(args: argparse.Namespace, runs: Runs) -> None:
    words = [sys.executable, str(PROGRAM), "--device", args.device]
    for name in MODEL:
        words += [f"--{name}", str(getattr(args, name.replace("-", "_")))]
    settings = environment(args, runs.candidate)
    settings |= {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCLTUNE_SENDRECV_WAITS": "kernel"}
    # Deterministic products, which PyTorch asks for.
    settings["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if args.one_gpu:
        words.append("--one-gpu")
        settings |= ONE_GPU
    with tempfile.TemporaryDirectory() as folder:
        reports = run_ranks(Path(folder), words, [settings] * args.gpus, SECONDS)
    if reports is None:
        sys.exit(f"error: {runs.candidate.name} failed")
    runs.steps_per_s.append(min(report["steps_per_s"] for report in reports))
    runs.losses.append([value for report in reports for value in report["losses"]])
    runs.said = {name: reports[0][name] for name in ("torch", "nccl")}
    runs.said["parameters"] = sum(report["parameters"] for report in reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    candidate_options(parser)
    parser.add_argument("--gpus", type=int, default=4, help="number of ranks")
    parser.add_argument("--rounds", type=int, default=5)
    for name, value in MODEL.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--one-gpu", action="store_true", help="all ranks share GPU 0")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.gpus % args.tensor or (args.chunks > 1 and args.microbatches * args.tensor % args.gpus):
        parser.error(
            "--gpus must be a multiple of --tensor, --microbatches of the pipeline's ranks"
        )
    exit_on_term()

    model = {name: getattr(args, name.replace("-", "_")) for name in MODEL}
    facts, all_runs = run_rounds(args, model, call)
    print(told(facts | all_runs[0].said), end="\n\n")
    sent = args.microbatch * args.length * args.hidden * 2 / MIB
    print(f"n = {args.rounds} rounds, {args.gpus} ranks, messages of {sent:.4g} MiB: {model}\n")
    print(table(all_runs))
    sys.exit(status_of(all_runs))


if __name__ == "__main__":
    main()
