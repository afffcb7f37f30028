# SPDX-License-Identifier: Apache-2.0
"""How long `nccltune --version` takes beside `python -c 'import click'`, alternating in one run.

python benchmarks/startup.py [ROUNDS]
"""

import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "nccltune --version": [str(Path(sys.executable).with_name("nccltune")), "--version"],
    "nccltune --help": [str(Path(sys.executable).with_name("nccltune")), "--help"],
    "import click": [sys.executable, "-c", "import click"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for round_ in range(rounds + 2):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if round_ >= 2:
                times[name].append(1e3 * (time.perf_counter() - started))
    base = statistics.median(times["import click"])
    print(f"Python {platform.python_version()}, {platform.machine()}, n = {rounds}")
    for name, values in times.items():
        ordered = sorted(values)
        low, high = ordered[len(ordered) // 10], ordered[-len(ordered) // 10]
        middle = statistics.median(values)
        print(
            f"{name:<20} {middle:7.1f} ms  ({low:.1f}-{high:.1f}, 10-90 %)  "
            f"{middle / base:.2f} x import click"
        )


if __name__ == "__main__":
    main()
