# SPDX-License-Identifier: Apache-2.0
"""Matrix products during an exchange between the GPUs of a node: native NCCL, and copy engines.

python benchmarks/sendrecv_overlap.py --library libnccltune-sendrecv.so [--fill fill.so] \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 4] [--bytes 256M] [--rounds 5] \\
    [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. A process a GPU: bf16 products of 8192 x 8192 matrices in one stream, in
another a ring in which each sends to the next and receives from the one before (batch_isend_irecv).
Each is timed alone and while the other runs, alternating, in one process; shown is the median (min
- max) over rounds of the slowest rank's median, and the median of each round's ratio. A round runs
all candidates, one after the other. With --fill (nvcc: see sendrecv_fill.cu) exchanges are also
started while a kernel keeps every SM: do they end? Last, what the profiler sees on the GPU during
exchanges.
"""

import argparse
import statistics
import sys
from pathlib import Path

from common import bytes_of, exit_on_term, machine, shown, size_text, told
from sendrecv_candidates import Rounds, candidate_options, candidates, save_rounds

PROGRAM = Path(__file__).with_name("sendrecv_overlap_rank.py")
SECONDS = 120
WHAT = ("product", "exchange")


class Runs(Rounds):
    def slowest(self, name: str) -> list[float]:
        return [
            max(statistics.median(rank["us"][name]) for rank in reports) for reports in self.rounds
        ]

    def slower(self, what: str) -> float:
        """The median over rounds and ranks."""
        return statistics.median(
            together / alone
            for reports in self.rounds
            for rank in reports
            for together, alone in zip(
                rank["us"][f"{what}_together"], rank["us"][f"{what}_alone"], strict=True
            )
        )


def call(args: argparse.Namespace, runs: Runs) -> None:
    words = [str(PROGRAM), "--bytes", str(args.bytes)]
    for name in ("product", "exchanges", "products", "beside", "repetitions"):
        words += [f"--{name}", str(getattr(args, name))]
    if args.fill:
        words += ["--fill", str(Path(args.fill).resolve())]
    runs.run(args, words, SECONDS)
    args.beside = runs.rounds[-1][0]["products"]


def table(all_runs: list[Runs]) -> str:
    names = [f"{what} {when}, us" for what in WHAT for when in ("alone", "with the other")]
    lines = ["| | " + " | ".join([*names, "product slower", "exchange slower"]) + " |"]
    lines.append("| --- " * (len(names) + 3) + "|")
    for runs in all_runs:
        cells = [
            shown(runs.slowest(f"{what}_{when}")) for what in WHAT for when in ("alone", "together")
        ]
        cells += [f"{runs.slower(what):.3f}x" for what in WHAT]
        lines.append(f"| {runs.candidate.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(runs: Runs) -> str:
    """What became of exchanges while a kernel kept every SM."""
    said = [rank["fill"] for reports in runs.rounds for rank in reports if "fill" in rank]
    if not said:
        return "not tried"
    ended = [each["seconds"] for each in said if each["ended"]]
    took = ""
    if ended:
        all_ms = shown([seconds[-1] * 1e3 for seconds in ended])
        took = f", {len(ended[0])} exchanges in {all_ms} ms"
    return f"of {len(said)} processes {len(ended)} ended theirs while a kernel kept every SM{took}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    candidate_options(parser)
    parser.add_argument("--fill", help="the library of sendrecv_fill.cu")
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--bytes", type=bytes_of, default=256 << 20)
    parser.add_argument("--product", type=int, default=8192, help="rows of the square matrices")
    parser.add_argument("--exchanges", type=int, default=600, help="in one repetition")
    parser.add_argument("--products", type=int, default=30, help="to find how long one takes")
    parser.add_argument("--beside", type=int, default=0, metavar="N",
                        help="products beside the exchanges; 0: as many as take as long in the"
                        " first run, and then as many in all runs")  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    exit_on_term()

    facts, all_runs = machine(), [Runs(candidate) for candidate in candidates(args)]
    for number in range(args.rounds):
        for runs in all_runs:
            call(args, runs)
            slower = ", ".join(f"{what} {runs.slower(what):.3f}x" for what in WHAT)
            print(f"round {number + 1}, {runs.candidate.name}: {slower}", file=sys.stderr)
        save_rounds(args, facts, all_runs)
    said = all_runs[0].rounds[0][0]
    print(told(facts | {name: said[name] for name in ("torch", "nccl")}), end="\n\n")
    size = size_text(args.bytes)
    print(f"n = {args.rounds} rounds of {args.repetitions}, {args.gpus} GPUs, {size}\n")
    print(table(all_runs), end="\n\n")
    for runs in all_runs:
        seen = sorted({name for reports in runs.rounds for r in reports for name in r["kernels"]})
        print(f"- {runs.candidate.name}: {filled(runs)}; seen on the GPU: {', '.join(seen)}")


if __name__ == "__main__":
    main()
