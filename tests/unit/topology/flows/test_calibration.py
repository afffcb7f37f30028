# SPDX-License-Identifier: Apache-2.0
"""The calibration file, and figures from measurements."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.model.choice import Algorithm
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.study.files import Study
from nccltune.topology.flows.calibration import COSTS, WIRE, Figure, defaults, read_calibration
from nccltune.topology.flows.derive import Observation, derive, observations
from nccltune.topology.flows.expect import expect
from nccltune.topology.hardware.links import LinkKind
from nccltune.topology.nccl_model.flow_kind import FlowKind
from tests.unit.topology.samples import sample

EXAMPLE = Path(__file__).parents[4] / "examples" / "h200x4-1-node"
NO_NVLS = {"NCCL_NVLS_ENABLE": "0"}


def seen(busbw: float, **changes: object) -> Observation:
    plain = Observation(
        collective=Collective.ALLREDUCE,
        algorithm=Algorithm.RING,
        nodes=1,
        ranks=4,
        bytes=1 << 30,
        busbw_gb_per_s=busbw,
        samples=8,
    )
    return replace(plain, **changes)


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


def test_the_recorded_study_gives_nvlink_and_tree():
    found = observations(Study.open(EXAMPLE).samples())
    result = derive(sample("h200x4-dump"), found, defaults(), name="h200", settings=NO_NVLS)
    assert set(result.used) == {"nvlink", "tree_nvlink"}
    assert result.calibration["nvlink"] == pytest.approx(0.899, abs=0.005)
    assert {one.collective for one, _ in result.left} == {
        Collective.ALLGATHER,
        Collective.REDUCESCATTER,
    }
    ring, tree = (
        expect(
            sample("h200x4-dump"),
            settings={**NO_NVLS, "NCCL_ALGO": name},
            calibration=result.calibration,
        )
        for name in ("Ring", "Tree")
    )
    assert ring.busbw_gb_per_s == pytest.approx(result.used["nvlink"].busbw_gb_per_s, rel=1e-3)
    assert tree.busbw_gb_per_s == pytest.approx(result.used["tree_nvlink"].busbw_gb_per_s, rel=1e-3)


def test_only_large_right_simple_samples_count():
    study = Study.open(EXAMPLE)
    samples = [one for one in study.samples() if one.bytes >= 1 << 29][:40]
    assert samples
    spoilt = [replace(one, wrong=3) for one in samples]
    small = [replace(one, bytes=1 << 20) for one in samples]
    proofs = [
        replace(one, source=replace(one.source, tool="nccltune-bench verify")) for one in samples
    ]
    assert observations([*spoilt, *small, *proofs]) == []


@pytest.mark.parametrize("efficiency", [0.6, 0.75, 0.8])
def test_a_figure_that_made_a_measurement_is_found_again(efficiency: float):
    """Predict with a figure, then derive it from the prediction, also beside other loads."""
    truth = defaults().with_figures(
        "truth", {"p2p_write": Figure(efficiency, ""), "tree": Figure(0.6, "")}
    )
    node = sample("switch-l40s")
    for nodes, settings in ((1, {}), (2, {})):
        busbw = expect(node, nodes=nodes, settings=settings, calibration=truth).busbw_gb_per_s
        one = seen(busbw, nodes=nodes, ranks=4 * nodes)
        result = derive(node, [one], defaults(), name="again", settings=settings)
        assert result.used == {"p2p_write": one}
        assert result.calibration["p2p_write"] == pytest.approx(efficiency, abs=1e-3)
        assert "all-reduce ring/simple" in result.calibration.values["p2p_write"].source


def test_what_no_link_explains_is_left():
    node = sample("switch-l40s")
    slow, fast, odd = seen(3.0), seen(60.0), seen(20.0, nodes=3, ranks=4)
    result = derive(node, [slow, fast, odd], defaults(), name="x")
    assert result.used == {}
    assert result.calibration == defaults()
    assert {one.busbw_gb_per_s for one, _ in result.left} == {3.0, 60.0, 20.0}
    pat = derive(node, [seen(20.0, algorithm=Algorithm.PAT)], defaults(), name="x")
    assert pat.left[0][1] == "the model does not cover it"
