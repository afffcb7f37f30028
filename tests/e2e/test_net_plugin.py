# SPDX-License-Identifier: Apache-2.0
"""The network plugin as installed: its place, messages, strangers, and `nccltune net stats`."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nccltune.native import net_path
from tests.e2e.command_line import line, nccltune
from tests.programs import completed
from tests.waiting import wait_until

INTERFACES = [f"ncclNetPlugin_v{version}" for version in range(6, 13)]
LOOPBACK = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET"}


def transferred(plugin: Path, *options: str) -> Any:
    """The net host's report of messages over loopback, each byte of which it has checked."""
    program = net_path().parents[1] / "bin" / "nccltune-net-host"
    done = completed(
        [str(program), "transfer", "--plugin", str(plugin), "--fork", *options],
        env={**os.environ, **LOOPBACK},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_what_env_names_is_a_plugin_of_every_interface(tmp_path: Path) -> None:
    shown = nccltune("net", "env", "--nccl-version", "2.28.9", "--json", cwd=tmp_path)
    settings = json.loads(shown.stdout)["settings"]
    path = Path(settings["NCCL_NET_PLUGIN"])
    assert path == net_path()
    library = ctypes.CDLL(str(path))
    for symbol in INTERFACES:
        # The first member is the name that NCCL compares with NCCL_NET.
        name = ctypes.c_char_p.in_dll(library, symbol).value
        assert name == settings["NCCL_NET"].encode()


def test_a_folder_has_it_under_the_name_that_nccl_looks_for(tmp_path: Path) -> None:
    found = net_path().parent / "nccltune-net" / "libnccl-net.so"
    assert found.read_bytes() == net_path().read_bytes()
    load = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl-net.so').ncclNetPlugin_v8"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(found.parent)}
    subprocess.run(load, env=environment, check=True)
    # It needs nothing of the folder that it came from.
    transferred(Path(shutil.copy(found, tmp_path)), "--messages", "5")


STRANGERS = Path(__file__).parents[2] / "benchmarks" / "net_strangers.py"


@pytest.fixture
def working() -> subprocess.Popen[str]:
    """Two processes that send each other messages, of which every byte is checked."""
    program = net_path().parents[1] / "bin" / "nccltune-net-host"
    command = f"{program} throughput --fork --check --connections 2 --seconds 12 --warm-up 0 --log"
    return subprocess.Popen(
        [*command.split(), "--plugin", str(net_path())],
        env={**os.environ, **LOOPBACK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_strangers_disturb_nobody_and_are_counted(working: subprocess.Popen[str]) -> None:
    command = f"{STRANGERS} --process {working.pid} --a-minute 3000 --seconds 2 --json"
    strangers = completed([sys.executable, *command.split()])
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

            def roles() -> dict[str, int]:
                assert host.poll() is None
                found = {
                    connection["role"]: process["pid"]
                    for process in stats(*children.read_text().split(), tolerant=True)
                    for connection in process["connections"]
                    if any(flow["bytes"] for flow in connection["flows"]) or options[0] == "idle"
                }
                return found if len(found) == 2 else {}

            yield wait_until(roles)
        finally:
            host.kill()


def stats(*words: object, tolerant: bool = False) -> Any:
    """The processes that `net stats` shows, without rates where it may be too early for them."""
    more = ("--interval", "0") if tolerant else ()
    done = completed(line("net", "stats", "--json", *more, *words))
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
