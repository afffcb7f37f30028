# SPDX-License-Identifier: Apache-2.0
"""The tuner plugin under a real NCCL, on the GPUs of one machine.

    python tests/gpu/tuner_on_gpus.py --plugin libnccl-tuner-nccltune.so --nccl libnccl.so.2 \
        --config tuner.conf [--emulate-nodes 4] [--ranks-per-gpu N [--no-mps]] [-o results.json]

Needs PyTorch (for buffers and streams) and at least 2 GPUs, or one with --ranks-per-gpu; NCCL is
called through ctypes, so any libnccl can be named. It is preloaded, so that PyTorch loads no other.
Three things are checked, and a failed check exits with 1:

neutral   without a configuration every call runs what it runs without the plugin (NCCL's own
          choice lines are compared)
rules     with the configuration, each call inside a rule runs that choice, each call outside runs
          what it runs without the plugin, and every result is right
gain      default and rules alternating inside one communicator (the plugin's control interface
          switches), median of the slowest rank's time

With --emulate-nodes the processes pretend to be on so many nodes (NCCL_HOSTID) and traffic between
these goes over sockets on loopback. Ranks that share a GPU are a node each unless it is given.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
import shared_gpu
from bench_processes import TUNED, calls_in

LIMIT_S = 240.0
FLOAT32, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


class Nccl:
    """The few calls needed, through ctypes."""

    def __init__(self, path: str) -> None:
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p

    def check(self, code: int) -> None:
        if code:
            raise RuntimeError(self.lib.ncclGetErrorString(code).decode())

    def version(self) -> str:
        number = ctypes.c_int()
        self.check(self.lib.ncclGetVersion(ctypes.byref(number)))
        return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"

    def run(self, name: str, send: int, recv: int, size: int, ranks: int, comm, stream) -> None:
        """One collective whose size as the tuner counts it is `size` bytes of float32."""
        pointer = ctypes.c_void_p
        args = [pointer(send), pointer(recv)]
        count = size // 4
        if name in ("allgather", "reducescatter"):
            count //= ranks
        args.append(ctypes.c_size_t(count))
        args.append(FLOAT32)
        if name in ("reduce", "reducescatter", "allreduce"):
            args.append(SUM)
        if name in ("broadcast", "reduce"):
            args.append(0)
        function = {
            "allreduce": "ncclAllReduce",
            "allgather": "ncclAllGather",
            "reducescatter": "ncclReduceScatter",
            "broadcast": "ncclBroadcast",
            "reduce": "ncclReduce",
        }[name]
        self.check(getattr(self.lib, function)(*args, comm, pointer(stream)))


def rank_main(args: argparse.Namespace) -> None:
    """One rank: init, warm up, check results, time every point, write what was seen."""
    import torch

    torch.cuda.set_device(args.rank // args.ranks_per_gpu)
    nccl = Nccl(args.nccl)
    folder = Path(args.folder)
    unique = UniqueId()
    if args.rank == 0:
        nccl.check(nccl.lib.ncclGetUniqueId(ctypes.byref(unique)))
        (folder / "id.tmp").write_bytes(bytes(memoryview(unique)))
        (folder / "id.tmp").rename(folder / "id")
    else:
        deadline = time.monotonic() + 60
        while not (folder / "id").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("rank 0 never wrote the id")
            time.sleep(0.01)
        ctypes.memmove(ctypes.byref(unique), (folder / "id").read_bytes(), 128)
    comm = ctypes.c_void_p()
    nccl.check(nccl.lib.ncclCommInitRank(ctypes.byref(comm), args.ranks, unique, args.rank))
    stream = torch.cuda.Stream()
    largest = max(args.sizes)
    send = torch.ones(largest // 4, dtype=torch.float32, device="cuda")
    recv = torch.zeros(largest // 4, dtype=torch.float32, device="cuda")
    control = ctypes.CDLL(args.plugin) if args.switch else None
    variants = ["default", "tuned"] if control else ["only"]
    result = {"version": nccl.version(), "times": [], "wrong": []}
    for name in args.collectives:
        for size in args.sizes:
            for variant in variants:
                if control is not None:
                    if variant == "default":
                        assert control.nccltune_tuner_force(-1, -1, -1, -1, ctypes.c_size_t(0)) == 0
                    else:
                        assert control.nccltune_tuner_release(-1) == 0
                for _ in range(2):
                    nccl.run(
                        name,
                        send.data_ptr(),
                        recv.data_ptr(),
                        size,
                        args.ranks,
                        comm,
                        stream.cuda_stream,
                    )
                stream.synchronize()
                count = size // 4 // (args.ranks if name == "reducescatter" else 1)
                expected = 1.0 if name in ("broadcast", "allgather") else float(args.ranks)
                if (name != "reduce" or args.rank == 0) and not bool(
                    (recv[:count] == expected).all()
                ):
                    result["wrong"].append([name, size, variant])
                recv.zero_()
                torch.cuda.synchronize()
            iterations = 20 if size <= 1 << 20 else 5
            for round_ in range(args.rounds):
                for variant in variants if round_ % 2 == 0 else variants[::-1]:
                    if control is not None:
                        if variant == "default":
                            control.nccltune_tuner_force(-1, -1, -1, -1, ctypes.c_size_t(0))
                        else:
                            control.nccltune_tuner_release(-1)
                    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    nccl.run(
                        name,
                        send.data_ptr(),
                        recv.data_ptr(),
                        size,
                        args.ranks,
                        comm,
                        stream.cuda_stream,
                    )
                    start.record(stream)
                    for _ in range(iterations):
                        nccl.run(
                            name,
                            send.data_ptr(),
                            recv.data_ptr(),
                            size,
                            args.ranks,
                            comm,
                            stream.cuda_stream,
                        )
                    end.record(stream)
                    end.synchronize()
                    result["times"].append(
                        [name, size, variant, round_, 1e3 * start.elapsed_time(end) / iterations]
                    )
    stream.synchronize()
    nccl.check(nccl.lib.ncclCommDestroy(comm))
    (folder / f"rank{args.rank}.json").write_text(json.dumps(result))


def launch(
    options: argparse.Namespace, environment: dict[str, str], *, rounds: int, switch: bool
) -> tuple[list[dict], str]:
    """Run all ranks; their results and rank 0's NCCL log."""
    ranks, nodes = options.ranks, options.emulate_nodes
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        processes = []
        for rank in range(ranks):
            env = os.environ | environment
            env["NCCL_DEBUG_FILE"] = f"{folder}/log{rank}"
            env["LD_PRELOAD"] = options.nccl
            if nodes > 1:
                env |= shared_gpu.node_variables(rank, ranks, nodes)
            if options.ranks_per_gpu > 1 and nodes < ranks:
                env |= shared_gpu.one_node_variables(options.ranks_per_gpu)
            command = [
                sys.executable, __file__, "--rank", str(rank), "--ranks", str(ranks),
                "--ranks-per-gpu", str(options.ranks_per_gpu),
                "--folder", folder, "--nccl", options.nccl, "--plugin", options.plugin,
                "--rounds", str(rounds), "--collectives", *options.collectives,
                "--sizes", *map(str, options.sizes),
            ]  # fmt: skip
            if switch:
                command.append("--switch")
            processes.append(stack.enter_context(common.session(command, env)))
        if not common.all_ended(processes, LIMIT_S):
            codes = [process.poll() for process in processes]
            log = Path(f"{folder}/log0")
            text = log.read_text()[-4000:] if log.exists() else ""
            raise SystemExit(f"ranks exited with {codes}\n{text}")
        results = [json.loads(Path(f"{folder}/rank{r}.json").read_text()) for r in range(ranks)]
        log = Path(f"{folder}/log0")
        return results, log.read_text(errors="replace") if log.exists() else ""


