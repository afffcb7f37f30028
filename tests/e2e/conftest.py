# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several files share."""

from tests.e2e.chromium import browser

__all__ = ["browser"]
