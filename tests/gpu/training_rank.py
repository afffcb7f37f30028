# SPDX-License-Identifier: Apache-2.0
"""One rank of training.py: plain PyTorch code that knows nothing of the libraries under test.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as torchrun sets them. Each line of the output
is "RANK KIND ...": results, which must be the same with and without the libraries; measures; and
"done" or "failed". Exit status 5: this PyTorch lacks what the workload needs.
"""

import argparse
import datetime
import faulthandler
import gc
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EXIT_SKIPPED = 5
SMALL = 1000
"""Elements of the small message beside the large ones."""


class Block(nn.Module):
    """A residual block of two matrices."""

    def __init__(self, hidden: int, device: torch.device) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden, device=device)
        self.up = nn.Linear(hidden, 4 * hidden, device=device)
        self.down = nn.Linear(4 * hidden, hidden, device=device)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.down(torch.relu(self.up(self.norm(states))))


class Stage(nn.Module):
    """A pipeline stage: activations in, activations out."""

    def __init__(self, hidden: int, blocks: int, device: torch.device) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(hidden, device) for _ in range(blocks))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            states = block(states)
        return states


class Rank:
    """What all workloads share."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.rank = int(os.environ["RANK"])
        self.peer = 1 - self.rank
        self.device = torch.device(args.device, 0) if args.device == "cuda" else torch.device("cpu")
        if args.device == "cuda":
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        bound = {"device_id": self.device} if args.bound else {}
        patience = datetime.timedelta(seconds=args.patience)
        dist.init_process_group(args.backend, timeout=patience, **bound)

    def print(self, kind: str, text: str = "") -> None:
        print(f"{self.rank} {kind} {text}".rstrip(), flush=True)

    def synchronize(self) -> None:
        if self.args.device == "cuda":
            torch.cuda.synchronize()

    def exchange(self, kind: int, out: torch.Tensor, group: Any = None) -> torch.Tensor:
        """Send a tensor to the peer and receive one of the same shape, in one of four ways."""
        into = torch.empty_like(out)
        match kind % 4:
            case 0:
                self.batch([(out, into)], group)
            case 1:
                # Two operations beside each other; a large send waits for its receive.
                sends = [lambda: dist.isend(out, self.peer, group=group)]
                receives = [lambda: dist.irecv(into, self.peer, group=group)]
                for work in [each() for each in self.ordered(sends, receives)]:
                    work.wait()
            case 2:
                sends = [lambda: dist.send(out, self.peer, group=group)]
                receives = [lambda: dist.recv(into, self.peer, group=group)]
                for each in self.ordered(sends, receives):
                    each()
            case 3:
                pieces = list(zip(out.chunk(4), into.chunk(4), strict=True))
                few = out.flatten()[:SMALL].clone()
                small = torch.empty_like(few)
                self.batch([*pieces, (few, small)], group)
                into.flatten()[:SMALL] = small
        return into

    def batch(self, pairs: list[tuple[torch.Tensor, torch.Tensor]], group: Any) -> None:
        operations = []
        for out, into in pairs:
            operations.append(dist.P2POp(dist.isend, out, self.peer, group=group))
            operations.append(dist.P2POp(dist.irecv, into, self.peer, group=group))
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def ordered(self, sends: list[Any], receives: list[Any]) -> list[Callable[[], Any]]:
        return [*sends, *receives] if self.rank == 0 else [*receives, *sends]

    def shard(self, stage: Stage) -> nn.Module:
        """The model as the workload distributes it."""
        if self.args.workload != "fsdp":
            devices = [0] if self.args.device == "cuda" else None
            return DistributedDataParallel(stage, device_ids=devices)
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            print(f"{self.rank} skip this PyTorch has no fully_shard", flush=True)
            sys.exit(EXIT_SKIPPED)
        for block in stage.blocks:
            fully_shard(block)
        fully_shard(stage)
        return stage

    def train(self, steps: int) -> None:
        """Activations come from the peer, and their gradients go back to it."""
        args = self.args
        torch.manual_seed(1)
        model = self.shard(Stage(args.hidden, args.blocks, self.device))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        draw = torch.Generator().manual_seed(100 + self.rank)
        shape = (args.rows, args.hidden)
        made = torch.randn(shape, generator=draw).to(self.device)
        target = torch.randn(shape, generator=draw).to(self.device)
        results = []
        for step in range(steps):
            states = self.exchange(step, made * (1 + step / steps)).requires_grad_()
            loss = nn.functional.mse_loss(model(states), target)
            loss.backward()
            gradients = self.exchange(step + 1, states.grad.contiguous())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            # Read at the end: a look at a value would make the step wait for the GPU.
            results.append((loss.detach(), gradients.double().abs().sum()))
            if args.workload == "kill":
                self.kill_later(step)
                self.synchronize()
        for step, (loss, gradients) in enumerate(results):
            self.print("result", f"loss.{step} {float(loss.item()).hex()}")
            self.print("result", f"gradients.{step} {float(gradients.item()).hex()}")

    def kill_later(self, step: int) -> None:
        """Kill this process at some moment of a later step, if it is the one to be killed."""
        if step == 2:
            self.print("training")
        if step == 2 and self.rank == self.args.victim:
            moment = random.Random(self.args.seed).uniform(0.0, 1.5)
            threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def communicators(self) -> None:
        """Make, use and destroy communicators. Those before the first count are warm-up."""
        count = self.args.count
        out = torch.arange(1 << 20, device=self.device, dtype=torch.float32) + self.rank
        want = torch.arange(1 << 20, device=self.device, dtype=torch.float32) + self.peer
        wrong = 0
        for made in range(1, count + 1):
            group = dist.new_group([0, 1])
            total = out.clone()
            dist.all_reduce(total, group=group)
            # batch_isend_irecv uses the communicator of the group itself.
            kinds = (0, 3, 0) if self.args.device == "cuda" else (1, 2)
            received = [self.exchange(kind, out, group) for kind in kinds]
            wrong += not torch.equal(total, out + want)
            wrong += sum(not torch.equal(each, want) for each in received)
            self.end_group(group, aborts=made % 10 == 9)
            if made in (count // 10, count):
                self.measure(made)
        self.print("result", f"wrong.{wrong} {'right' if wrong == 0 else 'WRONG'}")

    def end_group(self, group: Any, *, aborts: bool) -> None:
        """End a communicator that both ranks are done with, or that still has a message open."""
        if not aborts or self.args.device != "cuda":
            dist.destroy_process_group(group)
            return
        if self.rank == 0:
            dist.batch_isend_irecv([dist.P2POp(dist.irecv, torch.empty(
                1 << 20, device=self.device), self.peer, group=group)])  # fmt: skip
        # Rank 1 aborts what rank 0 waits for.
        dist.distributed_c10d._abort_process_group(group)
        dist.barrier()

    def measure(self, made: int) -> None:
        """Print what this process holds. Both ranks are at the same place."""
        gc.collect()
        self.synchronize()
        dist.barrier()
        self.synchronize()
        for name, value in resources(self.args.device).items():
            self.print("measure", f"{name}.{made} {value}")
        dist.barrier()


def resources(device: str) -> dict[str, float]:
    """Count descriptors, threads, mappings and memory of this process."""
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    mappings = Path("/proc/self/maps").read_text().splitlines()
    found: dict[str, float] = {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "resident_kib": int(resident.split()[1]),
        "mappings": len(mappings),
        "shared_files": len({line.split()[-1] for line in mappings if "/dev/shm/" in line}),
    }
    # Of the whole GPU. PyTorch's cache keeps what tensors had; what shrinks it is NCCL's or ours.
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
    return found | {"gpu_free_mib": free / (1 << 20)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=["ddp", "fsdp", "communicators", "kill"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--count", type=int, default=200, help="communicators")
    parser.add_argument("--bound", action="store_true", help="split groups from the default one")
    parser.add_argument("--patience", type=float, default=60, help="timeout of PyTorch's groups")
    parser.add_argument("--deadline", type=float, default=120, help="then stacks are printed")
    parser.add_argument("--victim", type=int, default=-1, help="the rank that kills itself")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parse()
    faulthandler.dump_traceback_later(args.deadline)
    torch.use_deterministic_algorithms(True)
    try:
        rank = Rank(args)
        if args.workload == "communicators":
            rank.communicators()
        else:
            rank.train(1_000_000 if args.workload == "kill" else args.steps)
        rank.synchronize()
        dist.barrier()
        rank.print("done")
    except Exception as error:  # noqa: BLE001
        # The teardown of a broken job may hang.
        traceback.print_exc()
        print(f"{os.environ['RANK']} failed {type(error).__name__}: {error}"[:600], flush=True)
        sys.stderr.flush()
        os._exit(1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
