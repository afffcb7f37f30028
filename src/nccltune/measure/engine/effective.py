# SPDX-License-Identifier: Apache-2.0
"""Read the settings that NCCL uses in fact, from the log of its start
(`NCCL_DEBUG_SUBSYS=INIT`)."""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

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
    """The settings that NCCL uses in fact. A setting that NCCL did not log is None.

    channels           number of channels of collectives
    p2p_channels       number of channels of send/recv
    channels_per_peer  number of channels of send/recv to one peer
    chunk_bytes        bytes that send/recv transfers in one step
    """

    channels: int | None = None
    p2p_channels: int | None = None
    channels_per_peer: int | None = None
    chunk_bytes: int | None = None


def log_settings(folder: Path) -> dict[str, str]:
    """Return the variables that make NCCL write the log of its start to files in `folder`.

    With these variables NCCL logs nothing after its start, so the log costs no time in the calls.
    """
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p"),
    }


def read_effective(folder: Path) -> Effective | None:
    """Return the effective settings from the logs in `folder`; None if the logs name none of
    them."""
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
