# SPDX-License-Identifier: Apache-2.0
"""One process of net_training.py: a BERT-Large-sized model under DistributedDataParallel.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them. Writes to one JSON file what it
measured. Data are random tokens, the same in every run: 15 of 100 are to be guessed.
"""

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import torch
from sendrecv_pipeline_rank import timed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HIDDEN_OF_HEAD = 64


class Bert(nn.Module):
    """Embeddings, encoder, and the head that guesses tokens, its matrix that of the embeddings."""

    def __init__(self, vocabulary: int, hidden: int, layers: int, device: str) -> None:
        super().__init__()
        place = {"device": device}
        self.tokens = nn.Embedding(vocabulary, hidden, **place)
        self.positions = nn.Embedding(512, hidden, **place)
        self.norm = nn.LayerNorm(hidden, **place)
        self.drop = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(
            hidden,
            hidden // HIDDEN_OF_HEAD,
            4 * hidden,
            dropout=0.1,
            activation="gelu",
            batch_first=True,
            **place,
        )
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.transform = nn.Sequential(
            nn.Linear(hidden, hidden, **place), nn.GELU(), nn.LayerNorm(hidden, **place)
        )
        self.head = nn.Linear(hidden, vocabulary, **place)
        self.head.weight = self.tokens.weight
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Any) -> Any:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.drop(self.norm(self.tokens(tokens) + self.positions(places)))
        return self.head(self.transform(self.encoder(states)))


def train(args: argparse.Namespace, device: str) -> dict[str, Any]:
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    model: Any = Bert(args.vocabulary, args.hidden, args.layers, device)
    if args.gradients == "bf16":
        model = model.to(torch.bfloat16)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    # As a user has it: buckets of 25 MiB, which are reduced while the rest is computed.
    model = DistributedDataParallel(model, device_ids=[device] if args.device == "cuda" else None)
    fused = {"fused": True} if args.device == "cuda" else {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, **fused)
    guess = nn.CrossEntropyLoss()
    torch.manual_seed(100 + rank)
    draw = torch.Generator().manual_seed(200 + rank)
    shape = (args.warm_up + args.steps, args.batch, args.sequence)
    batches = torch.randint(0, args.vocabulary, shape, generator=draw).to(device)
    asked = (torch.rand(shape, generator=draw) < 0.15).to(device)
    labels = batches.masked_fill(~asked, guess.ignore_index)
    inputs = batches.masked_fill(asked, 0)
    mixed = args.gradients == "fp32" and args.device == "cuda"
    narrow = torch.autocast(args.device, dtype=torch.bfloat16, enabled=mixed)
    losses = []

    def one(step: int) -> None:
        with narrow:
            guesses = model(inputs[step])
        loss = guess(guesses.flatten(0, 1).float(), labels[step].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        # Stays on the GPU: a look at it would make every step wait.
        losses.append(loss.detach())

    found = timed(args, torch.device(device), one)
    return found | {"losses": torch.stack(losses).tolist(), "parameters": parameters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "hidden", "vocabulary", "batch", "sequence", "steps", "warm-up"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--gradients", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--backend", choices=["nccl", "gloo"], required=True)
    parser.add_argument("--seconds", type=int, required=True, help="then it ends itself")
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    signal.alarm(args.seconds)
    device = "cpu"
    if args.device == "cuda":
        # With fewer GPUs than ranks some share one, best under NVIDIA's MPS.
        device = f"cuda:{int(os.environ['RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(args.backend)
    report = train(args, device)
    args.report.write_text(json.dumps(report))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
