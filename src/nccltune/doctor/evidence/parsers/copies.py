# SPDX-License-Identifier: Apache-2.0
"""Parse measured copies of nvbandwidth (0.2 to 0.8) and of NVIDIA's samples p2pBandwidthLatencyTest
and bandwidthTest: between the host and each GPU, and between GPUs."""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, real
from nccltune.doctor.facts.gpu import CopyRange, GpuCopy, PeerStatus, PeerTest

_RUNNING = re.compile(r"^[>\s]*Running (?P<test>\w+)\.")
_TABLE = re.compile(
    r"^[>\s]*memcpy (?P<by>CE|SM) (?P<row>[CG]PU)\(row\) (?P<arrow><?->?) GPU\(column\)"
)
_MATRIX = re.compile(r"^[>\s]*(?P<ways>Uni|Bi)directional P2P=(?P<p2p>Enabled|Disabled) Bandwidth")
_OTHER = re.compile(r"^[>\s]*(?:P2P(?: Connectivity|=)|SUM )")
_ROW = re.compile(r"^[>\s]*(?P<row>\d{1,4})(?P<cells>(?:\s+(?:N/A|\d{1,7}(?:\.\d{1,4})?))+)\s*$")
_COLUMNS = re.compile(r"^[>\s]*(?:D\\D\s+)?(?P<columns>\d{1,4}(?:\s+\d{1,4})*)\s*$")
_NAME = re.compile(
    r"^[>\s]*Device(?: (?P<a>\d{1,4})|: (?P<b>\d{1,4}),)(?::|) (?P<name>\S.{0,80}?)"
    r"(?:, pciBusID.*| \([0-9a-f:.]+\))?\s*$"
)
_NO_PEER = re.compile(r"^[>\s]*Device=(?P<a>\d{1,4}) CANNOT Access Peer Device=(?P<b>\d{1,4})")
# nvbandwidth waives these tests where no GPU can access another one (filterHasAccessiblePeerPairs).
_WAIVED = re.compile(r"^[>\s]*Waiving device_to_device_(?:bidirectional_)?memcpy_")
# hipBusBandwidth --p2p
_HIP = re.compile(
    r"^[>\s]*(?:for gpu#(?P<gpu>\d{1,4}) |peer2peer not supported *: *(?P<peers>gpu#\d.{0,400}))"
)
# bandwidthTest: a title for each kind, then sizes in bytes and rates.
_SAMPLE = re.compile(
    r"^[>\s]*(?P<kind>Host to Device|Device to (?:Host|Device)) Bandwidth, (?P<gpus>\d+) Device"
)
_PAGED = re.compile(r"^[>\s]*PAGEABLE Memory Transfers")
_IN_MB = re.compile(r"Bandwidth\(MB/s\)")
_SIZE = re.compile(r"^[>\s]*(?P<bytes>\d{4,12})\s+(?P<rate>\d{1,7}\.\d{1,4})\s*$")
_TESTS = {
    "host_to_device_memcpy_ce": "h2d",
    "device_to_host_memcpy_ce": "d2h",
    "host_to_device_memcpy_sm": "h2d_sm",
    "device_to_host_memcpy_sm": "d2h_sm",
    "device_to_device_memcpy_read_ce": "read",
    "device_to_device_memcpy_write_ce": "write",
}
# What the words above a table say, where the line `Running ...` was not pasted.
_ARROWS = {
    ("CPU", "->"): "h2d",
    ("CPU", "<-"): "d2h",
    ("GPU", "->"): "read",
    ("GPU", "<-"): "write",
}
_PEERS = ("read", "write", "p2p")
_MOST_PAIRS = 4096
_SLOWER = 0.7
"""Ratio of the rates with and without P2P below which the link is not what limits (p2p-slower)."""


