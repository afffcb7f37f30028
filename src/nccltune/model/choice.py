# SPDX-License-Identifier: Apache-2.0
"""A choice: the algorithm, protocol, channels and chunk size of a call, or NCCL's own choice."""

from enum import StrEnum
from typing import Literal, get_args

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest


class Algorithm(StrEnum):
    """NCCL's algorithms in the order of `NCCL_ALGO_*` (NCCL 2.23 and later; PAT is the newest)."""

    TREE = "tree"
    RING = "ring"
    COLLNET_DIRECT = "collnet_direct"
    COLLNET_CHAIN = "collnet_chain"
    NVLS = "nvls"
    NVLS_TREE = "nvls_tree"
    PAT = "pat"

    @property
    def nccl_id(self) -> int:
        """Return the algorithm's `NCCL_ALGO_*` value."""
        return ALGORITHMS.index(self)


class Protocol(StrEnum):
    """NCCL's protocols in the order of `NCCL_PROTO_*`."""

    LL = "ll"
    LL128 = "ll128"
    SIMPLE = "simple"

    @property
    def nccl_id(self) -> int:
        """Return the protocol's `NCCL_PROTO_*` value."""
        return PROTOCOLS.index(self)


ALGORITHMS: tuple[Algorithm, ...] = tuple(Algorithm)
PROTOCOLS: tuple[Protocol, ...] = tuple(Protocol)
MAX_CHANNELS = 64
"""NCCL's `MAXCHANNELS` since 2.25. It was 32 before."""


class Choice(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An algorithm and a protocol; channels and chunk size in bytes are NCCL's if None."""

    algorithm: Algorithm
    protocol: Protocol
    channels: int | None = None
    chunk_bytes: int | None = None

    @property
    def label(self) -> str:
        """Return a short form that `parse_choice` reads back: `tree/ll`, `ring/simple/8`."""
        parts = [self.algorithm.value, self.protocol.value]
        if self.channels is not None or self.chunk_bytes is not None:
            parts.append("-" if self.channels is None else str(self.channels))
        if self.chunk_bytes is not None:
            parts.append(str(self.chunk_bytes))
        return "/".join(parts)

    def without_channels(self) -> "Choice":
        """Return the same algorithm and protocol, with channels and chunk size left to NCCL."""
        return Choice(self.algorithm, self.protocol)


DEFAULT: Literal["default"] = "default"
"""The choice that NCCL makes without a tuner's rules."""
TUNED_RUN: Literal["tuned"] = "tuned"
"""A run with the tuner's rules loaded. `nccltune verify` compares such runs with the default."""
PartialChoice = Literal[
    "NCCL_ALGO=Tree",
    "NCCL_ALGO=Ring",
    "NCCL_ALGO=CollnetDirect",
    "NCCL_ALGO=CollnetChain",
    "NCCL_ALGO=NVLS",
    "NCCL_ALGO=NVLSTree",
    "NCCL_ALGO=PAT",
    "NCCL_PROTO=LL",
    "NCCL_PROTO=LL128",
    "NCCL_PROTO=Simple",
]
"""A forced algorithm or protocol, in order, with the rest NCCL's: no default, and in no rule."""
PARTIAL_CHOICES: tuple[PartialChoice, ...] = get_args(PartialChoice)
AnyChoice = Choice | Literal["default", "tuned"] | PartialChoice


def choice_label(choice: AnyChoice) -> str:
    """Return `default`, `tuned`, or the choice's own label."""
    return choice.label if isinstance(choice, Choice) else choice


def rest_of(choice: PartialChoice) -> str:
    """Return `protocol chosen by NCCL`, or the same of the algorithm: what a choice leaves open."""
    return f"{'protocol' if 'ALGO' in choice else 'algorithm'} chosen by NCCL"


def parse_choice(text: str) -> AnyChoice:
    """Read `default`, `tuned`, `tree/ll`, `ring/simple/8` or `ring/simple/8/131072`.

    The fields are algorithm, protocol, channels and chunk size in bytes; `-` leaves channels or
    chunk size to NCCL. Names are those of NCCL, in upper or lower case (`Tree/LL128`, `NVLSTree`).
    Raises InputError for any other text. For a misspelt name, the error's hint has the nearest one.

    >>> parse_choice("NVLSTree/Simple/8").label
    'nvls_tree/simple/8'
    """
    lowered = text.strip().lower()
    if lowered == "default":
        return DEFAULT
    if lowered == "tuned":
        return TUNED_RUN
    parts = lowered.split("/")
    if not 2 <= len(parts) <= 4:
        raise InputError(
            f"{text!r} is not a choice", hint="write algorithm/protocol, for example tree/ll128"
        )
    channels = _count(parts[2], "channels", text, MAX_CHANNELS) if len(parts) > 2 else None
    chunk = _count(parts[3], "chunk bytes", text, 1 << 40) if len(parts) > 3 else None
    return Choice(parse_algorithm(parts[0]), parse_protocol(parts[1]), channels, chunk)


def parse_algorithm(text: str) -> Algorithm:
    """Return the algorithm of any of NCCL's spellings. Raises InputError with the nearest."""
    plain = text.strip().lower()
    for algorithm in ALGORITHMS:
        if plain in (algorithm.value, algorithm.value.replace("_", "")):
            return algorithm
    raise InputError(f"{text!r} is not an algorithm", hint=nearest(plain, ALGORITHMS))


def parse_protocol(text: str) -> Protocol:
    """Return the protocol in upper or lower case. Raises InputError with the nearest."""
    plain = text.strip().lower()
    for protocol in PROTOCOLS:
        if plain == protocol.value:
            return protocol
    raise InputError(f"{text!r} is not a protocol", hint=nearest(plain, PROTOCOLS))


def _count(text: str, what: str, whole: str, largest: int) -> int | None:
    if text in ("", "-"):
        return None
    if not text.isdecimal() or not 1 <= int(text) <= largest:
        raise InputError(f"{whole!r}: {what} must be 1 to {largest}, or - for NCCL's own")
    return int(text)


_GRAIN = {Protocol.LL: 16, Protocol.LL128: 1920, Protocol.SIMPLE: 512}
_LL, _LL128, _SIMPLE = 32 << 10, (4800 << 10) // 8 // 16 * 15, 512 << 10
_RING_SLOTS = 4
_CUT = frozenset({Algorithm.TREE, Algorithm.RING, Algorithm.PAT})
_ONE_SLOT = frozenset({Collective.BROADCAST, Collective.REDUCE})


def chunk_grain(choice: Choice) -> int:
    """Return the bytes of which NCCL makes chunks a multiple, rounding down to 0 below."""
    return _GRAIN[choice.protocol]


def largest_chunk(collective: Collective, choice: Choice) -> int | None:
    """Return the largest chunk in bytes, with NCCL's default buffer sizes. NCCL cuts larger chunks.

    None for CollNet and NVLS, which NCCL checks against a buffer that they do not use.
    """
    if choice.algorithm not in _CUT:
        return None
    if choice.protocol is Protocol.LL:
        return _LL
    if choice.protocol is Protocol.LL128:
        return _LL128
    slots = _RING_SLOTS if choice.algorithm is Algorithm.RING and collective not in _ONE_SLOT else 1
    return _SIMPLE * slots
