# SPDX-License-Identifier: Apache-2.0
"""What NCCL's own diagnostics print: `NCCL_RUN_DIAGNOSTICS=1` (P2P access, network bandwidth),
`NCCL_RUN_RAS_DIAGNOSTICS=1` and `ncclras -D` (state of all ranks compared).

Where the forms come from:
- 2.31: read in the source as Meta carries it (torchcomms, comms/ncclx/v2_31: `diagnostics.cc`,
  `diagnostics/p2p.cc`, `ras/diagnostics*.cc`) and in its user guide. That copy is NVIDIA's 2.31.2;
  NVIDIA's repository as it was at hand ends at 2.30.7 and has no diagnostics.
- 2.32: format strings of libnccl.so of 2.32.3 (PyPI nvidia-nccl-cu13), and its user guide's text on
  the network check. The tables of the Paths check are known by their strings only.
- Not verified: output of a real run; none was at hand. A line of another form is kept as text with
  its tag and check, so that a new check is shown and not lost.
The output is text in all versions (`-f json` is refused for it).
"""

import contextlib
import re
from collections.abc import Iterable

import msgspec

from nccltune.formats.lines import visible
from nccltune.formats.prefixes import strip_prefix
from nccltune.formats.redact import keep_setting

# The user guide shows lines without host and process, the source always prints them.
_LINE = re.compile(r"(?:(?P<host>[^\s:]+):(?P<pid>\d+) )?NCCL DIAG (?P<text>.*)")
_HEADER = re.compile(r"=== (?P<kind>RAS|NCCL) Diagnostics ===")
_END = re.compile(
    r"(?:RAS|NCCL) diagnostics completed in (?P<ms>[\d.]+) ms across (?P<number>\d+) "
    r"(?P<unit>ranks|RAS peers)"
)
_SKIPPED = re.compile(r"INFO RAS diagnostics skipped: (?P<why>.*)")
_RESULT = re.compile(r"\[(?P<tag>[A-Z]+)\]\s+(?P<rest>.*)")
_CHECK = re.compile(r"(?P<check>[A-Za-z][^:]{0,60}): (?P<text>.*)")
_COMM = re.compile(r"\bin comm (?P<comm>0x[0-9a-f]+)")
_ACROSS = re.compile(r"\bacross (?:(?P<of>\d+)/)?(?P<ranks>\d+) ranks\b")
# 2.31: "all 56 directed GPU P2P edges verified (skipped indirect=2)", "52/56 directed ...";
# 2.32: "verified P2P access ... (56 peer accesses)", "only 52/56 GPU-to-GPU peer accesses passed".
_P2P = re.compile(
    r"(?:all (?P<all>\d+)|(?P<passed>\d+)/(?P<tested>\d+)) directed GPU P2P edges verified"
    r"(?: \(skipped indirect=(?P<skipped>\d+)\))?"
    r"|verified P2P access in both directions between every GPU pair \((?P<every>\d+) peer access"
    r"|only (?P<some>\d+)/(?P<of>\d+) GPU-to-GPU peer accesses passed verification"
)
_P2P_FAILURE = re.compile(
    r"(?P<what>[^=]*?) srcRank=(?P<src>\d+) srcCudaDev=\d+ srcNvmlDev=(?P<src_dev>\d+) "
    r"dstRank=(?P<dst>\d+) dstCudaDev=\d+ dstNvmlDev=(?P<dst_dev>\d+) path=(?P<path>\w+) "
    r"handle=(?P<handle>\w+)(?P<values>[^;]*)(?:; (?P<advice>.*))?"
)
_NET = re.compile(
    r"(?P<low>[\d.]+)/(?P<median>[\d.]+)/(?P<high>[\d.]+) Gbit/s min/median/max "
    r"(?P<mode>\S+) bw \(across (?P<ranks>\d+) ranks\)"
)
_NET_SLOW = re.compile(
    r"(?P<mode>\S+) rank (?P<rank>\d+) \([^)]*\): (?P<rate>[\d.]+) Gbit/s, >30% off median"
)
_ENV_VALUE = re.compile(r"(?P<name>NCCL_\w+)=(?P<value>.*) on rank\(s\) (?P<ranks>\{[^}]*\}.*)")
_BROKEN = re.compile(
    r"^p2p: (?:only )?\d+(?:/| of )|^NVLink: inactive|^ECC: uncorrected volatile errors on"
)
_BUSY = "BUSY: diagnostics already in progress"
_MOST = 65_536


