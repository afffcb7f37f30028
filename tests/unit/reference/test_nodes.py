# SPDX-License-Identifier: Apache-2.0
"""The usual node of a GPU model."""

import pytest

from nccltune.model.errors import InputError
from nccltune.predict import predict
from nccltune.reference.nodes import usual_node


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "gbit", "busbw"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 8, 400, 380.5),
        ("NVIDIA H200", 8, 4, 400, 191.1),
        ("A100-SXM4-80GB", 8, 4, 100, 47.9),
        ("B200", 8, 8, 400, 380.5),
        ("GH200 120GB", 4, 4, 200, 95.9),
        ("V100-SXM3", 16, 1, 100, 12.0),
    ],
)
def test_rings_reach_what_the_nics_carry(
    gpu: str, gpus: int, nics: int, gbit: float, busbw: float
) -> None:
    node = usual_node(gpu, gpus=gpus, nics=nics, gbit_per_s=gbit)
    found = predict(node, nodes=4, version=(2, 28, 9), settings={"NCCL_ALGO": "Ring"})
    assert found.communicator.ppn == gpus
    assert found.sizes[-1].busbw_gb_per_s == pytest.approx(busbw, abs=0.1)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "words"),
    [
        ("H100", 8, 3, "3 NICs cannot be shared evenly by 8 GPUs"),
        ("NVIDIA H100 PCIe", 8, 8, "no usual node of 8 x NVIDIA H100 PCIe"),
        ("NVIDIA L40S", 4, 4, "no usual node of 4 x NVIDIA L40S"),
        ("GB200", 4, 4, "no usual node of 4 x GB200"),
        ("GH200", 1, 1, "no usual node of 1 x GH200"),
    ],
)
def test_nodes_that_are_not_usual(gpu: str, gpus: int, nics: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        usual_node(gpu, gpus=gpus, nics=nics, gbit_per_s=400)
