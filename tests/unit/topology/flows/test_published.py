# SPDX-License-Identifier: Apache-2.0
"""No ceiling is below a published measurement of that machine, or far above the best one."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nccltune.model.errors import InputError

ROOT = Path(__file__).parents[4]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ceilings", ROOT / "benchmarks" / "ceilings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # msgspec looks up the annotations of a struct in its module.
    sys.modules["ceilings"] = module
    spec.loader.exec_module(module)
    return module


CEILINGS = _script()
DATA = CEILINGS.read()
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


def test_the_page_of_results_has_these_rows() -> None:
    page = (ROOT / "benchmarks" / "results" / "ceilings.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) == len(DATA.published)
    for row, line in zip(DATA.published, rows, strict=True):
        assert line.startswith(f"| {row.machine} | {row.nodes} x ")
        assert f"[{row.busbw:.4g}]({row.source})" in line
