# SPDX-License-Identifier: Apache-2.0
"""Set and read how much a verb writes to stderr (`-q`, `-v`)."""

import enum
import logging
import sys


class Verbosity(enum.IntEnum):
    """What stderr gets: `QUIET` no progress and hints, `VERBOSE` also messages on files."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


_LOGGER = logging.getLogger("nccltune")
_state: dict[str, Verbosity] = {}
_handlers: list[logging.Handler] = []


def verbosity() -> Verbosity:
    """Return the current level."""
    return _state.get("level", Verbosity.NORMAL)


def is_quiet() -> bool:
    """Return whether progress and hints are omitted."""
    return verbosity() is Verbosity.QUIET


def is_verbose() -> bool:
    """Return whether more messages are requested."""
    return verbosity() is Verbosity.VERBOSE


def set_verbosity(level: Verbosity) -> None:
    """Set the level. With `VERBOSE` the log of the package `nccltune` is printed on stderr."""
    reset_verbosity()
    _state["level"] = level
    if level is Verbosity.VERBOSE:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("verbose    %(message)s"))
        _handlers.append(handler)
        _LOGGER.addHandler(handler)
        _LOGGER.setLevel(logging.DEBUG)


def reset_verbosity() -> None:
    """Reset the level to `NORMAL`."""
    _state.clear()
    _LOGGER.setLevel(logging.NOTSET)
    while _handlers:
        _LOGGER.removeHandler(_handlers.pop())
