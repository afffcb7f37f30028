# SPDX-License-Identifier: Apache-2.0
"""The recorder in unmodified PyTorch programs: its counts, call for call.

    python tests/gpu/recorder_on_gpus.py --recorder libnccl-profiler-nccltune.so \
        [--nccl libnccl.so.2] [--own-gpus] [--parts ddp,fsdp,pipeline,graph,megatron] \
        [-o results.json]

Needs PyTorch with CUDA and one GPU, which two ranks share under NVIDIA's MPS; with --own-gpus two
GPUs, a rank on each, as one node. Ranks that share a GPU are nodes of their own (NCCL_HOSTID).
--nccl is preloaded in place of PyTorch's NCCL.

ddp, fsdp  a training with DistributedDataParallel and with fully_shard
pipeline   two stages that exchange activations and gradients by batch_isend_irecv, isend, irecv,
           send and recv, and an all-to-all
graph      an all-reduce that is captured into a CUDA graph and replayed; nothing is judged but the
           calls
megatron   a GPT of megatron-core with two pipeline stages; needs megatron-core

The counts of each part are compared with two witnesses: the calls that NCCL itself logs in the
same process (NCCL_DEBUG_SUBSYS=COLL), all of them, and those that the program knows it makes, by
function. Exit status 1 if any differs.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
import shared_gpu

PARTS = ["ddp", "fsdp", "pipeline", "graph", "megatron"]
STEPS, MICROBATCHES, REPLAYS, LIMIT_S = 5, 4, 10, 240.0
CALL = re.compile(
    r"NCCL INFO (\w+): opCount \w+ sendbuff \S+ recvbuff \S+ count (\d+) datatype (\d+) "
    r".*\[nranks=(\d+)\]"
)
TYPE_BYTES = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1]
"""By NCCL's number of a data type."""
Calls = Counter[tuple[str, int]]
"""Number of calls by function and bytes of a rank."""


# One rank -----------------------------------------------------------------------------------------


