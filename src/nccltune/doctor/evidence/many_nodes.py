# SPDX-License-Identifier: Apache-2.0
"""Read the facts of a folder of nodes, with several processes if there are many nodes."""

import gc
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.folder import read_folder
from nccltune.doctor.facts import Fact, Facts, UnusedFile

NODES_PER_PROCESS = 100
"""Minimum number of nodes per process. With fewer nodes, starting a process costs more time than
the process saves."""
_MOST_PROCESSES = 8


class _NodeBatch(NamedTuple):
    """Result of one process.

    `values` holds each distinct value once, encoded. `nodes` has one entry for each node: its name,
    its unread inputs, its unused inputs, and its facts as (name, index into `values`, source).
    """

    values: list[bytes]
    nodes: list[tuple[str, list[str], list[UnusedFile], list[tuple[str, int, str]]]]


def read_nodes(path: Path) -> dict[str, Facts]:
    """Return the facts of each node of a folder, by node name.

    Raises InputError as `read_folder` does.
    """
    processes = min(
        len(os.sched_getaffinity(0)), _MOST_PROCESSES, _count(path) // NODES_PER_PROCESS
    )
    parts = _in_processes(path, processes) if processes > 1 else None
    if parts is None:
        return {evidence.host: facts_of(evidence) for evidence in read_folder(path)}
    return _joined(parts)


def _count(path: Path) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0


def _in_processes(path: Path, processes: int) -> list[_NodeBatch] | None:
    """Return the result of each process, or None if this system cannot start processes."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        # Do not use fork. This process may have threads, for example of a progress display, and a
        # forked process could wait forever for a lock that such a thread holds.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_in_process, path, at, processes) for at in range(processes)]
            return [future.result() for future in waiting]
    except (BrokenProcessPool, OSError):
        return None


def _in_process(path: Path, at: int, of: int) -> _NodeBatch:
    """Read one part of the nodes in a process of its own.

    The garbage collector is off. The objects have no cycles, and the search for cycles would take a
    tenth of the time.
    """
    gc.disable()
    return _read_part(path, at, of)


def _read_part(path: Path, at: int, of: int) -> _NodeBatch:
    """Read every `of`-th node of the folder, starting with node number `at` (from 0)."""
    encode = msgspec.msgpack.Encoder().encode
    numbers: dict[bytes, int] = {}
    nodes = []
    for evidence in islice(read_folder(path), at, None, of):
        facts = facts_of(evidence)
        listed = [
            (name, numbers.setdefault(encode(fact.value), len(numbers)), fact.source)
            for name, fact in facts.items()
        ]
        nodes.append((facts.node, facts.unread, facts.unused, listed))
    return _NodeBatch(list(numbers), nodes)


def _joined(parts: Sequence[_NodeBatch]) -> dict[str, Facts]:
    decode = msgspec.msgpack.Decoder().decode
    values: dict[bytes, Any] = {}
    found = {}
    for part in parts:
        # Equal values share one object. That saves memory, and NodeGroups digests each object once.
        numbered = []
        for encoded in part.values:
            if encoded not in values:
                values[encoded] = decode(encoded)
            numbered.append(values[encoded])
        for node, unread, unused, listed in part.nodes:
            facts = {name: Fact(numbered[number], source) for name, number, source in listed}
            found[node] = Facts.checked(node, facts, unread, unused)
    return dict(sorted(found.items()))
