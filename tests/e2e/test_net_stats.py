# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats` beside processes that move bytes through the network plugin."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nccltune.native import net_path
from tests.e2e.command_line import line, nccltune

LOOPBACK = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET"}
FLOWS = 3


@contextmanager
def moving(*options: str) -> Iterator[dict[str, int]]:
    """Two processes with a connection, by what each does; they are ended at the end."""
    program = net_path().parents[1] / "bin" / "nccltune-net-host"
    words = [str(program), *options, "--plugin", str(net_path()), "--fork"]
    words += ["--direction", "forward", "--seconds", "60"]
    environment = {**os.environ, **LOOPBACK, "NCCLTUNE_NET_FLOWS": str(FLOWS)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as host:
        try:
            children = Path(f"/proc/{host.pid}/task/{host.pid}/children")
            until = time.monotonic() + 60
            roles: dict[str, int] = {}
            while len(roles) != 2:
                assert time.monotonic() < until, roles
                assert host.poll() is None
                pids = children.read_text().split()
                roles = {
                    connection["role"]: process["pid"]
                    for process in stats(*pids, tolerant=True)
                    for connection in process["connections"]
                    if any(flow["bytes"] for flow in connection["flows"]) or options[0] == "idle"
                }
            yield roles
        finally:
            host.kill()


def stats(*words: object, tolerant: bool = False) -> Any:
    """The processes that `net stats` shows, without rates where it may be too early for them."""
    more = ("--interval", "0") if tolerant else ()
    done = subprocess.run(
        line("net", "stats", "--json", *more, *words), capture_output=True, text=True, check=False
    )
    if tolerant and done.returncode != 0:
        return []
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["processes"]


def connection_of(processes: Any, pid: int) -> Any:
    (found,) = [process for process in processes if process["pid"] == pid]
    assert found["problems"] == []
    (connection,) = found["connections"]
    return connection


def test_both_ends_of_a_running_transfer_are_shown_flow_by_flow() -> None:
    with moving("throughput") as roles:
        processes = stats("--interval", "0.5")
        sender = connection_of(processes, roles["sends"])
        receiver = connection_of(processes, roles["receives"])
    assert sender["device"] == receiver["device"] == "lo"
    assert sender["kinds"]["bulk"] > 0
    assert sender["bytes_per_s"] > 0
    assert receiver["bytes_per_s"] > 0
    # A message of 1 MiB is never in part.
    assert sender["bytes"] == sender["messages"] << 20
    for end in (sender, receiver):
        assert len(end["flows"]) == FLOWS + 1
        assert [flow["express"] for flow in end["flows"]] == [True] + [False] * FLOWS
        assert sum(flow["share"] for flow in end["flows"]) == pytest.approx(1)
        assert all(flow["up"] and flow["deaths"] == 0 for flow in end["flows"])
    assert [flow["local"] for flow in sender["flows"]] == [
        flow["peer"] for flow in receiver["flows"]
    ]


def test_a_process_is_watched_until_it_ends(tmp_path: Path) -> None:
    with moving("idle") as roles:
        pid = roles["sends"]
        table = nccltune("net", "stats", pid, "--interval", "0.1", cwd=tmp_path).stdout
        assert table.startswith(f"pid {pid}  1 connection  ")
        assert "sends      to 127.0.0.1:" in table
        assert len(table.splitlines()) == 3 + FLOWS + 1
        words = line("net", "stats", pid, "--watch", "--json", "--interval", "0.1")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            looks = [json.loads(watch.stdout.readline()) for _ in range(3)]
            os.kill(pid, 9)
            looks += [json.loads(look) for look in watch.stdout]
        assert watch.returncode == 0
    assert [process["pid"] for look in looks[:3] for process in look["processes"]] == [pid] * 3
    assert looks[1]["processes"][0]["connections"][0]["bytes_per_s"] == 0
    # It is not there any more, which is an error for who asks anew.
    assert "there is no process" in nccltune("net", "stats", pid, cwd=tmp_path, code=2).stderr
