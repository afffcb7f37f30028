# SPDX-License-Identifier: Apache-2.0
"""One process of megatron_pipeline.py: pipeline and tensor parallelism as in Megatron-LM.

RANK and the like as torchrun sets them. Writes to one JSON file what it measured. Weights and data
are random, the same in every run, and everything computed is deterministic.
"""

import argparse
from typing import Any

import torch
from sendrecv_pipeline_rank import run_rank, timed
from torch import distributed, nn


class Enter(torch.autograd.Function):
    """The input of a tensor-parallel layer: the gradient is the sum over the group."""

    @staticmethod
    def forward(ctx: Any, states: Any, group: Any) -> Any:
        ctx.group = group
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0].contiguous()
        distributed.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Leave(torch.autograd.Function):
    """The output of a tensor-parallel layer: the sum over the group."""

    @staticmethod
    def forward(_ctx: Any, states: Any, group: Any) -> Any:
        states = states.contiguous()
        distributed.all_reduce(states, group=group)
        return states

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class Layer(nn.Module):
    """Two linear layers behind a norm, cut over the tensor-parallel group."""

    def __init__(self, hidden: int, group: Any, size: int) -> None:
        super().__init__()
        self.group = group if size > 1 else None
        self.norm = nn.LayerNorm(hidden)
        self.wide = nn.Linear(hidden, 4 * hidden // size, bias=False)
        self.narrow = nn.Linear(4 * hidden // size, hidden, bias=False)

    def forward(self, states: Any) -> Any:
        inner = self.norm(states)
        if self.group is not None:
            inner = Enter.apply(inner, self.group)
        inner = self.narrow(nn.functional.gelu(self.wide(inner)))
        return states + (inner if self.group is None else Leave.apply(inner, self.group))


class Pipeline:
    """The stages of this rank and their schedules.

    A rank of `ranks` has `chunks` stages. Stage s of all has the number `chunk * ranks + rank`.
    """

    def __init__(self, args: argparse.Namespace, device: Any) -> None:
        world, rank = distributed.get_world_size(), distributed.get_rank()
        self.args, self.device = args, device
        self.ranks = world // args.tensor
        self.rank = rank // args.tensor
        self.chunks = args.chunks
        tensor_group = pipeline_group = None
        for each in range(self.ranks):
            members = list(range(each * args.tensor, (each + 1) * args.tensor))
            group = distributed.new_group(members)
            tensor_group = group if rank in members else tensor_group
        for each in range(args.tensor):
            members = list(range(each, world, args.tensor))
            group = distributed.new_group(members)
            if rank in members:
                pipeline_group, self.members = group, members
        self.group = pipeline_group
        self.stages = []
        for chunk in range(args.chunks):
            torch.manual_seed(1000 * (chunk * self.ranks + self.rank) + rank % args.tensor)
            layers = [Layer(args.hidden, tensor_group, args.tensor) for _ in range(args.layers)]
            self.stages.append(nn.Sequential(*layers).to(device=device, dtype=torch.bfloat16))
        self.shape = (args.length, args.microbatch, args.hidden)
        torch.manual_seed(7)
        self.data = torch.randn(self.shape).to(device=device, dtype=torch.bfloat16)

    def is_first(self, chunk: int) -> bool:
        return self.rank == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        return self.rank == self.ranks - 1 and chunk == self.chunks - 1

    def exchange(
        self, to_prev: Any = None, to_next: Any = None, *, from_prev: bool = False,
        from_next: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Send to both neighbours and receive from them, in one group.

        The order also fits two ranks, whose neighbours are the same rank.
        """
        prev, following = (self.members[(self.rank + step) % self.ranks] for step in (-1, 1))
        got_prev = got_next = None
        operations = []
        if to_prev is not None:
            operations.append(distributed.P2POp(distributed.isend, to_prev, prev, self.group))
        if to_next is not None:
            operations.append(distributed.P2POp(distributed.isend, to_next, following, self.group))
        if from_next:
            got_next = torch.empty(self.shape, device=self.device, dtype=torch.bfloat16)
            operations.append(distributed.P2POp(distributed.irecv, got_next, following, self.group))
        if from_prev:
            got_prev = torch.empty(self.shape, device=self.device, dtype=torch.bfloat16)
            got_prev.requires_grad_()
            receive = distributed.P2POp(distributed.irecv, got_prev.detach(), prev, self.group)
            operations.append(receive)
        if operations:
            for work in distributed.batch_isend_irecv(operations):
                work.wait()
        return got_prev, got_next

    def begin(self) -> None:
        """Forget the last step."""
        self.inputs: list[list[Any]] = [[] for _ in self.stages]
        self.outputs: list[list[tuple[Any, Any]]] = [[] for _ in self.stages]
        self.gradients: list[list[Any]] = [[] for _ in self.stages]
        self.losses: list[Any] = []
        self.done = 0

    def forward(self, chunk: int) -> Any:
        """Run the next microbatch of a chunk. Return what goes to the next stage."""
        if self.is_first(chunk):
            states = self.data + 0.01 * self.done
            self.done += 1
        else:
            states = self.inputs[chunk].pop(0)
        out = self.stages[chunk](states)
        if self.is_last(chunk):
            out = out.float().pow(2).mean()
            self.losses.append(out.detach())
        self.outputs[chunk].append((states, out))
        return None if self.is_last(chunk) else out.detach()

    def backward(self, chunk: int) -> Any:
        """Run the next microbatch of a chunk backwards. Return what goes to the stage before."""
        states, out = self.outputs[chunk].pop(0)
        out.backward(None if self.is_last(chunk) else self.gradients[chunk].pop(0))
        return None if self.is_first(chunk) else states.grad

    def run_1f1b(self) -> None:
        """One forward, one backward: a stage for each rank."""
        count = self.args.microbatches
        ahead = min(count, self.ranks - self.rank - 1)
        first, last = self.is_first(0), self.is_last(0)
        self.begin()
        for _ in range(ahead):
            self.inputs[0].append(self.exchange(from_prev=not first)[0])
            self.exchange(to_next=self.forward(0))
        if count > ahead:
            self.inputs[0].append(self.exchange(from_prev=not first)[0])
        for step in range(count - ahead):
            self.gradients[0].append(self.exchange(to_next=self.forward(0), from_next=not last)[1])
            more = step + 1 < count - ahead
            back = self.backward(0)
            got = self.exchange(to_prev=back, from_prev=more and not first)[0]
            if more:
                self.inputs[0].append(got)
        for _ in range(ahead):
            self.gradients[0].append(self.exchange(from_next=not last)[1])
            self.exchange(to_prev=self.backward(0))

    def chunk_of(self, step: int) -> int:
        return step % (self.ranks * self.chunks) // self.ranks

    def run_interleaved(self) -> None:
        """Several stages for each rank; `microbatches` is a multiple of the ranks."""
        total = self.args.microbatches * self.chunks
        ahead = min(total, 2 * (self.ranks - self.rank - 1) + (self.chunks - 1) * self.ranks)
        last_chunk = self.chunks - 1
        first_rank, last_rank = self.rank == 0, self.rank == self.ranks - 1
        self.begin()

        def back_chunk(step: int) -> int:
            return last_chunk - self.chunk_of(step)

        def keep(lists: list[list[Any]], chunk: int, got: Any) -> None:
            if got is not None:
                lists[chunk].append(got)

        keep(self.inputs, 0, self.exchange(from_prev=not first_rank)[0])
        for step in range(ahead):
            out = self.forward(self.chunk_of(step))
            chunk = self.chunk_of(step + 1)
            wanted = step + 1 < total and not self.is_first(chunk)
            turns = step + 1 == ahead and ahead < total
            got, gradient = self.exchange(
                to_next=out, from_prev=wanted, from_next=turns and not last_rank
            )
            keep(self.inputs, chunk, got)
            keep(self.gradients, last_chunk, gradient)
        for step in range(total - ahead):
            out = self.forward(self.chunk_of(step + ahead))
            back = self.backward(back_chunk(step))
            # What the neighbour sends now: the first and the last rank are apart by the others.
            shift = self.ranks - 1
            if first_rank:
                chunk = self.chunk_of(step + ahead - shift) + 1
            else:
                chunk = self.chunk_of(step + ahead + 1)
            behind = back_chunk(step - shift) - 1 if last_rank else back_chunk(step + 1)
            got, gradient = self.exchange(
                to_prev=back,
                to_next=out,
                from_prev=chunk <= last_chunk and step + 1 < total - ahead,
                from_next=behind >= 0,
            )
            keep(self.inputs, chunk, got)
            keep(self.gradients, behind, gradient)
        if ahead == total:
            keep(self.gradients, last_chunk, self.exchange(from_next=not last_rank)[1])
        for step in range(total - ahead, total):
            back = self.backward(back_chunk(step))
            chunk = back_chunk(step + 1)
            wanted = step + 1 < total and not (last_rank and chunk == last_chunk)
            keep(self.gradients, chunk, self.exchange(to_prev=back, from_next=wanted)[1])


def train(args: argparse.Namespace, device: Any) -> dict[str, Any]:
    pipeline = Pipeline(args, device)
    run = pipeline.run_1f1b if args.chunks == 1 else pipeline.run_interleaved
    parameters = [each for stage in pipeline.stages for each in stage.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    losses: list[float] = []

    def one() -> None:
        run()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.extend(loss.item() for loss in pipeline.losses)

    found = timed(args, device, lambda _: one())
    sums = [each.detach().float().sum().item() for each in parameters]
    return found | {
        "losses": losses + sums,
        "parameters": sum(each.numel() for each in parameters),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks-per-gpu", type=int, required=True)
    torch.use_deterministic_algorithms(True)
    names = ("hidden", "layers", "length", "microbatch", "microbatches", "chunks", "tensor")
    run_rank(parser, names, train, eager=False)


if __name__ == "__main__":
    main()
