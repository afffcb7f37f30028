# SPDX-License-Identifier: Apache-2.0
"""Read the output of NCCL's own diagnostics.

- `NCCL_RUN_DIAGNOSTICS=1` tests P2P access and network bandwidth.
- `NCCL_RUN_RAS_DIAGNOSTICS=1` and `ncclras -D` compare the state of all ranks.

Sources of the line formats:

- 2.31: the source in Meta's copy (torchcomms, comms/ncclx/v2_31: `diagnostics.cc`,
  `diagnostics/p2p.cc`, `ras/diagnostics*.cc`) and its user guide. That copy is NVIDIA's 2.31.2. The
  available copy of NVIDIA's repository ends at 2.30.7 and has no diagnostics.
- 2.32: format strings of libnccl.so of 2.32.3 (PyPI nvidia-nccl-cu13), and the user guide's section
  on the network check. Only the format strings of the tables of the Paths check are known.
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

# The user guide shows lines without host and process id, but the source always prints both. So
# both are optional here.
_LINE = re.compile(r"(?:(?P<host>[^\s:]+):(?P<pid>\d+) )?NCCL DIAG (?P<text>.*)")
_HEADER = re.compile(r"=== (?:RAS|NCCL) Diagnostics ===")
_RESULT = re.compile(r"\[(?P<tag>[A-Z]+)\]\s+(?P<rest>.*)")
_CHECK = re.compile(r"(?P<check>[A-Za-z][^:]{0,60}): (?P<text>.*)")
_P2P_FAILURE = re.compile(
    r"(?P<what>[^=]*?) srcRank=\d+ srcCudaDev=\d+ srcNvmlDev=(?P<src_dev>\d+) "
    r"dstRank=\d+ dstCudaDev=\d+ dstNvmlDev=(?P<dst_dev>\d+) path=(?P<path>\w+) "
    r"handle=(?P<handle>\w+)(?P<values>[^;]*)(?:; (?P<advice>.*))?"
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
    """

    check: str
    ok: bool
    text: str


class P2pFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that could not write to or read from another GPU.

    `what` is NCCL's description of the failure. `source_device` and `target_device` are the GPU
    numbers of nvidia-smi, and `path` is NCCL's path type between the two GPUs. `handle` is how the
    memory was shared. `advice` is the advice that NCCL printed, if any.
    """

    what: str
    source_device: int
    target_device: int
    path: str
    handle: str
    advice: str | None = None


class Diagnostics(msgspec.Struct, kw_only=True):
    """One report of the diagnostics."""

    results: list[DiagnosticLine] = []
    p2p_failures: list[P2pFailure] = []

    @property
    def remarks(self) -> list[DiagnosticLine]:
        """Return the results that are not OK."""
        return [item for item in self.results if not item.ok]


def read_diagnostics(lines: Iterable[str]) -> list[Diagnostics]:
    """Return the reports among any lines, in order. The lines may have launcher prefixes.

    If a process creates two communicators at the same time, their lines are mixed. Each line then
    counts for the report that the process began last.
    """
    reader = DiagnosticsReader()
    for line in lines:
        reader.feed(line)
    return reader.reports


class DiagnosticsReader:
    """A reader that gets lines one by one. `reports` are the reports so far."""

    def __init__(self) -> None:
        self.reports: list[Diagnostics] = []
        self._open: dict[tuple[str, str], Diagnostics] = {}

    def feed(self, line: str) -> bool:
        """Process a line; return whether it belongs to NCCL's diagnostics."""
        if "NCCL DIAG " not in line:
            return line.strip() == _BUSY
        match = _LINE.search(strip_prefix(line)[1])
        if match is None:
            return False
        # int() raises ValueError for a number of thousands of digits. NCCL prints no such number.
        with contextlib.suppress(ValueError):
            self._take((match["host"] or "", match["pid"] or ""), match["text"].rstrip())
        return True

    def _take(self, writer: tuple[str, str], text: str) -> None:
        if _HEADER.match(text) is not None:
            self._begin(writer)
        elif (result := _RESULT.match(text)) is not None:
            # Without a header, the first result begins the report.
            report = self._open.get(writer) or self._begin(writer)
            self._result(report, result["tag"] == "OK", result["rest"])

    def _begin(self, writer: tuple[str, str]) -> Diagnostics:
        report = Diagnostics()
        if len(self.reports) < _MOST:
            self.reports.append(report)
            self._open[writer] = report
        return report

    def _result(self, report: Diagnostics, ok: bool, rest: str) -> None:
        named = _CHECK.match(rest)
        check, text = (named["check"], named["text"]) if named else ("", rest)
        if len(report.results) >= _MOST:
            return
        report.results.append(DiagnosticLine(check=check, ok=ok, text=visible(_kept(text), 400)))
        if check == "p2p" and (match := _P2P_FAILURE.match(text)) is not None:
            report.p2p_failures.append(
                P2pFailure(
                    what=match["what"].strip(),
                    source_device=int(match["src_dev"]),
                    target_device=int(match["dst_dev"]),
                    path=match["path"],
                    handle=match["handle"],
                    advice=match["advice"],
                )
            )


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
