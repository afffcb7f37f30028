# SPDX-License-Identifier: Apache-2.0
"""All libraries together in an unmodified PyTorch training, with two ranks that share one GPU.

    python tests/gpu/training.py --sendrecv libnccltune-sendrecv.so \
        --net libnccl-net-nccltune.so --tuner libnccl-tuner-nccltune.so --nccl libnccl.so.2 \
        [--parts ddp,fsdp,communicators,kill] [--setups host,nodes] [-o results.json]

Needs one GPU, NVIDIA's MPS (nvidia-cuda-mps-control) and PyTorch. The send/recv library is
preloaded, the network plugin and the tuner plugin (with a sample configuration) are set by NCCL's
variables. Correctness only: speed means nothing on a shared GPU. Each step runs on NCCL alone and
with the libraries, once with NCCLTUNE_SENDRECV=1 and once with =verify.

Setups:
host   both ranks on one host: NCCL_MULTI_RANK_GPU_ENABLE=1 and --nccl, 2.31 or newer, preloaded
nodes  each rank is a node (NCCL_HOSTID): the network plugin carries everything that NCCL does;
       PyTorch's own NCCL, or --nodes-nccl

Parts:
ddp            DistributedDataParallel, and each step exchanges activations and their gradients by
               batch_isend_irecv, isend and irecv, send and recv, 2 to 8 MiB a message
fsdp           the same with fully_shard
communicators  200 groups made, used and destroyed, every tenth aborted: descriptors, threads,
               mappings, memory of the process and of the GPU after 20 and after 200
kill           a rank kills itself with SIGKILL in the middle of training: the other ends with an
               error within 30 s

Losses and gradients must be equal bit by bit if two runs of NCCL alone are, otherwise within 0.1 %.
What NCCL alone does not get through is reported as "native" and is no failure. Exit status 1 if a
step failed. After --seconds no new step begins.
"""

import argparse
import contextlib
import math
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import one_gpu_runs as runs
from one_gpu_runs import PairRun, Results, Step, common, net_loopback, shared_gpu

PARTS = ["ddp", "fsdp", "communicators", "kill"]
SETUPS = ["host", "nodes"]
MODES = ["1", "verify"]
PROGRAM = Path(__file__).with_name("training_rank.py")
TOLERANCE = 1e-3
"""Relative; only where NCCL alone does not repeat itself."""
KILL_LIMIT_S = 30.0
KILL_SETTINGS = {
    # Abort communicators and end the process when an operation fails or is over its timeout.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    # A watchdog that is stuck in an abort is noticed after one to two of these.
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "5",
    # No dump of what was under way, for which the process would wait.
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000",
    "TORCH_NCCL_COORD_CHECK_MILSEC": "500",
}
KILL_PATIENCE_S = 8.0
TUNER_RULES = """\
allreduce,0,65536,tree,ll,-1,-1,2
allreduce,65537,16777216,ring,ll128,-1,-1,2
allreduce,16777217,4294967296,ring,simple,2,-1,2
allgather,0,4294967296,ring,simple,2,-1,2
reducescatter,0,4294967296,ring,simple,-1,-1,2
"""
TUNER_LINE = re.compile(r"TUNER/nccltune: .*\d+ of \d+ rules apply.*")


@dataclass
class Run:
    """Both ranks of one run, and what NCCL and the plugins logged."""

    pair: PairRun
    log: str
    said: dict[str, object] = field(default_factory=dict)


@dataclass
class Killed:
    """How both ranks of a run ended of which one was killed."""

    victim: int | None
    """Exit status of the rank that was to kill itself; None: it did not."""
    survivor: int | None
    """Exit status; None: it still ran at the limit."""
    seconds: float
    """From the end of one to that of the other."""
    text: str = ""


def judge_killed(killed: Killed) -> str:
    """Return what is wrong; empty: the survivor ended with an error in time."""
    if killed.victim != -signal.SIGKILL:
        return f"no rank was killed: exit status {killed.victim}"
    if killed.survivor is None:
        return f"the other rank still ran after {killed.seconds:.1f} s"
    if killed.survivor == 0:
        return "the other rank ended without an error"
    if killed.seconds > KILL_LIMIT_S:
        return f"the other rank ended after {killed.seconds:.1f} s"
    return ""


def values(pair: PairRun) -> list[dict[str, float]]:
    pairs = ([line.split() for line in rank] for rank in pair.results)
    return [{name: float.fromhex(value) for name, value in rank} for rank in pairs]


