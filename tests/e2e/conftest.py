# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files share."""

from tests.e2e.kubernetes.launching import none_runs_on
from tests.e2e.report_page import browser, open_page
from tests.unit.conftest import cli

__all__ = ["browser", "cli", "none_runs_on", "open_page"]
