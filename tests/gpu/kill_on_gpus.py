# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of a random rank in mid-sweep, again and again, on the GPUs of one machine.

    python tests/gpu/kill_on_gpus.py [--kills 10] [--seed 1] [-- OPTIONS OF nccltune sweep]

A full grid is measured into one study. At random moments a random rank is killed; the same command
then goes on. Checked: the sweep ends by itself with a message; no process is left, none on a GPU;
every point that was reported as kept is in the study; what was measured once is not measured again;
the last run completes the grid. Exit status 1 where one of these fails.
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
from pathlib import Path

KEPT = re.compile(r"stopped; all (\d+) points so far are kept")
START_S = 2.0
"""Before this long there is nothing to interrupt."""


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


def on_gpus() -> list[str]:
    command = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.split()


def keys(study: Path) -> list[str]:
    """One for each timing, in order; every line has to be whole."""
    path = study / "samples.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    fields = ("collective", "bytes", "choice", "round", "repeat")
    return [json.dumps([json.loads(line).get(name) for name in fields]) for line in lines]


def killed(command: list[str], moment: float, picker: random.Random) -> tuple[float, str, int]:
    """Seconds from the kill to the end, what was printed, and the exit status."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + moment
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    ranks = bench_processes()
    start = time.monotonic()
    if ranks and process.poll() is None:
        os.kill(picker.choice(ranks), signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    return time.monotonic() - start, said, process.returncode


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("options", nargs="*")
    options = parser.parse_args()
    picker = random.Random(options.seed)
    failures: list[str] = []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder, "study")
        command = ["nccltune", "sweep", "-o", str(study), "--exhaustive", *options.options]
        before: list[str] = []
        for turn in range(options.kills):
            moment = START_S + 2.5 * picker.random()
            seconds, said, status = killed(command, moment, picker)
            left, busy = bench_processes(), on_gpus()
            now = keys(study)
            told = KEPT.search(said)
            rows.append([round(moment, 2), round(seconds, 2), status, len(now)])
            print(f"killed after {moment:.1f} s: ended in {seconds:.1f} s with {status}, "
                  f"{len(now) - len(before)} new points", flush=True)  # fmt: skip
            if status == 0:
                failures.append(f"kill {turn}: the sweep was done too early")
            if left or busy:
                failures.append(f"kill {turn}: left running: {left}, on GPUs: {busy}")
            if told and int(told[1]) != len(now):
                failures.append(f"kill {turn}: {told[0]}, and the study has {len(now)}")
            if now[: len(before)] != before:
                failures.append(f"kill {turn}: points were lost")
            if seconds > 10:
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
