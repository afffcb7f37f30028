# SPDX-License-Identifier: Apache-2.0
"""The settings of native send/recv: legal values, what they do where, which are worth a try.

Read in NCCL 2.21 to 2.30.7 (`graph/paths.cc`, `init.cc`, `enqueue.cc`); numbers are 2.28.9's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nccltune.measure.p2p.effective import Effective
from nccltune.model.choice import MAX_CHANNELS
from nccltune.model.sizes import format_bytes

MIN_CHANNELS = "NCCL_MIN_P2P_NCHANNELS"
MAX_P2P_CHANNELS = "NCCL_MAX_P2P_NCHANNELS"
PER_NET_PEER = "NCCL_NCHANNELS_PER_NET_PEER"
CHUNK = "NCCL_P2P_NVL_CHUNKSIZE"
BUFFER = "NCCL_BUFFSIZE"
STEPS = 8
"""`NCCL_STEPS`: a chunk may be at most this part of the buffer, else NCCL silently takes less."""
DEFAULT_BUFFER = 4 << 20
DEFAULT_CHUNK = 512 << 10
_LL_BYTES = 512 << 10
_LL128_BYTES = 120 * 640 * 8 * STEPS
"""Buffers of the other two protocols, which every connection has, too (`init.cc`)."""
MEANING = {
    MIN_CHANNELS: "at least so many channels for send/recv",
    MAX_P2P_CHANNELS: "at most so many channels for send/recv",
    PER_NET_PEER: "channels to one peer on another node",
    CHUNK: "bytes of one step of send/recv over NVLink",
    BUFFER: "bytes of a connection's buffer, of all collectives",
}
_MIN_VALUES = (4, 8, 16, 32, 64)
_MAX_VALUES = (2, 4, 8, 16, 32)
_NET_VALUES = (1, 2, 4, 8, 16, 32)
_CHUNK_VALUES = (64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20)
_BUFFER_VALUES = (1 << 20, 2 << 20, 8 << 20, 16 << 20)


@dataclass(frozen=True)
class Settings:
    """A set of settings, all others left as they are; empty: the default. Sorted by name; `words`
    are those whose value is no number."""

    values: tuple[tuple[str, int], ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, int | str]) -> "Settings":
        """From a mapping."""
        items = sorted(values.items())
        return cls(
            tuple((name, value) for name, value in items if isinstance(value, int)),
            tuple((name, value) for name, value in items if isinstance(value, str)),
        )

    @property
    def as_dict(self) -> dict[str, int]:
        """The numbers as a mapping."""
        return dict(self.values)

    @property
    def recorded(self) -> dict[str, int | str]:
        """Everything as a mapping."""
        return dict(sorted((*self.values, *self.words)))

    @property
    def environment(self) -> dict[str, str]:
        """As environment variables, and as lines of nccl.conf."""
        return {name: str(value) for name, value in self.recorded.items()}

    @property
    def label(self) -> str:
        """For people: `NCCL_BUFFSIZE=8388608 NCCL_MIN_P2P_NCHANNELS=64`, or `default`."""
        return " ".join(f"{name}={value}" for name, value in self.recorded.items()) or "default"

    def without(self, name: str) -> "Settings":
        """The same less one setting."""
        return Settings.of({key: value for key, value in self.recorded.items() if key != name})

    def merged(self, other: "Settings") -> "Settings | None":
        """Both together; None where they contradict each other or would not do what they say."""
        mine, theirs = self.recorded, other.recorded
        if any(mine.get(name, value) != value for name, value in theirs.items()):
            return None
        both = Settings.of({**mine, **theirs})
        return None if problem(both) else both


DEFAULT = Settings()


@dataclass(frozen=True)
class Move:
    """One thing to try: a value of the setting `of`, with what this value needs beside it."""

    of: str
    settings: Settings


def problem(settings: Settings) -> str | None:
    """Why settings would not do what they say, or None."""
    values = settings.as_dict
    for name, value in values.items():
        if name not in MEANING:
            return f"{name} is not a setting of send/recv"
        # Channel counts are rounded up to a power of two (`ncclTopoComputeP2pChannels`).
        if value < 1 or value & (value - 1):
            return f"{name} must be a power of two"
    for name in (MIN_CHANNELS, MAX_P2P_CHANNELS, PER_NET_PEER):
        if values.get(name, 1) > MAX_CHANNELS:
            return f"{name} is at most {MAX_CHANNELS}"
    if values.get(MIN_CHANNELS, 1) > values.get(MAX_P2P_CHANNELS, MAX_CHANNELS):
        return f"{MIN_CHANNELS} is above {MAX_P2P_CHANNELS}: NCCL would take the former"
    # A smaller buffer than the default chunk asks for is legal and lowers the chunk: that is what
    # it does. A chunk that is asked for must be what runs.
    if CHUNK in values and values[CHUNK] * STEPS > values.get(BUFFER, DEFAULT_BUFFER):
        return f"{CHUNK} is more than an eighth of {BUFFER}: NCCL would take less"
    return None


def moves(nodes: int, now: Effective | None) -> list[Move]:
    """What is worth a try on so many nodes, one setting at a time, where the default has made
    `now` of it; without that, everything that could have an effect."""
    found = [_one(MIN_CHANNELS, value) for value in _MIN_VALUES if _raises(value, now)]
    found += [_one(MAX_P2P_CHANNELS, value) for value in _MAX_VALUES if _lowers(value, now)]
    if nodes > 1:
        # Only asked about peers that are reached over the network (`ncclTopoGetNchannels`).
        found += [_per_net_peer(value, now) for value in _NET_VALUES if _differs(value, now)]
    elif now is None or now.chunk_bytes in (None, DEFAULT_CHUNK):
        # Taken on one node whose GPUs are all connected by NVLink; else it is
        # NCCL_P2P_NET_CHUNKSIZE or NCCL_P2P_PCI_CHUNKSIZE (`computeBuffSizes`).
        found += [_chunk(value) for value in _CHUNK_VALUES]
    found += [_one(BUFFER, value) for value in _BUFFER_VALUES]
    return found


def _one(name: str, value: int) -> Move:
    return Move(name, Settings.of({name: value}))


def _raises(value: int, now: Effective | None) -> bool:
    return now is None or now.p2p_channels is None or value > now.p2p_channels


def _lowers(value: int, now: Effective | None) -> bool:
    return now is None or now.p2p_channels is None or value < now.p2p_channels


def _differs(value: int, now: Effective | None) -> bool:
    return now is None or now.channels_per_peer is None or value != now.channels_per_peer


def _per_net_peer(value: int, now: Effective | None) -> Move:
    """More channels to a peer than there are at all are cut: such a value brings them along."""
    values = {PER_NET_PEER: value}
    if value > 1 and now is not None and now.p2p_channels is not None and value > now.p2p_channels:
        values[MIN_CHANNELS] = value
    return Move(PER_NET_PEER, Settings.of(values))


def _chunk(value: int) -> Move:
    values = {CHUNK: value}
    if value * STEPS > DEFAULT_BUFFER:
        values[BUFFER] = value * STEPS
    return Move(CHUNK, Settings.of(values))


def memory_bytes(settings: Settings, made: Effective | None, ranks: int) -> int | None:
    """Buffers of send/recv on one GPU at most: every channel to every peer in use. NCCL makes a
    connection at its first use; None where it is not known how many channels a peer has."""
    if made is None or made.channels_per_peer is None:
        return None
    each = settings.as_dict.get(BUFFER, DEFAULT_BUFFER) + _LL_BYTES + _LL128_BYTES
    return (ranks - 1) * made.channels_per_peer * each


def told(items: Iterable[tuple[str, int]]) -> str:
    """Settings in words: `NCCL_BUFFSIZE=8388608 (8 MiB)`."""
    return ", ".join(
        f"{name}={value} ({format_bytes(value)})" if name in (CHUNK, BUFFER) else f"{name}={value}"
        for name, value in items
    )
