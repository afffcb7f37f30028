# SPDX-License-Identifier: Apache-2.0
"""The usual node of a GPU model."""

import re
from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.predict import predict
from nccltune.reference.curves import published_curves
from nccltune.reference.nodes import is_whole_board, usual_node
from nccltune.topology.flows.expect import expect
from tests.programs import load_script

CEILINGS = load_script(Path(__file__).parents[3] / "benchmarks" / "ceilings.py")


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


def test_no_ceiling_of_a_usual_node_is_below_what_a_machine_of_its_kind_reached() -> None:
    data = CEILINGS.read()
    machines = {machine.name: machine for machine in data.machine}
    checked = set()
    for row in data.published:
        machine = machines[row.machine]
        model = re.search(r"\bG?[ABHV]\d{2,3}(?: PCIe)?\b", machine.name)
        if not model or not is_whole_board(model[0], row.gpus or machine.gpus):
            continue
        nics = machine.nics if row.nodes > 1 else 0
        try:
            node = usual_node(model[0], gpus=machine.gpus, nics=nics, gbit_per_s=machine.nic_gbit)
        except InputError:
            continue
        algorithm = {"NCCL_ALGO": row.algorithm} if row.algorithm else {}
        settings = {**machine.settings, **algorithm}
        found = expect(node, collective=row.collective, nodes=row.nodes, settings=settings)
        assert found.busbw_gb_per_s >= row.busbw, row
        checked.add(machine.name)
    assert len(checked) > 15


def test_no_ceiling_of_a_usual_node_is_below_a_curve_of_the_reference_set() -> None:
    checked = set()
    for curve in published_curves():
        each, rate = curve.gpus // curve.nodes, curve.nic_gbps_per_gpu or 0.0
        whole = is_whole_board(curve.gpu, curve.gpus / curve.nodes)
        if not whole or not curve.collective.tuned or not (rate or curve.nodes == 1):
            continue
        node = usual_node(
            curve.gpu, gpus=each, nics=each if curve.nodes > 1 else 0, gbit_per_s=rate
        )
        found = expect(node, collective=curve.collective, nodes=curve.nodes)
        most = max(curve.busbw_at(size) or 0 for size, _ in (*curve.points, (1 << 33, 0)))
        assert 0 < most <= found.busbw_gb_per_s, curve.system
        checked.add(curve.system)
    assert len(checked) > 12
