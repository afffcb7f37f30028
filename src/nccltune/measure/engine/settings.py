# SPDX-License-Identifier: Apache-2.0
"""A set of environment settings for starting a process."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """A set of settings, sorted by name; all others keep their values. The empty set is the
    default.

    `values` are the settings with a number as value, `words` those with any other value.

    >>> Settings.of({"NCCL_BUFFSIZE": 8388608}).label
    'NCCL_BUFFSIZE=8388608'
    """

    values: tuple[tuple[str, int], ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, int | str]) -> "Settings":
        """Return the settings of a mapping."""
        items = sorted(values.items())
        return cls(
            tuple((name, value) for name, value in items if isinstance(value, int)),
            tuple((name, value) for name, value in items if isinstance(value, str)),
        )

    @property
    def numbers(self) -> dict[str, int]:
        """Return the settings with a number as value, as a mapping."""
        return dict(self.values)

    @property
    def recorded(self) -> dict[str, int | str]:
        """Return all settings as a mapping."""
        return dict(sorted((*self.values, *self.words)))

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables; lines of nccl.conf are the same."""
        return {name: str(value) for name, value in self.recorded.items()}

    @property
    def label(self) -> str:
        """Return a label for display: `NCCL_BUFFSIZE=8388608 NCCL_MIN_P2P_NCHANNELS=64`, or
        `default`."""
        return " ".join(f"{name}={value}" for name, value in self.recorded.items()) or "default"

    def without(self, name: str) -> "Settings":
        """Return these settings without the one called `name`."""
        return Settings.of({key: value for key, value in self.recorded.items() if key != name})


DEFAULT = Settings()
