# SPDX-License-Identifier: Apache-2.0
"""`nccltune sendrecv settings` with real processes that speak the bench's conversation."""

import json
from pathlib import Path

import pytest

from tests.e2e.own_processes import native, run

__all__ = ["native"]
FAST = ("--sizes", "1M-64M")


@pytest.fixture(scope="module")
def raced(native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with a finished race, named `study` in the folder."""
    folder = tmp_path_factory.mktemp("raced")
    done = run(native, "sendrecv", "settings", "--gpus", 2, *FAST, "-o", "study", cwd=folder)
    (folder / "screen").write_text(done.stdout)
    return folder


def test_the_lines_to_set_are_shown_written_and_printed_by_env(raced: Path, native: Path) -> None:
    screen = (raced / "screen").read_text()
    assert "set        NCCL_MIN_P2P_NCHANNELS=64" in screen
    assert "send/recv  4 MiB - 64 MiB       faster 1.5" in screen
    assert "all-reduce as before beyond noise: 1.00x" in screen
    assert "memory     buffers for all peers on a GPU: up to" in screen
    conf = (raced / "study" / "p2p.conf").read_text()
    assert conf.splitlines()[-1] == "NCCL_MIN_P2P_NCHANNELS=64"
    assert "# send/recv  4 MiB - 64 MiB" in conf
    result = json.loads((raced / "study" / "p2p.json").read_text())
    assert result["settings"] == {"NCCL_MIN_P2P_NCHANNELS": 64}
    assert result["champion"]["effective"]["p2p_channels"] == 64
    assert result["command"].startswith("nccltune sendrecv settings")
    printed = run(native, "env", "study", "--format", "nccl.conf", cwd=raced)
    assert printed.stdout == "NCCL_MIN_P2P_NCHANNELS=64\n"
    # What the sweep of choices reads is not touched.
    assert not (raced / "study" / "samples.jsonl").exists()


def test_a_race_with_other_settings_around_it_is_refused(raced: Path, native: Path) -> None:
    done = run(
        native,
        *("sendrecv", "settings", "--gpus", 2, *FAST, "-o", "study"),
        cwd=raced,
        code=2,
        NCCL_BUFFSIZE="8388608",
    )
    assert "is a study of another platform" in done.stderr
    assert "NCCL_BUFFSIZE=8388608 here" in done.stderr
