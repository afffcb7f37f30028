# SPDX-License-Identifier: Apache-2.0
"""Two ranks on one GPU: pairs of processes with a deadline, and results.

Used by one_gpu.py and training.py. No process that these functions start outlives them.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "benchmarks"))

import common  # noqa: E402
import net_loopback  # noqa: E402, F401 -- for training.py, which imports this module first
import shared_gpu  # noqa: E402, F401
from shared_gpu import Mps  # noqa: E402, F401 -- for those that import this module first

SHARED_MEMORY = Path("/dev/shm")
SOURCES = REPO / "tests/native/sendrecv"
PROGRAMS = {
    "sendrecv_scenarios": ["whole/scenario_communicators.cc", "whole/scenario_program.cc"],
    "sendrecv_programs": ["whole/rank_program.cc"],
}
SHIM = "whole/faults.cc"
EXIT_SKIPPED = 5
GROWTH_ALLOWED = {"files": 2, "threads": 2, "mappings": 40, "shared_files": 2, "gpu_mib": 64,
                  "resident_kib": 65536}  # fmt: skip
"""More than NCCL alone grows by, from 20 to 200 communicators, over both ranks' maximum. A leak of
one descriptor or thread a communicator would be 180; of a lane's memory, tens of MiB."""


def loaded_path(name: str) -> Path:
    """Return the file that the dynamic loader finds for a library, without keeping it loaded."""
    code = (
        "import ctypes, sys; ctypes.CDLL(sys.argv[1]);"
        "stem = sys.argv[1].split('.so')[0] + '.so';"
        "print(next(l.split()[-1] for l in open('/proc/self/maps') if stem in l))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, text=True, check=True, timeout=60
    )
    return Path(done.stdout.strip())


def build(folder: Path, nccl: Path) -> None:
    """Compile the rank programs and the shim against the NCCL and the CUDA driver found here."""
    cuda = loaded_path("libcuda.so.1")
    options = ["-std=c++20", "-O2", "-pthread", f"-I{REPO}/native", f"-I{SOURCES.parent}"]
    link = [str(cuda), str(nccl), "-ldl", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    commands = [
        ["g++", *options, *(str(SOURCES / each) for each in files), *link, "-o", f"{folder}/{name}"]
        for name, files in PROGRAMS.items()
    ]
    # A header that checks calls of open would define it as well.
    shim = ["g++", "-std=c++20", "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC"]
    commands.append([*shim, str(SOURCES / SHIM), "-ldl", "-o", f"{folder}/faults.so"])
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(common.session(each, dict(os.environ))) for each in commands
        ]
        if not common.all_ended(processes, 180):
            raise RuntimeError("the rank programs could not be compiled")


@dataclass
class RankRun:
    """One process of a pair."""

    status: int | None
    """None: it was killed at the deadline or because the other rank failed."""
    text: str
    errors: str

    def lines(self, kind: str) -> list[str]:
        """The lines of that kind, without the rank and the kind."""
        found = (line.split(" ", 2) for line in self.text.splitlines())
        return [words[2] for words in found if len(words) == 3 and words[1] == kind]


@dataclass
class PairRun:
    """Both ranks of one run of a scenario."""

    ranks: list[RankRun]
    seconds: float
    state: str
    """done, skipped, hang or failed."""

    distinct: bool = False
    """Ranks repeat their results a number of times that does not count."""

    @property
    def results(self) -> list[list[str]]:
        lines = [rank.lines("result") for rank in self.ranks]
        return [list(dict.fromkeys(rank)) for rank in lines] if self.distinct else lines

    @property
    def measures(self) -> list[dict[str, float]]:
        pairs = ([line.split() for line in rank.lines("measure")] for rank in self.ranks)
        return [{name: float(value) for name, value in each} for each in pairs]

    @property
    def wrong(self) -> list[str]:
        return [line for each in self.results for line in each if line.endswith("WRONG")]

    def messages(self) -> dict[str, int]:
        """Messages by the way that the library's counters name."""
        counts: dict[str, int] = {}
        for rank in self.ranks:
            for name, messages, _ in common.MESSAGES.findall(rank.errors):
                counts[name] = counts.get(name, 0) + int(messages)
        return counts

    def why(self) -> str:
        """What went wrong, for the log."""
        said = [line for rank in self.ranks for line in rank.text.splitlines()]
        bad = [line for line in said if re.match(r"\d (failed|hang|skip)|.*NCCL WARN", line)][-8:]
        states = [rank.status for rank in self.ranks]
        errors = " | ".join(rank.errors[-400:].strip() for rank in self.ranks)
        return f"exit statuses {states}; {'; '.join(bad)}; {errors}"


def state_of(statuses: Sequence[int | None], texts: Sequence[str]) -> str:
    """Judge a pair by its exit statuses and what it printed."""
    if all(status == 0 for status in statuses) and all(" done" in text for text in texts):
        return "done"
    if EXIT_SKIPPED in statuses:
        return "skipped"
    # A rank that fails comes first: the other is killed, or hangs because of it.
    if any(re.search(r"^\d failed", text, re.MULTILINE) for text in texts):
        return "failed"
    if any(re.search(r"^\d hang", text, re.MULTILINE) for text in texts) or None in statuses:
        return "hang"
    return "failed"


