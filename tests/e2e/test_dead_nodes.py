# SPDX-License-Identifier: Apache-2.0
"""A node of a real Slurm that goes away in the middle of a job, with everything on it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bench_runs import eventually
from .test_slurm import SCRIPT, Launched, queue

FEW_S = "2"
"""Slurm takes a node for dead that has not answered for so long, but looks only now and then."""


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("slurm")
    done = subprocess.run(
        [SCRIPT, "start", folder, "4"],
        env=os.environ | {"SLURMD_TIMEOUT": FEW_S},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if done.returncode == 3:
        pytest.skip(f"no Slurm here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    yield {**os.environ, "SLURM_CONF": done.stdout.strip().rpartition("=")[2]}
    subprocess.run([SCRIPT, "stop", folder], check=False, timeout=60)


def of_node(node: str, slurm: dict[str, str], places: Path) -> set[int]:
    """slurmd of a node, the daemons of its steps and the processes of the job there."""
    daemons, tasks = set(), set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            variables = (folder / "environ").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if f"slurmd\0-N\0{node}\0-f\0{slurm['SLURM_CONF']}".encode() in words:
            daemons.add(int(folder.name))
        if {f"PLACES={places}".encode(), f"SLURMD_NODENAME={node}".encode()} <= set(variables):
            tasks.add(int(folder.name))
            if b"slurmstepd" in Path(f"/proc/{parent}/cmdline").read_bytes():
                daemons.add(parent)
    assert tasks, f"nothing runs on {node}"
    return daemons | tasks


@pytest.mark.parametrize("node", ["b"])
def test_a_node_that_goes_away_is_told(tmp_path: Path, slurm: dict[str, str], node: str) -> None:
    launched = Launched(tmp_path, {**slurm, "LAUNCHED_SLOW": "60"})
    for _ in eventually(60):
        outputs = list((launched.study / "launch").glob("*/output.txt"))
        if outputs and "  1024  " in outputs[0].read_text():
            break
    gone = of_node(node, slurm, launched.places)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in gone:
            os.kill(pid, number)
    code, said, talk = launched.end()
    assert code == 4, talk
    assert said["state"] == "failed"
    assert "NODE_FAIL" in said["why"], talk
    assert launched.sizes() == [1024]
    pids = [json.loads(path.read_text())["pid"] for path in launched.places.glob("[0-7]")]
    for _ in eventually(30):
        if not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids) and not queue(slurm):
            break
