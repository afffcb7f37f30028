# SPDX-License-Identifier: Apache-2.0
"""The network plugin as installed: where it is, what is printed about it, and that it works."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nccltune.native import net_path
from tests.e2e.command_line import nccltune

INTERFACES = [f"ncclNetPlugin_v{version}" for version in range(6, 13)]
LOOPBACK = {"NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET"}


def transferred(plugin: Path, *options: str) -> Any:
    """The net host's report of messages over loopback, each byte of which it has checked."""
    program = net_path().parents[1] / "bin" / "nccltune-net-host"
    done = subprocess.run(
        [str(program), "transfer", "--plugin", str(plugin), "--fork", *options],
        env={**os.environ, **LOOPBACK},
        capture_output=True,
        text=True,
        check=False,
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


@pytest.mark.parametrize("interface", [6, 8, 11, 12])
def test_messages_of_all_sizes_arrive(interface: int) -> None:
    report = transferred(
        net_path(), "--sizes", "0,1,32K,64K,3M", "--messages", "20", "--interface", str(interface)
    )
    assert report["interface"] == interface
    assert [rank["received"]["messages"] for rank in report["ranks"]] == [20, 20]


def test_a_folder_has_it_under_the_name_that_nccl_looks_for(tmp_path: Path) -> None:
    found = net_path().parent / "nccltune-net" / "libnccl-net.so"
    assert found.read_bytes() == net_path().read_bytes()
    load = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl-net.so').ncclNetPlugin_v8"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(found.parent)}
    subprocess.run(load, env=environment, check=True)
    # It needs nothing of the folder that it came from.
    transferred(Path(shutil.copy(found, tmp_path)), "--messages", "5")