class Copies(NamedTuple):
    """Measured copies, in GB/s.

    - `names`: names of GPUs by index
    - `rates`: copies with the host by GPU, of each kind: `h2d` and `d2h` by the copy engines,
      `h2d_sm` and `d2h_sm` by SMs. A table may have a row for each NUMA node; the highest rate of a
      GPU is used.
    - `peers`: copies between GPUs by the copy engines
    - `tests`: the copies of p2pBandwidthLatencyTest that were measured without and with P2P
    - `refused`: GPUs that cannot access each other
    - `peers_line`: number of the first line with a copy between GPUs, or 0
    - `both_ways`: the copies of `p2p` ran in both directions at once; each has half of the figure
    """

    names: dict[int, str]
    rates: dict[str, dict[int, float]]
    peers: list[GpuCopy]
    tests: list[PeerTest]
    refused: list[PeerStatus]
    peers_line: int
    both_ways: bool

    def of_host(self, kind: str) -> dict[int, float]:
        """Return rates of `h2d` or `d2h` by GPU: of the copy engines, else of the SMs."""
        return self.rates.get(kind) or self.rates.get(f"{kind}_sm") or {}


def parse_copies(text: str) -> Copies:
    """Parse an output of nvbandwidth or of p2pBandwidthLatencyTest, or a part of one."""
    rates: dict[str, dict[int, float]] = {}
    peers: dict[tuple[int, int, str], float] = {}
    peers_line = 0
    names = {int(one["a"] or one["b"]): one["name"] for one in _matches(_NAME, text)}
    # With several GPUs the sample prints their sum.
    if len(names) == 1 and (sample := _sample(text)):
        rates = {kind: {next(iter(names)): rate} for kind, rate in sample.items()}
    for number, kind, row, column, rate in _cells(text):
        if not kind.startswith((*_PEERS, "without")):
            best = rates.setdefault(kind, {})
            best[column] = max(rate, best.get(column, 0.0))
        elif column != row and len(peers) < _MOST_PAIRS:
            peers_line = peers_line or number
            peers[row, column, kind] = rate
    waived = sorted(names) if next(_matches(_WAIVED, text), None) and not peers else []
    # Both directions at once count where one direction alone was not pasted, each with its half.
    ways, parts = ("Uni", 1) if any(kind == "p2pUni" for *_, kind in peers) else ("Bi", 2)
    for (a, b, kind), rate in list(peers.items()):
        if kind.endswith(ways):
            peers[a, b, kind.removesuffix(ways)] = rate / parts
    return Copies(
        names,
        rates,
        [
            GpuCopy(a=a, b=b, kind=kind, gb_per_s=rate)
            for (a, b, kind), rate in peers.items()
            if kind in _PEERS
        ],
        [
            PeerTest(a=a, b=b, without_gb_per_s=peers[a, b, "without"], with_gb_per_s=rate)
            for (a, b, kind), rate in peers.items()
            if kind == "p2p" and (a, b, "without") in peers
        ],
        [
            PeerStatus(a=int(one["a"]), b=int(one["b"]), kind="read", status="NS")
            for one in _matches(_NO_PEER, text)
        ]
        + [PeerStatus(a=a, b=b, kind="read", status="NS") for a, b in combinations(waived, 2)]
        + list(_hip_refused(text)),
        peers_line,
        both_ways=parts == 2 and any(kind == "p2p" for *_, kind in peers),
    )


def _sample(text: str) -> dict[str, float]:
    """Return the highest rates of bandwidthTest, of pinned memory and one GPU, in GB/s."""
    found: dict[str, float] = {}
    kind, unit = "", 1.0
    for _, line in lines_of(text):
        if (match := _SAMPLE.match(line)) is not None:
            one = {"Host to Device": "h2d", "Device to Host": "d2h"}.get(match["kind"], "")
            kind = one if match["gpus"] == "1" else ""
        elif _PAGED.match(line):
            kind = ""
        elif "Bandwidth(" in line:
            unit = 1e-3 if _IN_MB.search(line) else 1.0
        elif kind and (match := _SIZE.match(line)) is not None:
            found[kind] = max(found.get(kind, 0.0), round(float(match["rate"]) * unit, 3))
    return found


def _hip_refused(text: str) -> Iterator[PeerStatus]:
    gpu = None
    for one in _matches(_HIP, text):
        gpu = int(one["gpu"]) if one["gpu"] else gpu
        for peer in re.findall(r"gpu#(\d{1,4})\b", one["peers"] or ""):
            yield PeerStatus(a=gpu, b=int(peer), kind="read", status="NS")


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    found = (pattern.match(line) for _, line in lines_of(text))
    return islice((one for one in found if one is not None), _MOST_PAIRS)


