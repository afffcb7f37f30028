# SPDX-License-Identifier: Apache-2.0
"""The shape of the repository: CONTRIBUTING's map, native/sendrecv's floors, pages that render."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """Return the table below the header cell `heading` up to the next empty line."""
    return TEXT.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]


def folders(parent: Path) -> set[str]:
    return {
        path.name for path in parent.iterdir() if path.is_dir() and not path.name.startswith("_")
    }


@pytest.mark.parametrize(
    ("heading", "parent"),
    [("`src/nccltune/` | contents", "src/nccltune"), ("`native/` | contents", "native")],
)
def test_the_map_names_every_folder(heading: str, parent: str) -> None:
    start = TEXT.index(f"| {heading}")
    rows = TEXT[start:].split("\n\n", 1)[0].splitlines()[2:]
    named = {row.split("|")[1].strip().strip("`") for row in rows}
    assert {name for name in named if "." not in name} == folders(ROOT / parent)


def test_packages_import_only_packages_above_them() -> None:
    rows = section("`src/nccltune/` | contents").splitlines()[1:]
    order = [row.split("|")[1].strip().strip("`") for row in rows]
    order = [name for name in order if "." not in name]
    assert len(order) > 10
    upward = [
        f"{path}: {node.module}"
        for position, package in enumerate(order)
        for path in (ROOT / "src" / "nccltune" / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("nccltune.")
        and (imported := node.module.split(".")[1]) in order
        and order.index(imported) > position
    ]
    assert upward == []


def test_the_readme_counts_the_rules_of_the_doctor() -> None:
    folder = ROOT / "src" / "nccltune" / "doctor" / "rules"
    rules = sum(
        len(tomllib.loads(path.read_text(encoding="utf-8"))["rule"])
        for path in folder.glob("*.toml")
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"against {rules} rules" in readme


PAGES = [
    path
    for folder in (".", "docs/**", "benchmarks/**", "examples/**")
    for path in ROOT.glob(f"{folder}/*.md")
]
ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def outside_of_code(text: str) -> Iterator[str]:
    """Lines that are not between fences; those become empty."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            yield ""
        else:
            yield "" if fenced else line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_list_or_table_begins_after_an_empty_line(page: Path) -> None:
    """Without it the site shows one paragraph."""
    for before, line in pairwise(outside_of_code(page.read_text(encoding="utf-8"))):
        if ITEM.match(line):
            assert not before or ITEM.match(before) or before.startswith(" "), line
        if line.startswith("|"):
            assert not before or before.startswith("|"), line


NATIVE = Path(__file__).parents[3] / "native"


def test_floors() -> None:
    includes: dict[str, set[str]] = defaultdict(set)
    for file in (NATIVE / "sendrecv").rglob("*.*"):
        unit = str(file.relative_to(NATIVE).with_suffix(""))
        for name in re.findall(r'#include "(sendrecv/.+)\.\w+"', file.read_text(encoding="utf-8")):
            if name != unit:
                includes[unit].add(name)

    def floor(unit: str, above: tuple[str, ...]) -> int:
        assert unit not in above, "a circle: " + " -> ".join((*above, unit))
        return 1 + max((floor(each, (*above, unit)) for each in includes[unit]), default=0)

    floors = {unit: floor(unit, ()) for unit in list(includes)}
    assert 5 < max(floors.values()) <= 10, floors