def choices_in(log: str, ranks: int, version: str) -> dict[tuple[str, int], tuple[str, str, int]]:
    """What ran, by (collective, bytes as the tuner counts): algorithm, protocol, channels."""
    calls = calls_in(log, ranks, version)
    return {(name, size): (algo, proto, n) for name, size, algo, proto, n in calls}


def rules_in(path: str, nodes: int, ranks: int) -> list[list[str]]:
    """The rows of a configuration that apply to this scale."""
    rows = []
    for line in Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split(",")]
            if cells[6] in ("-1", str(nodes)) and cells[7] in ("-1", str(ranks)):
                rows.append(cells)
    return rows


def rule_for(rows: list[list[str]], name: str, size: int) -> tuple[str, str] | None:
    for cells in rows:
        if cells[0] == name and int(cells[1]) <= size <= int(cells[2]):
            return cells[3], cells[4]
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--nccl", required=True)
    parser.add_argument("--config")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--emulate-nodes", type=int, default=0)
    shared_gpu.add_options(parser)
    parser.add_argument("--collectives", nargs="+", default=TUNED)
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[1 << power for power in range(10, 27)]
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("-o", "--output")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--folder")
    parser.add_argument("--switch", action="store_true")
    options = parser.parse_args()
    if options.rank >= 0:
        rank_main(options)
        return 0
    if not options.gpus:
        import torch

        options.gpus = torch.cuda.device_count()
    options.ranks = options.gpus * options.ranks_per_gpu
    if options.ranks < 2:
        print("needs 2 GPUs or more, or --ranks-per-gpu", file=sys.stderr)
        return 3
    options.nccl, options.plugin = (
        str(Path(path).resolve()) for path in (options.nccl, options.plugin)
    )
    if not options.emulate_nodes:
        options.emulate_nodes = options.ranks if options.ranks_per_gpu > 1 else 1
    common.exit_on_term()
    shared_gpu.use_mps(options)
    return check(options)


