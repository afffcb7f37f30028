# SPDX-License-Identifier: Apache-2.0
"""What tests of `nccltune launch --launcher kubernetes` share."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nccltune.launch.follow import Follower
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.run import ClusterJob
from tests.e2e.command_line import line
from tests.programs import completed

from .cluster import Cluster

ROWS = 4


def command_words(study: Path | None, *more: str) -> list[str]:
    kept = [] if study is None else ["-o", str(study), "--json"]
    return [
        *("--launcher", "kubernetes", "--set", "image=nccl-tests", "--nodes", "2"),
        *("--gpus", "2", *kept, *more),
        *("--", "all_reduce_perf", "-b", "1K", "-e", "8K", "-f", "2"),
    ]


started: list["subprocess.Popen[str]"] = []


@pytest.fixture
def none_runs_on() -> Iterator[None]:
    """What a failed test leaves running would disturb the next one; its messages have the
    reason."""
    yield
    while started:
        process = started.pop()
        if process.stdout and not process.stdout.closed:
            process.kill()
            sys.stderr.write("".join(process.communicate()))


def start(cluster: Cluster, *words: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        line("launch", "run", *words),
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    return process


def end(process: "subprocess.Popen[str]", limit_s: float = 120) -> tuple[int, Any, str]:
    out, errors = process.communicate(timeout=limit_s)
    return process.returncode, json.loads(out) if out.strip() else None, errors


def run_to_its_end(cluster: Cluster, *words: str) -> tuple[int, Any, str]:
    return end(start(cluster, *words))


def nothing_left(cluster: Cluster) -> None:
    assert cluster.items("mpijobs") == []
    assert cluster.items("pods") == []


def rows(tmp_path: Path) -> list[str]:
    outputs = (tmp_path / "study").glob("launch/*/output.txt")
    return [line for path in outputs for line in path.read_text().splitlines() if " float " in line]


def render(cluster: Cluster, *more: str) -> str:
    done = completed(
        line("launch", "render", *command_words(None, *more)), env=cluster.environment, check=True
    )
    return done.stdout


def job_of(
    cluster: Cluster, folder: Path, told: list[str] | None = None, **more: float
) -> ClusterJob:
    job = Job(program=["all_reduce_perf"], nodes=2, gpus_per_node=2)
    said = told if told is not None else []
    output = folder / "output.txt"
    environment = cluster.environment
    return ClusterJob(job, output, Follower(), said.append, environment, poll_s=0.2, **more)