class DiagnosticLine(msgspec.Struct, frozen=True, kw_only=True):
    """A result: `ok` is NCCL's `[OK]`; anything else may need a look. `check` is its name (`GPU
    inventory`, `p2p`), `comm` the communicator's id, `ranks` how many it compared; `line` is from
    1. Values of settings that may name hosts or hold secrets are left out of `text`."""

    check: str
    ok: bool
    text: str
    comm: str | None = None
    ranks: int | None = None
    line: int = 0


class P2pFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that could not write to or read from another one: ranks, devices as nvidia-smi counts
    them, the path between them, how the memory was shared, and NCCL's advice."""

    what: str
    source_rank: int
    target_rank: int
    source_device: int
    target_device: int
    path: str
    handle: str
    advice: str | None = None


class P2pAccess(msgspec.Struct, frozen=True):
    """Peer accesses that were tested, each direction one; `skipped` go by another GPU."""

    passed: int
    tested: int
    skipped: int = 0


class NetBandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """What `ib_write_bw` reached between nodes, in GB/s over ranks, between NICs of one name
    (`same-nic`) or of two (`cross-nic`); `slow` are ranks over 30 % off the median."""

    mode: str
    low_gb_per_s: float
    median_gb_per_s: float
    high_gb_per_s: float
    ranks: int
    slow: dict[int, float] = {}


class Diagnostics(msgspec.Struct, kw_only=True):
    """One report. `active` tells the one that moves data from RAS's, which compares what is known.
    `completed_ms` is None where the report has no end; `peers` are ranks or, asked for on demand,
    processes. `not_run` says why there is none."""

    active: bool
    results: list[DiagnosticLine] = []
    p2p: P2pAccess | None = None
    p2p_failures: list[P2pFailure] = []
    networks: list[NetBandwidth] = []
    completed_ms: float | None = None
    peers: int | None = None
    not_run: str | None = None

    @property
    def remarks(self) -> list[DiagnosticLine]:
        """What NCCL did not call OK."""
        return [item for item in self.results if not item.ok]


def read_diagnostics(lines: Iterable[str]) -> list[Diagnostics]:
    """The reports among any lines (a program's output with its launcher's prefixes), in order.

    Two communicators made at once by one process mix their lines: results name theirs, the rest
    goes to the report that was begun last.
    """
    reader = DiagnosticsReader()
    for number, line in enumerate(lines, 1):
        reader.feed(line, number)
    return reader.reports


