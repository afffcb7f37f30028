# SPDX-License-Identifier: Apache-2.0
"""The tables "Where it is decided" of the design documents name files and functions that exist."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
DESIGN = ROOT / "docs" / "design"
PACKAGES = [ROOT / "src" / "nccltune", ROOT / "src" / "nccltune" / "measure"]


class Row(NamedTuple):
    page: str
    path: str
    name: str


def rows() -> list[Row]:
    """Every file with each name that a row mentions for it."""
    found = []
    for page in sorted(DESIGN.glob("*.md")):
        section = page.read_text(encoding="utf-8").partition("## Where it is decided")[2]
        for line in section.partition("\n## ")[0].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) != 3 or "`" not in cells[1]:
                continue
            path = cells[1].strip("`")
            for name in re.findall(r"`([^`]+)`", cells[2]):
                if name.endswith(".py"):
                    continue
                # A name before "of `other.py`" or "in `other.py`" is one of that file.
                other = re.search(rf"`{re.escape(name)}` (?:of|in) `([\w/]+\.py)`", cells[2])
                found.append(Row(page.name, other[1] if other else path, name))
    return found


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


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.page}:{row.name}")
def test_what_decides_is_where_the_table_says(row: Row) -> None:
    paths = [package / row.path for package in PACKAGES if (package / row.path).is_file()]
    assert paths, f"{row.page}: no such file: {row.path}"
    assert row.name in defined(paths[0]), f"{row.page}: {row.path} does not define {row.name}"


def test_the_tables_are_found() -> None:
    pages = {row.page for row in rows()}
    assert pages >= {"sweep.md", "p2p-settings.md", "sendrecv-tuning.md", "verify.md"}
