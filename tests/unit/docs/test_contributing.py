# SPDX-License-Identifier: Apache-2.0
"""The map of CONTRIBUTING.md: every folder it names exists, every folder is named."""

import ast
import tomllib
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
