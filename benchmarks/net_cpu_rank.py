# SPDX-License-Identifier: Apache-2.0
"""Runs a program and writes what CPU time it took: python net_cpu_rank.py FILE PROGRAM ARGUMENT...

The file has one JSON object: user and system seconds of the program with all its threads, as the
kernel counts them at its end, and seconds by name of thread, as last seen (a look every 100 ms,
ticks of 10 ms). Numbers in names are left out; the first thread is "main".
"""

import contextlib
import json
import os
import re
import sys
import time
from collections import defaultdict
from pathlib import Path

LOOK_S = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def look(process: int, seen: dict[int, tuple[str, float]]) -> None:
    """Name and seconds of each thread that is there."""
    for task in Path(f"/proc/{process}/task").glob("*"):
        with contextlib.suppress(OSError):
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            fields = rest.split()
            ticks = int(fields[11]) + int(fields[12])
            name = "main" if int(task.name) == process else re.split(r"\d", name)[0].strip()
            seen[int(task.name)] = (name, ticks / TICKS_PER_S)


def main() -> None:
    file, *command = sys.argv[1:]
    process = os.posix_spawnp(command[0], command, os.environ)
    seen: dict[int, tuple[str, float]] = {}
    while True:
        ended, status, usage = os.wait4(process, os.WNOHANG)
        if ended:
            break
        look(process, seen)
        time.sleep(LOOK_S)
    threads: dict[str, float] = defaultdict(float)
    for name, seconds in seen.values():
        threads[name] += seconds
    took = {"user_s": usage.ru_utime, "system_s": usage.ru_stime, "threads_s": threads}
    Path(file).write_text(json.dumps(took))
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