def _cells(text: str) -> Iterator[tuple[int, str, int, int, float]]:
    """Yield line number, kind of table, row, column and rate of each number in a table."""
    kind = ""
    columns: list[int] = []
    for number, line in lines_of(text):
        title = _title(line, kind if not columns else "")
        if title is not None:
            kind, columns = title, []
        elif kind not in ("", "-") and not columns and (match := _COLUMNS.match(line)) is not None:
            columns = [int(word) for word in match["columns"].split()]
        elif columns and (match := _ROW.match(line)) is not None:
            cells = match["cells"].split()
            if len(cells) == len(columns):
                for column, rate in zip(columns, map(real, cells), strict=True):
                    if rate is not None:
                        yield number, kind, int(match["row"]), column, rate


def _title(line: str, test: str) -> str | None:
    """Return what the table below a line has: a value of `_TESTS`, `p2pUni`, `withoutBi`, or "" or
    "-" for a table that is not read. Return None if the line is not above a table.

    `test` is the test that a line before this one named.

    The row's GPU reads from, or writes to, the column's GPU. This follows the code of nvbandwidth
    0.2 to 0.8 (testcases_ce.cpp). The arrows that it prints point the other way. N/A means that two
    GPUs cannot access each other.
    """
    if (match := _RUNNING.match(line)) is not None:
        return _TESTS.get(match["test"], "-")
    if (match := _TABLE.match(line)) is not None:
        kind = _ARROWS.get((match["row"], match["arrow"]), "")
        if match["by"] == "SM":
            kind = f"{kind}_sm" if match["row"] == "CPU" and kind else ""
        return kind if not test else "" if test == "-" else test
    if (match := _MATRIX.match(line)) is not None:
        return ("p2p" if match["p2p"] == "Enabled" else "without") + match["ways"]
    return "" if _OTHER.match(line) else None


# The highest copy of a link in GB/s, and the links that reach it.
_LIKE = (
    (1.7, "less than PCIe 3.0 x4 gives"),
    (4, "as PCIe 3.0 x4 gives"),
    (8.5, "as PCIe 3.0 x8 or 4.0 x4 gives"),
    (14.5, "as PCIe 3.0 x16, 4.0 x8 or 5.0 x4 gives"),
    (30, "as PCIe 4.0 x16 or 5.0 x8 gives"),
    (60, "as PCIe 5.0 x16 or a few NVLinks give"),
)
# Cards with 16 lanes by the PCIe generation of their model, and what their copies reach at least.
_MODELS = (
    (5, re.compile(r"\bH(?:[128]00|20)\b|\bB200\b|RTX 50[789]0|RTX PRO [456]000"), 40.0),
    (
        4,
        re.compile(
            r"\bA(?:[13]00?|40|800)\b|\bL(?:4|20|40S?)\b|RTX A[456]000|RTX [3-4]0[789]0"
            r"|RTX [456]000 Ada"
        ),
        20.0,
    ),
    (3, re.compile(r"\b[VP]100\b|\bT4\b|\bP40\b|RTX 20[78]0|GTX 10[78]0|TITAN|Quadro RTX"), 9.0),
)
_FEWER_LANES = re.compile(r"\b(?:Laptop|Mobile|Max-Q|SFF)\b")
_NVLINK = re.compile(r"\bA[18]00-SXM|\bH(?:[128]00|20)\b(?!.*(?:PCIe|NVL))|\bB[23]00\b")
_SHOWN = {
    "h2d": "host to GPU",
    "d2h": "GPU to host",
    "h2d_sm": "host to GPU by SMs",
    "d2h_sm": "GPU to host by SMs",
}


