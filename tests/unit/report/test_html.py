# SPDX-License-Identifier: Apache-2.0
import base64
import gzip
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import msgspec
import pytest
from msgspec.structs import replace

from nccltune.analyze.result import Analysis
from nccltune.model.platform import Platform
from nccltune.report.data import Report
from nccltune.report.html import embedded_json, ordered_conditions, packed_plotly, pieces, render
from tests.unit.report.fixture import COMMANDS, built, report, tuning

NEXT = {
    "deploy": "nccltune env studies/two-racks",
    "rebuild": "nccltune tune studies/two-racks && nccltune report studies/two-racks",
    "reproduce": "nccltune auto --output studies/two-racks-again",
}
VOID = {"meta", "br", "input", "link", "hr", "img", "line"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"


class Page(HTMLParser):
    """Elements with their attributes and text; fails where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[int, str] = {}
        self._open: list[int] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.handle_data(" ")
        assert self.elements[self._open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for index in self._open:
            self.texts[index] = self.texts.get(index, "") + data

    def all(self, tag: str, **wanted: str) -> Iterator[tuple[dict[str, str], str]]:
        for index, (name, attributes) in enumerate(self.elements):
            if name == tag and all(
                attributes.get(key.rstrip("_")) == value for key, value in wanted.items()
            ):
                yield attributes, self.texts.get(index, "")

    def one(self, tag: str, **wanted: str) -> tuple[dict[str, str], str]:
        (found,) = self.all(tag, **wanted)
        return found


@pytest.fixture(scope="module")
def text() -> str:
    return render(report())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_the_verdict_comes_first(page: Page) -> None:
    _, heading = page.one("h1")
    assert heading.replace("\u00a0", " ") == report().verdict.replace("1.50x", "1.50×")
    order = [name for name, _ in page.elements if name in ("h1", "h2")]
    assert order[0] == "h1"
    assert order.count("h1") == 1


def test_sections_stand_in_the_order_of_reading(page: Page) -> None:
    sections = [attributes["id"] for attributes, _ in page.all("section")]
    assert sections == ["verdict", "curve", "map", "rules", "left", "platform", "findings", "next"]


def test_rules_stand_with_range_choice_gain_interval_n_certainty_and_reason(page: Page) -> None:
    _, rules = page.one("section", id="rules")
    shown = " ".join(rules.replace("\u00a0", " ").split())
    assert "1.00 KiB – 58.6 KiB" in shown
    assert (
        "tree/ll 1.55× 1.50–1.60 1.50–1.60 8 (default 24) 48 sure Faster than the default beyond "
        "noise (1.1 %)"
    ) in shown
    assert "ring/simple 1.40× 1.30–1.50 1.40–1.40 unknown 24 candidate" in shown
    assert "over its whole range of sizes, beyond noise and by at least 3 %" in shown


def test_what_is_left_alone_says_why(page: Page) -> None:
    _, left = page.one("section", id="left")
    assert "The best choice gains less than 3\u00a0% (noise 1.1\u00a0%)." in left


def test_every_finding_has_its_anchor_and_every_link_its_target(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {
        attributes["href"].removeprefix("#")
        for attributes, _ in page.all("a")
        if attributes["href"].startswith("#")
    }
    assert targets <= set(ids)
    assert {"finding-1", "finding-2", "finding-3", "finding-4"} <= set(ids)


def test_findings_that_are_not_tuning_stand_apart_with_what_to_check(page: Page) -> None:
    _, platform = page.one("section", id="platform")
    assert "Even the best choice dips" in platform
    assert "nvidia-smi topo -m" in platform
    _, findings = page.one("section", id="findings")
    assert "Even the best choice dips" not in findings
    assert "run-3.txt: all 16 ranks are on one host" in findings


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    for name, attributes in page.elements:
        assert "src" not in attributes, name
        assert name not in ("link", "img", "iframe", "object", "embed", "base"), name
        if name == "a":
            assert attributes["href"].startswith("#")
    policy = next(
        attributes["content"]
        for attributes, _ in page.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")


def test_plotly_is_inside_once_and_whole(text: str, page: Page) -> None:
    _, packed = page.one("script", id="plotly-packed")
    source = gzip.decompress(base64.b64decode(packed)).decode()
    assert "Licensed under the MIT license" in source[:400]
    assert "react" in source
    assert text.count(packed[1000:1100]) == 1
    assert packed == packed_plotly()
    assert len(text) < 2_500_000


def test_the_embedded_data_are_the_report(page: Page) -> None:
    _, data = page.one("script", id="report-data")
    assert msgspec.json.decode(data, type=Report) == report()


def test_tables_have_captions_and_scoped_headers(page: Page) -> None:
    tables = list(page.all("table"))
    assert len(tables) == len(list(page.all("caption"))) >= 5
    assert all(attributes.get("scope") for attributes, _ in page.all("th"))


def test_charts_and_controls_are_named(page: Page) -> None:
    for chart in ("curve-chart", "map-chart"):
        attributes, _ = page.one("div", id=chart)
        assert attributes["role"] == "img"
        assert "all-reduce" in attributes["aria-label"]
    for attributes, words in page.all("button"):
        assert words.strip() or attributes.get("aria-label")
    assert len(list(page.all("fieldset"))) == len(list(page.all("legend"))) == 2
    assert page.one("html")[0]["lang"] == "en"


def test_the_numbers_are_there_without_javascript(page: Page) -> None:
    _, table = next(
        (attributes, words)
        for attributes, words in page.all("details")
        if attributes.get("data-for") == "condition-2"
    )
    row = " ".join(table.replace("\u00a0", " ").split())
    assert "1 KiB 40.0 µs 25.0 µs tree/ll 1.60× 1.54–1.66 25.0 µs tree/ll" in row
    assert "4 MiB 480 µs 480 µs left alone 1.00× 480 µs default" in row


def test_tabs_begin_with_what_has_rules_and_the_first_is_chosen(page: Page) -> None:
    assert [item.label for item in ordered_conditions(report())] == ["all-reduce", "reduce-scatter"]
    tabs = list(page.all("input", name="condition"))
    assert [attributes["value"] for attributes, _ in tabs] == ["condition-2", "condition-1"]
    assert ["checked" in attributes for attributes, _ in tabs] == [True, False]
    _, strip = page.one("table", class_="glance")
    assert strip.index("all-reduce") < strip.index("reduce-scatter")


def test_names_of_commands_keep_their_case_and_backticks_become_code() -> None:
    remarks = ["nccltune sweep --rounds 8: all choices", "A mean of `iterations` calls"]
    _, shown = Page(render(replace(report(), remarks=remarks))).one("section", id="next")
    assert "nccltune sweep --rounds 8: all choices." in shown
    assert "A mean of iterations calls." in shown


def test_the_legend_of_the_map_has_no_swatch_for_empty_cells(page: Page, text: str) -> None:
    _, choice_map = page.one("section", id="map")
    assert "empty: not measured" in choice_map
    assert "swatch blank" not in text


def test_deploy_rebuild_and_measure_again_are_different_commands(page: Page) -> None:
    found = {name: page.one("code", id=f"{name}-command")[1] for name in NEXT}
    assert found == NEXT


def test_not_a_tuning_problem_says_at_which_sizes(page: Page) -> None:
    _, verdict = page.one("section", id="verdict")
    assert "Not a tuning problem: reduce-scatter 256 KiB – 4 MiB" in verdict
    assert "Not a tuning problem at these sizes" in [words for _, words in page.all("h2")]


def test_alike_findings_are_folded_behind_the_first() -> None:
    first = report().findings[0]
    folded = replace(first, more=["run-4.txt: all 16 ranks are on one host"])
    _, shown = Page(render(replace(report(), findings=[folded]))).one("section", id="findings")
    assert "1 more like this" in shown
    assert "run-4.txt: all 16 ranks are on one host." in shown


def test_a_gain_is_explained_under_every_table_of_times(page: Page) -> None:
    for attributes, words in page.all("details"):
        if "data-for" in attributes:
            assert "can differ from the ratio of the two medians" in words


def test_foreign_strings_cannot_leave_their_place() -> None:
    shown = report()
    hostile = replace(
        shown,
        study=HOSTILE,
        verdict=HOSTILE,
        replay=HOSTILE,
        sources=[HOSTILE],
        facts=[replace(shown.facts[0], value=HOSTILE)],
        findings=[replace(item, sentence=HOSTILE) for item in shown.findings],
        commands=replace(shown.commands, deploy=HOSTILE),
        conditions=[replace(item, label=HOSTILE, title=f'"{HOSTILE}') for item in shown.conditions],
    )
    page = Page(render(hostile))
    assert len(list(page.all("script"))) == len(list(Page(render(shown)).all("script"))) == 4
    assert not list(page.all("img"))
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert page.one("title")[1].startswith(HOSTILE)
    assert json.loads(page.one("script", id="report-data")[1])["study"] == HOSTILE


def test_embedded_json_has_no_bare_markup() -> None:
    hostile = replace(report(), study=HOSTILE)
    assert not re.search("[<>&\u2028\u2029]", embedded_json(hostile))


def test_a_replay_is_called_one_in_the_header_and_the_text() -> None:
    page = Page(render(replace(report(), replay="examples/h200x4")))
    assert any(words == "replay" for _, words in page.all("span", class_="chip"))
    assert any("drawn from the recording examples/h200x4" in words for _, words in page.all("p"))
    assert "replay" not in Page(render(report())).one("header")[1]


def test_many_conditions_become_a_list_to_choose_from() -> None:
    shown = report()
    many = [
        replace(shown.conditions[1], id=f"condition-{n}", label=f"all-reduce {n}")
        for n in range(1, 9)
    ]
    page = Page(render(replace(shown, conditions=many)))
    assert len(list(page.all("option"))) == 8
    assert not list(page.all("input", name="condition"))


def test_an_empty_report_renders_without_charts() -> None:
    empty = built(
        Analysis(Platform(name="new"), [], [], 0),
        replace(tuning(), groups=[]),
        commands=replace(COMMANDS, deploy=None),
    )
    page = Page(render(empty))
    assert page.one("h1")[1] == "Nothing was measured yet."
    assert not [attributes for attributes, _ in page.all("section", id="curve")]


def test_hyphenated_names_are_kept_whole() -> None:
    assert pieces("make all-reduce 1.3x faster") == ["make ", "all-reduce", " 1.3x faster"]


def test_a_size_at_which_nothing_was_compared_has_no_gain_and_no_fastest_choice() -> None:
    made = tuning()
    groups = [
        replace(group, left_alone=[replace(left, compared=False) for left in group.left_alone])
        for group in made.groups
    ]
    page = built(tuned=replace(made, groups=groups))
    rows = re.findall(r'<tr(?: class="ruled")?><th scope="row".*?</tr>', render(page))
    alone = [row for row in rows if "not compared" in row]
    assert alone
    assert not any("1.00×" in row or "left alone" in row for row in rows)