class DiagnosticsReader:
    """Takes lines one by one; `reports` are those so far."""

    def __init__(self) -> None:
        self.reports: list[Diagnostics] = []
        self._open: dict[tuple[str, str], Diagnostics] = {}

    def feed(self, line: str, number: int = 0) -> bool:
        """Take in a line; whether it is one of NCCL's diagnostics."""
        if "NCCL DIAG " not in line:
            if line.strip() == _BUSY:
                self._begin(("", ""), active=False).not_run = "another one was running"
                return True
            return False
        match = _LINE.search(strip_prefix(line)[1])
        if match is None:
            return False
        # A number of thousands of digits is none of NCCL's, and more than int() takes.
        with contextlib.suppress(ValueError):
            self._take((match["host"] or "", match["pid"] or ""), match["text"].rstrip(), number)
        return True

    def _take(self, writer: tuple[str, str], text: str, number: int) -> None:
        if (header := _HEADER.match(text)) is not None:
            self._begin(writer, active=header["kind"] == "NCCL")
        elif (skipped := _SKIPPED.match(text)) is not None:
            self._begin(writer, active=False).not_run = visible(skipped["why"])
        elif (end := _END.match(text)) is not None:
            report = self._report(writer)
            report.completed_ms, report.peers = float(end["ms"]), int(end["number"])
        elif (result := _RESULT.match(text)) is not None:
            self._result(self._report(writer), result["tag"] == "OK", result["rest"], number)

    def _begin(self, writer: tuple[str, str], *, active: bool) -> Diagnostics:
        report = Diagnostics(active=active)
        if len(self.reports) < _MOST:
            self.reports.append(report)
            self._open[writer] = report
        return report

    def _report(self, writer: tuple[str, str]) -> Diagnostics:
        """The open report of a process; without its header it is told by what it checks."""
        return self._open.get(writer) or self._begin(writer, active=False)

    def _result(self, report: Diagnostics, ok: bool, rest: str, number: int) -> None:
        named = _CHECK.match(rest)
        check, text = (named["check"], named["text"]) if named else ("", rest)
        if len(report.results) >= _MOST:
            return
        comm, across = _COMM.search(text), _ACROSS.search(text)
        report.results.append(
            DiagnosticLine(
                check=check,
                ok=ok,
                text=visible(_kept(text), 400),
                comm=comm["comm"] if comm else None,
                ranks=int(across["ranks"]) if across else None,
                line=number,
            )
        )
        if check == "p2p":
            report.active = True
            self._p2p(report, text)
        elif check == "net bw":
            report.active = True
            self._net(report, text)

    def _p2p(self, report: Diagnostics, text: str) -> None:
        if (match := _P2P.match(text)) is not None:
            tested = int(match["all"] or match["tested"] or match["every"] or match["of"])
            passed = int(match["passed"] or match["some"] or tested)
            report.p2p = P2pAccess(passed, tested, int(match["skipped"] or 0))
        elif (match := _P2P_FAILURE.match(text)) is not None:
            report.p2p_failures.append(
                P2pFailure(
                    what=match["what"].strip(),
                    source_rank=int(match["src"]),
                    target_rank=int(match["dst"]),
                    source_device=int(match["src_dev"]),
                    target_device=int(match["dst_dev"]),
                    path=match["path"],
                    handle=match["handle"],
                    advice=match["advice"],
                )
            )

    def _net(self, report: Diagnostics, text: str) -> None:
        if (match := _NET.match(text)) is not None:
            report.networks.append(
                NetBandwidth(
                    mode=match["mode"],
                    low_gb_per_s=float(match["low"]) / 8,
                    median_gb_per_s=float(match["median"]) / 8,
                    high_gb_per_s=float(match["high"]) / 8,
                    ranks=int(match["ranks"]),
                )
            )
        elif (match := _NET_SLOW.match(text)) is not None:
            slow = {int(match["rank"]): float(match["rate"]) / 8}
            report.networks = [
                msgspec.structs.replace(item, slow=item.slow | slow)
                if item.mode == match["mode"]
                else item
                for item in report.networks
            ]


def remarks(reports: Iterable[Diagnostics]) -> dict[str, bool]:
    """A sentence for each thing that is not OK, of all reports together, and whether it says that
    hardware is broken (and not merely that something differs or could not be told)."""
    said: dict[str, bool] = {}
    for report in reports:
        for failure in report.p2p_failures:
            advice = f": {failure.advice}" if failure.advice else ""
            said[
                f"GPU {failure.source_device} and GPU {failure.target_device} ({failure.path}, "
                f"{failure.handle}): {failure.what}{advice}"
            ] = True
        for item in report.remarks:
            if _P2P_FAILURE.match(item.text) is None:
                sentence = f"{item.check}: {item.text}" if item.check else item.text
                said[sentence] = _BROKEN.search(sentence) is not None
    return said


def _kept(text: str) -> str:
    """Without values that may name hosts or hold secrets."""
    match = _ENV_VALUE.match(text)
    if match is None or match["value"] == "(unset)":
        return text
    value = keep_setting(match["name"], match["value"])
    return f"{match['name']}={'...' if value is None else value} on rank(s) {match['ranks']}"
