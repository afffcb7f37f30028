# SPDX-License-Identifier: Apache-2.0
"""Run commands in parallel, and show their progress each second.

    python packaging/progress.py LOG LABEL COMMAND [LABEL COMMAND ...]

Each command is a line of shell. The output of the commands goes to LOG.1, LOG.2 and so on. If a
command fails, the other commands are stopped, and the end of the failed command's output is
printed. The exit status is that of the failed command, or 0 if all commands succeed.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# The step counter that ninja prints: `[12/345] `.
_STEP = re.compile(rb"\[(\d+)/(\d+)\] ")
_DOING = re.compile(rb"^\s*(Collecting|Downloading|Installing|Building|Successfully) ?(\S*)", re.M)


@dataclass
class Running:
    """One command that was started."""

    label: str
    log: Path
    process: subprocess.Popen[bytes]

    def state(self) -> str:
        """Return the progress of the command in a few words."""
        if self.process.poll() is not None:
            return f"{self.label}: " + ("done" if self.process.returncode == 0 else "failed")
        printed = self.log.read_bytes()
        steps = _STEP.findall(printed)
        if steps:
            done, total = (int(number) for number in steps[-1])
            return f"{self.label}: {done} of {total}"
        doing = _DOING.findall(printed)
        if doing:
            words = b" ".join(doing[-1]).decode(errors="replace")
            return f"{self.label}: {words[:40].rstrip(', ').lower()}"
        return self.label


def start(log: str, number: int, label: str, command: str) -> Running:
    """Start `command`; its output goes to the file `log`.`number`."""
    path = Path(f"{log}.{number}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(label, path, process)


def stop(commands: list[Running]) -> None:
    """Stop the commands that still run, and their child processes."""
    for command in commands:
        if command.process.poll() is None:
            os.killpg(command.process.pid, signal.SIGTERM)
            command.process.wait()


def follow(commands: list[Running]) -> int:
    """Show the progress until all commands have ended or one has failed; return the exit status."""
    began = time.monotonic()
    terminal = sys.stderr.isatty()
    while True:
        codes = [command.process.poll() for command in commands]
        failed = next((c for c in commands if c.process.returncode), None)
        text = "; ".join(command.state() for command in commands)
        line = f"{time.monotonic() - began:4.0f} s  {text}"
        sys.stderr.write(f"\r\x1b[2K{line[:110]}" if terminal else f"{line}\n")
        sys.stderr.flush()
        if failed or None not in codes:
            break
        for _ in range(10):
            time.sleep(0.1)
            if all(command.process.poll() is not None for command in commands):
                break
    if terminal:
        sys.stderr.write("\n")
    if failed is None:
        return 0
    stop(commands)
    printed = failed.log.read_text(encoding="utf-8", errors="replace").splitlines()
    print(*printed[-40:], sep="\n", file=sys.stderr)
    print(f"error: {failed.label} failed; all that it printed is in {failed.log}", file=sys.stderr)
    return abs(int(failed.process.returncode))


def main(arguments: list[str]) -> int:
    """Run the commands of `arguments`: the path of the log, then a label and a command for each."""
    log, *pairs = arguments
    commands = [
        start(log, number, label, command)
        for number, (label, command) in enumerate(zip(pairs[::2], pairs[1::2], strict=True), 1)
    ]
    try:
        return follow(commands)
    finally:
        stop(commands)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
