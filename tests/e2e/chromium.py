# SPDX-License-Identifier: Apache-2.0
"""The browser in which pages are looked at."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

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
    """A real Chromium, driven by Playwright."""
    from playwright import sync_api

    # Not for the whole session: as long as it is open no other test could run an event loop.
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()
