# SPDX-License-Identifier: Apache-2.0
"""One process of sendrecv_pipeline.py: some stages of a PyTorch transformer.

RANK and the like as torchrun sets them. Writes to one JSON file what it measured. Data and weights
are random, the same in every run, and everything computed is deterministic.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

PROFILED = 2


class Block(nn.Module):
    """Attention and two linear layers, each behind a norm and added to what came in."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.ask, self.answer = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, states: Any) -> Any:
        batch, length, hidden = states.shape
        asked = self.ask(self.before(states)).view(batch, length, 3, self.heads, -1)
        query, key, value = asked.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.answer(seen.transpose(1, 2).reshape(batch, length, hidden))
        return states + self.narrow(nn.functional.gelu(self.wide(self.between(states))))


def stages(args: argparse.Namespace, device: Any) -> tuple[list[Any], list[Any]]:
    """This rank's stages, and their modules."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    modules, made = [], []
    for index in range(rank, ranks * args.virtual, ranks):
        torch.manual_seed(1000 + index)
        with torch.device(device):
            module = nn.Sequential(*(Block(args.hidden, args.heads) for _ in range(args.layers)))
        modules.append(module.to(torch.bfloat16))
        made.append(PipelineStage(modules[-1], index, ranks * args.virtual, device))
    return made, modules


def train(args: argparse.Namespace, device: Any) -> dict[str, Any]:
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    made, modules = stages(args, device)
    schedule = ScheduleInterleaved1F1B(made, args.microbatches, loss_fn=nn.functional.mse_loss)
    parameters = [each for module in modules for each in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=device.type == "cuda")
    torch.manual_seed(7)
    shape = (args.microbatches * args.microbatch, args.length, args.hidden)
    batch = torch.randn(shape, device=device, dtype=torch.bfloat16)
    target = torch.randn(shape, device=device, dtype=torch.bfloat16)
    losses: list[Any] = []

    def one() -> None:
        of_step: list[Any] = []
        if rank == 0:
            schedule.step(batch)
        elif rank == ranks - 1:
            schedule.step(target=target, losses=of_step)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.extend(loss.detach() for loss in of_step)

    found = timed(args, device, lambda _: one())
    return found | {
        "gpu_ms": gpu_ms(one) if device.type == "cuda" else {},
        "losses": torch.stack(losses).tolist() if losses else [],
        "parameters": sum(each.numel() for each in parameters),
    }


def timed(args: argparse.Namespace, device: Any, step: Callable[[int], object]) -> dict[str, Any]:
    """Steps a second after the warm-up, and what ran them."""
    start = 0.0
    for number in range(args.warm_up + args.steps):
        if number == args.warm_up:
            wait(device)
            start = time.perf_counter()
        step(number)
    wait(device)
    return {"steps_per_s": args.steps / (time.perf_counter() - start)} | versions(device)


def versions(device: Any) -> dict[str, Any]:
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else None
    return {"torch": torch.__version__, "nccl": nccl}


def gpu_ms(step: Callable[[], None]) -> dict[str, float]:
    """What the GPU does in a step, milliseconds in all: the profiler's sums over some."""
    from torch.profiler import ProfilerActivity, profile

    found: dict[str, float] = defaultdict(float)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    for event in seen.key_averages():
        found[kind_of(event.key)] += event.self_device_time_total / 1e3 / PROFILED
    return {name: value for name, value in found.items() if value > 0}


def kind_of(event: str) -> str:
    if event.startswith("ncclDevKernel"):
        return "kernels of NCCL"
    if event.startswith("Memcpy"):
        return "copies to peers" if "PtoP" in event else "copies"
    return "other kernels"


def wait(device: Any) -> None:
    """Until all ranks have done what they were given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    distributed.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_rank(
    parser: argparse.ArgumentParser,
    names: Sequence[str],
    train: Callable[[argparse.Namespace, Any], dict[str, Any]],
    *,
    eager: bool = True,
) -> None:
    """Read the options of a rank, numbers by `names` among them, and write what `train` reports.

    If `eager`, NCCL connects at once.
    """
    for name in (*names, "steps", "warm-up"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    if args.device == "cuda":
        sharing = getattr(args, "ranks_per_gpu", 1)
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) // sharing)
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device if eager else None)
    else:
        device = torch.device("cpu")
        distributed.init_process_group("gloo")
    args.report.write_text(json.dumps(train(args, device)))
    distributed.destroy_process_group()


def main() -> None:
    torch.use_deterministic_algorithms(True)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("hidden", "heads", "layers", "length", "microbatch", "microbatches", "virtual")
    run_rank(parser, names, train)


if __name__ == "__main__":
    main()