class Rank:
    """A rank of one part. `known` are calls that the program itself makes, by function."""

    def __init__(self, part: str, output: Path) -> None:
        import torch
        from torch import distributed as dist

        self.torch, self.dist, self.part, self.output = torch, dist, part, output
        self.rank = int(os.environ["RANK"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device)
        self.known: Counter[str] = Counter()
        self.facts: dict[str, Any] = {"pid": os.getpid(), "nccl": torch.cuda.nccl.version()}

    def run(self) -> None:
        getattr(self, self.part)()
        self.torch.cuda.synchronize()
        self.facts["known"] = self.known
        self.dist.destroy_process_group()
        self.output.write_text(json.dumps(self.facts))

    def model(self) -> Any:
        nn = self.torch.nn
        layers = [nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
                  for _ in range(4)]  # fmt: skip
        return nn.Sequential(*layers).to(self.device)

    def train(self, model: Any) -> None:
        optimizer = self.torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            loss = model(self.torch.randn(32, 512, device=self.device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            self.dist.all_reduce(loss.detach())
            self.known["AllReduce"] += 1

    def ddp(self) -> None:
        parallel = self.torch.nn.parallel.DistributedDataParallel
        # Buckets of 1 MiB: several all-reduces a step, at least one.
        self.train(parallel(self.model(), device_ids=[self.device.index], bucket_cap_mb=1))
        self.known["AllReduce"] += STEPS

    def fsdp(self) -> None:
        from torch.distributed.fsdp import fully_shard

        model = self.model()
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        self.train(model)
        # Each layer is gathered at least once, and its gradient is reduced once.
        self.known["AllGather"] += STEPS * len(model)
        self.known["ReduceScatter"] += STEPS * len(model)

    def pipeline(self) -> None:
        dist, peer = self.dist, 1 - self.rank
        out = self.torch.ones(1 << 20, device=self.device)
        into = self.torch.empty_like(out)
        for step in range(STEPS):
            for batch in range(MICROBATCHES):
                size = (1 << 12) << 2 * batch
                if step % 2:
                    pair = [dist.P2POp(dist.isend, out[:size], peer),
                            dist.P2POp(dist.irecv, into[:size], peer)]  # fmt: skip
                    for work in dist.batch_isend_irecv(pair):
                        work.wait()
                elif self.rank == 0:
                    dist.send(out[:size], peer)
                    dist.irecv(into[:size], peer).wait()
                else:
                    dist.recv(into[:size], peer)
                    dist.isend(out[:size], peer).wait()
                self.known["Send"] += 1
                self.known["Recv"] += 1
        dist.all_to_all_single(into, out)  # a send and a receive for each rank, itself included
        self.known["Send"] += 2
        self.known["Recv"] += 2

    def graph(self) -> None:
        torch = self.torch
        value = torch.ones(1 << 14, device=self.device)
        self.dist.all_reduce(value)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.dist.all_reduce(value)
        for _ in range(REPLAYS):
            graph.replay()
        self.known["AllReduce"] += 2

    def megatron(self) -> None:
        """A GPT of megatron-core with two stages (1F1B) and tied embeddings."""
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

        torch, length, vocabulary = self.torch, 128, 1024
        parallel_state.initialize_model_parallel(
            pipeline_model_parallel_size=2, create_gloo_process_groups=False
        )
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        config = TransformerConfig(
            num_layers=4, hidden_size=256, num_attention_heads=4, bf16=True,
            params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16,
            pipeline_model_parallel_size=2, finalize_model_grads_func=finalize_model_grads,
            masked_softmax_fusion=False, gradient_accumulation_fusion=False,
        )  # fmt: skip
        model = GPTModel(
            config, get_gpt_layer_local_spec(), vocabulary, length,
            pre_process=self.rank == 0, post_process=self.rank == 1,
            share_embeddings_and_output_weights=True,
        ).to(self.device, torch.bfloat16)  # fmt: skip
        facts = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        parallel = DistributedDataParallel(config, facts, model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        tokens = torch.randint(vocabulary, (1, length), device=self.device)
        places = torch.arange(length, device=self.device)[None]
        mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=self.device).triu(1)

        def forward(_data: Any, stage: Any) -> Any:
            def loss_of(losses: Any) -> Any:
                return losses.float().mean(), {}

            return stage(tokens, places, mask, labels=tokens), loss_of

        run = get_forward_backward_func()
        for _ in range(STEPS):
            parallel.zero_grad_buffer()
            run(
                forward_step_func=forward, data_iterator=None, model=parallel,
                num_microbatches=MICROBATCHES, seq_length=length, micro_batch_size=1,
            )  # fmt: skip
            optimizer.step()
        self.known["Send"] = self.known["Recv"] = STEPS * MICROBATCHES
        # The tied embeddings: their weights once, their gradients in each step.
        self.known["AllReduce"] = 1 + STEPS


# Both ranks ---------------------------------------------------------------------------------------


def logged(path: Path) -> Calls:
    """Return the calls in NCCL's log. NCCL reports no empty collective and no single rank."""
    calls: Calls = Counter()
    for name, count, dtype, ranks in CALL.findall(path.read_text(errors="replace")):
        if name == "AlltoAll":  # to the profiler, sends and receives
            for half in ("Send", "Recv"):
                calls[half, int(count) * TYPE_BYTES[int(dtype)]] += int(ranks)
        elif name in ("Send", "Recv") or (int(count) and int(ranks) > 1):
            calls[name, int(count) * TYPE_BYTES[int(dtype)]] += 1
    return calls


def recorded(path: Path, rows: str) -> Calls:
    """Return the rows of a file of the recorder. Raises ValueError if it lost or rounded any."""
    record, calls = json.loads(path.read_text()), Counter[tuple[str, int]]()
    for communicator in record["communicators"]:
        if communicator["lost_calls"]:
            raise ValueError(f"{communicator['lost_calls']} calls are lost")
        for row in communicator[rows]:
            calls[row["function"], row["bytes"]] += row["count"]
    return calls


class Machine:
    """How ranks are started."""

    def __init__(self, args: argparse.Namespace, mps: shared_gpu.Mps) -> None:
        self.args, self.mps = args, mps

    def environment(self, rank: int, port: int, folder: Path) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
        found |= self.mps.environment | common.of_rank(rank, 2, port)
        if not self.args.own_gpus:
            found |= {"LOCAL_RANK": "0", **shared_gpu.node_variables(rank, 2, 2)}
        if self.args.nccl:
            found["LD_PRELOAD"] = str(self.args.nccl)
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}
        found["NCCL_DEBUG_FILE"] = str(folder / "log.%p")
        found["NCCL_PROFILER_PLUGIN"] = str(self.args.recorder)
        found["NCCLTUNE_RECORD"] = str(folder / "records")
        return found

    def run(self, part: str, folder: Path) -> list[dict[str, Any]]:
        """Run both ranks, and return what they state. Raises RuntimeError if one fails."""
        port = common.free_port()
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank in (0, 1):
                command = [sys.executable, __file__, "--rank-of", part, "-o", f"{folder}/{rank}"]
                output = stack.enter_context((folder / f"output.{rank}").open("w"))
                environment = self.environment(rank, port, folder)
                pipes = {"stdout": output, "stderr": output}
                ranks.append(stack.enter_context(common.session(command, environment, **pipes)))
            if not common.all_ended(ranks, LIMIT_S):
                text = "".join((folder / f"output.{rank}").read_text()[-1500:] for rank in (0, 1))
                raise RuntimeError(f"exit statuses {[rank.poll() for rank in ranks]}: {text}")
        return [json.loads((folder / str(rank)).read_text()) for rank in (0, 1)]


def compare(machine: Machine, part: str) -> dict[str, Any]:
    """Return what differs between the recorder and both witnesses, and the sums."""
    wrong, facts = [], {}
    with tempfile.TemporaryDirectory(prefix="recorder-") as name:
        folder = Path(name)
        for rank, stated in enumerate(machine.run(part, folder)):
            pid = stated["pid"]
            (path,) = (folder / "records").glob(f"*-{pid}.json")
            witness, calls = logged(folder / f"log.{pid}"), recorded(path, "calls")
            record = json.loads(path.read_text())
            has_calls = record["communicators"][0]["interface"] >= 5
            if not has_calls:
                calls = recorded(path, "tasks")
            sums: Counter[str] = Counter()
            for (function, _), count in calls.items():
                sums[function] += count
            if calls != witness:
                wrong.append(f"rank {rank}: only NCCL's log {witness - calls}, only the recorder "
                             f"{calls - witness}")  # fmt: skip
            exact = part in ("pipeline", "megatron")
            for function, count in stated["known"].items():
                if sums[function] < count or (exact and sums[function] != count):
                    wrong.append(f"rank {rank}: {sums[function]} {function}, program {count}")
            if not record["ended"]:
                wrong.append(f"rank {rank}: not ended")
            facts[f"rank {rank}"] = {
                "nccl": record.get("nccl"),
                "calls": sums,
                "sizes": len(calls),
                "tasks": sum(recorded(path, "tasks").values()),
                "bytes_of_file": path.stat().st_size,
            }
    return {"part": part, "wrong": wrong, **facts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recorder", type=Path)
    parser.add_argument("--nccl", type=Path, help="preloaded")
    parser.add_argument("--own-gpus", action="store_true", help="a GPU for each rank, one node")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rank-of", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if args.rank_of:
        Rank(args.rank_of, args.output).run()
        return 0
    if args.recorder is None or not args.recorder.is_file():
        parser.error("--recorder: no such file")
    args.recorder = args.recorder.resolve()
    common.exit_on_term()
    results = []
    with shared_gpu.Mps(used=not args.own_gpus) as mps:
        machine = Machine(args, mps)
        for part in args.parts.split(","):
            try:
                found = compare(machine, part)
            except (OSError, RuntimeError, ValueError, KeyError) as error:
                found = {"part": part, "wrong": [f"{type(error).__name__}: {error}"]}
                mps.renew()
            results.append(found)
            print(json.dumps(found, indent=1), flush=True)
    for found in results:
        print(f"{found['part']:9} {'FAILED' if found['wrong'] else 'passed'}", flush=True)
    if args.output:
        args.output.write_text(json.dumps({"machine": common.machine(), "parts": results}))
    return int(any(found["wrong"] for found in results))


if __name__ == "__main__":
    sys.exit(main())
