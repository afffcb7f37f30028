# SPDX-License-Identifier: Apache-2.0
"""One process of sendrecv_overlap.py. RANK and the like as torchrun sets them.

Writes to one JSON file what it measured, times in microseconds.
"""

import argparse
import ctypes
import itertools
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

FILL_S = 0.5
"""How long a kernel keeps every SM."""


class Ring:
    """Each rank sends `out` to the next and receives from the one before, in one group."""

    def __init__(self, out: Any) -> None:
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
        self.next, self.before = (rank + 1) % ranks, (rank - 1) % ranks
        self.out, self.into = out, torch.empty_like(out)

    def exchange(self) -> None:
        """In the order of the current stream."""
        operations = [
            distributed.P2POp(distributed.isend, self.out, self.next),
            distributed.P2POp(distributed.irecv, self.into, self.before),
        ]
        for work in distributed.batch_isend_irecv(operations):
            work.wait()


class CheckedRing(Ring):
    def __init__(self, size: int) -> None:
        numbers = torch.arange(size // 4, dtype=torch.int32, device="cuda")
        super().__init__(numbers * (distributed.get_rank() + 1))
        self.right = numbers * (self.before + 1)

    def check(self) -> None:
        torch.cuda.synchronize()
        if not torch.equal(self.into, self.right):
            raise SystemExit("wrong bytes")
        self.into.zero_()
        torch.cuda.synchronize()


class Product:
    def __init__(self, size: int) -> None:
        draw = {"dtype": torch.bfloat16, "device": "cuda"}
        self.a, self.b = torch.randn(size, size, **draw), torch.randn(size, size, **draw)
        self.c = torch.empty(size, size, **draw)

    def multiply(self) -> None:
        torch.mm(self.a, self.b, out=self.c)


class Timeline:
    """What one stream does, and when each of it was over."""

    def __init__(self, what: Any) -> None:
        self.what, self.stream, self.events = what, torch.cuda.Stream(), []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        self.events.append(event)

    def add(self) -> None:
        with torch.cuda.stream(self.stream):
            self.what()
        self.mark()

    def steps(self, base: Any) -> list[tuple[float, float]]:
        """Begin and end of each, in microseconds."""
        at = [base.elapsed_time(event) * 1e3 for event in self.events]
        return list(itertools.pairwise(at))


def timed(args: argparse.Namespace, parts: list[tuple[Any, int]]) -> list[list[float]]:
    """Microseconds of each of the parts while all of them run, each in a stream of its own; as many
    of each are enqueued as the arguments set, evenly."""
    distributed.barrier()
    torch.cuda.synchronize()
    lines = [Timeline(what) for what, _ in parts]
    base = torch.cuda.Event(enable_timing=True)
    base.record()
    for line in lines:
        line.stream.wait_event(base)
        line.mark()
    most = max(times for _, times in parts)
    for turn in range(most):
        for line, (_, times) in zip(lines, parts, strict=True):
            if (turn + 1) * times // most > turn * times // most:
                line.add()
    torch.cuda.synchronize()
    steps = [line.steps(base) for line in lines]
    # Clocks follow the power that was drawn in the last tenths of a second; and the first of each
    # begin while the others are still enqueued.
    begin = max(each[int(len(each) * args.settle)][0] for each in steps)
    end = min(each[-1][1] for each in steps)
    return [[b - a for a, b in each if a >= begin and b <= end] for each in steps]


def alone_and_together(
    args: argparse.Namespace, name: str, work: tuple[Any, int], products: tuple[Any, int]
) -> dict[str, list[float]]:
    """Return the median microseconds of products and of the other work in each repetition.

    `work` and `products` are a function and how many of its calls are enqueued. The keys are
    `product_alone`, `product_together` and the same with `name`. NaN: none was counted.
    """
    both = [products, work]
    phases = [
        (["product_together", f"{name}_together"], both),
        (["product_alone"], both[:1]),
        ([f"{name}_alone"], both[1:]),
    ]
    found: dict[str, list[float]] = {each: [] for names, _ in phases for each in names}
    for repetition in range(args.repetitions):
        first = repetition % len(phases)
        for names, parts in phases[first:] + phases[:first]:
            for each, values in zip(names, timed(args, parts), strict=True):
                found[each].append(statistics.median(values) if values else float("nan"))
    return found


def same_on_all(value: float) -> float:
    """Return rank 0's value, so that all ranks enqueue as many operations."""
    told = torch.tensor([value], dtype=torch.float64, device="cuda")
    distributed.broadcast(told, 0)
    return float(told.item())


def overlap(args: argparse.Namespace, ring: CheckedRing, product: Product) -> dict[str, Any]:
    """Medians alone and together, one of each a repetition."""
    many, products = args.exchanges, args.beside
    if products == 0:
        alone = statistics.median(timed(args, [(ring.exchange, many)])[0])
        single = statistics.median(timed(args, [(product.multiply, args.products)])[0])
        products = round(same_on_all(max(args.products, many * alone / single)))
    found = alone_and_together(
        args, "exchange", (ring.exchange, many), (product.multiply, products)
    )
    ring.check()
    return {"us": found, "products": products}


def fill(args: argparse.Namespace, ring: CheckedRing) -> dict[str, Any]:
    """Which exchanges end while a kernel keeps every SM, and when."""
    library = ctypes.CDLL(args.fill)
    kernel, stream = torch.cuda.Stream(), torch.cuda.Stream()
    nanoseconds = ctypes.c_ulonglong(int(FILL_S * 1e9))
    distributed.barrier()
    torch.cuda.synchronize()
    if library.fill(nanoseconds, ctypes.c_void_p(kernel.cuda_stream)) != 0:
        raise SystemExit("the kernel could not be started")
    started = time.perf_counter()
    events = []
    with torch.cuda.stream(stream):
        for _ in range(args.fill_exchanges):
            ring.exchange()
            events.append(torch.cuda.Event())
            events[-1].record()
    ended: list[float] = []
    while len(ended) < len(events) and not kernel.query():
        if events[len(ended)].query():
            ended.append(time.perf_counter() - started)
    still_ran = not kernel.query()
    torch.cuda.synchronize()
    ring.check()
    return {"ended": len(ended) == len(events) and still_ran, "seconds": ended}


def kernels(ring: Ring) -> list[str]:
    """What the profiler sees on the GPU during exchanges."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            ring.exchange()
        torch.cuda.synchronize()
    return sorted({event.key for event in seen.key_averages()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--product", type=int, required=True)
    parser.add_argument("--exchanges", type=int, required=True)
    parser.add_argument("--products", type=int, required=True)
    parser.add_argument("--beside", type=int, required=True, help="products beside the exchanges")
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--settle", type=float, default=0.4, help="part of a time not counted")
    parser.add_argument("--fill", help="the library of sendrecv_fill.cu")
    parser.add_argument("--fill-exchanges", type=int, default=20)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", device_id=torch.device("cuda", rank))
    ring, product = CheckedRing(args.bytes), Product(args.product)
    for _ in range(10):
        ring.exchange()
        product.multiply()
    ring.check()
    said = overlap(args, ring, product)
    if args.fill:
        said["fill"] = fill(args, ring)
    said["kernels"] = kernels(ring)
    said["torch"] = torch.__version__
    said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    args.report.write_text(json.dumps(said))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
