# SPDX-License-Identifier: Apache-2.0
"""Pages that read alike as a repository's and on the site."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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
