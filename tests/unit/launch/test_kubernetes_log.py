# SPDX-License-Identifier: Apache-2.0
"""The log of a pod over a kubectl whose connections break: every line once, in order."""

import os
import random
import time
from pathlib import Path

import pytest

from nccltune.launch.follow import Follower
from nccltune.launch.kubernetes import log
from nccltune.launch.kubernetes.kubectl import Kubectl
from nccltune.launch.kubernetes.log import PodLog
from tests.programs import write_program

# Gives the lines of FOLDER/log whose second is that of --since-time or later, as a kubelet does;
# with --follow at most as many bytes as the next number in FOLDER/cuts.
KUBECTL = """#!/usr/bin/env python3
import pathlib, sys
folder = pathlib.Path({folder!r})
since = next((word[13:32] for word in sys.argv if word.startswith("--since-time=")), "")
text = b"".join(
    line for line in (folder / "log").read_bytes().splitlines(keepends=True)
    if line[:19].decode() >= since
)
if "--follow" in sys.argv:
    first, *rest = (folder / "cuts").read_text().split()
    (folder / "cuts").write_text(" ".join(rest))
    text = text[:int(first)]
elif (folder / "gone").exists():
    sys.exit("Error from server (NotFound)")
sys.stdout.buffer.write(text)
"""


def _log(tmp_path: Path, lines: int, rng: random.Random) -> bytes:
    """Lines with the stamps of a container runtime, several a second, the last without an end."""
    text, stamped, ns = [], [], 0
    for number in range(lines):
        ns += rng.randrange(1, 400_000_000)
        stamp = f"2026-11-21T14:00:{ns // 10**9:02}.{ns % 10**9:09}Z"
        text.append(f"line {number}".encode() if number % 7 else b"")
        stamped.append(stamp.encode() + b" " + text[-1])
    (tmp_path / "log").write_bytes(b"\n".join(stamped))
    return b"\n".join(text)


@pytest.fixture
def pod_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodLog:
    monkeypatch.setattr(log, "_AGAIN_S", 0.0)
    write_program(tmp_path / "kubectl", KUBECTL.format(folder=str(tmp_path)))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    kubectl = Kubectl(environment={**os.environ, "PATH": path})
    return PodLog(kubectl, "pod", "launcher", tmp_path / "output", Follower())


@pytest.mark.parametrize("seed", range(4))
def test_broken_connections_lose_nothing(tmp_path: Path, pod_log: PodLog, seed: int) -> None:
    rng = random.Random(seed)
    text = _log(tmp_path, 60, rng)
    cuts = [rng.randrange(0, 900) for _ in range(8)]
    (tmp_path / "cuts").write_text(" ".join(map(str, cuts)))
    until = time.monotonic() + 30
    while (tmp_path / "cuts").read_text() and time.monotonic() < until:
        pod_log.take()
    assert pod_log.finish()
    assert (tmp_path / "output").read_bytes() == text


def test_words_about_the_log_are_not_of_it(tmp_path: Path, pod_log: PodLog) -> None:
    (tmp_path / "log").write_bytes(
        b"2026-11-21T14:00:00.000000001Z a\nfailed to watch file: too many open files\n"
    )
    assert pod_log.finish()
    assert (tmp_path / "output").read_bytes() == b"a\n"


def test_a_log_that_is_gone_is_told(tmp_path: Path, pod_log: PodLog) -> None:
    _log(tmp_path, 3, random.Random(1))
    (tmp_path / "gone").touch()
    assert not pod_log.finish()
