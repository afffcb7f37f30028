# SPDX-License-Identifier: Apache-2.0
"""Parse `ib_write_bw`, `ib_read_bw` and `ib_send_bw` of perftest (4.x to 6.x)."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of

_DEVICE = re.compile(r"^\s*Device\s*:\s*(?P<hca>[\w.-]{1,64})")
_HEAD = re.compile(r"#bytes\s+#iterations\s+BW peak\[(?P<unit>Gb/sec|MB/sec|MiB/sec)\]")
_ROW = re.compile(
    r"^\s*(?P<bytes>\d{1,12})\s+\d{1,12}\s+\d{1,9}(?:\.\d{1,6})?\s+(?P<average>\d{1,9}(?:\.\d{1,6})?)"
)
_PEER = re.compile(r"^== (?P<peer>\S{1,255})\s*$")
# perftest's MB are always MiB.
_GIGABITS = {"Gb/sec": 1.0, "MB/sec": 8 * 1.048576 / 1000, "MiB/sec": 8 * 1.048576 / 1000}


class PerftestResult(NamedTuple):
    """Result of one test: the average at its largest size.

    `peer` is the name in a line `== PEER` before the test.
    """

    hca: str
    peer: str | None
    gbit_per_s: float
    gpu: bool
    line: int


class Perftest(NamedTuple):
    """Tests of an output. `unread` is always 0."""

    runs: tuple[PerftestResult, ...]
    unread: int


def parse_perftest(text: str) -> Perftest:
    """Parse one output, or several one after the other."""
    runs: list[PerftestResult] = []
    hca, peer, unit, gpu = "", None, 0.0, False
    largest = -1
    for number, line in lines_of(text):
        if (match := _PEER.match(line)) is not None:
            peer = match["peer"]
        elif (match := _DEVICE.match(line)) is not None:
            hca, largest, unit = match["hca"], -1, 0.0
        elif "CUDA" in line or "GPU" in line:
            gpu = True
        elif (match := _HEAD.search(line)) is not None:
            unit = _GIGABITS[match["unit"]]
        elif unit and hca and (match := _ROW.match(line)) is not None:
            run = PerftestResult(hca, peer, float(match["average"]) * unit, gpu, number)
            if largest < 0:
                runs.append(run)
            elif int(match["bytes"]) > largest:
                runs[-1] = run
            largest = max(largest, int(match["bytes"]))
        if line.startswith("-----") and largest >= 0:
            unit, largest, gpu = 0.0, -1, False
    return Perftest(tuple(runs), 0)
