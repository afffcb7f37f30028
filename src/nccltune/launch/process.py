# SPDX-License-Identifier: Apache-2.0
"""The signal behind an interruption."""

import signal


def signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    """Return the signal behind an interruption: SIGINT, unless it carries another."""
    return signal.Signals(stop.args[0]) if stop.args else signal.SIGINT
