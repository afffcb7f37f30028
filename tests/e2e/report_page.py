# SPDX-License-Identifier: Apache-2.0
"""The browser in which pages are looked at, and a report opened from disk in it."""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nccltune.report.data import Report
from nccltune.report.html import render
from tests.unit.report.fixture import report
from tests.waiting import wait_until

READY = "document.documentElement.dataset.ready === 'true'"


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
        wait_until(lambda: self.page.evaluate(expression), expression)

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
        context.set_default_timeout(120_000)
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


CHROMIUM = os.environ.get("NCCLTUNE_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]
NEEDS_CHROMIUM = [
    pytest.mark.chromium,
    pytest.mark.skipif(find_spec("playwright") is None, reason="Playwright is not installed"),
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium: install it, or name it in NCCLTUNE_CHROMIUM"
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright import sync_api

    # Not for the whole session: as long as it is open no other test could run an event loop.
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()
