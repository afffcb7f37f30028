# SPDX-License-Identifier: Apache-2.0
"""What each release of NCCL has: one table for code, documentation and their tests.

The tuner's rows are from `src/plugin/tuner/` and `src/enqueue.cc`, those of the network plugin from
`src/plugin/plugin_open.cc` and `src/plugin/net.cc` of each release tag.
"""

import re
from typing import NamedTuple


class NcclRelease(NamedTuple):
    """What NCCL has from the release `since` on, up to the next row.

    tuner           the newest tuner interface that our plugin is loaded with; None if none is
    most_channels   MAXCHANNELS: the most channels of a communicator
    only_lowers     whether a tuner's number of channels can only lower NCCL's own number
    asks_chunks     whether a tuner is asked for a chunk size
    opens_paths     whether NCCL_NET_PLUGIN may be a path; else only `libnccl-net-<value>.so`
    forgets_plugin  whether the name of a network plugin is lost with the last communicator
    home_variable   whether ~/.nccl.conf is below $HOME, not below the password file's home folder
    """

    since: tuple[int, int, int]
    tuner: int | None = None
    most_channels: int = 64
    only_lowers: bool = False
    asks_chunks: bool = False
    opens_paths: bool = True
    forgets_plugin: bool = False
    home_variable: bool = False


RELEASES = (
    NcclRelease((2, 13, 0), most_channels=32, opens_paths=False),
    NcclRelease((2, 21, 0), tuner=2, most_channels=32),
    NcclRelease((2, 22, 0), tuner=3, most_channels=32),
    NcclRelease((2, 24, 0), tuner=4, most_channels=32),
    NcclRelease((2, 25, 0), tuner=4),
    # 2.27.3 opens the value itself only if it begins with `lib` and ends in `.so`.
    NcclRelease((2, 27, 0), tuner=4, opens_paths=False),
    NcclRelease((2, 27, 5), tuner=4),
    NcclRelease((2, 28, 0), tuner=5, forgets_plugin=True),
    NcclRelease((2, 30, 0), tuner=6, asks_chunks=True, forgets_plugin=True, home_variable=True),
    NcclRelease((2, 30, 3), tuner=6, asks_chunks=True, home_variable=True),
    NcclRelease((2, 31, 0), tuner=6, asks_chunks=True, only_lowers=True, home_variable=True),
    NcclRelease((2, 32, 0), tuner=7, asks_chunks=True, only_lowers=True, home_variable=True),
)
"""The rows, oldest first. A release behind the last row is taken for one of it."""
FIRST_WITH_PLUGIN = next(row.since[:2] for row in RELEASES if row.tuner is not None)
"""The first release that loads our tuner plugin: 2.21."""
RUN_ON_GPUS = ("2.28.3", "2.28.9", "2.32.3")
"""The releases with which nccltune was run on GPUs, oldest first."""


def nccl_release(text: str) -> NcclRelease | None:
    """Return what a release such as `2.28.9` has (`2.27` is the first); None if unknown."""
    match = re.match(r"v?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?![\d.])", text)
    if match is None:
        return None
    version = tuple(int(number or 0) for number in match.groups())
    return next((row for row in reversed(RELEASES) if row.since <= version), None)
