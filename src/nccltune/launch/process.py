# SPDX-License-Identifier: Apache-2.0
"""What all that starts commands here does alike: a session of their own, and who said stop."""

import signal
import subprocess
from collections.abc import Mapping, Sequence

from nccltune.child import Child
from nccltune.model.errors import PlatformError


def start(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    errors: int = subprocess.PIPE,
    input_: int = subprocess.DEVNULL,
) -> Child:
    """A command in a session of its own, its output in a pipe; `errors` and `input_` are where
    standard error goes and standard input comes from, as subprocess names it.

    Raises PlatformError where it cannot be started.
    """
    try:
        return Child(
            words,
            env=dict(environment),
            stdin=input_,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is ours to hand on: a launcher and its processes must not all get it.
            start_new_session=True,
        )
    except OSError as error:
        raise PlatformError(f"cannot be started: {error.strerror}", where=words[0]) from error


def signal_of(stop: KeyboardInterrupt) -> signal.Signals:
    """The signal behind an interruption: Ctrl-C's, unless it says another."""
    return signal.Signals(stop.args[0]) if stop.args else signal.SIGINT
