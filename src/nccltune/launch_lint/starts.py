# SPDX-License-Identifier: Apache-2.0
"""Describe a prediction in a sentence."""

from nccltune.launch.placement import NodePlacement
from nccltune.launch_lint.command import Prediction
from nccltune.model.scale import count

_NAMED = 4


def starts(prediction: Prediction, gpus: int | None) -> str:
    """Return a sentence such as `16 processes, 8 on each of 2 nodes, 1 GPU each = 16 ranks`.

    If no process starts or the number is unknown, the sentence has the reason.
    """
    if prediction.fails is not None:
        return f"nothing: {prediction.fails}"
    placement = prediction.placement
    if placement is None and prediction.processes is not None:
        words = count(prediction.processes, "process")
        if gpus is not None:
            ranks = count(prediction.processes * gpus, "rank")
            words += f", {count(gpus, 'GPU')} each = {ranks}"
        return f"{words}; on which nodes is not known: {prediction.unknown}"
    if placement is None:
        return f"not known: {prediction.unknown}"
    if not placement.nodes:
        return "no process"
    where = _where(placement.nodes, len(prediction.hosts))
    words = f"{count(placement.processes, 'process')}, {where}"
    if (inner := prediction.inner) is not None:
        if inner.each is None:
            return f"{words}; how many ranks {inner.name} starts in each is not known: {inner.why}"
        ranks = count(placement.processes * inner.each, "rank")
        return f"{words}; {inner.name} starts {inner.each} in each = {ranks}"
    if gpus is None:
        return words
    words += f", {count(gpus, 'GPU')} each"
    # A program that is not known may use the GPUs of its process for one rank.
    is_known = gpus == placement.gpus_per_process
    return f"{words} = {count(placement.ranks, 'rank')}" if is_known else words


def _where(nodes: tuple[NodePlacement, ...], hosts: int) -> str:
    counts = [node.processes for node in nodes]
    if len(nodes) == 1:
        host = nodes[0].host or ("the first node" if hosts > 1 else "one node")
        return f"{ {1: '', 2: 'both '}.get(counts[0], 'all ') }on {host}"
    if len(set(counts)) == 1:
        named = [node.host for node in nodes if node.host is not None]
        names = f" ({', '.join(named)})" if 0 < len(named) <= _NAMED else ""
        return f"{counts[0]} on each of {count(len(nodes), 'node')}{names}"
    shown = [
        f"{node.processes} on {node.host or f'node {at + 1}'}" for at, node in enumerate(nodes)
    ]
    more = [f"and so on for {len(nodes)} nodes"] if len(shown) > 2 * _NAMED else []
    return ", ".join([*shown[: 2 * _NAMED], *more])
