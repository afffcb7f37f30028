# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files share."""

from tests.e2e.chromium import browser
from tests.e2e.kubernetes.launching import none_runs_on, places

__all__ = ["browser", "none_runs_on", "places"]
