# SPDX-License-Identifier: Apache-2.0
"""The calibration file."""

from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.topology.flows.calibration import COSTS, WIRE, defaults, read_calibration
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.routes import FlowKind


def test_every_default_has_a_source():
    found = defaults().values
    assert all(len(figure.source) > 10 for figure in found.values())
    assert all(0.5 <= figure.value <= 1 for name, figure in found.items() if name not in COSTS)
    assert defaults().relative_to == WIRE
    assert set(COSTS) <= set(found)


def test_every_kind_has_a_cost_on_every_link():
    for flow in FlowKind:
        for link in LinkKind:
            if flow is not FlowKind.READ_REQUEST:
                assert defaults().cost(flow, link) >= 1.0
    through = defaults().cost(FlowKind.P2P_WRITE, LinkKind.PCI, through_intel=True)
    assert through == pytest.approx(defaults().cost(FlowKind.P2P_WRITE, LinkKind.PCI) / 0.863)


def test_a_file_changes_only_what_it_names(tmp_path: Path):
    path = tmp_path / "calibration.json"
    path.write_text(
        '{"schema_version": 1, "name": "mine", "relative_to": "wire", "values":'
        ' {"network": {"value": 0.9, "source": "measured"}}}'
    )
    found = read_calibration(path)
    assert found["network"] == 0.9
    assert found.values["nvlink"] == defaults().values["nvlink"]
    assert found.name == "mine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not a calibration file"),
        (
            '{"name": "x", "values": {"network": {"value": 0, "source": ""}}}',
            "is not a calibration file",
        ),
        (
            '{"name": "x", "values": {"network": {"value": "1", "source": ""}}}',
            "is not a calibration file",
        ),
        (
            '{"name": "x", "relative_to": "wire", "values":'
            ' {"netwrok": {"value": 1, "source": ""}}}',
            "not a figure",
        ),
        (
            '{"name": "x", "values": {"network": {"value": 1, "source": ""}}}',
            "relative to the bandwidth that NCCL books",
        ),
        ('{"schema_version": 99, "name": "x", "values": {}}', "newer"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, words: str):
    path = tmp_path / "calibration.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_calibration(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.json")
