# SPDX-License-Identifier: Apache-2.0
"""The report on paper, printed by a real Chromium."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.chromium import NEEDS_CHROMIUM
from tests.e2e.report_page import Open
from tests.programs import completed

pytestmark = NEEDS_CHROMIUM


def test_on_paper_it_is_light_and_has_no_controls(open_page: Open) -> None:
    opened = open_page(color_scheme="dark")
    page = opened.page
    page.emulate_media(media="print", color_scheme="dark")
    opened.wait("document.querySelectorAll('#paper .curve-chart').length === 2")
    # Every collective, those with rules first, each with its curve, its map and its marks.
    headings = page.locator("#paper h2").all_inner_texts()
    assert headings == ["S-curve: all-reduce", "S-curve: reduce-scatter"]
    charts = page.evaluate(
        "[...document.querySelectorAll('#paper .js-plotly-plot')].map((c) => c._fullLayout.width)"
    )
    assert charts == [680] * 4
    numbers = page.locator("#paper .heatmaplayer text").all_text_contents()
    assert {"1.60", "1.00", "9.00"} & set(numbers) == {"1.60", "1.00"}
    assert page.locator("#paper .marks li").count() == 3
    for hidden in ("#curve", "#map", "#theme", "#csv", ".copy", "details.numbers"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.locator("h1").is_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen", color_scheme="dark")
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    assert opened.layout("width") > 680
    assert page.locator("#paper").inner_html() == ""
    assert page.locator("#curve .sub strong").inner_text() == "all-reduce, 2 nodes, 16 ranks"


def test_it_prints(open_page: Open) -> None:
    opened = open_page()
    paper = opened.page.pdf(prefer_css_page_size=True)
    assert paper.startswith(b"%PDF-")
    assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page\r") <= 8


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext (poppler) is missing")
@pytest.mark.parametrize("shift", [20, 180, 340, 500, 760, 820, 900])
def test_no_page_ends_with_a_heading(open_page: Open, tmp_path: Path, shift: int) -> None:
    opened = open_page()
    # What stands where on a page depends on the study; here everything is moved down.
    opened.page.evaluate(
        "(shift) => { const space = document.createElement('div'); "
        "space.style.height = `${shift}px`; document.getElementById('rules').before(space); }",
        shift,
    )
    path = tmp_path / "paper.pdf"
    path.write_bytes(opened.page.pdf(prefer_css_page_size=True))
    text = completed(["pdftotext", "-layout", path, "-"], check=True).stdout
    headings = {
        " ".join(heading.split())
        for heading in opened.page.locator("h2, h3, thead tr, tr.group").all_text_contents()
    }
    pages = [
        [" ".join(line.split()) for line in page.splitlines() if line.strip()]
        for page in text.split("\f")
    ]
    ends = [page[-1] for page in pages if page]
    assert len(ends) >= 2
    assert [end for end in ends if end in headings or end.startswith("Sizes ")] == []


def test_the_first_page_is_not_half_empty(open_page: Open) -> None:
    opened = open_page()
    page = opened.page
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 688, "height": 1000})
    opened.wait("document.querySelectorAll('#paper .curve-chart').length === 2")
    ends = page.locator("#paper .together").first.evaluate(
        "(e) => e.getBoundingClientRect().bottom"
    )
    # A4 with the margins of the page holds 1,001 px: the verdict and the first curve fit on it.
    assert 500 < ends < 1001


def test_after_printing_the_screen_is_back(open_page: Open) -> None:
    opened = open_page()
    opened.page.pdf()
    opened.wait("document.getElementById('curve-chart')._fullLayout.width > 680")
