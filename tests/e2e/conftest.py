# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files share."""

from tests.e2e.chromium import browser
from tests.e2e.kubernetes.launching import none_runs_on, places
from tests.e2e.report_page import open_page

__all__ = ["browser", "none_runs_on", "open_page", "places"]
