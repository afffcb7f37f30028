# SPDX-License-Identifier: Apache-2.0
"""The predictions against what NCCL 2.28.9 said and ran on 4 x H200 (examples/h200x4-1-node)."""

import json
from typing import Any

import pytest

from nccltune.examples import example
from nccltune.model.choice import Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.predict import Prediction, predict
from nccltune.predict.choice import launch
from nccltune.topology.files.load import load_topology

STUDY = example("h200x4-1-node")
SIZES = tuple(1 << power for power in range(10, 31))


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (STUDY / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def predicted() -> dict[str, Prediction]:
    return {
        name: predict(
            load_topology(STUDY),
            collective=Collective(name),
            version=(2, 28, 9),
            settings={"NCCL_NVLS_ENABLE": "0"},
            sizes=SIZES,
        )
        for name in ("allreduce", "allgather", "reducescatter")
    }


def test_times_are_those_of_nccls_cost_table(predicted: dict[str, Prediction]) -> None:
    tables = lines("tables.jsonl")
    assert len(tables) == 3 * len(SIZES)
    for table in tables:
        (at,) = (one for one in predicted[table["collective"]].sizes if one.size == table["bytes"])
        times = {choice.label: time for choice, time in at.times_us.items()}
        assert times == pytest.approx(table["costs"], rel=1e-6)


def test_choices_and_channels_are_those_that_ran(predicted: dict[str, Prediction]) -> None:
    defaults = launches = 0
    for sample in lines("samples.jsonl"):
        found, ran = predicted[sample["collective"]], sample["ran"]
        choice = parse_choice(f"{ran['algorithm']}/{ran['protocol']}")
        assert isinstance(choice, Choice)
        if sample["choice"] == "default":
            (at,) = (one for one in found.sizes if one.size == sample["bytes"])
            assert at.choice == choice
            assert at.launch.channels == ran["channels"]
            defaults += 1
        shape = launch(found.communicator, found.collective, choice, sample["bytes"])
        assert shape.channels == ran["channels"], sample
        launches += 1
    assert defaults > 500
    assert launches > defaults
