# SPDX-License-Identifier: Apache-2.0
"""All-reduce beside matrix products: the time of both for each limit of NCCL's channels.

python benchmarks/channels_beside_products.py [--gpus 2] [--caps 0,1,2,4,8,16] \\
    [--sizes 1M,4M,16M,64M,256M] [--product 8192] [--rounds 3] [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. A process a GPU: bf16 products of square matrices in one stream, all-reduces
in another, in communicators with at most so many channels (max_ctas of the communicator's
configuration; 0: NCCL's default). Both are timed alone and side by side, in alternation, in one
process. SMs are the blocks of NCCL's kernel as PyTorch's profiler sees them. The table has the
median (min - max) over the rounds of the slowest rank; a round is a start of the processes.
"""

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import bytes_of, exit_on_term, machine, run_ranks, save, shown, size_text, told
from sendrecv_candidates import Candidate, environment

PROGRAM = Path(__file__).with_name("channels_beside_products_rank.py")
SECONDS = 200
TIMES = ("all_reduce_alone", "all_reduce_together", "product_alone", "product_together")


def call(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the processes once. Return what each rank reported."""
    words = [sys.executable, str(PROGRAM), "--caps", args.caps]
    words += ["--sizes", ",".join(map(str, args.sizes))]
    words += ["--product", str(args.product), "--repetitions", str(args.repetitions)]
    settings = environment(args, Candidate("native", {}))
    with tempfile.TemporaryDirectory() as folder:
        reports = run_ranks(Path(folder), words, [settings] * args.gpus, SECONDS)
    if reports is None:
        sys.exit("error: a process failed")
    return reports


def slowest(rounds: list[list[dict[str, Any]]], row: int, name: str) -> list[float]:
    """Return the time of the slowest rank in each round in which all ranks have counted some."""
    values = [
        [statistics.median(rank["rows"][row]["us"][name]) for rank in reports] for reports in rounds
    ]
    return [max(ranks) for ranks in values if not any(map(math.isnan, ranks))]


def ratio(over: list[float], under: list[float] | None, digits: int) -> str:
    """Return the ratio of two medians as a cell; empty without one of them."""
    if not over or not under:
        return ""
    return f"{statistics.median(over) / statistics.median(under):.{digits}f}x"


def table(rounds: list[list[dict[str, Any]]]) -> str:
    """Return one row for each size and cap. Times against those of NCCL's default, if it ran."""
    titles = ["size", "at most", "SMs", "all-reduce alone, us", "beside products, us"]
    titles += ["product alone, us", "beside all-reduces, us", "all-reduce alone / default's"]
    lines = [f"| {' | '.join([*titles, 'product beside / alone'])} |"]
    lines.append("| --- " * (len(titles) + 1) + "|")
    default: dict[int, list[float]] = {}
    for number, row in enumerate(rounds[0][0]["rows"]):
        times = {name: slowest(rounds, number, name) for name in TIMES}
        if row["cap"] == 0:
            default[row["size"]] = times["all_reduce_alone"]
        cells = [size_text(row["size"]), str(row["cap"] or "default"), str(row["blocks"])]
        cells += [shown(values) if values else "" for values in times.values()]
        cells.append(ratio(times["all_reduce_alone"], default.get(row["size"]), 2))
        cells.append(ratio(times["product_together"], times["product_alone"], 3))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--caps", default="0,1,2,4,8,16", help="channels; 0: NCCL's default")
    parser.add_argument("--sizes", default="1M,4M,16M,64M,256M")
    parser.add_argument("--product", type=int, default=8192, help="rows of the square matrices")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nccl", help="folder of the libnccl.so.2 to use")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.sizes = [bytes_of(text) for text in args.sizes.split(",")]
    exit_on_term()

    facts, rounds = machine(), []
    for number in range(args.rounds):
        rounds.append(call(args))
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        save(args.json, {"machine": facts, "rounds": rounds})
    print(told(facts | {name: rounds[0][0][name] for name in ("torch", "nccl")}), end="\n\n")
    print(f"n = {args.rounds} rounds of {args.repetitions}, {args.gpus} GPUs\n")
    print(table(rounds))


if __name__ == "__main__":
    main()
