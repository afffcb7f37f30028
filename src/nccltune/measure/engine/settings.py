# SPDX-License-Identifier: Apache-2.0
"""A set of environment settings for starting a process."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True)
class Settings:
    """A set of environment settings, numbers and words sorted by name; others stay as they are.

    The empty set is the default.

    >>> Settings.of({"NCCL_BUFFSIZE": 8388608}).label
    'NCCL_BUFFSIZE=8388608'
    """

    values: tuple[tuple[str, int], ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, int | str]) -> "Settings":
        """Return the set of the settings in a mapping from name to value."""
        items = sorted(values.items())
        return cls(
            tuple((name, value) for name, value in items if isinstance(value, int)),
            tuple((name, value) for name, value in items if isinstance(value, str)),
        )

    @property
    def numbers(self) -> dict[str, int]:
        """Return the settings whose value is a number, as a mapping."""
        return dict(self.values)

    @property
    def recorded(self) -> dict[str, int | str]:
        """Return all settings as a mapping."""
        return dict(sorted((*self.values, *self.words)))

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables. nccl.conf has the same names and values."""
        return {name: str(value) for name, value in self.recorded.items()}

    @property
    def label(self) -> str:
        """Return `NCCL_BUFFSIZE=8388608 NCCL_MIN_P2P_NCHANNELS=64`, or `default`."""
        return " ".join(f"{name}={value}" for name, value in self.recorded.items()) or "default"

    def without(self, name: str) -> "Settings":
        """Return these settings without the one called `name`."""
        return Settings.of({key: value for key, value in self.recorded.items() if key != name})


DEFAULT = Settings()


# The line in NCCL 2.19 to 2.32: "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p
# channels, 32 p2p channels per peer".
_CHANNELS = re.compile(
    r"(?P<coll>\d+) coll channels, .*?(?P<p2p>\d+) p2p channels,"
    r" (?P<peer>\d+) p2p channels per peer"
)
# The line in NCCL 2.19 to 2.32.
_CHUNK = re.compile(r"P2P Chunksize set to (?P<bytes>\d+)")
_MOST_BYTES = 16 << 20


class Effective(msgspec.Struct, frozen=True):
    """The settings that NCCL uses in fact; None for one that it did not log.

    `chunk_bytes` are those that send/recv transfers in one step.
    """

    channels: int | None = None
    p2p_channels: int | None = None
    channels_per_peer: int | None = None
    chunk_bytes: int | None = None


def log_settings(folder: Path) -> dict[str, str]:
    """Return the variables with which NCCL logs its start, and nothing later, to `folder`."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p"),
    }


def read_effective(folder: Path) -> Effective | None:
    """Return the effective settings from the logs in `folder`; None if they name none."""
    channels = chunk = None
    for path in sorted(folder.glob("nccl.*")):
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
        channels = channels or _first(_CHANNELS.finditer(text))
        chunk = chunk or _first(_CHUNK.finditer(text))
    if channels is None and chunk is None:
        return None
    return Effective(
        channels=int(channels["coll"]) if channels else None,
        p2p_channels=int(channels["p2p"]) if channels else None,
        channels_per_peer=int(channels["peer"]) if channels else None,
        chunk_bytes=int(chunk["bytes"]) if chunk else None,
    )


def _first(matches: Iterable[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(matches), None)
