# SPDX-License-Identifier: Apache-2.0
"""Words of a person that a program works with a setting, or without one."""

from pathlib import Path

import pytest

from nccltune.doctor.evidence.elsewhere import read_elsewhere
from nccltune.doctor.evidence.parsers.workarounds import workarounds
from nccltune.doctor.facts.log import LOG_WORKAROUNDS


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("With NCCL_P2P_DISABLE=1 it runs at 12 GB/s", "NCCL_P2P_DISABLE=1"),
        ("It works with `NCCL_P2P_DISABLE=1` but is very slow", "NCCL_P2P_DISABLE=1"),
        ("It only works if I set NCCL_IB_DISABLE to 1", "NCCL_IB_DISABLE=1"),
        ("The workaround is NCCL_NVLS_ENABLE=0.", "NCCL_NVLS_ENABLE=0"),
        ("I had to manually set the GID: `NCCL_IB_GID_INDEX=1`", "NCCL_IB_GID_INDEX"),
        ("> Solved by setting NCCL_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME"),
        ("After we removed NCCL_SOCKET_IFNAME=bond0 it works", "-NCCL_SOCKET_IFNAME"),
        ("All tests pass with NCCL_P2P_DISABLE=1", "NCCL_P2P_DISABLE=1"),
        ("With NCCL_P2P_DISABLE=1 it no longer hangs", "NCCL_P2P_DISABLE=1"),
        ("The crash is gone with NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0"),
        ("It works after removing NCCL_IB_HCA", "-NCCL_IB_HCA"),
        ("I set NCCL_P2P_DISABLE=1 but it still hangs", ""),
        ("NCCL_IB_DISABLE=1 fails too, only gloo works", ""),
        ("I tried NCCL_P2P_DISABLE=1 and it hangs all the same, MPI works", ""),
        ("Everything worked until the admin removed NCCL_IB_HCA=mlx5_0", ""),
        ("Everything worked, and then they removed NCCL_IB_HCA=mlx5_0", ""),
        ("Before we removed NCCL_IB_HCA everything worked", ""),
        ("No job works after we removed NCCL_IB_HCA", ""),
        ("The launcher passes NCCL_SOCKET_IFNAME=eth0 to all pods", ""),
        ("I ran both and NCCL_IB_DISABLE=1 passes 3 tests fewer", ""),
        ("Changelog: resolves NCCL_P2P_DISABLE=1 handling", ""),
        ("Setting NCCL_P2P_DISABLE=1 did not fix the hang", ""),
        ("Would NCCL_P2P_DISABLE=1 work?", ""),
        ("Try NCCL_P2P_DISABLE=1 and see if it works", ""),
        ("It works on one node. On two with NCCL_IB_DISABLE=1 it hangs", ""),
        ("It works with NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1", ""),
        ("works fine without setting NCCL_P2P_DISABLE=1", ""),
        ("NCCL_IB_HCA works by prefix", ""),
        ("export NCCL_P2P_DISABLE=1 # works", ""),
        ("a:1:2 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1, works", ""),
        ("RuntimeError: it works with NCCL_P2P_DISABLE=1", ""),
    ],
)
def test_settings_with_which_it_works(text: str, key: str) -> None:
    found = workarounds(f"Hi,\n{text}\nThanks")
    assert "".join("-" * bool(one.removed) + (one.key or "") for one in found) == key


def test_a_post_that_only_tells_of_one(tmp_path: Path) -> None:
    (tmp_path / "post.txt").write_text("It hangs. Setting NCCL_P2P_DISABLE=1 fixes it.\n")
    found = read_elsewhere([tmp_path / "post.txt"])
    assert found is not None
    (facts,) = found.values()
    (one,) = facts.value(LOG_WORKAROUNDS) or []
    assert (one.key, one.text) == ("NCCL_P2P_DISABLE=1", "Setting NCCL_P2P_DISABLE=1 fixes it")
