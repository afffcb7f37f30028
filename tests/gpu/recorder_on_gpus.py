# SPDX-License-Identifier: Apache-2.0
"""The recorder in unmodified PyTorch programs: its counts, call for call.

    python tests/gpu/recorder_on_gpus.py --recorder libnccl-profiler-nccltune.so \
        [--nccl libnccl.so.2] [--own-gpus] [--ranks 2] \
        [--parts ddp,fsdp,pipeline,graph,megatron,times] [-o results.json]

Needs PyTorch with CUDA and one GPU, which the ranks share under NVIDIA's MPS; with --own-gpus a GPU
for each rank, as one node. Ranks that share a GPU are nodes of their own (NCCL_HOSTID).
--nccl is preloaded in place of PyTorch's NCCL.

ddp, fsdp  a training with DistributedDataParallel and with fully_shard
pipeline   two stages that exchange activations and gradients by batch_isend_irecv, isend, irecv,
           send and recv, and an all-to-all; with two ranks alone
graph      an all-reduce that is captured into a CUDA graph and replayed; nothing is judged but the
           calls
megatron   a GPT of megatron-core with a pipeline stage a rank; needs megatron-core
times      calls between CUDA events of the program, each of them timed (NCCLTUNE_RECORD_TIMES=1):
           what the recorder states is within what the program sees, and is printed beside it

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

PARTS = ["ddp", "fsdp", "pipeline", "graph", "megatron", "times"]
STEPS, MICROBATCHES, REPLAYS, LIMIT_S = 5, 4, 10, 240.0
TIMED, RESOLUTION_US = 30, 1.0
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

    def calls_of(self, count: int) -> dict[str, Any]:
        """Return calls of `count` elements of a rank, by the functions of NCCL that they are."""
        torch, dist, ranks = self.torch, self.dist, self.dist.get_world_size()
        whole = torch.ones(count * ranks, device=self.device)
        part, into = whole[:count].clone(), torch.empty_like(whole[:count])

        def exchange() -> None:
            sent = dist.P2POp(dist.isend, part, (self.rank + 1) % ranks)
            received = dist.P2POp(dist.irecv, into, (self.rank - 1) % ranks)
            for work in dist.batch_isend_irecv([sent, received]):
                work.wait()

        return {
            "AllReduce": lambda: dist.all_reduce(part),
            "AllGather": lambda: dist.all_gather_into_tensor(whole, part),
            "ReduceScatter": lambda: dist.reduce_scatter_tensor(into, whole),
            "Broadcast": lambda: dist.broadcast(part, 0),
            "Send Recv": exchange,
        }

    def times(self) -> None:
        """Time each call by events of the program, behind a kernel that hides the CPU's part."""
        cuda = self.torch.cuda
        self.facts["times"] = []
        for count in (1 << 14, 1 << 18, 1 << 24):
            for functions, call in self.calls_of(count).items():
                pairs = []
                for _ in range(TIMED):
                    pairs.append([cuda.Event(enable_timing=True) for _ in range(2)])
                    cuda._sleep(2_000_000)
                    pairs[-1][0].record()
                    call()
                    pairs[-1][1].record()
                    cuda.synchronize()  # the recorder follows 16 kernels at once
                us = sum(1e3 * first.elapsed_time(last) for first, last in pairs)
                self.facts["times"].append([functions, 4 * count, us])
                for function in functions.split():
                    self.known[function] += TIMED

    def megatron(self) -> None:
        """A GPT of megatron-core, a stage a rank (1F1B), with tied embeddings."""
        from clients_rank import megatron

        ranks = self.dist.get_world_size()
        args = argparse.Namespace(
            pipeline=ranks, layers=2 * ranks, hidden=256, length=128, microbatch=1,
            microbatches=MICROBATCHES,
        )  # fmt: skip
        _, step = megatron(args, self.device, tied=True)
        for _ in range(STEPS):
            step()
        is_end = self.rank in (0, ranks - 1)
        self.known["Send"] = self.known["Recv"] = STEPS * MICROBATCHES * (1 if is_end else 2)
        # The tied embeddings: their weights once, their gradients in each step.
        self.known["AllReduce"] = (1 + STEPS) * is_end


# All ranks ----------------------------------------------------------------------------------------


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


def timed(path: Path, seen: list[tuple[str, int, float]]) -> tuple[list[str], list[str]]:
    """Return what is wrong with the times of a record, and its means beside those of the program.

    The events of the recorder are between those of the program.
    """
    record, wrong, lines = json.loads(path.read_text()), [], []
    for functions, size, seen_us in seen:
        number = total_us = 0.0
        for row in (row for item in record["communicators"] for row in item["tasks"]):
            if row["function"] in functions.split() and row["bytes"] == size and "timed" in row:
                number += sum(count for _, count in row["timed"]["bins"])
                total_us += row["timed"]["total_ns"] / 1e3
        what = f"{functions} of {size} B"
        calls = TIMED * len(functions.split())
        # NCCL reports no task of a broadcast since 2.29.
        if number != calls and not (functions == "Broadcast" and number == 0):
            wrong.append(f"{what}: {number:.0f} of {calls} calls have a time")
        if total_us > seen_us + RESOLUTION_US * TIMED:
            wrong.append(f"{what}: longer than between the program's events")
        lines.append(f"{what}: {total_us / TIMED:.2f} us, program {seen_us / TIMED:.2f} us")
    wrong += [f"untimed: {record['untimed']}"] if "untimed" in record else []
    return wrong, lines


class Machine:
    """How ranks are started."""

    def __init__(self, args: argparse.Namespace, mps: shared_gpu.Mps) -> None:
        self.args, self.mps = args, mps

    def environment(self, part: str, rank: int, port: int, folder: Path) -> dict[str, str]:
        found = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
        found |= self.mps.environment | common.of_rank(rank, self.args.ranks, port)
        if not self.args.own_gpus:
            ranks = self.args.ranks
            found |= {"LOCAL_RANK": "0", **shared_gpu.node_variables(rank, ranks, ranks)}
        if self.args.nccl:
            found["LD_PRELOAD"] = str(self.args.nccl)
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}
        found["NCCL_DEBUG_FILE"] = str(folder / "log.%p")
        found["NCCL_PROFILER_PLUGIN"] = str(self.args.recorder)
        found["NCCLTUNE_RECORD"] = str(folder / "records")
        found["NCCLTUNE_RECORD_TIMES"] = "1" if part == "times" else "0"
        return found

    def run(self, part: str, folder: Path) -> list[dict[str, Any]]:
        """Run all ranks, and return what they state. Raises RuntimeError if one fails."""
        port, numbers = common.free_port(), range(self.args.ranks)
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank in numbers:
                command = [sys.executable, __file__, "--rank-of", part, "-o", f"{folder}/{rank}"]
                output = stack.enter_context((folder / f"output.{rank}").open("w"))
                environment = self.environment(part, rank, port, folder)
                pipes = {"stdout": output, "stderr": output}
                ranks.append(stack.enter_context(common.session(command, environment, **pipes)))
            if not common.all_ended(ranks, LIMIT_S):
                text = "".join((folder / f"output.{rank}").read_text()[-1500:] for rank in numbers)
                raise RuntimeError(f"exit statuses {[rank.poll() for rank in ranks]}: {text}")
        return [json.loads((folder / str(rank)).read_text()) for rank in numbers]


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
            found, times = timed(path, stated.get("times", []))
            wrong += [f"rank {rank}: {text}" for text in found]
            facts[f"rank {rank}"] = {
                "times": times,
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
    parser.add_argument("--ranks", type=int, default=2)
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
