# SPDX-License-Identifier: Apache-2.0
"""Parse `ib_write_bw`, `ib_read_bw` and `ib_send_bw` of perftest (4.x to 6.x)."""

import re

from nccltune.doctor.evidence.parsers.text import Parsed, lines_of
from nccltune.doctor.facts.network import RdmaTest

_DEVICE = re.compile(r"(?:^|\s)Device\s*:\s*(?P<hca>[\w.-]{1,64})")
_MTU = re.compile(r"^\s*Mtu\s*: (?P<mtu>\d{3,5})\[B\]")
_QPS = re.compile(r"^\s*Number of qps\s*:\s*(?P<qps>\d{1,5})\b")
_HEAD = re.compile(r"#bytes\s+#?iterations\s+BW peak\[(?P<unit>Gb/sec|MB/sec|MiB/sec)\]")
_ROW = re.compile(
    r"^\s*(?P<bytes>\d{1,12})\s+\d{1,12}\s+\d{1,9}(?:\.\d{1,6})?\s+(?P<average>\d{1,9}(?:\.\d{1,6})?)"
)
_PEER = re.compile(r"^== (?P<peer>\S{1,255})\s*$")
# perftest's MB are always MiB.
_GIGABITS = {"Gb/sec": 1.0, "MB/sec": 8 * 1.048576 / 1000, "MiB/sec": 8 * 1.048576 / 1000}


def parse_perftest(text: str) -> Parsed[RdmaTest]:
    """Parse one output of perftest, or several outputs one after the other.

    Of each test, the row with the largest size is kept. A line `== PEER` names the peer of all
    tests after that line.
    """
    runs: list[RdmaTest] = []
    hca, peer, unit, gpu, mtu, qps, is_both = "", None, 0.0, False, None, None, False
    largest = -1
    for _, line in lines_of(text):
        if (match := _PEER.match(line)) is not None:
            peer = match["peer"]
        elif (match := _DEVICE.search(line)) is not None:
            hca, largest, unit, mtu, qps = match["hca"], -1, 0.0, None, None
        elif " BW Test" in line:
            is_both = "Bidirectional" in line
        elif not is_both and (match := _QPS.match(line)) is not None:
            qps = int(match["qps"])
        elif (match := _MTU.match(line)) is not None:
            mtu = int(match["mtu"])
        elif "CUDA" in line or "GPU" in line:
            gpu = True
        elif (match := _HEAD.search(line)) is not None:
            unit = _GIGABITS[match["unit"]]
        elif unit and hca and (match := _ROW.match(line)) is not None:
            gb, size = float(match["average"]) * unit, int(match["bytes"])
            run = RdmaTest(hca=hca, peer=peer, gbit_per_s=gb, bytes=size, gpu=gpu, mtu=mtu, qps=qps)
            if largest < 0:
                runs.append(run)
            elif size > largest:
                runs[-1] = run
            largest = max(largest, size)
        if line.startswith("-----") and largest >= 0:
            unit, largest, gpu = 0.0, -1, False
    return Parsed(runs)
