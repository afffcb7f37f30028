# SPDX-License-Identifier: Apache-2.0
"""Read the table of NCCL's cost model in its log: which algorithms and protocols NCCL can choose.

Rank 0 prints the table at the start with `NCCL_DEBUG_SUBSYS=TUNING` (`graph/tuning.cc`, 2.20 to
2.30). It has blocks of up to three algorithms, a line for each collective, and a cell
`latency/bandwidth` for each protocol. NCCL never chooses a combination with bandwidth 0. A real
bandwidth below 0.05 GB/s is also printed as 0.
"""

import re
from collections.abc import Iterable

from nccltune.model.choice import PROTOCOLS, Algorithm, Choice, parse_algorithm
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError

_HEAD = re.compile(r"Algorithm   \|(?P<names>.*)")
_ROW = re.compile(r"(?P<func>\w+) \|(?P<cells>(?: +[\d.]+/ *[\d.]+ \|)+)")
_CELL = re.compile(r"[\d.]+/ *(?P<bandwidth>[\d.]+)")


def usable(lines: Iterable[str]) -> dict[Collective, list[Choice]]:
    """Return the choices that NCCL can make, by collective; empty if the log has no table."""
    by_name = {item.value: item for item in TUNED}
    found: dict[Collective, list[Choice]] = {}
    algorithms: list[Algorithm | None] = []
    for line in lines:
        if (head := _HEAD.search(line)) is not None:
            names = [name.strip() for name in head["names"].split("|")]
            algorithms = [_algorithm(name) for name in names if name]
        elif algorithms and (row := _ROW.search(line)) is not None:
            collective = by_name.get(row["func"].lower())
            if collective is None:
                continue
            for at, cell in enumerate(_CELL.finditer(row["cells"])):
                block, protocol = divmod(at, len(PROTOCOLS))
                algorithm = algorithms[block] if block < len(algorithms) else None
                if algorithm is not None and float(cell["bandwidth"]) > 0:
                    found.setdefault(collective, []).append(Choice(algorithm, PROTOCOLS[protocol]))
    return {
        collective: list(dict.fromkeys(choices)) for collective, choices in found.items() if choices
    }


def _algorithm(name: str) -> Algorithm | None:
    """Return the algorithm with this name; None if only a newer NCCL knows the name."""
    try:
        return parse_algorithm(name)
    except InputError:
        return None