def farthest(first: PairRun, second: PairRun) -> float:
    """Return the largest relative difference of a result; infinity: other names, or not finite."""
    apart = 0.0
    for one, other in zip(values(first), values(second), strict=True):
        if one.keys() != other.keys() or not one:
            return math.inf
        for name, value in one.items():
            difference = abs(value - other[name]) / max(abs(value), abs(other[name]), 1e-30)
            if not math.isfinite(difference):
                return math.inf
            apart = max(apart, difference)
    return apart


def judge_training(
    name: str, native: list[PairRun], ours: PairRun, *, must_carry: bool = False
) -> Step:
    """Compare a training with the libraries with those on NCCL alone, bit by bit if these agree.

    A single one on NCCL alone counts as repeatable.
    """
    repeats = all(each.results == native[0].results for each in native)
    step = runs.compared(name, native[0], ours, must_carry=must_carry)
    bad = [each.state for each in native if each.state != "done"]
    if bad:
        step.outcome = "skipped" if "skipped" in bad else "native"
        step.why = f"NCCL alone: {bad[0]}; with the libraries: {ours.state}"
        return step
    if len(native) > 1:
        step.facts["native_repeats_itself"] = repeats
    if ours.state != "done":
        return step
    step.facts["apart"] = apart = farthest(native[0], ours)
    step.facts["results"] = sum(len(rank) for rank in ours.results)
    if not math.isfinite(apart):
        step.outcome, step.why = "failed", "results are missing or not finite"
    elif not repeats and step.why.startswith("other results"):
        carried = step.facts["copy_engine"] or not must_carry
        within = apart <= TOLERANCE
        step.outcome = "passed" if within and carried else "failed"
        step.why = f"{apart:.2g} apart; NCCL alone {farthest(*native[:2]):.2g}"
    return step


def not_loaded(log: str) -> list[str]:
    """Return the plugins of which NCCL's log shows nothing."""
    expected = {"network plugin": r"nccltune \S+, interface v\d+;", "tuner plugin": TUNER_LINE}
    return [name for name, line in expected.items() if not re.search(line, log)]


