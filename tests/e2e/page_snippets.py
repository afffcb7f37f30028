# SPDX-License-Identifier: Apache-2.0
"""Run the fenced blocks of a page as a reader would, with stand-ins for what needs GPUs.

A block without a language is run. If its first line starts with `$ `, that line is the command and
the rest is what it prints; otherwise the whole block is a script.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.programs import completed, write_program

ROOT = Path(__file__).parents[2]
# The settings of a machine with GPUs, which the page's reader does not type.
MPIRUN = f"""#!/bin/sh
# The launcher's own options are dots on the page, but for the variables.
while [ "$1" != all_reduce_perf ]; do
  if [ "$1" = -x ]; then export "$2"; shift; fi
  shift
done
shift
export FAKE_LL128=1 FAKE_NODES=4 FAKE_RANKS=4
# The stand-in reads these in lower case alone.
if [ -n "${{NCCL_ALGO-}}" ]; then
  export NCCL_ALGO=$(echo "$NCCL_ALGO" | tr A-Z a-z) NCCL_PROTO=$(echo "$NCCL_PROTO" | tr A-Z a-z)
fi
exec {sys.executable} "$(dirname "$0")/all_reduce_perf" "$@"
"""


class Snippet(NamedTuple):
    """A fenced block: its shell, and what it prints where it shows that."""

    shell: str
    shown: str | None


def snippets(page: Path) -> list[Snippet]:
    """Return the blocks of a page that are run, in its order."""
    found = []
    # Blocks of all languages are matched, so that an end of one is never taken for a start.
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    for language, block in blocks:
        first, _, rest = block.partition("\n")
        if language:
            continue
        if first.startswith("$ "):
            found.append(Snippet(first.removeprefix("$ "), rest or None))
        else:
            found.append(Snippet(block, None))
    return found


def pattern(shown: str) -> re.Pattern[str]:
    """Return what is shown as an expression: dots stand for anything, blanks for blanks and line
    ends, a time for any time."""
    text = re.sub(r"^(took +)[\d.]+ s$", r"\1...", shown, flags=re.M)
    text = re.sub(r"^(output +\S+/)\d{8}-\d{6}/", r"\1.../", text, flags=re.M)
    words = (re.escape(word).replace(r"\.\.\.", r".*?") for word in text.split())
    return re.compile(r"\s*" + r"\s+".join(words) + r"\s*", re.S)


def reader_folder(folder: Path) -> Path:
    """Make the reader's folder: programs in `bin`, the examples of the source tree."""
    programs = {
        "nccltune": f'#!/bin/sh\nexec {sys.executable} -m nccltune "$@"\n',
        "mpirun": MPIRUN,
        # The browser of `--open`.
        "xdg-open": f'#!/bin/sh\necho "$1" >{folder}/opened\n',
    }
    for name, text in programs.items():
        write_program(folder / "bin" / name, text)
    shutil.copy(Path(__file__).with_name("fake_nccl_tests.py"), folder / "bin" / "all_reduce_perf")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def run(shell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a snippet in the reader's folder, without the settings of this shell."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NCCL_", "COLUMNS", "FORCE_COLOR"))
    }
    environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    return completed(["bash", "-uc", shell], cwd=folder, env=environment)


def check(done: subprocess.CompletedProcess[str], shown: str | None) -> None:
    """Check that a snippet succeeded, and printed what the page shows."""
    assert done.returncode == 0, done.stdout + done.stderr
    if shown is not None:
        # The hint to the next command is the page's own text.
        lines = re.compile(r"^next: .*\n", re.M)
        streams = (done.stdout + done.stderr, done.stderr + done.stdout)
        shown = lines.sub("", shown)
        expected = pattern(shown)
        assert any(expected.fullmatch(lines.sub("", text)) for text in streams), streams[0]
