# SPDX-License-Identifier: Apache-2.0
"""What a run shows that can make it slow."""

import pytest

from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.reference.causes import causes, limiting_settings


def found(nodes: int = 2, largest: int = 8 << 30, label: str = "default", **facts: object) -> str:
    return "; ".join(
        causes(
            PlatformFacts(**facts),  # type: ignore[arg-type]
            nodes=nodes,
            gpus=8 * nodes,
            largest=largest,
            label=label,
        )
    )


def test_a_run_that_shows_nothing_has_no_cause() -> None:
    assert found() == found(settings={"NCCL_IB_DISABLE": "0", "NCCL_P2P_LEVEL": "NVL"}) == ""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"network": "Socket"}, "TCP between the nodes, no RDMA"),
        ({"nics": ("IB mlx5_0",)}, "NCCL found 1 NIC on a node with 8 GPUs"),
        ({"settings": {"NCCL_IB_HCA": "mlx5_0:1"}}, "it names 1 NIC for 8 GPUs of a node"),
        ({"settings": {"NCCL_IB_DISABLE": "1"}}, "NCCL_IB_DISABLE=1 is set"),
    ],
)
def test_the_network_counts_between_nodes_only(facts: dict[str, object], words: str) -> None:
    assert words in found(**facts)
    assert found(nodes=1, **facts) == ""


@pytest.mark.parametrize("names", ["^mlx5_0", "mlx5", ",".join(f"mlx5_{i}" for i in range(8))])
def test_a_list_that_leaves_enough_nics_is_no_cause(names: str) -> None:
    assert found(settings={"NCCL_IB_HCA": names}) == ""


def test_limits_conditions_and_small_sizes_are_named() -> None:
    assert "NCCL_ALGO=Ring is set" in found(settings={"NCCL_ALGO": "Ring"})
    assert "ring/simple was forced" in found(label="ring/simple")
    assert "measured with -z 1" in found(conditions=("-z 1",))
    assert "the largest size is 128 MiB" in found(largest=128 << 20)


@pytest.mark.parametrize(
    ("label", "settings", "limited"),
    [
        ("default", {}, ""),
        ("default", {"NCCL_ALGO": "Ring"}, "NCCL_ALGO=Ring"),
        ("default", {"NCCL_ALGO": "NVLSTree"}, ""),
        ("default", {"NCCL_NVLS_ENABLE": "0"}, "NCCL_NVLS_ENABLE=0"),
        ("default", {"NCCL_NVLS_ENABLE": "1"}, ""),
        ("ring/simple", {}, "NCCL_ALGO=ring"),
        ("nvls/simple", {}, ""),
    ],
)
def test_what_keeps_nccl_from_its_default(
    label: str, settings: dict[str, str], limited: str
) -> None:
    assert limiting_settings(PlatformFacts(settings=settings), label) == limited
