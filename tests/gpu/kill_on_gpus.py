# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of a random rank in mid-sweep, again and again, on the GPUs of one machine.

    python tests/gpu/kill_on_gpus.py [--kills 10] [--seed 1] [--ranks-per-gpu N [--no-mps]]
        [--points 80] [-- OPTIONS OF nccltune sweep]

A full grid is measured into one study. At random moments a random rank is killed; the same command
then goes on. A moment is a time, or with --points a number of new timings of at most that many:
then no grid is complete too early that has more timings than kills times points. Checked: the sweep
ends by itself with a message; no process is left, none on a GPU; every point that was reported as
kept is in the study; what was measured once is not measured again; the last run completes the grid.
Exit status 1 where one of these fails.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
import shared_gpu

KEPT = re.compile(r"stopped; all (\d+) points so far are kept")
START_S = 2.0
"""Before this long there is nothing to interrupt."""
POINTS_LIMIT_S = 60.0
END_LIMIT_S = 10.0
MPS_END_LIMIT_S = 15.0
"""More, where the command ends its MPS daemon, too: `_QUIT_LIMIT_S` in measure/bench/mps.py."""


def bench_processes() -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if words[0].endswith(b"nccltune-bench") and state != "Z":
            found.append(int(folder.name))
    return found


def keys(study: Path) -> list[str]:
    """One for each timing, in order; every line has to be whole."""
    path = study / "samples.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    fields = ("collective", "bytes", "choice", "round", "repeat")
    return [json.dumps([json.loads(line).get(name) for name in fields]) for line in lines]


def killed(
    command: list[str], has_come: Callable[[float], bool], picker: random.Random
) -> tuple[float, str, int]:
    """Seconds from the kill to the end, what was printed, and the exit status.

    `has_come` returns whether the moment of the kill has come, so many seconds after the start.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with common.session(command, dict(os.environ), **pipes) as process:
        began = time.monotonic()
        while process.poll() is None and not has_come(time.monotonic() - began):
            time.sleep(0.005)
        ranks = bench_processes()
        start = time.monotonic()
        if ranks and process.poll() is None:
            os.kill(picker.choice(ranks), signal.SIGKILL)
        output, _ = process.communicate(timeout=60)
        return time.monotonic() - start, output, process.returncode


def moment_of(
    options: argparse.Namespace, study: Path, before: int, picker: random.Random
) -> tuple[str, Callable[[float], bool]]:
    """A random moment in words, and whether it has come."""
    if not options.points:
        moment = START_S + 2.5 * picker.random()
        return f"{moment:.1f} s", lambda seconds: seconds >= moment
    points = picker.randint(1, options.points)
    path = study / "samples.jsonl"

    def has_come(seconds: float) -> bool:
        if seconds > POINTS_LIMIT_S:
            return True
        return path.exists() and path.read_bytes().count(b"\n") >= before + points

    return f"{points} timings", has_come


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--points", type=int, default=0, help="new timings before a kill, at most")
    shared_gpu.add_options(parser)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("options", nargs="*")
    options = parser.parse_args()
    common.exit_on_term()
    picker = random.Random(options.seed)
    failures: list[str] = []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder, "study")
        command = ["nccltune", "sweep", "-o", str(study), "--exhaustive", *options.options]
        limit_s = END_LIMIT_S
        if options.ranks_per_gpu > 1:
            command += ["--ranks-per-gpu", str(options.ranks_per_gpu)]
            # Each command has a daemon of its own: a server that lost a client refuses others.
            command += [] if options.no_mps else ["--mps"]
            limit_s += 0 if options.no_mps else MPS_END_LIMIT_S
        before: list[str] = []
        for turn in range(options.kills):
            moment, has_come = moment_of(options, study, len(before), picker)
            seconds, said, status = killed(command, has_come, picker)
            left, busy = bench_processes(), shared_gpu.processes_on_gpus()
            now = keys(study)
            told = KEPT.search(said)
            rows.append([moment, round(seconds, 2), status, len(now)])
            print(f"killed after {moment}: ended in {seconds:.1f} s with {status}, "
                  f"{len(now) - len(before)} new points", flush=True)  # fmt: skip
            if options.points and len(now) == len(before):
                failures.append(f"kill {turn}: no timing before it: {said[-500:]}")
            if status == 0:
                failures.append(f"kill {turn}: the sweep was done too early")
            if left or busy:
                failures.append(f"kill {turn}: left running: {left}, on GPUs: {busy}")
            if told and int(told[1]) != len(now):
                failures.append(f"kill {turn}: {told[0]}, and the study has {len(now)}")
            if now[: len(before)] != before:
                failures.append(f"kill {turn}: points were lost")
            if seconds > limit_s:
                failures.append(f"kill {turn}: it took {seconds:.1f} s to end")
            before = now
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        last = keys(study)
        print(f"the last run: {len(last) - len(before)} new points, status {done.returncode}")
        if done.returncode != 0:
            failures.append(f"the last run failed: {done.stderr[-500:]}")
        if last[: len(before)] != before or len(set(last)) != len(last):
            failures.append("points were lost, or measured twice")
    for failure in failures:
        print(f"FAILED {failure}")
    if options.output:
        options.output.write_text(json.dumps({"rows": rows, "failures": failures}, indent=1))
    print(f"{options.kills} kills, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
