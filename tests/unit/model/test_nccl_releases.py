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
from nccltune.model.nccl_variables import (
    default_words,
    is_foreign,
    nearest_variable,
    release_of,
    table,
    unread_words,
)
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


def test_the_table_is_whole() -> None:
    kinds = {"switch", "number", "bytes", "word", "words", "level", "algorithms", "protocols",
             "policy", "policies", "text"}  # fmt: skip
    variables = table()
    assert len(variables) > 250
    assert {variable.kind for variable in variables.values()} == kinds
    for variable in variables.values():
        assert variable.name.startswith("NCCL_")
        assert not variable.instead or variable.instead in variables
        if variable.kind == "number":
            for limits in variable.values:
                low, _, high = limits.partition("..")
                assert int(low) < int(high)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_VERSION", "NCCL_HOME", "NCCL_ROOT_DIR", "NCCL_INCLUDE_DIR", "NCCL_LIB_DIR",
        "NCCL_TESTS_DEVICE", "NCCL_TESTS_SPLIT", "NCCL_TESTS_MIN_BW", "NCCL_FASTRAK_IFNAME",
        "NCCL_FASTRAK_NUM_FLOWS", "NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME",
        "NCCL_TUNER_CONFIG_PATH", "NCCL_PLUGIN_P2P", "NCCL_UCX_TLS", "NCCL_IBEXT_DISABLE",
        "NCCL_SHARP_DISABLE", "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_TIMEOUT",
        "NCCL_INSPECTOR_ENABLE", "TORCH_NCCL_ENABLE_TIMING", "OFI_NCCL_PROTOCOL",
        "RCCL_MSCCL_ENABLE", "NCCLTUNE_CONFIG", "UCC_TLS", "LD_LIBRARY_PATH", "PATH", "CC", "N",
        "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS", "CUDA_HOME", "LIBRARY_PATH",
    ],
)  # fmt: skip
def test_names_of_others_are_left_alone(name: str) -> None:
    assert is_foreign(name) or nearest_variable(name) is None


def test_known_names_have_no_nearer_one() -> None:
    assert [name for name in table() if nearest_variable(name) is not None] == []


@pytest.mark.parametrize("name", [name for name in table() if not table()[name].last])
def test_a_letter_too_many_is_found(name: str) -> None:
    wrong = name + "X"
    if not is_foreign(wrong):
        assert nearest_variable(wrong) is not None


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("NCCL_IB_TIMEOUT", "2.13.4", None),
        ("NCCL_IB_TIMEOUT", "2.22.3", "NCCL's default is 18 since 2.14, 14 before"),
        ("NCCL_IB_TIMEOUT", "2.32.3", "NCCL's default is 20 since 2.23, 18 before"),
        ("NCCL_IB_GID_INDEX", "2.21.5", "NCCL's default is its own choice since 2.21, 0 before"),
        ("NCCL_BUFFSIZE", "2.32.3", None),
        ("NCCL_OF_NOBODY", "2.32.3", None),
    ],
)
def test_a_default_that_changed_has_its_release(name: str, version: str, words: str | None) -> None:
    assert default_words(name, version) == words


def test_defaults_are_in_the_order_of_releases() -> None:
    for variable in table().values():
        releases = [release_of(since) for since, _ in variable.defaults]
        assert releases == sorted(set(releases))
        assert len(releases) != 1


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("NCCL_CONF_FILE", "2.22.3", "NCCL reads it since 2.23"),
        ("NCCL_CONF_FILE", "2.23.4", None),
        ("NCCL_WORK_FIFO_DEPTH", "2.22.3", "NCCL reads it up to 2.21: NCCL_WORK_FIFO_BYTES"),
        ("NCCL_TOPO_SCATTER_START_NET", "2.32.3", "NCCL reads it up to 2.31"),
        ("NCCL_IFNAME_SOCKET", "2.28.9", "unknown to NCCL 2.3 to 2.32: NCCL_SOCKET_IFNAME was "
         "meant?"),
        ("NCCL_ROOT_DIR", "2.28.9", None),
    ],
)  # fmt: skip
def test_a_variable_that_a_release_does_not_read(
    name: str, version: str, words: str | None
) -> None:
    assert unread_words(name, version) == words
