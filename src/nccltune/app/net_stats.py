# SPDX-License-Identifier: Apache-2.0
"""Net stats: read the traffic of the network plugin's connections while a job runs."""

import time
from collections.abc import Iterator, Sequence

from nccltune.model.errors import InputError
from nccltune.native.net_processes import NetProcess, NetWatch

_SHORTEST_S = 0.1


def net_stats(
    pids: Sequence[int] = (), *, interval_s: float = 1.0, watch: bool = False
) -> Iterator[Sequence[NetProcess]]:
    """Yield processes with the traffic of their connections, once or with `watch` repeatedly.

    Empty `pids` selects all processes of this user that use the plugin; else the end of these ends
    it. Rates are averages over `interval_s`; 0 omits them. Raises InputError.
    """
    if watch and interval_s < _SHORTEST_S:
        raise InputError(f"‹watch› needs ‹interval› of {_SHORTEST_S} or more")
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
