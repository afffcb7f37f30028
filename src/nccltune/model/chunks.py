# SPDX-License-Identifier: Apache-2.0
"""The limits of a chunk size from a tuner, as in `calcCollChunking` of NCCL 2.30.7."""

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective

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
