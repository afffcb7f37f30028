# SPDX-License-Identifier: Apache-2.0
"""The page in a real Chromium, as a file on disk. Charts are asked through Plotly's own state."""

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nccltune.report.data import ChoiceMap, Report, Series
from tests.e2e.report_page import NEEDS_CHROMIUM, Open
from tests.unit.report.fixture import built, proof, report

pytestmark = NEEDS_CHROMIUM


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
    assert opened.page.locator("#map-more .map-part").count() == 0


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
    assert opened.trace("tuned, expected", "visible") is True
    assert opened.trace("tree/ll", "visible") is False
    assert opened.trace("tuned, expected", "line.width") > 2 * opened.trace("tree/ll", "line.width")
    bands = opened.page.evaluate(
        "document.getElementById('curve-chart').data.filter((t) => t.meta.band).map((t) => "
        "[t.meta.band, t.fill, Math.max(...t.y) > Math.min(...t.y)])"
    )
    assert bands == [["default", "toself", True], ["tuned, expected", "toself", True]]


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
        "rebuild-command",
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


def test_the_dots_of_what_ran_stand_out_on_every_cell(open_page: Open) -> None:
    opened = open_page(color_scheme="dark")
    ran = "document.getElementById('map-chart').data.find((t) => t.name === 'ran').marker"
    assert opened.page.evaluate(f"{ran}.line.color !== {ran}.color && {ran}.line.width > 1")
    assert opened.page.locator("[data-default]").is_visible()


def test_hovering_tells_size_time_bandwidth_and_n(open_page: Open) -> None:
    opened = open_page()
    text = opened.trace("tuned, expected", "text")[1]
    assert text.startswith("<b>16 KiB</b>  tuned, expected: tree/ll")
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
    opened = open_page(replace(report(), replay="a recording"), color_scheme=scheme)
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


def within(low: float, high: float) -> Report:
    """The report with times that span from `low` to `high` us at one size."""

    def flat(line: Series) -> Series:
        times = [low + (high - low) * index / 4 for index in range(5)]
        return replace(line, bytes=[1 << 20] * 5, time_us=times, low_us=times, high_us=times)

    shown = report()
    one_size = ChoiceMap([1 << 20], ["default"], [[1.0]], path=[0], ran=[None])
    conditions = [
        replace(item, series=[flat(item.series[0])], map=one_size, marks=[])
        for item in shown.conditions
    ]
    return replace(shown, conditions=conditions, line_rate_gb_per_s=None)


@pytest.mark.parametrize(("low", "high"), [(420, 471), (2.70, 2.83), (99.9, 100.1), (1500, 9000)])
def test_the_value_axis_has_three_labels_below_a_decade(
    open_page: Open, low: float, high: float
) -> None:
    opened = open_page(within(low, high))
    for metric in ("busbw", "time"):
        opened.choose("metric", metric)
        labels = opened.layout("yaxis.ticktext")
        assert 3 <= len(labels) <= 14
        assert len(set(labels)) == len(labels)
        assert max(map(len, labels)) <= 9


def test_with_a_proof_its_lines_are_drawn_and_the_csv_has_all(open_page: Open) -> None:
    proven = built(proof=proof())
    opened = open_page(proven)
    assert opened.trace("default, in the proof", "visible") is True
    assert opened.trace("tuned, in the proof", "visible") is True
    assert opened.trace("default", "visible") is False
    assert "1.50×" in opened.trace("tuned, in the proof", "text")[0]
    with opened.page.expect_download() as downloading:
        opened.page.locator("#csv").click()
    with Path(downloading.value.path()).open(encoding="utf-8", newline="") as file:
        choices = {row["choice"] for row in csv.DictReader(file)}
    assert {"default, in the proof", "tuned, in the proof", "default", "tree/ll"} <= choices


def test_a_command_breaks_only_between_its_words(open_page: Open) -> None:
    opened = open_page(size=(375, 800))
    lines = opened.page.evaluate(
        "[...document.querySelectorAll('#reproduce-command .word')].map((word) => "
        "word.getClientRects().length)"
    )
    assert len(lines) == 4
    assert set(lines) == {1}


ADAPTIVE = [1024, 1448, 2048, 2896, 23170, 32768, 46341, 741455, 1048576, 1482910, 1 << 26]
"""Sizes of an adaptive sweep: most are no power of two, some lie close together."""


