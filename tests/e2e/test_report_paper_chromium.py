# SPDX-License-Identifier: Apache-2.0
"""The report on paper, printed by a real Chromium."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from nccltune.report.examination import render
from tests.e2e.report_page import NEEDS_CHROMIUM, Open
from tests.programs import completed
from tests.unit.doctor.test_shown import examined, hostile

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_stands_alone(browser: Any, tmp_path: Path, scheme: str, width: int) -> None:
    path = tmp_path / "checks.html"
    path.write_text(render(examined("acs", "gdr-read", "override-conf", nodes=40)))
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    context.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert said == []
    assert asked == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(colour[4:].split(",")[0]) < 128) == (scheme == "dark")
    assert page.locator("#rule-acs pre").inner_text() == (
        "sudo setpci -s 0000:03:00.0 ECAP_ACS+0x6.w=0000"
    )
    assert page.locator("#rule-acs li").first.is_visible()
    page.locator("details.others").first.locator("summary").click()
    assert page.locator("details.others td").first.is_visible()
    context.close()


def test_foreign_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "checks.html"
    path.write_text(render(hostile()))
    page = browser.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri())
    assert "<script>alert(1)</script>" in page.locator("#findings").inner_text()
    assert dialogs == []
    page.close()
