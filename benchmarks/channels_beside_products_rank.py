# SPDX-License-Identifier: Apache-2.0
"""One process of channels_beside_products.py. RANK and the like as torchrun sets them.

Writes to one JSON file what it measured: a list with one object for each size and cap, times in
microseconds.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from sendrecv_overlap_rank import Product, alone_and_together, same_on_all, timed
from torch import distributed
from torch.profiler import ProfilerActivity, profile

PHASE_US = 2e5
"""How long one phase runs, if products and all-reduces take turns."""


class AllReduce:
    """All-reduces in place of one size in one communicator."""

    def __init__(self, size: int, group: Any) -> None:
        self.group = group
        self.data = torch.zeros(size // 4, dtype=torch.float32, device="cuda")

    def reduce(self) -> None:
        distributed.all_reduce(self.data, group=self.group)

    def blocks(self) -> int:
        """Return the number of blocks of NCCL's kernel; each occupies an SM."""
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(3):
                self.reduce()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            seen.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        grids = [
            event["args"]["grid"] for event in events if event.get("name", "").startswith("nccl")
            and "grid" in event.get("args", {})
        ]  # fmt: skip
        return max(grid[0] * grid[1] * grid[2] for grid in grids)


def communicator(cap: int) -> Any:
    """Return a communicator of at most `cap` channels; 0: NCCL's default."""
    if cap == 0:
        return distributed.new_group()
    options = distributed.ProcessGroupNCCL.Options()
    options.config.max_ctas = cap
    options.config.min_ctas = 1
    return distributed.new_group(pg_options=options)


def measure(args: argparse.Namespace, all_reduce: AllReduce, product: Product) -> dict[str, Any]:
    """Return the medians of each repetition, alone and side by side."""
    for _ in range(5):
        all_reduce.reduce()
    first = same_on_all(statistics.median(timed(args, [(all_reduce.reduce, 20)])[0]))
    single = same_on_all(statistics.median(timed(args, [(product.multiply, 20)])[0]))
    # A small all-reduce may wait until a product's blocks are over: products last until it is done.
    count = max(40, round(PHASE_US / (first + single)))
    products = max(20, round(count * (first + single) / single))
    return alone_and_together(
        args, "all_reduce", (all_reduce.reduce, count), (product.multiply, products)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--caps", required=True)
    parser.add_argument("--product", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--settle", type=float, default=0.4, help="part of a phase not counted")
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    product = Product(args.product)
    groups = {int(cap): communicator(int(cap)) for cap in args.caps.split(",")}
    rows = []
    for size in map(int, args.sizes.split(",")):
        for cap, group in groups.items():
            all_reduce = AllReduce(size, group)
            us = measure(args, all_reduce, product)
            rows.append({"size": size, "cap": cap, "blocks": all_reduce.blocks(), "us": us})
    said = {
        "rows": rows,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    args.report.write_text(json.dumps(said))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
