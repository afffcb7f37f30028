# SPDX-License-Identifier: Apache-2.0
"""Settings for all tests."""

import os
import signal

from hypothesis import settings

# In CI the same examples every time, so that a change is judged by itself; elsewhere new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

# A shell without job control starts what runs in the background with these ignored, and programs
# that tests start would inherit that: no test of Ctrl-C could pass.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)
