# SPDX-License-Identifier: Apache-2.0
"""The table of NCCL's releases, and the documents and tables that repeat it."""

import csv
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

import nccltune
from nccltune.examples import examples
from nccltune.model.nccl_releases import RELEASES, RUN_ON_GPUS, NcclRelease, nccl_release
from nccltune.predict import NEWEST

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = DOCS / "reference"


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


def known(text: str) -> NcclRelease:
    found = nccl_release(text)
    assert found is not None, text
    return found


def rows(page: Path, first: str) -> list[list[str]]:
    """Return the cells of the rows of a page whose first cell matches `first`."""
    lines = [line.strip("| ").split(" | ") for line in page.read_text("utf-8").splitlines()]
    return [cells for cells in lines if re.fullmatch(first, cells[0])]


def releases(cell: str) -> list[str]:
    """Return the minor versions that a cell names: `2.22, 2.23`, `2.24 to 2.27`, `2.22-2.23`."""
    if cell.endswith("and later"):
        return [cell.split()[0]]
    ends = re.findall(r"2\.(\d+)(\.\d+)?", cell)
    if any(patch for _, patch in ends):
        return [cell]
    minor = [int(number) for number, _ in ends]
    return [f"2.{number}" for number in range(minor[0], minor[-1] + 1)]


def test_the_rows_are_in_order_and_each_changes_something() -> None:
    for before, after in pairwise(RELEASES):
        assert before.since < after.since
        assert before[1:] != after[1:]


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("2.28.9", (2, 28, 0)), ("v2.28.9-1", (2, 28, 0)), ("2.27.3", (2, 27, 0)),
        ("2.27", (2, 27, 0)), ("2.27.5+cuda12.4", (2, 27, 5)), ("2.30", (2, 30, 0)),
        ("2.99.1", (2, 32, 0)), ("2.12.12", None), ("2", None), ("x", None), ("2.28.9.1", None),
    ],
)  # fmt: skip
def test_a_release_has_what_the_last_row_before_it_has(
    text: str, since: tuple[int, int, int] | None
) -> None:
    found = nccl_release(text)
    assert (found and found.since) == since


def test_the_newest_release_that_was_run_is_in_every_table() -> None:
    recorded = [
        msgspec.json.decode((path / "platform.json").read_bytes())["nccl_version"]
        for path in examples().values()
    ]
    assert max(recorded, key=numbers) == RUN_ON_GPUS[-1] == max(RUN_ON_GPUS, key=numbers)
    newest = numbers(RUN_ON_GPUS[-1])
    assert list(RELEASES[-1].since[:2]) == newest[:2]
    assert list(NEWEST) >= newest
    table = Path(nccltune.__file__).parent / "model" / "nccl_variables.csv"
    with table.open(encoding="utf-8") as file:
        assert (
            max(numbers(row["since"]) for row in csv.DictReader(file) if row["since"]) >= newest[:2]
        )


@pytest.mark.parametrize("page", ["nccl-versions.md", "platforms.md"])
def test_the_documents_name_the_releases_that_were_run(page: str) -> None:
    run = f"{', '.join(RUN_ON_GPUS[:-1])} and {RUN_ON_GPUS[-1]}"
    text = (REFERENCE / page).read_text("utf-8")
    newest = ".".join(map(str, RELEASES[-1].since[:2]))
    oldest = next(row for row in RELEASES if row.tuner is not None)
    assert run in text
    assert f"2.{oldest.since[1]} to {newest}" in text


def test_the_page_of_the_tuner_plugin_has_the_interfaces() -> None:
    found = rows(REFERENCE / "tuner-plugin.md", r"2\.\d\d(?:(?:, | to )2\.\d\d)?")
    named = [(text, int(cells[1][1:])) for cells in found for text in releases(cells[0])]
    assert [minor for minor, _ in named] == [f"2.{number}" for number in range(21, 33)]
    assert [known(minor).tuner for minor, _ in named] == [tuner for _, tuner in named]


def test_the_page_of_the_plugin_host_has_interfaces_channels_and_chunks() -> None:
    page = DOCS / "design" / "plugin-host.md"
    (head,) = [cells for cells in rows(page, "what") if cells[1] == "2.21"]
    at = [[known(f"{minor}.99") for minor in releases(cell)] for cell in head[1:]]
    (interface,) = rows(page, "native interface, accepted down to v2")
    (chunks,) = rows(page, "asks the plugin for a chunk size")
    (channels,) = rows(page, "channels other than 0")
    assert [{f"v{row.tuner}" for row in column} for column in at] == [{x} for x in interface[1:]]
    assert [{row.asks_chunks for row in column} for column in at] == [
        {x == "yes"} for x in chunks[1:]
    ]
    lowers = [cell != "replace" for cell in channels[1:]]
    assert [{row.only_lowers for row in column} for column in at] == [{x} for x in lowers]
    assert [row.most_channels for row in (known("2.24.3"), known("2.25.1"))] == [32, 64]


def test_the_page_of_the_network_plugin_has_the_releases_that_take_a_path() -> None:
    found = rows(REFERENCE / "net-plugin.md", r"2\.[\d.]+(?: to 2\.\d\d| and later)?")
    taken = {text: "a path" in cells[1] for cells in found for text in releases(cells[0])}
    assert len(taken) == 8 + 6 + 2
    assert {text: known(text).opens_paths for text in taken} == taken