def run_pair(
    commands: Sequence[Sequence[str]], environments: Sequence[dict[str, str]], seconds: float
) -> PairRun:
    """Run a process for each rank to its end, or kill both at the deadline."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pair-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        processes = []
        for rank, (command, environment) in enumerate(zip(commands, environments, strict=True)):
            output = stack.enter_context((folder / f"output.{rank}").open("w"))
            errors = stack.enter_context((folder / f"errors.{rank}").open("w"))
            pipes = {"stdout": output, "stderr": errors, "stdin": subprocess.DEVNULL}
            processes.append(stack.enter_context(common.session(command, environment, **pipes)))
        common.all_ended(processes, seconds)
        statuses = [process.poll() for process in processes]
        for process in processes:
            common.end_session(process.pid)
        texts = [(folder / f"output.{rank}").read_text(errors="replace") for rank in (0, 1)]
        errors = [(folder / f"errors.{rank}").read_text(errors="replace") for rank in (0, 1)]
    ranks = [RankRun(*each) for each in zip(statuses, texts, errors, strict=True)]
    return PairRun(ranks, time.monotonic() - began, state_of(statuses, texts))


def entries_left() -> list[str]:
    """What is in /dev/shm of the library."""
    if not SHARED_MEMORY.exists():
        return []
    return sorted(each.name for each in SHARED_MEMORY.glob("nccltune-*"))


@dataclass
class Step:
    """One check, as it is written to the results."""

    name: str
    outcome: str
    """passed, failed, skipped, native (NCCL alone does not get through either) or not run."""
    seconds: float = 0.0
    why: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Results:
    """Steps, written to a file after each one."""

    def __init__(self, path: Path | None, seconds: float, facts: dict[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.began = time.monotonic()
        self.end = self.began + seconds
        self.steps: list[Step] = []
        self.lock = threading.Lock()

    def left(self) -> float:
        return self.end - time.monotonic()

    def add(self, step: Step) -> None:
        with self.lock:
            self._add(step)

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        at = time.monotonic() - self.began
        print(f"[{at:5.0f} s] {step.outcome:8} {step.name} ({step.seconds:.1f} s) {step.why}",
              flush=True)  # fmt: skip
        if step.facts:
            print(f"          {json.dumps(step.facts)}", flush=True)
        if self.path:
            whole = {**self.facts, "steps": [asdict(each) for each in self.steps]}
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(whole, indent=1))
            new.replace(self.path)

    def exit_status(self) -> int:
        outcomes = [step.outcome for step in self.steps]
        names = sorted(set(outcomes))
        print(", ".join(f"{outcomes.count(name)} {name}" for name in names), flush=True)
        return 1 if "failed" in outcomes or "passed" not in outcomes else 0


def compared(name: str, native: PairRun, ours: PairRun, *, must_carry: bool) -> Step:
    """Judge a run with the library by the same one without it."""
    messages = ours.messages()
    carried = sum(count for way, count in messages.items() if way.startswith("copy engine"))
    facts: dict[str, Any] = {"copy_engine": carried, "nccl": sum(messages.values()) - carried}
    if any(ours.measures):
        facts["measures"] = ours.measures
    step = Step(name, "passed", ours.seconds, facts=facts)
    if native.state == "done" and native.wrong:
        step.outcome, step.why = "native", f"NCCL alone: {native.wrong[:3]}"
    elif native.state != "done":
        # What NCCL cannot do is no demand on the library.
        step.outcome = "skipped" if native.state == "skipped" else "native"
        step.why = f"NCCL alone: {native.state}; with the library: {ours.state}"
    elif ours.state != "done":
        step.outcome, step.why = "failed", f"{ours.state}: {ours.why()}"
    elif ours.results != native.results:
        step.outcome, step.why = "failed", f"other results: {first_difference(native, ours)}"
    elif must_carry and not carried:
        step.outcome, step.why = "failed", f"no message went by copy engine: {messages}"
    return step


def growth(pair: PairRun) -> dict[str, float]:
    """What the rank that grew most holds more after the last count than after the first."""
    worst: dict[str, float] = {}
    for rank in pair.measures:
        for name in {key.split(".")[0] for key in rank} - {"seconds", "abort_s"}:
            counts = sorted(int(key.split(".")[1]) for key in rank if key.startswith(name + "."))
            more = rank[f"{name}.{counts[-1]}"] - rank[f"{name}.{counts[0]}"]
            if name == "gpu_free_mib":
                name, more = "gpu_mib", -more  # noqa: PLW2901
            worst[name] = max(worst.get(name, more), more)
    return worst


def judge_growth(step: Step, native: PairRun, ours: PairRun) -> None:
    """Fail a step that passed where the library makes the process grow more than NCCL does."""
    before, after = growth(native), growth(ours)
    step.facts |= {"growth_native": before, "growth": after}
    step.facts.pop("measures", None)
    missing = [name for name in GROWTH_ALLOWED if name not in after or name not in before]
    if missing:
        step.outcome, step.why = "failed", f"not measured: {', '.join(missing)}"
        return
    more = {
        name: after[name] - max(before[name], 0)
        for name, allowed in GROWTH_ALLOWED.items()
        if after[name] - max(before[name], 0) > allowed
    }
    if more:
        step.outcome, step.why = "failed", f"grows by more than NCCL alone: {more}"


def first_difference(native: PairRun, ours: PairRun) -> str:
    for rank, (want, got) in enumerate(zip(native.results, ours.results, strict=True)):
        for one, other in zip(want, got, strict=False):
            if one != other:
                return f"rank {rank}: NCCL alone {one!r}, with the library {other!r}"
        if len(want) != len(got):
            return f"rank {rank}: {len(want)} results of NCCL alone, {len(got)} with the library"
    return "none"
