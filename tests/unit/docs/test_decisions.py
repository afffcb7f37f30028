# SPDX-License-Identifier: Apache-2.0
"""The tables "Where it is decided" of the design documents name files and functions that exist.

A path is relative to the folder in the section's sentence "Files are relative to `FOLDER`.", or to
`src/nccltune` without that sentence. In where.md a place is `PATH:NAME`, or a path alone."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
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
