# SPDX-License-Identifier: Apache-2.0
"""Tests of the scale in a file's name."""

import pytest

from nccltune.formats.reading.file_names import named_choice, scale_of_name


@pytest.mark.parametrize(
    ("name", "nodes", "ranks"),
    [
        ("job-n-00256-N-0064.csv", 64, 256),
        ("nccl_N2_G8_a_b.log", 2, None),
        ("allreduce_tcp_16gpu.csv", None, 16),
        ("2nodes_16gpus.txt", 2, 16),
        ("runs/nodes-4/out.log", None, None),
        ("node3.log", None, None),
        ("nccl-2.20.3-n1.5.log", None, None),
        ("n2-n4.log", None, None),
        ("run-nodes0.log", None, None),
    ],
)
def test_the_scale_in_a_name(name: str, nodes: int | None, ranks: int | None) -> None:
    assert scale_of_name(name) == (nodes, ranks)


@pytest.mark.parametrize("name", ["NVLS=0", "nvls=1", "tree: off", "NVLS_ENABLE=0", "LL128=0"])
def test_a_setting_that_is_named_after_a_choice_is_none(name: str) -> None:
    found = named_choice(name)
    assert found is not None
    assert not found.is_evidence
    assert not found.likely
