# SPDX-License-Identifier: Apache-2.0
"""Settings for all tests."""

import os

from hypothesis import settings

# In CI the same examples every time, so that a change is judged by itself; elsewhere new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
