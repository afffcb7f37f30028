# SPDX-License-Identifier: Apache-2.0
"""Pairs of ranks as the scripts of tests/gpu see them, made from text."""

from collections.abc import Sequence

from one_gpu_runs import PairRun, RankRun, state_of

CARRIED = "nccltune sendrecv: process 7: copy engine, pushed: 5 messages, 100 bytes\n"
NATIVE = "nccltune sendrecv: process 7: NCCL: small: 3 messages, 9 bytes\n"


def pair(
    results: Sequence[Sequence[str]] = (("a 1",), ("b 2",)),
    *,
    measures: Sequence[Sequence[str]] = ((), ()),
    errors: str = "",
    statuses: tuple[int | None, int | None] = (0, 0),
    ends: str = "done",
) -> PairRun:
    """Return a pair whose ranks print these results and measures, and `errors` on stderr."""
    texts = []
    for rank in (0, 1):
        lines = [f"{rank} result {each}" for each in results[rank]]
        lines += [f"{rank} measure {each}" for each in measures[rank]]
        texts.append("\n".join([*lines, f"{rank} {ends}", ""]))
    ranks = [RankRun(status, text, errors) for status, text in zip(statuses, texts, strict=True)]
    return PairRun(ranks, 1.0, state_of(statuses, texts))
