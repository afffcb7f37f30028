# SPDX-License-Identifier: Apache-2.0
"""The settings of NCCL's own send/recv: legal values, effects, and the values to try.

The rules are from the source of NCCL 2.21 to 2.30.7 (`graph/paths.cc`, `init.cc`, `enqueue.cc`).
The numbers are from NCCL 2.28.9.
"""

from dataclasses import dataclass

from nccltune.measure.engine.settings import Effective, Settings
from nccltune.model.choice import MAX_CHANNELS

MIN_CHANNELS = "NCCL_MIN_P2P_NCHANNELS"
MAX_P2P_CHANNELS = "NCCL_MAX_P2P_NCHANNELS"
PER_NET_PEER = "NCCL_NCHANNELS_PER_NET_PEER"
CHUNK = "NCCL_P2P_NVL_CHUNKSIZE"
BUFFER = "NCCL_BUFFSIZE"
STEPS = 8
"""NCCL's `NCCL_STEPS`: a chunk is at most 1/STEPS of the buffer, and reduced silently."""
DEFAULT_BUFFER = 4 << 20
DEFAULT_CHUNK = 512 << 10
_LL_BYTES = 512 << 10
_LL128_BYTES = 120 * 640 * 8 * STEPS
"""Bytes of the LL and LL128 buffers that every connection also has (`init.cc`)."""
MEANING = {
    MIN_CHANNELS: "least number of channels for send/recv",
    MAX_P2P_CHANNELS: "largest number of channels for send/recv",
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
class SettingCandidate:
    """A value of the setting `of`, with other settings without which it has no effect."""

    of: str
    settings: Settings


def merged(one: Settings, other: Settings) -> Settings | None:
    """Return the union of two sets of settings; None if they conflict or have a `problem`."""
    mine, theirs = one.recorded, other.recorded
    if any(mine.get(name, value) != value for name, value in theirs.items()):
        return None
    both = Settings.of({**mine, **theirs})
    return None if problem(both) else both


def problem(settings: Settings) -> str | None:
    """Return why NCCL would not use settings exactly as they are given; None if it would."""
    values = settings.numbers
    for name, value in values.items():
        if name not in MEANING:
            return f"{name} is not a setting of send/recv"
        # NCCL rounds channel counts up to a power of two (`ncclTopoComputeP2pChannels`).
        if value < 1 or value & (value - 1):
            return f"{name} must be a power of two"
    for name in (MIN_CHANNELS, MAX_P2P_CHANNELS, PER_NET_PEER):
        if values.get(name, 1) > MAX_CHANNELS:
            return f"{name} is at most {MAX_CHANNELS}"
    if values.get(MIN_CHANNELS, 1) > values.get(MAX_P2P_CHANNELS, MAX_CHANNELS):
        return f"{MIN_CHANNELS} is above {MAX_P2P_CHANNELS}: NCCL would use the former"
    # A buffer that is too small for the default chunk is allowed: NCCL then reduces the chunk,
    # which is part of the effect of the setting. But a chunk size that is set must be the one in
    # use.
    if CHUNK in values and values[CHUNK] * STEPS > values.get(BUFFER, DEFAULT_BUFFER):
        return f"{CHUNK} is more than an eighth of {BUFFER}: NCCL would use less"
    return None


def candidates(nodes: int, now: Effective | None) -> list[SettingCandidate]:
    """Return the candidates on `nodes` nodes, one setting at a time.

    `now` are the effective settings of the default. Values that would not change them are left out.
    If `now` is None, no value is left out for this reason. Channels to a network peer are a
    candidate only on several nodes, and the NVLink chunk size only on one node.

    >>> [candidate.settings.label for candidate in candidates(nodes=1, now=None)][:2]
    ['NCCL_MIN_P2P_NCHANNELS=4', 'NCCL_MIN_P2P_NCHANNELS=8']
    """
    found = [_one(MIN_CHANNELS, value) for value in _MIN_VALUES if _raises(value, now)]
    found += [_one(MAX_P2P_CHANNELS, value) for value in _MAX_VALUES if _lowers(value, now)]
    if nodes > 1:
        # NCCL uses this setting only for peers on other nodes (`ncclTopoGetNchannels`).
        found += [_per_net_peer(value, now) for value in _NET_VALUES if _differs(value, now)]
    elif now is None or now.chunk_bytes in (None, DEFAULT_CHUNK):
        # NCCL uses this chunk size on one node whose GPUs are all connected by NVLink. Otherwise it
        # uses NCCL_P2P_NET_CHUNKSIZE or NCCL_P2P_PCI_CHUNKSIZE (`computeBuffSizes`).
        found += [_chunk(value) for value in _CHUNK_VALUES]
    found += [_one(BUFFER, value) for value in _BUFFER_VALUES]
    return found


def _one(name: str, value: int) -> SettingCandidate:
    return SettingCandidate(name, Settings.of({name: value}))


def _raises(value: int, now: Effective | None) -> bool:
    return now is None or now.p2p_channels is None or value > now.p2p_channels


def _lowers(value: int, now: Effective | None) -> bool:
    return now is None or now.p2p_channels is None or value < now.p2p_channels


def _differs(value: int, now: Effective | None) -> bool:
    return now is None or now.channels_per_peer is None or value != now.channels_per_peer


def _per_net_peer(value: int, now: Effective | None) -> SettingCandidate:
    """Return channels to one peer; more than the total, which limits them, also raise that."""
    values = {PER_NET_PEER: value}
    if value > 1 and now is not None and now.p2p_channels is not None and value > now.p2p_channels:
        values[MIN_CHANNELS] = value
    return SettingCandidate(PER_NET_PEER, Settings.of(values))


def _chunk(value: int) -> SettingCandidate:
    values = {CHUNK: value}
    if value * STEPS > DEFAULT_BUFFER:
        values[BUFFER] = value * STEPS
    return SettingCandidate(CHUNK, Settings.of(values))


def memory_bytes(settings: Settings, made: Effective | None, ranks: int) -> int | None:
    """Return the most memory of send/recv's buffers on one GPU, if all channels are used.

    A program may need less. None if the channels per peer are unknown.
    """
    if made is None or made.channels_per_peer is None:
        return None
    each = settings.numbers.get(BUFFER, DEFAULT_BUFFER) + _LL_BYTES + _LL128_BYTES
    return (ranks - 1) * made.channels_per_peer * each