class Training:
    """What all parts share."""

    def __init__(
        self, args: argparse.Namespace, results: Results, folder: Path, mps: runs.Mps
    ) -> None:
        self.args, self.results, self.folder, self.mps = args, results, folder, mps
        self.rules = folder / "tuner.conf"
        self.rules.write_text(TUNER_RULES)

    def environment(
        self, setup: str, mode: str | None, rank: int, port: int, log: Path
    ) -> dict[str, str]:
        """Return that of one rank, but for MPS; mode None: NCCL alone."""
        args = self.args
        settings = {"NCCL_NET": "Socket"}
        preload = []
        if mode is not None:
            preload.append(str(args.sendrecv))
            settings = shared_gpu.connections() | {
                "NCCLTUNE_SENDRECV": mode,
                "NCCLTUNE_SENDRECV_FROM": "256K",
                "NCCLTUNE_SENDRECV_STATS": "-",
                "NCCL_NET": "nccltune",
                "NCCL_NET_PLUGIN": str(args.net),
                # NCCL 2.28 and 2.29 forget the plugin with the last communicator otherwise.
                "NCCL_NET_PLUGIN_REF_COUNT": "1",
                "NCCL_TUNER_PLUGIN": str(args.tuner),
                "NCCLTUNE_CONFIG": str(self.rules),
            }
            if args.profiler:
                settings["NCCL_PROFILER_PLUGIN"] = str(args.profiler)
        nccl = args.nccl
        if setup == "host":
            settings |= shared_gpu.ONE_NODE
        else:
            settings |= shared_gpu.node_variables(rank, 2, 2)
            nccl = args.nodes_nccl
        if nccl:
            preload.append(str(nccl))
        whole = net_loopback.environment(net_loopback.Candidate(setup, settings), log)
        whole |= common.of_rank(rank, 2, port)
        # Both use GPU 0. cuBLAS repeats itself with this workspace only.
        whole |= {"LOCAL_RANK": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        if preload:
            whole["LD_PRELOAD"] = ":".join(preload)
        whole.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        return whole

    def command(self, words: list[str], seconds: float) -> list[str]:
        device = ["--device", self.args.device]
        if self.args.device == "cpu":
            device += ["--backend", "gloo", "--rows", "64", "--hidden", "64"]
        program = [str(self.args.python), "-W", "ignore", str(PROGRAM)]
        return [*program, *words, *device, "--deadline", str(max(seconds - 5, 5))]

    def run(
        self, setup: str, mode: str | None, words: list[str], seconds: float, **more: str
    ) -> Run:
        """Run both ranks to their end, or to the deadline, with more environment variables."""
        seconds = min(seconds, max(self.results.left() + 30, 20))
        with tempfile.TemporaryDirectory(prefix="logs-") as name:
            log, port = Path(name), common.free_port()
            environments = [
                self.environment(setup, mode, rank, port, log) | self.mps.environment | more
                for rank in (0, 1)
            ]
            pair = runs.run_pair([self.command(words, seconds)] * 2, environments, seconds)
            if pair.state not in ("done", "skipped"):
                self.mps.renew()
            texts = [path.read_text(errors="replace") for path in sorted(log.glob("nccl.*.log"))]
            return Run(pair, "\n".join(texts), net_loopback.said_by_nccl(log))

    def check_loaded(self, step: Step, ours: Run) -> None:
        """Add what NCCL logged of itself and of the plugins to a step."""
        step.facts |= {"version": ours.said.get("nccl"), "networks": ours.said.get("networks")}
        missing = not_loaded(ours.log) if self.args.device == "cuda" else []
        if missing and step.outcome == "passed":
            step.outcome, step.why = "failed", f"not loaded: {', '.join(missing)}"
        if step.outcome == "failed":
            step.why += f"; NCCL's warnings: {ours.said.get('warnings')!s:.600}"

    def train(self, setup: str, part: str) -> None:
        """NCCL alone, then with the libraries in each mode.

        Where the results differ, NCCL alone runs again: perhaps it does not repeat itself.
        """
        name = f"{part}, {setup}"
        if self.out_of_time(name):
            return
        pairs = [self.run(setup, None, [part], 90).pair]
        if pairs[0].state != "done":
            outcome = "skipped" if pairs[0].state == "skipped" else "native"
            why = f"NCCL alone: {pairs[0].state}: {pairs[0].why()}"
            self.results.add(Step(name, outcome, pairs[0].seconds, why))
            return
        for mode in self.args.modes:
            ours = self.run(setup, mode, [part], 90)
            # Ranks with host ids of their own need not share memory.
            carries = setup == "host" and self.args.device == "cuda"
            step = judge_training(f"{name}, {mode}", pairs, ours.pair, must_carry=carries)
            if step.why.startswith("other results") and len(pairs) == 1:
                pairs.append(self.run(setup, None, [part], 90).pair)
                step = judge_training(f"{name}, {mode}", pairs, ours.pair, must_carry=carries)
            self.check_loaded(step, ours)
            self.results.add(step)

    def communicators(self, setup: str, *, bound: bool) -> None:
        """Compare what a process holds after 20 and after 200 communicators.

        NCCL alone makes fewer of them: the libraries may grow by no more than it does.
        """
        name = f"{self.args.count} communicators, {setup}, {'split' if bound else 'new'}"
        if self.out_of_time(name):
            return
        words = ["communicators", *(["--bound"] * bound), "--count"]
        count = self.args.count
        # Otherwise PyTorch's watchdog may end the process because the peer has aborted first. Few
        # channels: a communicator is made in less time.
        settings = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "NCCL_MAX_CTAS": "2"}
        native = self.run(setup, None, [*words, str(max(count // 4, 20))], 150, **settings)
        ours = self.run(setup, "1", [*words, str(count)], 300, **settings)
        carries = setup == "host" and self.args.device == "cuda"
        step = runs.compared(name, native.pair, ours.pair, must_carry=carries)
        if step.outcome == "passed":
            runs.judge_growth(step, native.pair, ours.pair)
        elif step.outcome == "native":
            step.why += f": {native.pair.why()}"
        self.check_loaded(step, ours)
        self.results.add(step)

    def kill(self, setup: str, victim: int) -> None:
        """Compare how long a rank goes on without the other."""
        name = f"kill -9 of rank {victim}, {setup}"
        if self.out_of_time(name, needed=40):
            return
        before = runs.entries_left()
        native = self.run_killed(setup, None, victim)
        ours = self.run_killed(setup, "1", victim)
        wrong, wrong_native = judge_killed(ours), judge_killed(native)
        step = Step(name, "passed", ours.seconds, wrong)
        step.facts = {"seconds": round(ours.seconds, 1), "exit_status": ours.survivor,
                      "seconds_native": round(native.seconds, 1),
                      "exit_status_native": native.survivor}  # fmt: skip
        if wrong:
            step.outcome = "native" if wrong_native else "failed"
            step.why += f"; NCCL alone: {wrong_native or 'an error in time'}; {ours.text[-800:]}"
        left = sorted(set(runs.entries_left()) - set(before))
        if left:
            step.outcome, step.why = "failed", f"{step.why} left in /dev/shm: {left}"
        self.results.add(step)

    def run_killed(self, setup: str, mode: str | None, victim: int) -> Killed:
        """Train until one rank kills itself, and wait for the other.

        Without MPS, whose server ends the clients beside one that is killed.
        """
        words = ["kill", "--victim", str(victim), "--patience", str(KILL_PATIENCE_S)]
        words += ["--seed", str(self.args.seed + victim)]
        with tempfile.TemporaryDirectory(prefix="kill-") as name, contextlib.ExitStack() as stack:
            folder, port, processes = Path(name), common.free_port(), []
            for rank in (0, 1):
                environment = self.environment(setup, mode, rank, port, folder) | KILL_SETTINGS
                output = stack.enter_context((folder / f"output.{rank}").open("w"))
                pipes = {"stdout": output, "stderr": output, "stdin": subprocess.DEVNULL}
                command = self.command(words, 120)
                processes.append(stack.enter_context(common.session(command, environment, **pipes)))
            wait_for(processes, min(60, self.results.left() + 10))
            began = time.monotonic()
            # A rank that fails by itself is no victim; the other is not waited for.
            if processes[victim].poll() is not None:
                wait_for([processes[1 - victim]], KILL_LIMIT_S + 10)
            return Killed(
                victim=processes[victim].poll(),
                survivor=processes[1 - victim].poll(),
                seconds=time.monotonic() - began,
                text=(folder / f"output.{1 - victim}").read_text(errors="replace")[-2000:],
            )

    def out_of_time(self, name: str, needed: float = 0) -> bool:
        if self.results.left() > needed:
            return False
        self.results.add(Step(name, "not run", why="out of time"))
        return True

    def part(self, name: str) -> None:
        setups = self.args.setups
        match name:
            case "ddp" | "fsdp":
                for setup in setups:
                    self.train(setup, name)
            case "communicators":
                for setup in setups:
                    self.communicators(setup, bound=False)
                if "host" in setups:
                    self.communicators("host", bound=True)
            case "kill":
                # Rank 0 has PyTorch's store, too.
                for victim, setup in [(1, each) for each in setups] + [(0, setups[0])]:
                    self.kill(setup, victim)


def wait_for(processes: list["subprocess.Popen[str]"], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and all(process.poll() is None for process in processes):
        time.sleep(0.05)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    libraries = {"sendrecv": True, "net": True, "tuner": True, "profiler": False, "nccl": False,
                 "nodes-nccl": False}  # fmt: skip
    for name, required in libraries.items():
        parser.add_argument(f"--{name}", type=Path, required=required, metavar="FILE")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--setups", default=",".join(SETUPS))
    parser.add_argument("--modes", default=",".join(MODES), help="of NCCLTUNE_SENDRECV")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--count", type=int, default=200, help="communicators")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--no-mps", action="store_true", help="ranks take turns in time slices")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a dry run")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with PyTorch")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args(words)
    for name, valid in {"parts": PARTS, "setups": SETUPS, "modes": MODES}.items():
        chosen = getattr(args, name).split(",")
        setattr(args, name, chosen)
        for each in chosen:
            if each not in valid:
                parser.error(f"--{name}: {each!r} is none of {', '.join(valid)}")
    for name in libraries:
        path = getattr(args, name.replace("-", "_"))
        if path and not path.is_file():
            parser.error(f"--{name}: {path} is no file")
        setattr(args, name.replace("-", "_"), path.resolve() if path else None)
    return args


def main() -> int:
    args = parse()
    common.exit_on_term()
    results = Results(args.output, args.seconds, {"machine": common.machine()})
    with contextlib.ExitStack() as stack:
        without = args.no_mps or args.device == "cpu"
        mps = stack.enter_context(runs.Mps(used=not without))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="training-")))
        training = Training(args, results, folder, mps)
        for name in args.parts:
            print(f"-- {name}, {results.left():.0f} s left", flush=True)
            try:
                training.part(name)
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                results.add(Step(name, "failed", why=f"{type(error).__name__}: {error}"))
    return results.exit_status()


if __name__ == "__main__":
    sys.exit(main())
