# SPDX-License-Identifier: Apache-2.0
"""GPU memory that a program has freed after an exchange: native NCCL, and copy engines.

python benchmarks/sendrecv_memory.py --library libnccltune-sendrecv.so \\
    [--candidate NAME:VARIABLE=VALUE,...]... [--gpus 2] [--bytes 2G] [--rounds 3] \\
    [--later 0,1,3,15] [--nccl DIR] [--json FILE]

Needs GPUs and PyTorch. A process a GPU sends to the next and receives from the one before, in
memory of its own; then it frees the memory (empty_cache). Shown is the memory that CUDA reports as
used, less what was used before: with the memory, and each --later seconds after it was freed, while
small exchanges go on; the median (min - max) over rounds of the rank with the most.
"""

import argparse
from pathlib import Path

from common import MIB, bytes_of, exit_on_term, machine, shown, size_text, told
from sendrecv_candidates import Rounds, candidate_options, candidates, save_rounds

PROGRAM = Path(__file__).with_name("sendrecv_memory_rank.py")
SECONDS = 60


class Runs(Rounds):
    def most(self, name: str) -> list[float]:
        return [max(rank["used"][name] for rank in reports) / MIB for reports in self.rounds]


def table(all_runs: list[Runs]) -> str:
    names = list(all_runs[0].rounds[0][0]["used"])
    lines = ["| | " + " | ".join(f"{name}, MiB" for name in names) + " |"]
    lines.append("| --- " * (len(names) + 1) + "|")
    for runs in all_runs:
        cells = [shown(runs.most(name)) for name in names]
        lines.append(f"| {runs.candidate.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    candidate_options(parser)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--bytes", type=bytes_of, default=2 << 30)
    parser.add_argument("--later", default="0,1,3,15", help="seconds after the memory was freed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    exit_on_term()

    program = [str(PROGRAM), "--bytes", str(args.bytes), "--later", args.later]
    facts, all_runs = machine(), [Runs(candidate) for candidate in candidates(args)]
    for _ in range(args.rounds):
        for runs in all_runs:
            runs.run(args, program, SECONDS + max(map(float, args.later.split(","))))
        save_rounds(args, facts, all_runs)
    said = all_runs[0].rounds[0][0]
    print(told(facts | {name: said[name] for name in ("torch", "nccl")}), end="\n\n")
    print(f"n = {args.rounds} rounds, {args.gpus} GPUs, twice {size_text(args.bytes)}\n")
    print(table(all_runs))


if __name__ == "__main__":
    main()
