# SPDX-License-Identifier: Apache-2.0
"""Figures beside a link to a page of results stand on that page; commits in results exist."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.programs import completed

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(((?:\.\./)*benchmarks/results/[\w-]+\.md)[^)]*\)")
NUMBER = re.compile(r"(?<![\w.,-])(\d+(?:,\d{3})*(?:\.\d+)?)(?![\w,-]*\d)(?:(x)\b| ?(%))?")
# Products and versions, also those of NCCL with two parts, are no figures.
NAMES = re.compile(r"\b[A-Z]\w*-?\d+\w*\b|\b\d+(?:\.\d+){2,}\b|\b2\.[23]\d\b(?! ?[%x])")
# Commits of other projects, which the pages name with their project.
FOREIGN = {"73cf1122": "NCCL", "b3ff1c6": "Fast Socket"}


class Figure(NamedTuple):
    """A number as written, with `x` or `%` where it has one."""

    digits: str
    unit: str

    def stands_in(self, others: set["Figure"]) -> bool:
        """Return whether one of the others is this figure, or is rounded to it.

        The cells of a table have no `x` where the heading makes them ratios.
        """
        written = Decimal(self.digits)
        units = {"": ("", "x", "%"), "x": ("", "x"), "%": ("%",)}[self.unit]
        return any(
            other.unit in units
            and Decimal(other.digits).quantize(written, ROUND_HALF_UP) == written
            for other in others
        )


def figures(text: str) -> set[Figure]:
    text = NAMES.sub("", text)
    return {
        Figure(match[1].replace(",", ""), match[2] or match[3] or "")
        for match in NUMBER.finditer(text)
    }


class Claim(NamedTuple):
    """A row or a paragraph, without its links, and the pages of results that it links."""

    page: str
    text: str
    results: list[Path]


def claims(page: Path) -> Iterator[Claim]:
    for block in re.split(r"\n\n|\n(?=\||- )", page.read_text(encoding="utf-8")):
        results = [(page.parent / link).resolve() for link in LINK.findall(block)]
        if results:
            yield Claim(page.relative_to(ROOT).as_posix(), LINK.sub("", block), results)


def missing(text: str, results: list[Path]) -> list[Figure]:
    """Return the figures of the text that none of the pages has."""
    known = set().union(*(figures(page.read_text(encoding="utf-8")) for page in results))
    return sorted(figure for figure in figures(text) if not figure.stands_in(known))


CLAIMS = [claim for page in PAGES for claim in claims(page)]


@pytest.mark.parametrize("claim", CLAIMS, ids=[f"{page}-{text[:30]}" for page, text, _ in CLAIMS])
def test_a_figure_stands_on_the_page_that_is_linked_beside_it(claim: Claim) -> None:
    assert missing(claim.text, claim.results) == []


def test_the_readme_and_other_pages_have_figures() -> None:
    readme = [len(figures(claim.text)) for claim in CLAIMS if claim.page == "README.md"]
    assert sum(readme) > 30
    assert len(readme) + 20 < len(CLAIMS)


@pytest.mark.parametrize(
    ("claim", "lacks"),
    [
        ("3.9x to 5.7x the default", []),
        ("97.3x to 5.7x", [Figure("97.3", "x")]),
        ("1.96x the best", [Figure("1.96", "x")]),
        # 5.73 is a ratio there, and 2 % are nowhere.
        ("20.01 GB/s, 2 % more", [Figure("2", "%")]),
    ],
)
def test_a_figure_that_the_page_has_not_is_found(claim: str, lacks: list[Figure]) -> None:
    assert missing(claim, [RESULTS / "net-allreduce.md"]) == lacks


def commits() -> Iterator[tuple[str, str]]:
    """Words of the results, but for addresses, that look like commits, with their page."""
    for page in sorted(RESULTS.glob("*.md")):
        text = re.sub(r"https?://\S+", "", page.read_text(encoding="utf-8"))
        for word in set(re.findall(r"\b[0-9a-f]{7,40}\b", text)):
            if re.search("[a-f]", word) and re.search(r"\d", word) and word not in FOREIGN:
                yield page.name, word


def test_a_commit_that_a_page_of_results_names_is_one_of_this_repository() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or no repository: commits cannot be looked up")
    shallow = [git, "rev-parse", "--is-shallow-repository"]
    if subprocess.check_output(shallow, cwd=ROOT, text=True).strip() != "false":
        pytest.skip("a shallow clone has only the newest commits")
    named = list(commits())
    assert len(named) > 20
    answers = completed(
        [git, "cat-file", "--batch-check"],
        cwd=ROOT,
        input="".join(f"{word}\n" for _, word in named),
        check=True,
    ).stdout.splitlines()
    unknown = [
        f"{page}: {word}"
        for (page, word), answer in zip(named, answers, strict=True)
        if answer.split()[1] != "commit"
    ]
    assert unknown == []