def with_sizes(sizes: list[int]) -> Report:
    """The report with other sizes in its curves and choice maps; the values repeat."""

    def column(values: list[Any]) -> list[Any]:
        return [values[index % len(values)] for index in range(len(sizes))]

    def series(line: Series) -> Series:
        names = ("n", "time_us", "low_us", "high_us", "busbw_gb_per_s")
        changed = {name: column(getattr(line, name)) for name in names}
        choice = None if line.choice is None else column(line.choice)
        return replace(line, bytes=sizes, choice=choice, **changed)

    shown = report()
    conditions = [
        replace(
            item,
            series=[series(line) for line in item.series],
            map=replace(
                item.map,
                bytes=sizes,
                relative=[column(row) for row in item.map.relative],
                path=column(item.map.path),
            ),
        )
        for item in shown.conditions
    ]
    return replace(shown, conditions=conditions)


BOXES = """(chart) => [...document.querySelectorAll(`#${chart} .xtick text`)].map((label) => {
  const { left, right } = label.getBoundingClientRect();
  return [left, right];
})"""


@pytest.mark.parametrize("width", [375, 800, 1280])
@pytest.mark.parametrize("chart", ["curve-chart", "map-chart"])
def test_axes_have_powers_of_two_whose_labels_do_not_touch_and_are_whole(
    open_page: Open, chart: str, width: int
) -> None:
    opened = open_page(with_sizes(ADAPTIVE), size=(width, 800))
    ticks = opened.layout("xaxis.tickvals", chart)
    sizes = ticks if chart == "curve-chart" else [ADAPTIVE[column] for column in ticks]
    assert len(sizes) > 1
    assert all(size & (size - 1) == 0 for size in map(int, sizes))
    boxes = opened.page.evaluate(BOXES, chart)
    assert len(boxes) == len(ticks)
    for (_, end), (start, _) in itertools.pairwise(boxes):
        assert start > end
    edge = opened.page.evaluate(f"document.getElementById('{chart}').getBoundingClientRect().right")
    assert boxes[-1][1] <= edge


def test_without_a_power_of_two_an_axis_still_has_a_label(open_page: Open) -> None:
    opened = open_page(with_sizes([3000, 3100]))
    assert opened.layout("xaxis.ticktext") == ["2.93 KiB"]
    assert opened.layout("xaxis.ticktext", "map-chart") == ["2.93 KiB", "3.03 KiB"]


def test_on_a_phone_the_map_is_cut_so_that_its_numbers_can_be_read(open_page: Open) -> None:
    opened = open_page(with_sizes(ADAPTIVE), size=(375, 800))
    assert opened.page.locator("#map-more .map-part").count() == 1
    shown = opened.page.evaluate(
        "[...document.querySelectorAll('.map-part')].flatMap((chart) => chart.data[0].text[0])"
    )
    assert len(shown) == len(ADAPTIVE)
    assert all(shown)
    cells = opened.page.locator("#map .heatmaplayer text")
    assert cells.count() >= 2 * len(ADAPTIVE)
    assert min(cell.bounding_box()["width"] for cell in cells.all()[:5]) > 10


def test_a_phone_shows_rules_as_cards_without_scrolling_sideways(open_page: Open) -> None:
    opened = open_page(size=(375, 800))
    right = opened.page.evaluate(
        "Math.max(...[...document.querySelectorAll('.rules td')].map("
        "(cell) => cell.getBoundingClientRect().right))"
    )
    assert right <= 375


def test_the_csv_holds_every_point_of_the_data(open_page: Open) -> None:
    opened = open_page()
    with opened.page.expect_download() as downloading:
        opened.page.locator("#csv").click()
    assert downloading.value.suggested_filename == "two-racks-curves.csv"
    with Path(downloading.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(io.StringIO(file.read())))
    numbers = ("bytes", "n", "time_us", "low_us", "high_us", "busbw_gb_per_s")
    wanted = [
        (item.collective, line.label, *values)
        for item in report().conditions
        for line in item.series
        if line.role != "tuned"
        for values in zip(*(getattr(line, name) for name in numbers), strict=True)
    ]
    found = [
        (row["collective"], row["choice"], *(float(row[name]) for name in numbers)) for row in rows
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
    assert opened.page.evaluate("String(getSelection())") == (
        "nccltune auto --output studies/two-racks-again"
    )
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
        replace(
            shown,
            study=hostile,
            replay=hostile,
            verdict=hostile,
            findings=[replace(item, sentence=hostile, heading=hostile) for item in shown.findings],
            conditions=[
                replace(item, label=hostile, title=hostile, saturation=hostile)
                for item in shown.conditions
            ],
        )
    )
    opened.choose("condition", "condition-1")
    assert opened.complaints == []
    assert opened.requests == [opened.url]
    assert opened.page.locator("h1").inner_text() == hostile
    assert opened.page.locator("img").count() == 0
