# SPDX-License-Identifier: Apache-2.0
"""The time of each choice at a size, the choice that NCCL makes, and its channels and threads.

The sources are `ncclTopoGetAlgoTime`, `topoGetAlgoInfo` and `scheduleCollTasksToPlan` of NCCL 2.19
to 2.30, and `src/tuning/` of 2.31. Sizes are counted as NCCL's tuner counts them.
"""

from typing import NamedTuple

import msgspec

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.predict.communicator import Communicator
from nccltune.predict.constants import rules_of
from nccltune.predict.model import Modelled, single

_FACTORS = {
    Protocol.LL: (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    Protocol.LL128: (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    Protocol.SIMPLE: (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
"""What NCCL multiplies a tree's bandwidth by, from 64 bytes on by powers of two
(`treeCorrectionFactor`, the same from 2.19 to 2.32)."""
_TREE_FACTORS = 23
_NVLS_TREE_FACTORS = 24
_FAST_ARM_NET = 96.0
_BY_HAND_US = 2.0**127
"""The time that NCCL 2.31 gives a choice that only a tuner or a setting takes."""
_WARP = 32
_MOST_THREADS = 640
_PCI_GB_PER_S = 12.0


class Launch(msgspec.Struct, frozen=True):
    """The shape of a launch: channels allowed, channels launched, and threads a block."""

    most_channels: int
    channels: int
    threads: int


class CallTime(NamedTuple):
    """The time of a call in the model in us: its latency, and its bytes by the bandwidth.

    `net_us` is the part of the latency that is spent between nodes.
    """

    latency_us: float
    transfer_us: float
    net_us: float = 0.0

    @property
    def total_us(self) -> float:
        """Return the time of the call."""
        return single(self.latency_us + self.transfer_us)


def call_time(
    comm: Communicator, collective: Collective, choice: Choice, found: Modelled, size: int
) -> CallTime:
    """Return the time that NCCL's model gives a choice."""
    if found.by_hand:
        return CallTime(_BY_HAND_US, 0.0)
    gb_per_s = single(found.gb_per_s * _factor(comm, collective, choice, size))
    longer = 1.0
    if _is_plateau(comm, collective, choice, size):
        longer = 1.9 if comm.least_sm < 80 else 1.4
    transfer = single(single(size) / single(1000 * gb_per_s))
    return CallTime(single(found.latency_us * longer), transfer, found.net_us * longer)


def _factor(comm: Communicator, collective: Collective, choice: Choice, size: int) -> float:
    """Return the correction of the bandwidth of trees in an all-reduce."""
    if collective is not Collective.ALLREDUCE:
        return 1.0
    power = (size >> 6).bit_length() - 1
    if power < 0 and rules_of(comm.version).small_as_64:
        power = 0
    count = 0
    if choice.algorithm is Algorithm.TREE:
        count = _TREE_FACTORS
    elif choice.algorithm is Algorithm.NVLS_TREE and _corrects_nvls_tree(comm, power):
        count = _NVLS_TREE_FACTORS
    return single(_FACTORS[choice.protocol][power]) if 0 <= power < count else 1.0


def _corrects_nvls_tree(comm: Communicator, power: int) -> bool:
    if not rules_of(comm.version).nvls_tree_factors or comm.least_sm < 100:
        return False
    if comm.arch == "x86_64":
        return True
    four = comm.version >= (2, 31) and comm.arch == "arm64" and comm.ppn == 4
    fast = comm.least_net_gb_per_s >= _FAST_ARM_NET
    return four and fast and (power < _TREE_FACTORS or comm.nodes > 2)


def _is_plateau(comm: Communicator, collective: Collective, choice: Choice, size: int) -> bool:
    """Return whether a ring has the longer latency of its plateau."""
    if choice.algorithm is not Algorithm.RING or choice.protocol is not Protocol.SIMPLE:
        return False
    if comm.nodes > 1:
        applies = collective is Collective.ALLREDUCE
    else:
        blackwell = comm.least_sm >= 100 and comm.ring.intra_type.name == "NVL"
        scattered = collective in (Collective.ALLGATHER, Collective.REDUCESCATTER)
        applies = rules_of(comm.version).plateau_on_one_node and blackwell and scattered
    return applies and size // (comm.channels * comm.ranks) >= 64


def fastest(times: dict[Choice, float], *, last_of_equals: bool) -> Choice:
    """Return the choice with the least time. `times` are in the order of NCCL's ids."""
    choices = list(times)
    return min(reversed(choices) if last_of_equals else choices, key=lambda one: times[one])


def launch(comm: Communicator, collective: Collective, choice: Choice, size: int) -> Launch:
    """Return the channels and threads with which NCCL launches a choice."""
    most, threads = _most_channels(comm, choice, size)
    collnet = choice.algorithm in (Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN)
    collnet |= choice.algorithm is Algorithm.NVLS and comm.nodes > 1
    channels = most
    if rules_of(comm.version).planned and not collnet:
        channels = _planned_channels(comm, collective, choice, size, most)
    return Launch(most, channels, threads)


def _most_threads(comm: Communicator, choice: Choice) -> int:
    """Return the most threads of a choice (`maxThreads`)."""
    if choice.algorithm is Algorithm.PAT:
        return 0
    if choice.algorithm not in (Algorithm.TREE, Algorithm.RING):
        return _MOST_THREADS
    if choice.protocol is Protocol.LL128:
        return _MOST_THREADS
    slow = comm.ring.intra_gb_per_s * comm.ring.channels <= _PCI_GB_PER_S
    if rules_of(comm.version).threads_by_speed and slow and choice.algorithm is Algorithm.RING:
        return 256 if choice.protocol is Protocol.SIMPLE else 512
    return 512


def _most_channels(comm: Communicator, choice: Choice, size: int) -> tuple[int, int]:
    """Return the most channels of a call (`nMaxChannels`) and its threads."""
    algorithm, threads = choice.algorithm, _most_threads(comm, choice)
    each = 64 if choice.protocol is Protocol.SIMPLE else 8
    if algorithm is Algorithm.RING and choice.protocol is Protocol.LL:
        each *= comm.ranks
    if algorithm is Algorithm.COLLNET_CHAIN:
        each = 512
    count = comm.call_channels
    if algorithm is Algorithm.COLLNET_DIRECT:
        return _direct_channels(comm, size, threads), threads
    if algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
        capped = rules_of(comm.version).capped_nvls and algorithm is Algorithm.NVLS
        most = comm.nvls_channels
        return min(most, count) if capped and comm.nodes > 1 else most, threads
    if algorithm is Algorithm.PAT and comm.ppn > 1:
        count = min(count, comm.nvls_channels)
    while size < count * threads * each and count > 1:
        count -= 1
    while size < count * threads * each and threads % 128 == 0:
        threads //= 2
    return count, _with_sync_threads(comm, choice, threads)


def _with_sync_threads(comm: Communicator, choice: Choice, threads: int) -> int:
    """Return the threads of a block, with the warps that only synchronize."""
    tree = choice.algorithm is Algorithm.TREE
    if choice.algorithm is Algorithm.PAT or (tree and rules_of(comm.version).tree_threads):
        return _MOST_THREADS
    if choice.protocol is Protocol.SIMPLE:
        threads += 4 * _WARP if tree else _WARP if choice.algorithm is Algorithm.RING else 0
    return max(threads, 3 * _WARP)


def _direct_channels(comm: Communicator, size: int, threads: int) -> int:
    """Return the channels of CollNet direct: fewer in three stages of 16, 8, 4, 2 and 1."""
    count, each, stage, heads = comm.call_channels, 512, 16, len(comm.heads(comm.direct))
    while stage >= 1:
        while (small := size < count * threads * heads * each) and count > stage:
            if count == stage + stage // 2:
                each //= 2
            count -= 1
        if not small:
            break
        stage //= 2
    return count


def _planned_channels(
    comm: Communicator, collective: Collective, choice: Choice, size: int, most: int
) -> int:
    """Return the channels over which NCCL spreads a single call, by its traffic."""
    rules = rules_of(comm.version)
    own, per_byte = size, 2 if collective is Collective.ALLREDUCE else 1
    if collective in (Collective.ALLGATHER, Collective.REDUCESCATTER):
        own, per_byte = size // comm.ranks, comm.ranks
    nvls = choice.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE)
    limit = comm.nvls_channels if nvls else comm.channels
    most = min(most, limit)
    if choice.protocol is Protocol.LL and rules.ll_traffic:
        per_byte *= 4
    traffic = own * per_byte
    least = rules.least_traffic
    cell = _up_to_16(-(-least // per_byte)) if comm.version >= (2, 23) else 16
    share = max(least, traffic // most)
    if rules.least_by_call:
        share = _up_to_16(max(least, traffic) // most)
    cells = max(1, -(-own // cell))
    a_channel = min(cells, -(-share // (cell * per_byte)))
    return min(-(-cells // a_channel), limit)


def _up_to_16(count: int) -> int:
    return -(-count // 16) * 16
