# SPDX-License-Identifier: Apache-2.0
"""The page in a real Chromium, as a file on disk. Charts are asked through Plotly's own state."""

import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nccltune.report.data import Report
from nccltune.report.html import render
from tests.e2e.chromium import NEEDS_CHROMIUM
from tests.unit.report.fixture import report

READY = "document.documentElement.dataset.ready === 'true'"
pytestmark = NEEDS_CHROMIUM


class Opened:
    """A page with what it asked for and complained about."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on(
            "console",
            lambda message: message.type in ("error", "warning")
            and self.complaints.append(message.text),
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.context.on("request", lambda request: self.requests.append(request.url))

    def layout(self, what: str, chart: str = "curve-chart") -> Any:
        return self.page.evaluate(f"document.getElementById('{chart}')._fullLayout.{what}")

    def trace(self, series: str, what: str) -> Any:
        return self.page.evaluate(
            "([series, what]) => what.split('.').reduce((value, name) => value[name], "
            "document.getElementById('curve-chart').data.find((t) => t.meta.series === series))",
            [series, what],
        )

    def body_colour(self) -> list[int]:
        text = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in text[4:-1].split(",")]

    def wait(self, expression: str) -> None:
        """Until a JavaScript expression holds (the page's policy forbids Playwright's own way)."""
        deadline = time.monotonic() + 20
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, expression
            self.page.wait_for_timeout(20)

    def legend(self, series: str) -> Any:
        return self.page.locator(f"#legend button[data-series='{series}']")

    def choose(self, name: str, value: str) -> None:
        # The radio button lies invisibly over its label, where a mouse and a keyboard find it.
        self.page.locator(f"input[name={name}][value={value}]").check()


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(
        shown: Report | None = None,
        *,
        size: tuple[int, int] = (1280, 800),
        before: str = "",
        ready: bool = True,
        **options: Any,
    ) -> Opened:
        path = tmp_path / "report.html"
        path.write_text(render(shown or report()), encoding="utf-8")
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        found = Opened(context.new_page(), path.as_uri())
        if before:
            found.page.add_init_script(before)
        found.page.goto(found.url)
        if ready:
            found.wait(READY)
        return found

    yield opened
    for context in contexts:
        context.close()


def test_it_draws_without_a_complaint_and_asks_nobody(open_page: Open) -> None:
    opened = open_page()
    for metric in ("time", "busbw"):
        opened.choose("metric", metric)
    opened.choose("condition", "condition-1")
    opened.page.locator("#theme").click()
    for button in opened.page.locator("#legend button").all():
        button.click()
    opened.page.mouse.wheel(0, 4000)
    opened.page.wait_for_timeout(200)
    assert opened.complaints == []
    assert opened.requests == [opened.url]
    assert opened.page.locator("#curve-chart .main-svg").count() > 0
    assert opened.page.locator("#map-chart .heatmaplayer image").count() == 1


def test_both_axes_are_logarithmic_in_both_metrics(open_page: Open) -> None:
    opened = open_page()
    for metric in ("busbw", "time"):
        opened.choose("metric", metric)
        assert opened.layout("xaxis.type") == "log"
        assert opened.layout("yaxis.type") == "log"
    assert "1 KiB" in opened.layout("xaxis.ticktext")


def test_default_and_tuned_are_strong_and_have_bands_others_wait(open_page: Open) -> None:
    opened = open_page()
    assert opened.trace("default", "visible") is True
    assert opened.trace("tuned, predicted", "visible") is True
    assert opened.trace("tree/ll", "visible") is False
    assert opened.trace("tuned, predicted", "line.width") > 2 * opened.trace(
        "tree/ll", "line.width"
    )
    bands = opened.page.evaluate(
        "document.getElementById('curve-chart').data.filter((t) => t.meta.band).map((t) => "
        "[t.meta.band, t.fill, Math.max(...t.y) > Math.min(...t.y)])"
    )
    assert bands == [["default", "toself", True], ["tuned, predicted", "toself", True]]


def test_the_legend_switches_a_series_by_mouse_and_by_keyboard(open_page: Open) -> None:
    opened = open_page()
    button = opened.legend("tree/ll")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert opened.trace("tree/ll", "visible") is True
    assert button.get_attribute("aria-pressed") == "true"
    opened.legend("tree/ll").focus()
    opened.page.keyboard.press("Space")
    assert opened.trace("tree/ll", "visible") is False
    # The focus stays, so that the next key acts on the same series.
    opened.page.keyboard.press("Enter")
    assert opened.trace("tree/ll", "visible") is True


def test_all_controls_are_reached_with_the_tab_key(open_page: Open) -> None:
    opened = open_page()
    reached = set()
    for _ in range(60):
        opened.page.keyboard.press("Tab")
        reached.add(
            opened.page.evaluate(
                "((e) => e.id || e.name || e.dataset.series || e.dataset.copy || "
                "e.getAttribute('href') || e.tagName)(document.activeElement)"
            )
        )
    assert {
        "theme",
        "condition",
        "metric",
        "tree/ll",
        "deploy-command",
        "reproduce-command",
        "csv",
        "#finding-2",
        "SUMMARY",
    } <= reached


def test_the_metric_switch_changes_what_is_drawn(open_page: Open) -> None:
    opened = open_page()
    data = report().conditions[1].series[0]
    assert opened.trace("default", "y") == pytest.approx(data.busbw_gb_per_s, rel=1e-4)
    opened.choose("metric", "time")
    assert opened.trace("default", "y") == data.time_us
    assert opened.layout("yaxis.title.text") == "Time of one call"


def test_the_line_rate_is_dashed_in_both_metrics(open_page: Open) -> None:
    opened = open_page()
    assert opened.trace("line rate", "line.dash") == "longdash"
    assert opened.trace("line rate", "y") == [50, 50]
    opened.choose("metric", "time")
    factor = report().conditions[1].bus_factor
    assert opened.trace("line rate", "y")[1] == pytest.approx((1 << 26) * factor / 50e3)


def test_the_condition_switch_changes_charts_words_and_table(open_page: Open) -> None:
    opened = open_page()
    page = opened.page
    assert page.locator("#curve .sub strong").inner_text() == "all-reduce, 2 nodes, 16 ranks"
    opened.choose("condition", "condition-1")
    assert page.locator("#curve .sub strong").inner_text() == "reduce-scatter, 2 nodes, 16 ranks"
    assert page.locator("#legend button").all_inner_texts() == ["default", "ring/ll"]
    assert opened.layout("yaxis.ticktext", "map-chart") == ["<b>default</b>", "ring/ll"]
    assert page.locator("details[data-for=condition-1]").is_visible()
    assert not page.locator("details[data-for=condition-2]").is_visible()
    # No rules here, so there is no way to draw.
    assert not page.locator("[data-path]").is_visible()
    assert "reduce-scatter" in page.locator("#map-chart").get_attribute("aria-label")


def test_the_way_of_the_rules_is_drawn_over_the_choice_map(open_page: Open) -> None:
    opened = open_page()
    rows = opened.page.evaluate(
        "document.getElementById('map-chart').data.find((t) => t.name === 'path').y"
    )
    assert [round(row - 0.36) for row in rows] == [2, 2, 2, 1, 0, 0, 0]


def test_hovering_tells_size_time_bandwidth_and_n(open_page: Open) -> None:
    opened = open_page()
    text = opened.trace("tuned, predicted", "text")[1]
    assert text.startswith("<b>16 KiB</b>  tuned, predicted: tree/ll")
    for part in ("40.0 µs", "0.768 GB/s", "95 % CI 39.2 µs – 40.8 µs", "n = 8", "1.50×"):
        assert part in text
    opened.page.evaluate(
        "(() => { const gd = document.getElementById('curve-chart'); const at = "
        "gd.data.findIndex((t) => t.meta.series === 'default'); "
        "Plotly.Fx.hover(gd, [{ curveNumber: at, pointNumber: 2 }]); })()"
    )
    shown = opened.page.locator("#curve-chart .hovertext").text_content()
    assert "256 KiB" in shown
    assert "n = 16" in shown


def test_findings_are_marked_on_the_curve_and_lead_to_their_sentence(open_page: Open) -> None:
    opened = open_page()
    page = opened.page
    shapes = [shape for shape in opened.layout("shapes") if shape["type"] == "rect"]
    assert len(shapes) == 2
    assert shapes[0]["x0"] <= 1 << 10 < 1 << 18 <= shapes[0]["x1"]
    page.locator("#marks a", has_text="Dip").click()
    assert page.url.endswith("#finding-4")
    assert page.locator("#finding-4").is_visible()
    page.locator("#curve-chart").scroll_into_view_if_needed()
    page.locator("#curve-chart .annotation", has_text="2").click()
    page.wait_for_url("**#finding-2")


def test_a_finding_shows_itself_on_its_curve(open_page: Open) -> None:
    opened = open_page()
    opened.page.locator("#finding-3 a.show").click()
    assert opened.page.locator("input[name=condition]:checked").get_attribute("value") == (
        "condition-1"
    )
    assert opened.layout("shapes")[0]["opacity"] > 0.2
    assert (
        opened.page.evaluate("document.getElementById('curve').getBoundingClientRect().top") < 800
    )


def test_dark_and_light_follow_the_system_and_the_button(open_page: Open) -> None:
    light = open_page(color_scheme="light")
    dark = open_page(color_scheme="dark")
    assert min(light.body_colour()) > 230
    assert max(dark.body_colour()) < 50
    before = dark.trace("default", "line.color")
    assert before != light.trace("default", "line.color")
    dark.page.locator("#theme").click()
    assert min(dark.body_colour()) > 230
    assert dark.trace("default", "line.color") == light.trace("default", "line.color") != before
    assert dark.layout("font.color") == light.layout("font.color")
    dark.page.emulate_media(color_scheme="light")
    light.page.emulate_media(color_scheme="dark")
    light.wait("document.documentElement.dataset.theme === 'dark'")
    assert max(light.body_colour()) < 50


CONTRAST = """() => {
  const channel = (value) => value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (!colour.startsWith('rgba')) return colour;
    }
    throw new Error('no background');
  };
  const texts =
    'h1, h2, h3, p, li, th, td, dt, dd, a, button, label span, summary, code, .badge, .chip';
  const low = [];
  for (const element of document.querySelectorAll(texts)) {
    const words = element.textContent.trim();
    if (!words || !element.offsetParent || element.closest('svg, .unseen')) continue;
    const a = luminance(getComputedStyle(element).color);
    const b = luminance(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([element.tagName, element.className, words.slice(0, 30), ratio]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks_for(open_page: Open, scheme: str) -> None:
    opened = open_page(msgspec.structs.replace(report(), replay="a recording"), color_scheme=scheme)
    assert opened.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_verdict_is_there_without_scrolling(open_page: Open, size: tuple[int, int]) -> None:
    opened = open_page(size=size)
    box = opened.page.locator("h1").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= size[1]
    assert box["x"] + box["width"] <= size[0]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    chart = opened.page.locator("#curve-chart .main-svg").first.bounding_box()
    assert chart["width"] <= size[0]


def test_charts_follow_the_window(open_page: Open) -> None:
    opened = open_page()
    wide = opened.layout("width")
    ticks = len(opened.layout("xaxis.tickvals"))
    opened.page.set_viewport_size({"width": 300, "height": 700})
    opened.wait(f"document.getElementById('curve-chart')._fullLayout.width < {wide / 2}")
    assert len(opened.layout("xaxis.tickvals")) < ticks


def test_on_paper_it_is_light_and_has_no_controls(open_page: Open) -> None:
    opened = open_page(color_scheme="dark")
    page = opened.page
    page.emulate_media(media="print", color_scheme="dark")
    opened.wait("document.getElementById('curve-chart')._fullLayout.width === 680")
    assert opened.layout("width", "map-chart") == 680
    for hidden in (".controls", "#theme", "#csv", ".copy", "details.numbers"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert page.locator("h1").is_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.emulate_media(media="screen", color_scheme="dark")
    opened.wait("document.documentElement.dataset.theme === 'dark'")
    assert opened.layout("width") > 680


def test_it_prints(open_page: Open) -> None:
    opened = open_page()
    paper = opened.page.pdf(prefer_css_page_size=True)
    assert paper.startswith(b"%PDF-")
    assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page\r") <= 8
    opened.wait("document.getElementById('curve-chart')._fullLayout.width > 680")


def test_the_csv_holds_every_point_of_the_data(open_page: Open) -> None:
    opened = open_page()
    with opened.page.expect_download() as downloading:
        opened.page.locator("#csv").click()
    assert downloading.value.suggested_filename == "two-racks-curves.csv"
    with Path(downloading.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(io.StringIO(file.read())))
    wanted = [
        (item.collective, line.label, size, n, time, low, high, rate)
        for item in report().conditions
        for line in item.series
        if line.role != "tuned"
        for size, n, time, low, high, rate in zip(
            line.bytes,
            line.n,
            line.time_us,
            line.low_us,
            line.high_us,
            line.busbw_gb_per_s,
            strict=True,
        )
    ]
    found = [
        (
            row["collective"],
            row["choice"],
            int(row["bytes"]),
            int(row["n"]),
            float(row["time_us"]),
            float(row["low_us"]),
            float(row["high_us"]),
            float(row["busbw_gb_per_s"]),
        )
        for row in rows
    ]
    assert found == wanted
    assert {(row["nodes"], row["ranks"], row["in_place"], row["dtype"]) for row in rows} == {
        ("2", "16", "false", "")
    }


NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined });"


@pytest.mark.parametrize("before", ["", NO_CLIPBOARD], ids=["clipboard", "no clipboard"])
def test_a_command_is_copied_with_and_without_the_clipboard_api(
    open_page: Open, before: str
) -> None:
    opened = open_page(before=before)
    page = opened.page
    button = page.locator("button[data-copy=deploy-command]")
    button.click()
    opened.wait("document.querySelector('[data-copy]').textContent === 'Copied'")
    assert page.locator("#status").inner_text() == "Copied to the clipboard"
    page.evaluate(
        "(() => { const area = document.createElement('textarea'); area.id = 'paste'; "
        "document.body.prepend(area); area.focus(); })()"
    )
    page.keyboard.press("Control+V")
    assert page.locator("#paste").input_value() == "nccltune env studies/two-racks"


def test_when_nothing_can_copy_the_command_is_selected(open_page: Open) -> None:
    opened = open_page(before=NO_CLIPBOARD + "document.execCommand = () => false;")
    opened.page.locator("button[data-copy=reproduce-command]").click()
    assert opened.page.evaluate("String(getSelection())") == "nccltune report studies/two-racks"
    assert "Ctrl+C" in opened.page.locator("#status").inner_text()


def test_a_browser_that_cannot_unpack_the_charts_says_so(open_page: Open) -> None:
    opened = open_page(before="delete globalThis.DecompressionStream;", ready=False)
    error = opened.page.locator("#chart-error")
    error.wait_for(state="visible")
    assert "every number is in the tables" in error.inner_text()
    with opened.page.expect_download() as downloading:
        opened.page.locator("#csv").click()
    assert Path(downloading.value.path()).stat().st_size > 100


def test_without_javascript_the_words_and_numbers_are_there(open_page: Open) -> None:
    opened = open_page(java_script_enabled=False, ready=False)
    assert opened.page.locator("h1").is_visible()
    assert "need JavaScript" in opened.page.locator("noscript").first.inner_text()
    for summary in opened.page.locator("details.numbers summary").all():
        summary.click()
    assert opened.page.locator("details.numbers td", has_text="tree/ll").first.is_visible()
    assert opened.page.locator("#rules td", has_text="1.55×").is_visible()


def test_a_hostile_study_is_only_text(open_page: Open) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    shown = report()
    opened = open_page(
        msgspec.structs.replace(
            shown,
            study=hostile,
            replay=hostile,
            verdict=hostile,
            findings=[
                msgspec.structs.replace(item, sentence=hostile, heading=hostile)
                for item in shown.findings
            ],
            conditions=[
                msgspec.structs.replace(item, label=hostile, title=hostile, saturation=hostile)
                for item in shown.conditions
            ],
        )
    )
    opened.choose("condition", "condition-1")
    assert opened.complaints == []
    assert opened.requests == [opened.url]
    assert opened.page.locator("h1").inner_text() == hostile
    assert opened.page.locator("img").count() == 0