def check(options: argparse.Namespace) -> int:
    ranks = options.ranks
    failures: list[str] = []
    quiet = {"NCCL_DEBUG": "WARN"}
    talk = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
    plugin = {"NCCL_TUNER_PLUGIN": options.plugin}

    plain, log = launch(options, {**talk, "NCCL_TUNER_PLUGIN": "none"}, rounds=0, switch=False)
    version = plain[0]["version"]
    before = choices_in(log, ranks, version)
    _, log = launch(options, {**talk, **plugin}, rounds=0, switch=False)
    neutral = choices_in(log, ranks, version)
    ours = [line for line in log.splitlines() if "nccltune" in line.lower()]
    if not before:
        failures.append("NCCL logged no choice line")
    if before != neutral:
        changed = [key for key in before if before[key] != neutral.get(key)]
        failures.append(f"not neutral without a configuration at {changed}")
    print(f"NCCL {version}, {ranks} ranks as {options.emulate_nodes} nodes")
    print(
        f"neutral: {len(before)} calls logged, {sum(before[k] == neutral.get(k) for k in before)}"
        " the same with the plugin loaded"
    )
    print("\n".join(f"  {line}" for line in ours[:6]))
    report = {
        "nccl": version,
        "gpus": options.gpus,
        "ranks": ranks,
        "nodes": options.emulate_nodes,
        "choices": [[*key, *value] for key, value in before.items()],
    }
    if options.config:
        config = {"NCCL_TUNER_CONFIG_FILE": options.config}
        results, log = launch(options, {**talk, **plugin, **config}, rounds=0, switch=False)
        ours = [line for line in log.splitlines() if "nccltune" in line.lower()]
        print("\n".join(f"  {line}" for line in ours[:6]))
        after = choices_in(log, ranks, version)
        rows = rules_in(options.config, options.emulate_nodes, ranks)
        applied = 0
        for key, was in before.items():
            wanted = rule_for(rows, *key)
            ran = after.get(key)
            if wanted is None and ran != was:
                failures.append(f"{key}: no rule, but {ran} ran instead of {was}")
            elif wanted is not None:
                applied += 1
                if ran is None or ran[:2] != wanted:
                    failures.append(f"{key}: rule {wanted}, but {ran} ran")
        wrong = [item for result in results for item in result["wrong"]]
        if wrong:
            failures.append(f"wrong results: {wrong}")
        print(
            f"rules: {len(rows)} for this scale, {applied} of {len(before)} calls inside a rule, "
            f"{len(wrong)} wrong results"
        )
        if rows and options.rounds:
            results, _ = launch(
                options, {**quiet, **plugin, **config}, rounds=options.rounds, switch=True
            )
            report["gain"] = gains(results, rows)
    for failure in failures:
        print(f"FAILED {failure}")
    if options.output:
        Path(options.output).write_text(json.dumps({**report, "failures": failures}))
    print("1 passed, 0 failed" if not failures else "0 passed, 1 failed")
    return 1 if failures else 0


def gains(results: list[dict], rows: list[list[str]]) -> list[list]:
    """Per point: default and tuned medians (slowest rank), gain with its spread over rounds."""
    slowest: dict[tuple[str, int, str, int], float] = {}
    for result in results:
        for name, size, variant, round_, time_us in result["times"]:
            key = (name, size, variant, round_)
            slowest[key] = max(slowest.get(key, 0.0), time_us)
    table = []
    print(
        f"{'collective':<14}{'bytes':>10}{'default us':>12}{'tuned us':>10}{'gain':>7}  min-max"
        "  rule"
    )
    points = sorted({(name, size) for name, size, _, _ in slowest})
    for name, size in points:
        rounds = sorted({r for n, s, _, r in slowest if (n, s) == (name, size)})
        default = [slowest[name, size, "default", r] for r in rounds]
        tuned = [slowest[name, size, "tuned", r] for r in rounds]
        ratios = sorted(a / b for a, b in zip(default, tuned, strict=True))
        rule = rule_for(rows, name, size)
        label = "/".join(rule) if rule else ""
        row = [
            name,
            size,
            statistics.median(default),
            statistics.median(tuned),
            statistics.median(ratios),
            ratios[0],
            ratios[-1],
            len(ratios),
            label,
        ]
        table.append(row)
        print(
            f"{name:<14}{size:>10}{row[2]:>12.1f}{row[3]:>10.1f}{row[4]:>6.2f}x  "
            f"{ratios[0]:.2f}-{ratios[-1]:.2f}  {label}"
        )
    with_rule = [math.log(row[4]) for row in table if row[8]]
    without = [math.log(row[4]) for row in table if not row[8]]
    for what, logs in (("inside rules", with_rule), ("outside rules", without)):
        if logs:
            mean = math.exp(statistics.fmean(logs))
            worst = math.exp(min(logs))
            print(f"{what}: {len(logs)} points, geometric mean {mean:.3f}x, worst {worst:.3f}x")
    return table


if __name__ == "__main__":
    sys.exit(main())
