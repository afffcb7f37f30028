# SPDX-License-Identifier: Apache-2.0
"""The signal that caused a KeyboardInterrupt."""

import signal


def signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    """Return the signal in the first argument of a KeyboardInterrupt; SIGINT if it has none."""
    return signal.Signals(stop.args[0]) if stop.args else signal.SIGINT
