# SPDX-License-Identifier: Apache-2.0
"""The predictions against NCCL's own code (tests/data/predict) and its runs on 4 x H200."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nccltune.examples import example
from nccltune.formats.topology.nccl_xml import read_topology
from nccltune.model.choice import Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.topology import Topology
from nccltune.predict import Prediction, predict
from nccltune.predict.choice import launch
from nccltune.topology.files.load import load_topology
from nccltune.topology.nccl_model.settings import parse_version

DATA = Path(__file__).parents[2] / "data"
RECORDED = [
    json.loads(line)
    for line in gzip.decompress((DATA / "predict" / "model.jsonl.gz").read_bytes()).splitlines()
]
FILES = sorted({one["file"] for one in RECORDED})
POWERS = (0, 9, 16, 24, 30)
"""The powers k of the recorded times, at 8 << k bytes."""
CLOSE = 1e-4
"""The recorded numbers have five significant digits."""


def predictions(topology: Topology, case: dict[str, Any], nccl: str) -> dict[str, Prediction]:
    """Return our predictions of a recorded case by collective."""
    return {
        name: predict(
            topology,
            collective=Collective(name),
            nodes=case["nodes"],
            version=parse_version(nccl),
            settings={"NCCL_NVLS_ENABLE": str(case["nvls"])},
        )
        for name in case["collectives"]
    }


def model_of(found: Prediction) -> dict[str, list[float]]:
    return {choice.label: [one.latency_us, one.gb_per_s] for choice, one in found.modelled.items()}


def rows_of(found: Prediction) -> list[list[object]]:
    return [
        [one.choice.label, one.launch.most_channels, one.launch.channels, one.launch.threads]
        for one in found.sizes
    ]


@pytest.mark.parametrize("file", FILES)
def test_the_model_is_nccls(file: str) -> None:
    topology = read_topology((DATA / file).read_bytes(), file)
    for case in (one for one in RECORDED if one["file"] == file):
        for nccl in case["nccl"]:
            for name, found in predictions(topology, case, nccl).items():
                where, recorded = (case["nodes"], nccl, name), case["collectives"][name]
                assert found.communicator.channels == case["channels"]["comm"], where
                assert found.communicator.nvls_channels == case["channels"]["nvls"], where
                mine = model_of(found)
                assert mine.keys() == recorded["model"].keys(), where
                for label, figures in recorded["model"].items():
                    assert mine[label] == pytest.approx(figures, rel=CLOSE), (where, label)
                assert _changes(rows_of(found)) == recorded["choices"], where
                for choice in found.modelled:
                    times = [found.sizes[power].times_us[choice] for power in POWERS]
                    recorded_times = recorded["times"][choice.label]
                    assert times == pytest.approx(recorded_times, rel=CLOSE), (where, choice.label)


def test_versions_and_machines_recorded() -> None:
    assert len({nccl for one in RECORDED for nccl in one["nccl"]}) == 13
    assert len(FILES) == 9
    labels = {
        label
        for one in RECORDED
        for collective in one["collectives"].values()
        for label in collective["model"]
    }
    assert {"nvls/simple", "nvls_tree/simple", "tree/ll128", "pat/simple"} <= labels


def _changes(rows: list[list[object]]) -> list[list[object]]:
    """Return the rows that differ from the row before, each with its number in front."""
    return [
        [number, *row] for number, row in enumerate(rows) if number == 0 or row != rows[number - 1]
    ]


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
