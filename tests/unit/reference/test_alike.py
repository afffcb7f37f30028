# SPDX-License-Identifier: Apache-2.0
"""Which systems are alike."""

import pytest

from nccltune.model.collective import Collective
from nccltune.reference.alike import SystemShown, gpu_class, node_range, unlike
from nccltune.reference.curves import ReferenceCurve


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("NVIDIA H100 80GB HBM3", "H200", "NVIDIA H100 PCIe"),
        ("NVIDIA H20-3e", "H100", "NVIDIA H800"),
        ("NVIDIA A100-SXM4-80GB", "A100", "NVIDIA A100-PCIE-40GB"),
        ("A100-SXM-80GB", "A100-SXM4-40GB", "NVIDIA A800-SXM4-80GB"),
        ("NVIDIA B200", "NVIDIA B300 SXM6 AC", "NVIDIA GB200"),
        ("NVIDIA GH200 120GB", "GH200", "H200"),
        ("Tesla V100-SXM3-32GB", "V100-SXM3", "Tesla V100-SXM2-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", "NVIDIA GeForce RTX 3090"),
        ("Tesla T4", "T4", "NVIDIA L4"),
        ("NVIDIA H100 NVL", "H100 NVL", "NVIDIA H100 80GB HBM3"),
    ],
)
def test_gpus_with_the_same_links_are_alike(name: str, same: str, other: str) -> None:
    assert gpu_class(name) == gpu_class(same)
    assert gpu_class(name) != gpu_class(other)


def test_a_name_without_a_model_has_no_class() -> None:
    assert gpu_class("NVIDIA Graphics Device") is None
    assert gpu_class(None) is None
    assert gpu_class("NVIDIA H20") == "H100, H200 or H20"


def test_two_nodes_are_like_two_nodes_only() -> None:
    assert [node_range(nodes) for nodes in (1, 2, 3, 4, 5, 64)] == [
        (1, 1),
        (2, 2),
        (3, 6),
        (3, 8),
        (3, 10),
        (32, 128),
    ]


def test_each_rule_is_named() -> None:
    curve = ReferenceCurve(
        system="x",
        gpu="H100",
        gpus=16,
        nodes=2,
        nic_gbps_per_gpu=400,
        collective=Collective.ALLREDUCE,
        source="x",
        read="table",
        busbw_gb_per_s=400.0,
    )

    def rules(collective: Collective = Collective.ALLREDUCE, **facts: object) -> list[str]:
        plain = {"gpu": "H200", "nodes": 2, "gpus": 16, "nic_gbps_per_gpu": 400.0}
        return unlike(SystemShown(**{**plain, **facts}), collective, curve)  # type: ignore[arg-type]

    assert rules() == []
    assert rules(Collective.ALLGATHER) == ["collective"]
    assert rules(gpu="A100") == ["GPU"]
    assert rules(gpus=8) == ["GPUs a node"]
    assert rules(nodes=4, gpus=32) == ["nodes"]
    assert rules(nic_gbps_per_gpu=200.0) == ["NIC rate"]
    assert rules(nic_gbps_per_gpu=None) == [], "an unknown fact breaks no rule"
    assert rules(nodes=1, gpus=8) == ["nodes"]
    assert rules(limited=True) == ["settings"]


def test_nics_matter_between_nodes_only() -> None:
    assert SystemShown(gpu="H100", nodes=1, gpus=8).missing == []
    assert SystemShown(gpu="H100", nodes=2, gpus=16).missing == ["nics"]
    assert SystemShown(gpu="GB200", nodes=18, gpus=72).missing == []
    assert SystemShown(gpu="GB200", nodes=32, gpus=128).missing == ["nics"]
    assert SystemShown(gpus=16).missing == ["gpu", "nodes", "nics"]
