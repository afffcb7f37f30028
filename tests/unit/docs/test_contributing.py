# SPDX-License-Identifier: Apache-2.0
"""The shape of the repository: CONTRIBUTING's map, native/sendrecv's floors, pages that render.

The tables "Where it is decided" of the design documents name files and functions that exist. A path
is relative to the folder in the section's sentence "Files are relative to `FOLDER`.", or to
`src/nccltune` without that sentence. In where.md a place is `PATH:NAME`, or a path alone.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

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


DESIGN = ROOT / "docs" / "design"
FOLDER = re.compile(r"^Files are relative to `([\w/]+)`", re.MULTILINE)


class Row(NamedTuple):
    page: str
    path: str
    name: str


def rows() -> list[Row]:
    """Every file with each name that a row mentions for it."""
    found = []
    for page in sorted(DESIGN.glob("*.md")):
        section = page.read_text(encoding="utf-8").partition("## Where it is decided")[2]
        section = section.partition("\n## ")[0]
        folder = FOLDER.search(section)
        prefix = folder[1] if folder else "src/nccltune"
        for line in section.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) != 3 or "`" not in cells[1]:
                continue
            path = cells[1].strip("`")
            for name in re.findall(r"`([^`]+)`", cells[2]):
                if name.endswith((".py", ".cc", ".h")):
                    continue
                # A name before "of `other.py`" or "in `other.py`" is defined in that file.
                other = re.search(
                    rf"`{re.escape(name)}` (?:of|in) `([\w/]+\.(?:py|cc|h))`", cells[2]
                )
                found.append(Row(page.name, f"{prefix}/{other[1] if other else path}", name))
    where = (DESIGN / "where.md").read_text(encoding="utf-8")
    places = re.findall(r"`((?:src|native)/[\w/.]+)(?::([\w.]+))?`", where)
    return found + [Row("where.md", *place) for place in places]


def defined(path: Path) -> set[str]:
    """Functions, classes, their methods, and constants of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    names.add(f"{node.name}.{item.name}")
                if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                    names.add(f"{node.name}.{item.targets[0].id}")
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.add(node.targets[0].id)
    return names


def defined_in_cpp(path: Path, name: str) -> bool:
    """Return whether the file has that function, type or constant. A header may only declare it."""
    last = re.escape(name.rpartition("::")[2])
    in_header = rf"^.*\b{last}\("
    in_source = rf"^\S.*\b{re.escape(name)}\("
    patterns = (
        in_header if path.suffix == ".h" else in_source,
        rf"^ *(?:class|struct|enum|enum class) {last}\b",
        rf"\bconstexpr\b.*\b{last}\b",
    )
    text = path.read_text(encoding="utf-8")
    return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.page}:{row.name}")
def test_what_decides_is_where_the_table_says(row: Row) -> None:
    path = ROOT / row.path
    assert path.is_file(), f"{row.page}: no such file: {row.path}"
    if not row.name:
        return
    known = row.name in defined(path) if path.suffix == ".py" else defined_in_cpp(path, row.name)
    assert known, f"{row.page}: {row.path} does not define {row.name}"


def test_the_tables_are_found() -> None:
    pages = {row.page for row in rows()}
    assert pages >= {"where.md", "sweep.md", "sendrecv-tuning.md", "verify.md"}
