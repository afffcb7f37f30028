# SPDX-License-Identifier: Apache-2.0
"""What the library before NCCL costs the CPU where it has nothing to do: a group of one send and
one receive of 1 KiB, which it leaves to NCCL.

    python benchmarks/sendrecv_small.py [--build build/release] [--rounds 15] [--before LIBRARY]

Needs no GPU: CUDA is the stand-in of the tests, and the NCCL behind the library does nothing
(benchmarks/native/idle_nccl.cc), so that what is left is the library's own; or it reads and runs
48 KiB a group, so that the library finds nothing of its own in the nearest caches, as behind the
real one. A round runs the program without the library, with it and `NCCLTUNE_SENDRECV=0`, and with
`=1`, in processes of their own, and at last with `=1` and the library of another state, if one is
given.
"""

import argparse
import os
import statistics
import subprocess
from collections import defaultdict
from pathlib import Path

KIB = {"idle": "0", "48 KiB": "48"}
CASES = {"without": None, "NCCLTUNE_SENDRECV=0": "0", "NCCLTUNE_SENDRECV=1": "1"}


def nanoseconds(build: Path, library: Path, mode: str | None, kib: str) -> float:
    """Of a group, in a process of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NCCLTUNE_")}
    folders = [build / "benchmarks/native/nccl", build / "tests/native/sendrecv/stand_in/cuda"]
    env["LD_LIBRARY_PATH"] = ":".join(map(str, folders))
    env["IDLE_NCCL_KIB"] = kib
    if mode is not None:
        env |= {"LD_PRELOAD": str(library), "NCCLTUNE_SENDRECV": mode}
        env["NCCLTUNE_SENDRECV_STATS"] = "-"
        env.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    done = subprocess.run(
        [build / "benchmarks/native/small_groups"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    # Where the library gave up, NCCL would have been compared with itself.
    if (mode == "1") != ("NCCL: small: " in done.stderr):
        raise SystemExit(
            f"NCCLTUNE_SENDRECV={mode}: the library printed: {done.stderr or 'nothing'}"
        )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", type=Path, help="the library as it was, built by itself")
    args = parser.parse_args()
    build, found = args.build.resolve(), defaultdict[tuple[str, str], list[float]](list)
    library = build / "native/sendrecv/libnccltune-sendrecv.so"
    cases = {name: (library, mode) for name, mode in CASES.items()}
    if args.before:
        cases["NCCLTUNE_SENDRECV=1, before"] = (args.before.resolve(), "1")
    for _ in range(args.rounds):
        for name, (which, mode) in cases.items():
            for behind, kib in KIB.items():
                found[name, behind].append(nanoseconds(build, which, mode, kib))
    print("ns a group, median (min - max)\n")
    print("| behind it an NCCL: | " + " | ".join(KIB) + " |\n| --- " + "| --- " * len(KIB) + "|")
    for name in cases:
        cells = []
        for behind in KIB:
            values = found[name, behind]
            cells.append(f"{statistics.median(values):.0f} ({min(values):.0f} - {max(values):.0f})")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