def copy_ranges(
    copies: Copies, names: Mapping[int, str], links: Mapping[tuple[int, int], int]
) -> Iterator[CopyRange]:
    """Yield the lowest and highest rate of each kind of copy, compared with the model's link.
    Pairs that are slower with P2P than without are not: what limits them is not a link.
    `names` are names of GPUs by index, for outputs that have none. `links` are the NVLinks between
    two GPUs (the lower index first).
    """
    models = set((copies.names or names).values())
    model = models.pop() if len(models) == 1 else ""
    for kind, rates in copies.rates.items():
        if kind in _SHOWN and rates:
            one = _range(_SHOWN[kind], list(rates.values()), model, kind)
            few = [gpu for gpu, rate in rates.items() if rate < 0.6 * max(rates.values())]
            if few and 2 * len(few) <= len(rates):
                one.slow = [f"GPU {gpu} at {rates[gpu]:g} GB/s" for gpu in few]
                if not kind.endswith("_sm"):
                    one.normal = False
            yield one
    refused = {frozenset((one.a, one.b)) for one in copies.refused}
    slower = {
        frozenset((one.a, one.b))
        for one in copies.tests
        if (one.with_gb_per_s or 0.0) < _SLOWER * (one.without_gb_per_s or 0.0)
    } - refused
    everyone = {frozenset((one.a, one.b)) for one in copies.peers}
    for kind, what, pairs in (
        ("peer", "GPU to GPU", everyone - slower - refused),
        ("slower", "GPU to GPU with P2P", slower),
        ("refused", "GPU to GPU without P2P", refused),
    ):
        peers = [one for one in copies.peers if frozenset((one.a, one.b)) in pairs]
        if not peers:
            continue
        both = ", each way of both at once" if copies.both_ways else ""
        one = _range(what + both, [peer.gb_per_s or 0.0 for peer in peers], model, kind)
        if kind == "peer" and (slow := list(_slow(peers, links))):
            one.slow, one.normal = slow, False
        yield one


def _slow(peers: list[GpuCopy], links: Mapping[tuple[int, int], int]) -> Iterator[str]:
    """Yield the pairs far below the others, or below their NVLinks (14 to 50 GB/s each)."""
    rates: dict[tuple[int, int], float] = {}
    for one in peers:
        pair = (min(one.a or 0, one.b or 0), max(one.a or 0, one.b or 0))
        rates[pair] = min(one.gb_per_s or 0.0, rates.get(pair, math.inf))
    high = max(one.gb_per_s or 0.0 for one in peers)
    few = {pair for pair, rate in rates.items() if rate < high * (0.5 if high >= 60 else 0.2)}
    weak = [set(pair) for pair, rate in rates.items() if high >= 60 and rate < 0.6 * high]
    if weak and any(all((gpu in pair) == ({*pair} in weak) for pair in rates) for gpu in weak[0]):
        # All pairs of one GPU, and no other one. Half its links may be down.
        few |= {pair for pair in rates if {*pair} in weak}
    for (a, b), rate in sorted(rates.items()):
        # The numbers of the GPUs may be others where only some of them were measured.
        count = links[a, b] if links.keys() == rates.keys() else 0
        # With bridges most pairs have no NVLink.
        if ((a, b) in few and 2 * len(few) <= len(rates)) or rate < 7 * count:
            yield f"GPUs {a} and {b} at {rate:g} GB/s{f' (NV{count})' if count else ''}"


def _range(what: str, rates: list[float], model: str, kind: str) -> CopyRange:
    low, high = round(min(rates), 2), round(max(rates), 2)
    beyond = "as NVLink gives" if kind == "peer" else "more than PCIe 5.0 x16 gives"
    like = next((words for most, words in _LIKE if high < most), beyond)
    known = () if _FEWER_LANES.search(model) else _MODELS
    generation, least = next(((gen, low) for gen, rx, low in known if rx.search(model)), (0, 0.0))
    expected = f"PCIe {generation}.0 x16" if generation else None
    normal = None
    if kind in ("h2d", "d2h") and generation:
        normal = low >= 0.85 * least
    elif kind == "peer" and _NVLINK.search(model):
        expected, normal = "NVLink", high >= 60 and low >= 20
    elif kind == "peer" and generation:
        if generation < 5 and high > 30:
            like = "as NVLink gives"
            expected = "NVLink" if low > 30 else expected
        # Ways through two CPUs reach less than the link.
        normal = high >= 0.85 * least and low >= 0.4 * least
    elif kind == "refused":
        like = "through host memory"
    elif kind == "slower":
        like = "less than without P2P"
    elif kind.endswith("_sm"):
        like = "by loads and stores, which say less of the link than the copy engines (_ce)"
    if low < 0.7 * high and like.startswith("as "):
        like = f"at best {like}"
    return CopyRange(
        what=what,
        lowest_gb_per_s=low,
        highest_gb_per_s=high,
        like=like,
        model=f"{model}: {expected}" if expected else None,
        normal=normal,
    )
