# SPDX-License-Identifier: Apache-2.0
"""Port scans, HTTP requests, TLS hellos, random and silent peers while messages are moved."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nccltune.native import net_path

STRANGERS = Path(__file__).parents[2] / "benchmarks" / "net_strangers.py"
LOOPBACK = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET"}


@pytest.fixture
def working() -> subprocess.Popen[str]:
    """Two processes that send each other messages, of which every byte is checked."""
    program = net_path().parents[1] / "bin" / "nccltune-net-host"
    command = f"{program} throughput --fork --check --connections 2 --seconds 5 --warm-up 0 --log"
    return subprocess.Popen(
        [*command.split(), "--plugin", str(net_path())],
        env={**os.environ, **LOOPBACK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_strangers_disturb_nobody_and_are_counted(working: subprocess.Popen[str]) -> None:
    command = f"{STRANGERS} --process {working.pid} --a-minute 3000 --seconds 2 --json"
    strangers = subprocess.run(
        [sys.executable, *command.split()], capture_output=True, text=True, check=False
    )
    assert strangers.returncode == 0, strangers.stderr
    counts = json.loads(strangers.stdout)
    told, log = working.communicate(timeout=60)
    assert working.returncode == 0, log
    for rank in json.loads(told)["ranks"]:
        assert rank["received"]["messages"] > 0
        # The host asks on purpose for what no TCP transport has.
        assert all("regMr: memory of type 2" in warning for warning in rank["warnings"])
    for kind, count in counts.items():
        assert count["sent"] > 20, kind
        assert count["refused"] == 0, kind
        assert count["answered"] == 0, kind
    for kind in ("http", "tls", "random"):
        assert counts[kind]["closed"] > 20, kind
    # One line with their number when a listener is closed.
    turned_away = re.findall(r"INFO.* (\d+) foreign connections were closed at 127.0.0.1:", log)
    sure = counts["scan"]["sent"] + sum(count["closed"] for count in counts.values())
    assert sum(int(number) for number in turned_away) >= sure
