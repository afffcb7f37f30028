# SPDX-License-Identifier: Apache-2.0
"""Net stats: what the network plugin's connections carry, read while a job runs."""

import time
from collections.abc import Iterator, Sequence

from nccltune.model.errors import InputError
from nccltune.native.net_processes import NetProcess, NetWatch

_SHORTEST_S = 0.1


def net_stats(
    pids: Sequence[int] = (), *, interval_s: float = 1.0, watch: bool = False
) -> Iterator[Sequence[NetProcess]]:
    """Yield what the connections of processes carry: once, or with `watch` until they are gone.

    Without `pids`: all processes of this user that use the plugin, and with `watch` for ever.
    Rates are those within `interval_s`; 0 leaves them out. Raises InputError for a process that
    does not use the plugin, and for watching without a pause.
    """
    if watch and interval_s < _SHORTEST_S:
        raise InputError(f"--watch needs --interval of {_SHORTEST_S} or more")
    processes = NetWatch(tuple(pids))
    found = processes.read()
    while watch:
        time.sleep(interval_s)
        found = processes.read()
        if pids and not found:
            return
        yield found
    if interval_s and any(process.connections for process in found):
        time.sleep(interval_s)
        found = processes.read()
    yield found
