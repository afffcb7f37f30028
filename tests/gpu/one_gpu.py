# SPDX-License-Identifier: Apache-2.0
"""The send/recv library on real CUDA and NCCL, with two ranks that share one GPU.

    python tests/gpu/one_gpu.py --library libnccltune-sendrecv.so --nccl libnccl.so.2 \
        [--parts same,pidns,communicators,random,million,kills] [--seconds 540] [-o results.json] \
        [--one-connection]

Needs one GPU, NVIDIA's MPS (nvidia-cuda-mps-control), g++, and an NCCL of 2.31 or newer, which lets
ranks of one host share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1). Correctness only: speed means nothing
on a shared GPU. Each scenario of tests/native/sendrecv/whole/scenario_program.cc runs on NCCL
alone, then with NCCLTUNE_SENDRECV=1 and =verify, and must print the same results.

same           exchanges, ncclGroupSimulateEnd, ncclAlltoAll and others in groups (also with one
               rank without the library), 600 and 5,000 grouped sends against single receives, and
               ranks that cannot map or fill the library's shared memory
pidns          ranks in PID namespaces of their own with one /dev/shm
communicators  splits, aborts, and 200 communicators in one process: no descriptor, thread, mapping
               or memory more after 200 than after 20
random         random programs (sendrecv_on_gpus.py)
million        the same until a million operations are done
kills          kill -9 of a rank: the other gets an error within 30 s, nothing is left in /dev/shm
four           random programs of four ranks, NCCL_MAX_CTAS=2; not run unless named

A scenario that NCCL alone does not get through is reported as "native" and is no failure. Exit
status 1 if a step failed, or if NCCL alone does not work with two ranks on one GPU. After --seconds
no new step begins.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import one_gpu_runs as runs
from one_gpu_runs import PairRun, Results, Step, common, shared_gpu

MODES = ["1", "verify"]
PARTS = ["same", "pidns", "communicators", "random", "million", "kills", "four"]
DEFAULT_PARTS = PARTS[:-1]


@dataclass
class Scenario:
    """A command of the rank program, and how its ranks differ."""

    name: str
    words: list[str]
    seconds: float = 60
    rank_words: list[list[str]] = field(default_factory=lambda: [[], []])
    native_words: list[str] = field(default_factory=list)
    """Of NCCL alone, where they differ. Repeated lines of results then count once."""
    without: tuple[int, ...] = ()
    """Ranks that run without the library."""
    fail: dict[int, str] = field(default_factory=dict)
    """CASE_FAULT of faults.cc, by rank."""
    prefix: list[str] = field(default_factory=list)
    modes: tuple[str, ...] = ("1", "verify")
    must_carry: bool = False
    mps: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    """Of NCCL, with the library and without."""


SAME = [
    Scenario("exchange", ["exchange"], must_carry=True),
    Scenario("exchange of one byte less and more", ["exchange", "large=4194305"]),
    Scenario("order", ["order", "count=60"]),
    Scenario("order, rank 1 without the library", ["order", "count=60"], without=(1,)),
    Scenario("exchange, rank 0 without the library", ["exchange"], without=(0,)),
    Scenario("600 sends of 2 MiB in a group, receiver first",
             ["crowd", "large=8M", "bytes=2M", "count=600", "late=0"], seconds=90, must_carry=True),
    Scenario("600 sends of 2 MiB in a group, sender first",
             ["crowd", "large=8M", "bytes=2M", "count=600", "late=1"], seconds=90, must_carry=True),
    Scenario("5000 sends of 2 MiB in a group", ["crowd", "large=24M", "bytes=2M", "count=5000"],
             seconds=120, modes=("1",)),
    Scenario("rank 1 may not write large files", ["exchange"], rank_words=[[], ["fsize=67108864"]]),
    Scenario("no rank may write large files", ["exchange", "fsize=67108864"]),
    Scenario("rank 0 cannot map lanes", ["exchange"], fail={0: "mmap:2+:ENOMEM"}),
    Scenario("rank 1 cannot map lanes", ["exchange"], fail={1: "mmap:2+:ENOMEM"}),
    Scenario("rank 1 has no room in /dev/shm", ["exchange"], fail={1: "fallocate:1+:ENOSPC"}),
    Scenario("rank 0 cannot open shared memory", ["exchange"], fail={0: "open"}),
    Scenario("rank 1 has no address space left", ["exchange"],
             rank_words=[[], ["as-more=67108864"]]),
    # NCCL keeps the messages of a group that it simulated and runs them with the next group (as of
    # 2.32.3, groupLaunch in group.cc), so that it may hang alone.
    Scenario("simulate", ["simulate"]),
]  # fmt: skip
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc"]
PIDNS = [
    Scenario("PID namespaces", ["exchange"], prefix=UNSHARE),
    Scenario("PID namespaces, without MPS", ["exchange"], prefix=UNSHARE, mps=False, modes=("1",)),
]
COMMUNICATORS = [
    Scenario("split", ["split", "count=8"], must_carry=True),
    Scenario("abort", ["abort", "count=12"], seconds=90),
    # With all channels NCCL 2.32.3 alone made fewer than 200 in 150 s. The library may grow no more
    # over 200 than NCCL alone over 50.
    Scenario("200 communicators", ["churn", "count=200"], native_words=["churn", "count=50"],
             seconds=240, modes=("1",), must_carry=True, settings={"NCCL_MAX_CTAS": "2"}),
]  # fmt: skip


class OneGpu:
    """What all parts share."""

    def __init__(
        self, args: argparse.Namespace, results: Results, folder: Path, mps: runs.Mps
    ) -> None:
        self.args, self.results, self.folder, self.mps = args, results, folder, mps

    def environment(self, scenario: Scenario, mode: str | None, rank: int) -> dict[str, str]:
        """Of one rank; mode None: NCCL alone, but with the same limits and shim."""
        env = os.environ | {
            **shared_gpu.ONE_NODE,
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN"),
        }
        env |= scenario.settings
        if scenario.mps:
            env |= self.mps.environment
        preload = [str(self.args.nccl)] if self.args.nccl else []
        if mode is not None and rank not in scenario.without:
            preload.insert(0, str(self.args.library))
            env |= shared_gpu.connections() | {
                "NCCLTUNE_SENDRECV": mode,
                "NCCLTUNE_SENDRECV_FROM": "256K",
                "NCCLTUNE_SENDRECV_EAGER": "1M",
                "NCCLTUNE_SENDRECV_STATS": "-",
                "NCCLTUNE_SENDRECV_SIGNAL": "USR1",
            }
        if rank in scenario.fail:
            preload.insert(0, str(self.folder / "faults.so"))
            env["CASE_FAULT"] = scenario.fail[rank]
        return env | {"LD_PRELOAD": ":".join(preload)}

    def run(self, scenario: Scenario, mode: str | None) -> PairRun:
        seconds = min(scenario.seconds, max(self.results.left() + 30, 10))
        with tempfile.TemporaryDirectory(prefix="meet-") as meeting:
            program = str(self.folder / "sendrecv_scenarios")
            words = (mode is None and scenario.native_words) or scenario.words
            commands = [
                [*scenario.prefix, program, *words, *scenario.rank_words[rank],
                 f"rank={rank}", f"folder={meeting}", "patience=25"]
                for rank in (0, 1)
            ]  # fmt: skip
            environments = [self.environment(scenario, mode, rank) for rank in (0, 1)]
            pair = runs.run_pair(commands, environments, seconds)
        if pair.state not in ("done", "skipped"):
            self.mps.renew()
        pair.distinct = bool(scenario.native_words)
        return pair

    def compare(self, scenario: Scenario) -> None:
        """Run natively and in each mode, and add a step for each mode."""
        if self.results.left() < 0:
            self.results.add(Step(scenario.name, "not run", why="out of time"))
            return
        native = self.run(scenario, None)
        if native.state == "skipped" or (native.state != "done" and not self.args.insist):
            outcome = "skipped" if native.state == "skipped" else "native"
            why = f"NCCL alone: {native.state}: {native.why()}"
            self.results.add(Step(scenario.name, outcome, native.seconds, why))
            return
        for mode in [each for each in scenario.modes if each in self.args.modes]:
            ours = self.run(scenario, mode)
            name = f"{scenario.name}, {mode}"
            step = runs.compared(name, native, ours, must_carry=scenario.must_carry)
            if scenario.words[0] == "churn" and step.outcome == "passed":
                runs.judge_growth(step, native, ours)
            self.results.add(step)

    def compare_all(self, scenarios: list[Scenario]) -> None:
        for scenario in scenarios:
            self.compare(scenario)
        left = runs.entries_left()
        if left:
            self.results.add(Step("files left in /dev/shm", "failed", why=" ".join(left)))

    def programs(self, name: str, options: list[str], seconds: float, env: dict[str, str]) -> bool:
        """Run sendrecv_on_gpus.py with a deadline of its own, on the same NCCL and GPU."""
        if self.results.left() < 0:
            self.results.add(Step(name, "not run", why="out of time"))
            return False
        output = self.folder / "programs.json"
        output.unlink(missing_ok=True)
        command = [sys.executable, str(Path(__file__).with_name("sendrecv_on_gpus.py"))]
        command += ["--programs", str(self.folder / "sendrecv_programs")]
        command += ["--library", str(self.args.library), "--gpus", "1", "-o", str(output)]
        command += ["--seconds", str(seconds), *options]
        if self.args.nccl:
            command += ["--nccl", str(self.args.nccl.parent)]
        whole = os.environ | env | shared_gpu.ONE_NODE
        whole |= {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN"}
        status, said, errors = common.run(command, whole, seconds + 60)
        facts = json.loads(output.read_text()) if output.exists() else {}
        facts.pop("wrong", None)
        left = runs.entries_left()
        why = "" if status == 0 else f"exit status {status}: {said[-800:]} {errors[-1500:]}"
        why += f" left in /dev/shm: {left}" if left else ""
        if status != 0:
            self.mps.renew()
        bad = "native" if "--native" in options else "failed"
        step = Step(name, bad if why else "passed", facts.get("seconds", 0), why, facts)
        self.results.add(step)
        return not why

    def part(self, name: str) -> None:
        two = ["--ranks", "2", "--side-by-side", str(self.args.jobs), "--rounds", "100"]
        no_kills, no_programs = ["--kills", "0"], ["--operations", "0"]
        third = max(self.results.left() / 3, 20)
        match name:
            case "same":
                self.compare_all(SAME)
            case "pidns":
                self.compare_all(PIDNS)
            case "communicators":
                self.compare_all(COMMUNICATORS)
            case "million":
                words = [*two, "--rounds", "1000", *no_kills]
                words += ["--operations", str(self.args.operations)]
                seconds = min(self.args.million_seconds, max(self.results.left() - 30, 20))
                title = f"{self.args.operations} operations"
                self.programs(title, words, seconds, self.mps.environment)
            case "random":
                for title, options in {
                    "random programs": [],
                    "random programs, communicators that do not block": ["--later"],
                    "random programs with graphs": ["--graphs"],
                }.items():
                    words = [*two, *no_kills, "--operations", "40000", *options]
                    self.programs(title, words, min(60, third), self.mps.environment)
            case "kills":
                words = ["--ranks", "2", "--side-by-side", "1", *no_programs]
                words += ["--kills", str(self.args.kills)]
                # Without MPS, whose server ends the clients beside one that is killed.
                self.programs("kills", words, min(150, max(self.results.left(), 30)), {})
            case "four":
                words = ["--ranks", "4", "--side-by-side", "1", "--rounds", "20", *no_kills]
                words += ["--operations", "2000"]
                few = {"NCCL_MAX_CTAS": "2"}
                env = self.mps.environment | few
                if self.programs("four ranks, NCCL alone", [*words, "--native"], 45, env):
                    self.programs("four ranks", words, 45, env)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--nccl", type=Path, help="a libnccl.so.2 of 2.31 or newer")
    parser.add_argument("--programs", type=Path, help="folder of the rank programs; default: g++")
    parser.add_argument("--parts", default=",".join(DEFAULT_PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--modes", default=",".join(MODES), help="of NCCLTUNE_SENDRECV")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--million-seconds", type=float, default=240)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="random programs at a time")
    parser.add_argument("--insist", action="store_true",
                        help="run with the library also what NCCL alone fails")  # fmt: skip
    parser.add_argument("--no-mps", action="store_true", help="ranks take turns in time slices")
    parser.add_argument("--one-connection", action="store_true",
                        help="with CUDA_DEVICE_MAX_CONNECTIONS=1")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args(words)
    args.parts = args.parts.split(",")
    args.modes = args.modes.split(",")
    for name in args.parts:
        if name not in PARTS:
            parser.error(f"--parts: {name!r} is none of {', '.join(PARTS)}")
    for name in args.modes:
        if name not in MODES:
            parser.error(f"--modes: {name!r} is none of {', '.join(MODES)}")
    for path in (args.library, args.nccl):
        if path and not path.is_file():
            parser.error(f"{path} is no file")
    args.library = args.library.resolve()
    args.nccl = args.nccl.resolve() if args.nccl else None
    return args


def main() -> int:
    args = parse()
    common.exit_on_term()
    if args.one_connection:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    results = Results(args.output, args.seconds, {"machine": common.machine()})
    for scenarios in (SAME, PIDNS, COMMUNICATORS):
        scenarios[:] = [each for each in scenarios if args.only in each.name]
    with contextlib.ExitStack() as stack:
        mps = stack.enter_context(runs.Mps(used=not args.no_mps))
        folder = args.programs
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="programs-")))
            runs.build(folder, args.nccl or runs.loaded_path("libnccl.so.2"))
        gpu = OneGpu(args, results, folder.resolve(), mps)
        first = gpu.run(Scenario("NCCL alone", ["exchange"]), None)
        outcome = "passed" if first.state == "done" and not first.wrong else "failed"
        why = "" if outcome == "passed" else f"NCCL alone: {first.state}: {first.why()}"
        results.add(Step("two ranks on one GPU, NCCL alone", outcome, first.seconds, why))
        if outcome == "failed":
            return results.exit_status()
        for name in args.parts:
            print(f"-- {name}, {results.left():.0f} s left", flush=True)
            if results.left() < 0:
                results.add(Step(name, "not run", why="out of time"))
                continue
            try:
                gpu.part(name)
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                results.add(Step(name, "failed", why=f"{type(error).__name__}: {error}"))
    return results.exit_status()


if __name__ == "__main__":
    sys.exit(main())
