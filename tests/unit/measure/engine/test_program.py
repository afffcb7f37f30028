# SPDX-License-Identifier: Apache-2.0
"""Programs that end, and programs that hang."""

import os
import time
from pathlib import Path

import pytest

from nccltune.measure.engine.program import run_program
from nccltune.model.errors import PlatformError
from tests.programs import python_program
from tests.waiting import wait_until


def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    program = python_program(tmp_path / "p", "import sys; print('out'); sys.exit('the reason')")
    ended = run_program([str(program)], os.environ, 30)
    assert (ended.status, ended.output, ended.succeeded) == (1, b"out\n", False)
    assert ended.sentence() == "ended with status 1; its last line: the reason"
    with pytest.raises(PlatformError, match="cannot be started: No such file"):
        run_program([str(tmp_path / "missing")], os.environ, 30)


def test_a_program_that_is_stuck_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child.pid"
    text = (
        "import subprocess, sys, time\n"
        "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(c.pid))\n"
        "print('half', flush=True)\n"
        "time.sleep(600)\n"
    )
    started = time.monotonic()
    ended = run_program([str(python_program(tmp_path / "p", text))], os.environ, 1.5)
    assert time.monotonic() - started < 30
    assert ended.status is None
    assert ended.sentence() == "took too long and was killed; its last line: half"
    status = Path(f"/proc/{child.read_text()}/status")
    wait_until(lambda: not status.exists() or "State:\tZ" in status.read_text(), "a child is left")
