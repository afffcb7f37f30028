# SPDX-License-Identifier: Apache-2.0
"""Collectives: their names, their sizes as NCCL's tuner counts them, and their bus bandwidth.

Factors and sizes are those of nccl-tests (doc/PERFORMANCE.md and the `*_perf` sources, 2.19.6).
"""

from enum import StrEnum


class Collective(StrEnum):
    """An operation that nccl-tests measures. NCCL asks a tuner about the first five only."""

    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALLGATHER = "allgather"
    REDUCESCATTER = "reducescatter"
    ALLREDUCE = "allreduce"
    SENDRECV = "sendrecv"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    GATHER = "gather"
    SCATTER = "scatter"
    HYPERCUBE = "hypercube"

    @property
    def tuned(self) -> bool:
        """Return whether NCCL asks a tuner plugin about this collective."""
        return self in TUNED

    @property
    def counts_per_rank(self) -> bool:
        """Return whether the application's count is that of a rank, and NCCL's size that of all."""
        return self in _SCATTERED and self is not Collective.ALLTOALLV

    @property
    def nccl_id(self) -> int:
        """Return the `ncclFunc_t` value (tuner v2 to v7). Raises ValueError if not `tuned`."""
        return TUNED.index(self)

    @property
    def prose(self) -> str:
        """Return the collective's name in prose: `all-reduce`."""
        return _TITLE.get(self, self.value)

    @property
    def nccl_tests_name(self) -> str:
        """Return the collective's name in nccl-tests: `all_reduce` of `all_reduce_perf`."""
        return _NCCL_TESTS.get(self, self.value)

    def bus_factor(self, ranks: int) -> float:
        """Return bus over algorithm bandwidth; 0 of one rank where the formula has `ranks - 1`."""
        if self is Collective.ALLREDUCE:
            return 2 * (ranks - 1) / ranks
        if self in _SCATTERED:
            return (ranks - 1) / ranks
        return 1.0

    def busbw_gb_per_s(self, size: int, time_us: float, ranks: int) -> float:
        """Return the bus bandwidth in GB/s (1e9 bytes/s) of `size` bytes in `time_us` microseconds.

        `size` is counted as NCCL's tuner counts it.

        >>> round(Collective.ALLREDUCE.busbw_gb_per_s(1 << 30, 4000.0, 8), 1)
        469.8
        """
        return size / (time_us * 1e3) * self.bus_factor(ranks)


TUNED: tuple[Collective, ...] = (
    Collective.BROADCAST,
    Collective.REDUCE,
    Collective.ALLGATHER,
    Collective.REDUCESCATTER,
    Collective.ALLREDUCE,
)
"""Collectives in the order of `ncclFunc_t`. Their index is the value that a tuner gets."""

_SCATTERED = frozenset(
    {
        Collective.ALLGATHER,
        Collective.REDUCESCATTER,
        Collective.ALLTOALL,
        Collective.ALLTOALLV,
        Collective.GATHER,
        Collective.SCATTER,
        # nccl-tests prints the sum over the ranks as the size. A rank already has its own part of
        # that sum, so the bus bandwidth counts only the other parts.
        Collective.HYPERCUBE,
    }
)
_NCCL_TESTS = {
    Collective.ALLGATHER: "all_gather",
    Collective.REDUCESCATTER: "reduce_scatter",
    Collective.ALLREDUCE: "all_reduce",
}
_TITLE = {
    Collective.ALLGATHER: "all-gather",
    Collective.REDUCESCATTER: "reduce-scatter",
    Collective.ALLREDUCE: "all-reduce",
    Collective.SENDRECV: "send/recv",
    Collective.ALLTOALL: "all-to-all",
    Collective.ALLTOALLV: "all-to-all-v",
}
