# SPDX-License-Identifier: Apache-2.0
"""The doctor's page in a real Chromium: nothing is asked for, nothing complains, nothing is cut."""

from pathlib import Path
from typing import Any

import pytest

from nccltune.report.examination import render
from tests.e2e.chromium import NEEDS_CHROMIUM
from tests.unit.doctor.test_shown import examined, hostile

pytestmark = NEEDS_CHROMIUM


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
