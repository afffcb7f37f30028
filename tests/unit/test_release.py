# SPDX-License-Identifier: Apache-2.0
"""The version stands in one place; what repeats it agrees, and the changelog describes it."""

import re
from pathlib import Path

import pytest
import yaml

import nccltune

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^## (?P<name>\S+)(?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.M)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def releases(changelog: str) -> dict[str, str | None]:
    """Dates by version, the newest first."""
    return {match["name"]: match["date"] for match in HEADING.finditer(changelog)}


def test_the_changelog_begins_with_what_is_not_released(releases: dict[str, str | None]) -> None:
    first, *others = releases.items()
    assert first == ("Unreleased", None)
    assert all(date for _, date in others)
    dates = [date for _, date in others]
    assert dates == sorted(dates, reverse=True)


def test_the_changelog_has_this_version(releases: dict[str, str | None]) -> None:
    assert nccltune.__version__ in releases


def test_the_changelog_uses_the_usual_kinds(changelog: str) -> None:
    assert set(re.findall(r"^### (.*)$", changelog, re.M)) <= KINDS


def test_the_citation_is_of_this_version(releases: dict[str, str | None]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == nccltune.__version__
    assert citation["date-released"] == releases[nccltune.__version__]
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)


def test_the_version_is_written_once() -> None:
    """CMake and the build of the wheel read it from the package."""
    version = nccltune.__version__
    for name in ("pyproject.toml", "CMakeLists.txt", "CMakePresets.json"):
        assert version not in (ROOT / name).read_text(encoding="utf-8"), name
