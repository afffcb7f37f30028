# SPDX-License-Identifier: Apache-2.0
"""Matrices of `nvidia-smi topo -m` as pastes and terminals leave them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.doctor.evidence.parsers.topo_matrix import parse_topo_matrix
from nccltune.formats.topology.nvidia_smi_matrix import (
    SmiMatrix,
    looks_like_matrix,
    read_matrix,
    smi_topology,
)
from nccltune.model.errors import InputError
from tests.unit.formats.topology.test_nvidia_smi_matrix import SWITCHES, switched

FIELD = Path(__file__).parents[3] / "data" / "field" / "log-19-topo-matrix-with-lost-tabs"
WHOLE = switched(4, 18)
ROWS = WHOLE.split("\n")


def read(text: str) -> SmiMatrix:
    assert looks_like_matrix(text)
    return read_matrix(text.encode(), "t")


CELLS = read(WHOLE).cells


def test_tabs_that_a_paste_lost() -> None:
    text = (FIELD / "topo.txt").read_text(encoding="utf-8")
    found = read(text)
    assert found.cells[2] == (
        *("NV18", "NV18", "X", "NV18", "NV18", "NV18", "NV18", "NV18"),
        *("NODE", "NODE", "PXB", "NODE", "SYS", "SYS", "SYS", "SYS"),
    )
    assert found.devices[2].cpu_affinity == "0-55,112-167"
    assert [device.name for device in found.devices][8:10] == ["mlx5_0", "mlx5_1"]
    assert found.notes[0] == "lost tab in line 4, restored as PXB NODE"
    assert "lost tab in line 7, restored as PXB NODE" in smi_topology(found).unread
    parsed = parse_topo_matrix(text)
    assert (len(parsed.cells), parsed.unread) == (16 * 15, 0)


@given(st.data())
def test_any_lost_tab_between_cells_is_restored(data: st.DataObject) -> None:
    lines = [ROWS[0]]
    for row in ROWS[1:]:
        name, *words = row.split("\t")
        cells, rest = words[:8], words[8:]
        text = cells[0]
        for one in cells[1:]:
            text += data.draw(st.sampled_from(["\t", "", " ", "\t\t"])) + one
        lines.append("\t".join([name, text, *rest]))
    found = read("\n".join(lines))
    assert found.cells == CELLS
    assert [one.cpu_affinity for one in found.devices[:4]] == ["0-7"] * 4


@given(st.integers(14, 120), st.booleans())
def test_wrapped_lines_are_joined(width: int, stripped: bool) -> None:
    lines = []
    for row in ROWS:
        text = row.expandtabs(8)
        pieces = [text[at : at + width] for at in range(0, len(text), width)]
        lines += [piece.rstrip() if stripped else piece for piece in pieces if piece.strip()]
    found = read("\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n")
    assert found.cells == CELLS


@pytest.mark.parametrize(
    "text",
    [
        SWITCHES.replace("\t", "    "),
        SWITCHES.replace("\x1b[", "^[["),
        SWITCHES.replace("\x1b[", "["),
        SWITCHES.replace("\x1b[", "\\033["),
        SWITCHES.replace("\n", "\n\n"),
        SWITCHES.replace("\n", "\r\n"),
        SWITCHES.replace("GPU2\tNIC0", "GPU2NIC0"),
        SWITCHES.replace("GPU0\t X", "GPU0X").replace("GPU1\tPIX", "GPU1PIX"),
        SWITCHES.replace("SYS\t0-15", "SYS0-15"),
        SWITCHES.replace("\t\x1b[4mGPU0", "GPU0"),
        "$ nvidia-smi topo -m\n" + SWITCHES,
        SWITCHES.replace("  NIC0: mlx5_0\n  NIC1", "  NIC0: mlx5_0  NIC1"),
    ],
)
def test_a_paste_reads_as_the_table(text: str) -> None:
    table = read(SWITCHES)
    found = read(text)
    assert found.cells == table.cells
    assert [one.name for one in found.devices] == [one.name for one in table.devices]
    assert [one.numa for one in found.devices] == [one.numa for one in table.devices]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("GPU0\tXPIX", "row GPU0 has 2 cells for 3 devices; a tab is missing in X PIX"),
        ("GPU0\tX\tPIXNODE\tSYS", "row GPU0 has 3 cells for 2 devices; a tab is missing"),
        ("GPU0\tX\tNV180-15", "'NV180-15' is no kind of connection"),
        ("GPU0\tX\tPIXI", "'PIXI' is no kind of connection"),
        ("GPU0\tX\t0-15", "row GPU0 has 1 cells for 2 devices"),
    ],
)
def test_what_cannot_be_restored_is_named(row: str, message: str) -> None:
    names = ["GPU0", "GPU1"] if "3 devices" not in message else ["GPU0", "GPU1", "GPU2"]
    text = "\t" + "\t".join(names) + "\tCPU Affinity\n" + row + "\n"
    with pytest.raises(InputError) as caught:
        read_matrix(text.encode(), "t")
    assert caught.value.message.startswith(message)
    assert caught.value.where == "t:2"


@pytest.mark.parametrize("mark", ["> ", ">", "> > "])
def test_lines_of_a_reply(mark: str) -> None:
    assert read("\n".join(mark + row for row in ROWS)).cells == CELLS


@pytest.mark.parametrize(("left", "right"), [("|", " |"), ("  | ", " |"), ("", "")])
def test_a_table_of_markdown(left: str, right: str) -> None:
    rows = [left + row.strip("\n").replace("\t", " | ") + right for row in ROWS if row]
    rows.insert(1, left + " | ".join(["--"] * 12) + right)
    assert read("\n".join(rows)).cells == CELLS
    parsed = parse_topo_matrix("\n".join(rows))
    assert (len(parsed.cells), parsed.unread) == (8 * 7, 0)
