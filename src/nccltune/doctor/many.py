# SPDX-License-Identifier: Apache-2.0
"""Facts of a folder of nodes: by several processes where there are many, values alike kept once."""

import gc
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.facts import Fact, Facts, UnusedFile

NODES_PER_PROCESS = 100
"""With fewer a process costs more to start than it saves."""
_MOST_PROCESSES = 8


class _Part(NamedTuple):
    """What one process read: `values` encoded, each once, and of each node its name, what could
    not be read or used, and its facts as (name, number of the value, source)."""

    values: list[bytes]
    nodes: list[tuple[str, list[str], list[UnusedFile], list[tuple[str, int, str]]]]


def read_nodes(path: Path) -> dict[str, Facts]:
    """The facts of each node of a folder, by its name. Raises InputError as `read_folder` does."""
    processes = min(
        len(os.sched_getaffinity(0)), _MOST_PROCESSES, _count(path) // NODES_PER_PROCESS
    )
    parts = _in_processes(path, processes) if processes > 1 else None
    if parts is None:
        from nccltune.doctor.evidence.collect import facts_of
        from nccltune.doctor.evidence.folder import read_folder

        return {evidence.host: facts_of(evidence) for evidence in read_folder(path)}
    return _joined(parts)


def _count(path: Path) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0


def _in_processes(path: Path, processes: int) -> list[_Part] | None:
    """The parts of `processes` processes; None where this system starts none."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        # Not fork: a progress display may have threads.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_in_process, path, at, processes) for at in range(processes)]
            return [future.result() for future in waiting]
    except (BrokenProcessPool, OSError):
        return None


def _in_process(path: Path, at: int, of: int) -> _Part:
    """`_read_part` in a process that does nothing else: what it makes has no circles, and looking
    for them again and again costs a tenth of its time."""
    gc.disable()
    return _read_part(path, at, of)


def _read_part(path: Path, at: int, of: int) -> _Part:
    """Every `of`-th node from the one at `at` on."""
    from nccltune.doctor.evidence.collect import facts_of
    from nccltune.doctor.evidence.folder import read_folder

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
    return _Part(list(numbers), nodes)


def _joined(parts: Sequence[_Part]) -> dict[str, Facts]:
    decode = msgspec.msgpack.Decoder().decode
    values: dict[bytes, Any] = {}
    found = {}
    for part in parts:
        # Equal values are one object, which `Alike` and the memory are glad of.
        numbered = []
        for encoded in part.values:
            if encoded not in values:
                values[encoded] = decode(encoded)
            numbered.append(values[encoded])
        for node, unread, unused, listed in part.nodes:
            facts = {name: Fact(numbered[number], source) for name, number, source in listed}
            found[node] = Facts.checked(node, facts, unread, unused)
    return dict(sorted(found.items()))
