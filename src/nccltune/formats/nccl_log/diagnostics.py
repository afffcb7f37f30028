# SPDX-License-Identifier: Apache-2.0
"""Read the output of NCCL's own diagnostics.

- `NCCL_RUN_DIAGNOSTICS=1` tests P2P access and network bandwidth.
- `NCCL_RUN_RAS_DIAGNOSTICS=1` and `ncclras -D` compare the state of all ranks.

Sources of the line formats:

- 2.31: the source in Meta's copy (torchcomms, comms/ncclx/v2_31: `diagnostics.cc`,
  `diagnostics/p2p.cc`, `ras/diagnostics*.cc`) and its user guide. That copy is NVIDIA's 2.31.2. The
  available copy of NVIDIA's repository ends at 2.30.7 and has no diagnostics.
- 2.32: format strings of libnccl.so of 2.32.3 (PyPI nvidia-nccl-cu13), and the user guide's section
  on the network check. Of the tables of the Paths check only the strings are known.
- Not verified with the output of a real run, because none was available. A line with another format
  is kept as text with its tag and check, so that new checks are shown.

The output is text in all versions: NCCL refuses `-f json` for it.
"""

import contextlib
import re
from collections.abc import Iterable

import msgspec

from nccltune.formats.text.lines import visible
from nccltune.formats.text.prefixes import strip_prefix
from nccltune.formats.text.redact import keep_setting

# The user guide shows lines without host and process. The source always prints them.
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
    """The result of one check.

    - `check`: the name of the check (`GPU inventory`, `p2p`).
    - `ok`: NCCL printed `[OK]`. Any other tag may need attention.
    - `text`: the message, without values of settings that may name hosts or hold secrets.
    - `comm`: the id of the communicator.
    - `ranks`: the number of ranks compared.
    - `line`: the line number, from 1.
    """

    check: str
    ok: bool
    text: str
    comm: str | None = None
    ranks: int | None = None
    line: int = 0


class P2pFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that could not write to or read from another GPU.

    It has the ranks, the devices as nvidia-smi counts them, the path between them, how the memory
    was shared, and NCCL's advice.
    """

    what: str
    source_rank: int
    target_rank: int
    source_device: int
    target_device: int
    path: str
    handle: str
    advice: str | None = None


class P2pAccess(msgspec.Struct, frozen=True):
    """Tested peer accesses, one per direction. `skipped` ones pass through another GPU."""

    passed: int
    tested: int
    skipped: int = 0


class NetBandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth between nodes that `ib_write_bw` reached: minimum, median and maximum over ranks.

    The unit is GB/s. `mode` is `same-nic` (NICs of one name) or `cross-nic` (NICs of two names).
    `slow` has the ranks that differ from the median by over 30 %.
    """

    mode: str
    low_gb_per_s: float
    median_gb_per_s: float
    high_gb_per_s: float
    ranks: int
    slow: dict[int, float] = {}


class Diagnostics(msgspec.Struct, kw_only=True):
    """One report of the diagnostics.

    `active` is True for diagnostics that move data, False for those of RAS, which compare known
    state. `completed_ms` is None if the report has no end. `peers` is the number of ranks, or of
    processes if the report was requested on demand. `not_run` is the reason if nothing ran.
    """

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
        """Return the results that are not OK."""
        return [item for item in self.results if not item.ok]


def read_diagnostics(lines: Iterable[str]) -> list[Diagnostics]:
    """Return the reports among any lines, in order. The lines may have launcher prefixes.

    If a process creates two communicators at the same time, their lines are mixed. Then results
    have the id of their communicator, and other lines count for the report that began last.
    """
    reader = DiagnosticsReader()
    for number, line in enumerate(lines, 1):
        reader.feed(line, number)
    return reader.reports


class DiagnosticsReader:
    """A reader that gets lines one by one. `reports` are the reports so far."""

    def __init__(self) -> None:
        self.reports: list[Diagnostics] = []
        self._open: dict[tuple[str, str], Diagnostics] = {}

    def feed(self, line: str, number: int = 0) -> bool:
        """Process a line; return whether it belongs to NCCL's diagnostics."""
        if "NCCL DIAG " not in line:
            if line.strip() == _BUSY:
                self._begin(("", ""), active=False).not_run = "another one was running"
                return True
            return False
        match = _LINE.search(strip_prefix(line)[1])
        if match is None:
            return False
        # int() refuses a number of thousands of digits. NCCL prints no such number.
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
        """Return the open report of a process. Without a header, its checks show its kind."""
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
    """Return a sentence for each result of all reports that is not OK.

    The value is True if the hardware is broken. False means that something only differs or could
    not be determined.
    """
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
    """Return `text` without setting values that may name hosts or hold secrets."""
    match = _ENV_VALUE.match(text)
    if match is None or match["value"] == "(unset)":
        return text
    value = keep_setting(match["name"], match["value"])
    return f"{match['name']}={'...' if value is None else value} on rank(s) {match['ranks']}"
