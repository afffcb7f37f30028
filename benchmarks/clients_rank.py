# SPDX-License-Identifier: Apache-2.0
"""One process of clients.py: a stock client of NCCL trains a model of random weights and data.

RANK and the like as torchrun sets them. Writes to one JSON file what it measured.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import torch
from sendrecv_pipeline_rank import kind_of, run_rank, timed
from torch import distributed, nn

HIDDEN_OF_HEAD = 128
VOCABULARY = 8192
PROFILED = 3
Spans = list[tuple[float, float]]


def plain(args: argparse.Namespace, device: Any) -> tuple[Any, Callable[[], Any]]:
    """Return a model of PyTorch under DDP or FSDP2, and a step that returns its loss."""
    layers = [
        nn.TransformerEncoderLayer(
            args.hidden, args.hidden // HIDDEN_OF_HEAD, 4 * args.hidden, dropout=0.0,
            batch_first=True, norm_first=True, device=device,
        )
        for _ in range(args.layers)
    ]  # fmt: skip
    model: Any = nn.Sequential(*layers)
    if args.job == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    torch.manual_seed(100 + distributed.get_rank())
    batch = torch.randn(args.microbatch, args.length, args.hidden, device=device)

    def step() -> Any:
        with torch.autocast(device.type, torch.bfloat16, enabled=args.job == "ddp"):
            loss = (model(batch) - batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return [loss.detach()]

    return model, step


def megatron(
    args: argparse.Namespace, device: Any, *, tied: bool = False
) -> tuple[Any, Callable[[], Any]]:
    """Return a GPT of megatron-core (1F1B, local layers), and a step that returns its losses.

    If `tied`, first and last stage share their embeddings.
    """
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.transformer_config import TransformerConfig

    cut = {
        "pipeline_model_parallel_size": args.pipeline,
        "tensor_model_parallel_size": distributed.get_world_size() // args.pipeline,
    }
    parallel_state.initialize_model_parallel(**cut, create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=args.layers, hidden_size=args.hidden,
        num_attention_heads=args.hidden // HIDDEN_OF_HEAD, bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
        finalize_model_grads_func=finalize_model_grads, masked_softmax_fusion=False,
        gradient_accumulation_fusion=False, hidden_dropout=0.0, attention_dropout=0.0, **cut,
    )  # fmt: skip
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    model = GPTModel(
        config, get_gpt_layer_local_spec(), VOCABULARY, args.length,
        pre_process=first, post_process=last, share_embeddings_and_output_weights=tied,
    ).to(device, torch.bfloat16)  # fmt: skip
    facts = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
    parallel = DistributedDataParallel(config, facts, model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(7)
    tokens = torch.randint(VOCABULARY, (args.microbatch, args.length), device=device)
    places = torch.arange(args.length, device=device)[None].expand_as(tokens)
    mask = torch.ones(1, 1, args.length, args.length, dtype=torch.bool, device=device).triu(1)

    def forward(_data: Any, stage: Any) -> Any:
        def loss_of(losses: Any) -> Any:
            loss = losses.float().mean()
            return loss, {"loss": loss.detach()}

        return stage(tokens, places, mask, labels=tokens), loss_of

    run = get_forward_backward_func()

    def step() -> Any:
        parallel.zero_grad_buffer()
        found = run(
            forward_step_func=forward, data_iterator=None, model=parallel,
            num_microbatches=args.microbatches, seq_length=args.length,
            micro_batch_size=args.microbatch,
        )  # fmt: skip
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad.to(parameter.dtype)
        optimizer.step()
        # Hooks add to what is there.
        optimizer.zero_grad(set_to_none=True)
        return [each["loss"] for each in found]

    return model, step


def train(args: argparse.Namespace, device: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    model, step = (megatron if args.job == "megatron" else plain)(args, device)
    losses: list[Any] = []
    found = timed(args, device, lambda _: losses.extend(step()))
    return found | {
        "step_ms": step_ms(step) if device.type == "cuda" else {},
        "losses": torch.stack(losses).tolist() if losses else [],
        "parameters": sum(each.numel() for each in model.parameters()),
        "megatron-core": metadata.version("megatron-core") if args.job == "megatron" else None,
    }


def step_ms(step: Callable[[], Any]) -> dict[str, float]:
    """Return of a step, in ms: its length, how long the GPU communicates, how long nothing else."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        start = time.perf_counter()
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
        whole = (time.perf_counter() - start) * 1e3
    spans: dict[bool, Spans] = {True: [], False: []}
    for event in seen.events():
        if event.device_type == DeviceType.CUDA:
            moves = kind_of(event.name) in ("kernels of NCCL", "copies to peers")
            spans[moves].append((event.time_range.start / 1e3, event.time_range.end / 1e3))
    both, other = length(spans[True] + spans[False]), length(spans[False])
    found = {"step": whole, "communication": length(spans[True]), "alone": both - other}
    return {name: value / PROFILED for name, value in found.items()}


def length(spans: Iterable[tuple[float, float]]) -> float:
    """Of the union of all spans."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=["ddp", "fsdp", "megatron"], required=True)
    names = ("hidden", "layers", "length", "microbatch", "microbatches", "pipeline")
    run_rank(parser, names, train)


if __name__ == "__main__":
    main()
