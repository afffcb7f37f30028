# SPDX-License-Identifier: Apache-2.0
"""A set of environment settings for starting a process."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """A set of environment settings. Settings that are not in the set keep their present values.

    The empty set is the default. `values` are the settings whose value is a number, `words` the
    settings with any other value. Both are sorted by name.

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
        """Return a label for display: `NCCL_BUFFSIZE=8388608 NCCL_MIN_P2P_NCHANNELS=64`, or
        `default`."""
        return " ".join(f"{name}={value}" for name, value in self.recorded.items()) or "default"

    def without(self, name: str) -> "Settings":
        """Return these settings without the one called `name`."""
        return Settings.of({key: value for key, value in self.recorded.items() if key != name})


DEFAULT = Settings()
