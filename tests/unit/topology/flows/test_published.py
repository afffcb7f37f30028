# SPDX-License-Identifier: Apache-2.0
"""No ceiling is below a published measurement of that machine, or far above the best one."""

import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.model.choice import Algorithm
from nccltune.model.errors import InputError
from nccltune.topology.flows.calibration import Figure, defaults
from nccltune.topology.flows.expect import UNMEASURED, expect, is_measured
from tests.programs import load_script

ROOT = Path(__file__).parents[4]


CEILINGS = load_script(ROOT / "benchmarks" / "ceilings.py")
DATA = CEILINGS.read()
_ceiling = CEILINGS.ceiling
_found: dict[int, object] = {}


def ceiling_once(data, row):
    """Return what two tests need of each row, and what takes a quarter of a second."""
    if id(row) not in _found:
        _found[id(row)] = _ceiling(data, row)
    return _found[id(row)]


CEILINGS.ceiling = ceiling_once
ROOM = 1.3
"""A ceiling is at most this many times the best published figure."""


def name(row) -> str:
    return f"{row.machine}, {row.nodes} x {row.gpus or 'all'}, {row.algorithm or row.collective}"


@pytest.mark.parametrize("row", DATA.published, ids=name)
def test_no_ceiling_is_below_what_was_measured(row) -> None:
    found = CEILINGS.ceiling(DATA, row)
    if isinstance(found, InputError):
        assert "several racks" in found.message
        return
    assert found.busbw_gb_per_s >= row.busbw
    if row.best:
        assert found.busbw_gb_per_s <= ROOM * row.busbw


def test_every_machine_has_a_figure() -> None:
    assert {row.machine for row in DATA.published} == {one.name for one in DATA.machine}
    assert len(DATA.published) > 60


def test_the_kinds_of_ceilings_that_are_measured_follow_from_the_published_figures() -> None:
    kinds = CEILINGS.measured_kinds(DATA)
    assert all(is_measured(kind) for kind in kinds)
    file = resources.files("nccltune.topology.flows").joinpath("measured_kinds.json")
    assert json.loads(file.read_text("utf-8")) == kinds


@pytest.mark.parametrize(
    "machine", [one for one in DATA.machine if one.nics], ids=lambda machine: machine.name
)
def test_a_ceiling_that_no_figure_confirms_is_not_sure(machine) -> None:
    found = expect(CEILINGS.topology(machine), nodes=2, settings=machine.settings)
    assert (UNMEASURED in found.notes) == (not is_measured(found.kind))
    assert found.sure == (not found.notes)


def test_nics_limit_two_nodes_of_b200() -> None:
    machine = next(one for one in DATA.machine if one.name == "8 B200, 8 x 400G")
    found = expect(CEILINGS.topology(machine), nodes=2)
    assert (found.algorithm, found.calibrated_by) == (Algorithm.NVLS_TREE, "network")
    assert found.busbw_gb_per_s == pytest.approx(750)
    assert found.sure


def test_a_calibration_of_ones_own_is_a_measurement() -> None:
    machine = next(one for one in DATA.machine if one.name.startswith("DGX-1"))
    own = defaults().with_figures("own", {"nvlink": Figure(0.97, "own", samples=8)})
    assert not expect(CEILINGS.topology(machine), nodes=2).sure
    assert expect(CEILINGS.topology(machine), nodes=2, calibration=own).sure


def test_a_nic_that_is_faster_than_its_pcie_link_makes_the_ceiling_unsure() -> None:
    machine = next(one for one in DATA.machine if one.name == "8 H100, 8 x 400G")
    slower = replace(machine, nic_pcie=4)
    found = expect(CEILINGS.topology(slower), nodes=4)
    assert found.busbw_gb_per_s < 8 * 28.8 + 0.1
    assert any("the ports of this NIC carry 50 GB/s" in note for note in found.notes)
    assert not found.sure


def test_versions_without_nvls_and_without_domains_have_rings() -> None:
    dgx, tray = (
        next(one for one in DATA.machine if one.name == name)
        for name in ("8 H100, 8 x 400G", "GB200 tray of NVL72")
    )
    old = expect(CEILINGS.topology(dgx), nccl_version=(2, 16, 5))
    assert old.algorithm is Algorithm.RING
    assert Algorithm.NVLS not in old.alternatives
    apart = expect(CEILINGS.topology(tray), nodes=2, nccl_version=(2, 19, 4))
    assert apart.busbw_gb_per_s <= 2 * 200


def test_each_rate_of_a_wire_has_a_source() -> None:
    tables = tomllib.loads(
        resources.files("nccltune.topology.hardware").joinpath("bandwidths.toml").read_text("utf-8")
    )
    for row in (*tables["nvlink_wire"], *tables["xgmi"]):
        assert row["source"].partition(":")[0] in ("measured", "documented")


def test_the_page_of_results_has_these_rows() -> None:
    page = (ROOT / "benchmarks" / "results" / "ceilings.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) == len(DATA.published)
    for row, line in zip(DATA.published, rows, strict=True):
        assert line.startswith(f"| {row.machine} | {row.nodes} x ")
        assert f"[{row.busbw:.4g}]({row.source})" in line
