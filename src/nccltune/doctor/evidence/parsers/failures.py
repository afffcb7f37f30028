# SPDX-License-Identifier: Apache-2.0
"""Find lines that state a failure of NCCL, CUDA, the driver, PyTorch or launchers.

NCCL lines of level INFO are ignored: NCCL tries operations that may fail and continues without
them. A connection that was tried a third as often as NCCL tries is no such operation.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.failure_words import WORDS
from nccltune.doctor.evidence.parsers.kernel_log import without_kernel_lines
from nccltune.doctor.evidence.parsers.nccl_warnings import (
    WARNING,
    message_kind,
    status_kind,
    warning_kind,
)

MOST = 400
LONGEST = 300
_KIND = {word: kind for kind, words in WORDS.items() for word in words}
_RANKS = {kind: number for number, kind in enumerate(WORDS)}
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
# Lines that only mention a failure: comments, echoed code, log calls, searches, MLPerf's records.
_QUOTED = re.compile(
    r"^\s*(?:\d{1,5}: )?(?://|\+{1,4} |>{3} |:::[A-Z]+ |echo "
    r"|(?:\S{0,80}[$#] ?)?(?:sudo )?(?:[a-z]*grep|awk|sed|rg) "
    r"|if |elif |except |raise |print\(|logger\.)"
)
_THROWN = re.compile(
    r"terminate called after throwing an instance of 'c10::DistBackendError'"
    r"(?=[^\n]*\n(?:[^\n]{0,400}\n){0,32}?[^\n]{0,40}(?P<what>what\(\):))"
)
"""An exception of PyTorch, and the next words of one: those of other ranks may stand between."""
_INFO = "NCCL INFO"
_TRIED = re.compile(r"returned [^,]{1,200}, retrying \((\d{1,9})/(\d{1,9})\)")
_WARN = "NCCL WARN"
# NCCL's last warning without the words NCCL WARN: PyTorch prints it in the line after "Last error",
# XLA in quotes.
_LAST_ERROR = re.compile(
    r"^.*\bLast error:[ \t]*\n(?P<line>[^\n]+)"
    r"|^(?P<xla>(?>[^\n]*Last NCCL warning\(error\)[^\n']{0,200}')(?P<quoted>[^\n]+)'[^\n']*$)",
    re.M,
)
_CUDA_WARN = re.compile(
    rf"(?P<file>[\w./-]{{1,120}}):\d{{1,6}} {_WARN} (?P<said>[^\n]{{0,8}}uda failure[^\n]*)"
)
# A warning of NCCL 2.1 to 2.3, which have no NCCL before WARN.
_OLD_WARN = re.compile(
    r"^(?:.{1,200}\] )?[\w/]{1,60}\.(?:h|cc|cu):\d{1,6} WARN (?P<message>.+)", re.M
)
# Lines that contain a word of WORDS but state success, or that a library is not there that the
# program can do without: drivers of other NICs, parts of Open MPI, TensorRT, TPUs, NCCL's plugins.
_ALSO_FINE = re.compile(
    r"(?i:\b(?:no|not|without|never|any) (?:\w+ ){0,4}s?xid)"
    r"|(?i:\bxid.{0,12}\bno(?:ne|t (?:seen|found)))|"
    r"Out of bounds values\s*:\s*\d+ OK|exitcode\s*: 0\b|couldn't load driver '|\(ignored\)\s*$"
    r"|^\s*(?:sudo: unable to resolve|curl: \(|wget: |fatal: unable to access)"
    r"|lib(?:tpu|nvinfer|[nr]ccl-?(?:net|tuner|profiler|env))\S*\.so\S*: cannot open shared object"
    r"|\bWarning: (?!.*\blib(?:cuda|nvidia|[nr]ccl)).*cannot open shared object|: _is_a_lwp: open"
)
# A person tells what was: words that no tool prints, or two that tools seldom print. What a program
# printed, with a time, a level or a place in its code, may stand in the same line.
_TELLS = re.compile(
    r"\b(?:I|he|she|our|my|admins?|said|says|told|yesterday"
    r"|(?:last|this) (?:week|month|year|night)|ago|rebooted|colleagues?)\b"
    r"|\b[a-z]+ [a-z]+ (?:\w+BackOff|ErrImagePull)\b"
)
_OFTEN_TELLS = re.compile(
    r"\b(?:[Ww]e|[Tt]hey|was|were|had|did|saw|seen|never|happen(?:s|ed)?|once|since|replaced|fixed"
    r"|again|but|here|because|just|only|about)\b"
)
_BY_PROGRAM = re.compile(
    r"^\s*[\[<$>|]|\d\d:\d\d:\d\d|\bNVRM: |\w(?:Error|Exception)\b|\bERROR\b|\berror: |\bWARN"
    r"|\.(?:py|cc|cpp|cu|c|h):\d|\b(?:line|rank|pid|PID) \d|^\S+: |`|\bfailed: "
    r"|\s\d+/\d+\s+\w+\s+\d+ \("
)
# Lines that state a failure beside other words only: ibv_devinfo does not name the device, PyTorch
# guesses the GPU of a barrier in runs that end well, too, and lspci reads ff where no GPU answers.
_BESIDE = (
    ("hca_id:", "verbs", re.compile(r"^Failed to open device$", re.M)),
    # A file in which ranks meet, and which an earlier run may have left.
    ("onnection refused", "network", re.compile(r"^.*init_method\W{1,4}file:///\S.*", re.M)),
    ("before timing out", "watchdog", re.compile(r"^.*to perform barrier as devices used", re.M)),
    (
        "(rev ff)",
        "gpu_lost",
        re.compile(r"^\S+ (?:VGA|3D|Display|Processing).*: (?:NVIDIA|Adv).*\(rev ff\)", re.M),
    ),
    # perftest with --use_cuda
    (
        "GPU buffer",
        "gpu_mr",
        re.compile(
            r"^(?:Couldn't allocate MR|[Ff]ailed to create (?:mr|MR))\b.*|^(?:\[pid = .*GeForce"
            r"|Calling ibv_reg_dmabuf_mr).*(?=(?s:.{0,600})^Couldn't allocate)",
            re.M,
        ),
    ),
    # dcgm-exporter shows the last Xid of a GPU, of which a program causes some.
    (
        "DCGM_FI_DEV_XID_ERRORS{",
        "health",
        re.compile(r"^DCGM_FI_DEV_XID_\w+\{.*\} (?!(?:13|31|43|45|68|109)\b)[1-9]\d*", re.M),
    ),
)
_PHRASES = tuple(word for word in _KIND if word.count(" ") > 3)
# Words of NCCL's and its plugins' messages. Programs that contain NCCL's network code (UCCL), the
# plugin's own tests and libfabric print them without NCCL WARN.
_BARE = (
    "NET/IB",
    "NET/OFI",
    *(" ibv_", "ibv_create_", "ibv_modify_", "ibv_alloc_", "ibv_reg_", " mlx5dv_"),
    *("Got completion ", "Failed status "),
    "<warn>",
    "| Fail",
    *("ailed to modify QP", "ailed to create ", "ailed to register "),
    *("reverse path from remNode", "does not loop back", "Message truncated"),
    *("Could not find a path for pattern", "No transport found for rank", "NVLink SHARP (NVLS)"),
    "prov_errno",
    "got completion with error:",
)
_BYTES = tuple(word.encode() for word in (*_KIND, *_BARE))
# Before NCCL 2.24 this line does not say why.
_CREATED = re.compile(r"while creating shared memory segment(?!.*error: )")
_NO_SPACE_MATTER = re.compile(
    r"shm(?:utils)?\.(?:cc|h):\d{1,6} NCCL WARN (?:Cuda|Error: (?!failed to ext)"
    r"|Call to \w+ failed ?: (?!No space))"
)
# What the calls of ranks have in common, before and beside their shapes.
_ALIKE = re.compile(
    r"^.{0,200}(?=Detected mismatch)|, TensorDeviceTypes=TensorOptions\((?:[^()]|\([^()]*\))*\)"
    r"|CollectiveFingerPrint(?=\()"
)
_LIBFABRIC = ("ofi", "rdma", "verbs")
_QUIET = re.compile(r"\b(?:INFO|TRACE|DEBUG|UCX)\b")


_SHUT_DOWN = re.compile(r"\[shutdown\] |trigger received signal|Shutting down FastAPI HTTP server")
_RUNS = re.compile(r"NCCL version|ProcessGroupNCCL\.cpp|:::MLLOG ")
_SERVES = re.compile(r"Application startup complete|\"POST \S{1,200} HTTP/1\.1\" 200")
# A NIC that could not be opened, what shows that the job worked without it, and the job's hosts.
_UNOPENED = re.compile(r"open_device|nable to open device|not support the kernel ABI")
_WORKED = re.compile(
    r"Avg bus bandwidth|Init COMPLETE|:::MLLOG .*\"run_stop\".*\"success\""
    r"|^ *\d{5,}(?: +\d+\.\d+){3}",
    re.M,
)
_OF_HOST = re.compile(
    r"(?:^|[ >])([\w.-]+):\d+:\d+ \[\d+\]|Pid +\d+ on +(\S+) device|\b(nNodes (?!1\b)\d+)", re.M
)


class FailureLine(NamedTuple):
    """A line that states a failure.

    `line` is the number of the first such line in the text. `times` is the number of lines that are
    equal to `text` except for numbers.
    """

    kind: str
    text: str
    line: int
    times: int


def mentions_failure(data: bytes) -> bool:
    """Return whether a text contains one of the words in WORDS or _BARE, also in prose."""
    return any(word in data for word in _BYTES)


def states_failure(data: bytes) -> bool:
    """Return whether a text contains one of the words in WORDS or _BARE outside of prose, a line of
    _BESIDE, or a warning of an old NCCL."""
    words = [word for word in _BYTES if word in data]
    lines = (line for line in data.splitlines() if any(word in line for word in words))
    if words and (
        len(data) > _MOST_PROSE
        or not all(_is_prose(line.decode(errors="replace")) for line in lines)
    ):
        return True
    text = data.decode(errors="replace")
    return bool(_beside(text)) or (" WARN " in text and _OLD_WARN.search(text) is not None)


_MOST_PROSE = 1 << 16
"""Bytes of a text up to which it may be prose alone."""


def _is_prose(line: str) -> bool:
    """Return whether a script or a person (`He saw Xid 79 last week`) mentions a failure."""
    if _QUOTED.match(line):
        return True
    if _BY_PROGRAM.search(line) or any(word in line for word in _PHRASES):
        return False
    return _TELLS.search(line) is not None or len(set(_OFTEN_TELLS.findall(line))) > 1


def _beside(text: str) -> dict[int, str]:
    return {
        match.start(): kind
        for word, kind, pattern in _BESIDE
        if word in text
        for match in pattern.finditer(text)
    }


def parse_failures(text: str) -> tuple[FailureLine, ...]:
    """Return the first MOST different lines that state a failure. Lines that differ only in numbers
    are counted together. Lines of the kernel are left to the kernel's log."""
    worked = _worked_without_nic(text)
    text = without_kernel_lines(text)
    if _INFO in text:
        text = "\n".join("" if _is_quiet(line) else line for line in text.split("\n"))
    at: dict[int, str] = {}
    for word, kind in _KIND.items():
        for start in _starts(text, word):
            # If a line matches several words, use the kind that is listed first in WORDS. The
            # kinds are ordered from causes to effects.
            if start not in at or _RANKS[kind] < _RANKS[at[start]]:
                at[start] = kind
    at.update(_warnings(text))
    at.update(_beside(text))
    for match in _THROWN.finditer(text):
        # What the exception says is a line of its own, of its own kind.
        if text.rfind("\n", 0, match.start("what")) + 1 in at:
            at.pop(text.rfind("\n", 0, match.start()) + 1, None)
    found: dict[tuple[str, str], FailureLine] = {}
    number, before = 1, 0
    goes_on = _goes_on(text)
    for start in sorted(at):
        number += text.count("\n", before, start)
        before = start
        end = text.find("\n", start)
        line = text[start : end if end >= 0 else len(text)][: 4 * LONGEST].strip()
        if _ALSO_FINE.search(line) or _is_prose(line) or goes_on(line, start):
            continue
        # The line after it has the status, where it is shown; that before it what CUDA refused.
        is_effect = ("Got CQE with error" in line and "Got completion from peer" in text) or (
            at[start] == "shm" and _CREATED.search(line) and _NO_SPACE_MATTER.search(text)
        )
        kind = "effect" if is_effect else at[start]
        if worked and _UNOPENED.search(line):
            kind = "optional"
        key = kind, _NUMBERS.sub("#", line)
        known = found.get(key)
        if known is not None:
            found[key] = known._replace(times=known.times + 1)
        elif len(found) < MOST:
            # What XLA quotes stands at the end of a long line.
            said = line[max(0, line.find("NCCL operation")) if len(line) > LONGEST else 0 :]
            said = _ALIKE.sub("", said) if len(said) > LONGEST and "FingerPrint" in said else said
            found[key] = FailureLine(key[0], said[:LONGEST], number, 1)
    return tuple(found.values())


def _worked_without_nic(text: str) -> bool:
    """Return whether a job worked after NICs could not be opened, with others or on one node."""
    last = max((match.start() for match in _UNOPENED.finditer(text)), default=-1)
    if last < 0 or _WORKED.search(text, last) is None:
        return False
    has_other = "NET/IB : Using [0]" in text and "Using network Socket" not in text
    return has_other or len({max(one) for one in _OF_HOST.findall(text)}) == 1


def _goes_on(text: str) -> Callable[[str, int], bool]:
    """Return a function that tells of a line and its offset whether the text shows that the job or
    server went on after it, or that the server had been told to end."""

    @cache
    def ends(pattern: re.Pattern[str]) -> tuple[int, int]:
        found = [match.start() for match in pattern.finditer(text)]
        return (found[0], found[-1]) if found else (len(text), -1)

    def goes_on(line: str, start: int) -> bool:
        if "EngineDeadError" in line:
            return start > ends(_SHUT_DOWN)[0]
        if "shared memory broadcast block" in line:
            return start < ends(_SERVES)[1]
        if "client socket has failed to connect" in line or "tensors were submitted" in line:
            return start < ends(_RUNS)[1] and "client socket has timed out" not in text
        # A step of the script before the job.
        ended = "Exited with exit code" in line or "command not found" in line
        return ended and start < ends(_RUNS)[0] < len(text)

    return goes_on


def _is_quiet(line: str) -> bool:
    """Return whether a line is of level INFO, and no connection that was tried very often."""
    tried = _TRIED.search(line) if _INFO in line else None
    return _INFO in line and (tried is None or 3 * int(tried[1]) < int(tried[2]))


def _warnings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the offset and the kind of each warning of NCCL. What failed decides, not a word in the
    line: a queue pair that timed out is no connection that did."""
    for word in _BARE:
        for start in _starts(text, word):
            line = text[start : start + 2000].partition("\n")[0]
            kind = message_kind(line)
            # A line of libfabric is of the network, whatever words are in it.
            if "<warn>" in line and not kind.startswith(_LIBFABRIC):
                continue
            # UCX's errors have a rule of their own, but for this cause.
            if kind != WARNING and (kind == "rdma_memory" or not _QUIET.search(line)):
                yield start, kind
    for start in _starts(text, _WARN):
        end = text.find("\n", start)
        yield start, warning_kind(text[start : end if end >= 0 else len(text)][:2000]) or WARNING
    files = _warned(text) if "Last " in text else {}
    for match in _LAST_ERROR.finditer(text):
        said = (match["line"] or match["quoted"])[:2000].strip()
        kind = message_kind(said)
        if kind == "cuda" and "uda failure" in said:
            words = said[said.find("uda failure") - 1 :][:LONGEST]
            kind = message_kind(said, files[words]) if words in files else kind
        # The line of XLA states the failure itself.
        if kind != WARNING and (match["line"] or kind != "effect"):
            yield match.start("line" if match["line"] else "xla"), kind
    for start in _starts(text, "Test CUDA failure"):
        kind = message_kind(text[start : start + 2000].partition("\n")[0])
        if kind not in (WARNING, "cuda"):
            yield start, kind
    for match in _OLD_WARN.finditer(text) if " WARN " in text else ():
        kind = message_kind(match["message"][:2000])
        if kind != WARNING:
            yield match.start(), kind


def _warned(text: str) -> dict[str, str]:
    """Return the source files of NCCL's warnings of CUDA, by the words that PyTorch repeats."""
    said = ((match["said"].strip()[:LONGEST], match["file"]) for match in _CUDA_WARN.finditer(text))
    return dict(said)


# Two cells of a table of `dcgmi diag` or `dcgmi health`.
_CELLS = re.compile(r"^\|(?P<name>[^|\n]{8,40})\| (?P<cell>[^|\n]{8,90})\|[ \t]*$", re.M)
_DETAIL = re.compile(r"Warning\b|Error\b|Info\b|$")


def failed_diagnostics(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each test of `dcgmi diag` or `dcgmi health` that failed, with what
    the table says of it."""
    found: list[FailureLine] = []
    failed = False
    for match in _CELLS.finditer(text) if "| Fail" in text else ():
        name, cell = match["name"].strip(" ->"), match["cell"]
        # A full cell ends with two spaces, and its last word goes on in the next one.
        cell = cell[:-2] if cell.endswith("  ") and cell[-3] != " " else f"{cell.rstrip()} "
        if failed and _DETAIL.match(name):
            found[-1] = found[-1]._replace(text=f"{found[-1].text}{cell}"[:LONGEST])
            continue
        failed = cell.startswith("Fail")
        if failed:
            line = text.count("\n", 0, match.start()) + 1
            found.append(FailureLine("health", f"{name}: {cell}", line, 1))
    return tuple(one._replace(text=one.text.strip()) for one in found)


def _starts(text: str, word: str) -> Iterator[int]:
    """Yield the offsets of the lines that contain `word`."""
    at = text.find(word)
    while at >= 0:
        yield text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        if end < 0:
            return
        at = text.find(word, end)


_FRAME = re.compile(
    r"^.{0,120}?(?:\[ *\d{1,3}\] (?P<mpi>/[^\s(]{1,200})\((?P<name>[^)\n]{0,200})\)"
    r"|(?<!\S)\d{1,3} +(?P<ucx>/[^\s(]{1,200})\([^)\n]{0,200}\)(?= ?\[0x)"
    r"|#?\d{1,3} +0x[0-9a-f]{6,16} (?:in )?(?P<call>\w{1,200}) ?\([^\n]{0,400})",
    re.M,
)
_CRASH = re.compile(r"Segmentation fault|Caught signal|SIGSEGV|Signal: Abort|Program received")
_NEAR = 1 << 16
"""Characters after the crash in which its backtrace begins."""
# Frames of the handler and of the C library: the crash is in what called them.
_BELOW = re.compile(
    r"/(?:libc|libpthread|libucs|ld-linux\S*|libasan|libstdc\+\+)[.-][^/]*$"
    r"|^(?:_*(?:sigaction|restore_rt|libc_\w+|GI_\w+)|killpg|g?signal|raise|abort|ucs_\w+"
    r"|pthread_kill\w*|_*funlockfile)$"
)


def crash_frames(text: str) -> tuple[FailureLine, ...]:
    """Return the first frame after the first crash that is not of the C library or a handler."""
    crash = _CRASH.search(text)
    at = crash.start() if crash is not None else len(text)
    for match in _FRAME.finditer(text, at, at + _NEAR):
        place = match["mpi"] or match["ucx"] or match["call"]
        if _BELOW.search(place) is None:
            line = text.count("\n", 0, match.start()) + 1
            said = f"first frame of the crash outside the C library: {match[0].strip()}"
            return (FailureLine("died", said[:LONGEST], line, 1),)
    return ()


# What vLLM and SGLang print before the traceback of the worker that failed.
_FAILED = re.compile(
    r"(?:EngineCore|Worker\w*|Scheduler) (?:failed to start|encountered a fatal|hit an exception)"
)
# A traceback that ended a rank, and any that does not stand behind words of a program that goes on.
_OF_RANK = re.compile(r"^\[rank\d{1,9}\]: Traceback \(most recent", re.M)
_TRACED = re.compile(r"^(?:\d{1,5}: )?Traceback \(most recent", re.M)
_RAISED = re.compile(
    r"(?:^|[\]):] )(?P<said>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?:: [^\n]+)?)$", re.M
)


def raised(text: str) -> tuple[FailureLine, ...]:
    """Return the first exception of the first worker that failed."""
    failed, end = _FAILED.search(text), text.find("ChildFailedError")
    if failed is None and end >= 0:
        failed = _OF_RANK.search(text, 0, end) or _TRACED.search(text, max(end - _NEAR, 0), end)
    match = _RAISED.search(text, failed.end(), failed.end() + _NEAR) if failed is not None else None
    if match is None:
        return ()
    line = text.count("\n", 0, match.start("said")) + 1
    return (FailureLine("died", f"what the worker raised: {match['said']}"[:LONGEST], line, 1),)


_WORD = r"[0-9a-f]{8}"
# The last 16 of the 64 bytes have the vendor's syndrome and the syndrome, in their second word.
_DUMP = re.compile(
    r"^(?P<line>.{0,300}\bmlx5: \S{1,80}: got completion with error:)[^\n]*\n(?:[^\n]*\n){3}"
    rf"[^\n]*?\b{_WORD} [0-9a-f]{{4}}(?P<vendor>[0-9a-f]{{2}})(?P<syndrome>[0-9a-f]{{2}}) {_WORD}",
    re.M,
)
_STATUSES = {"04": 4, "05": 5, "11": 8, "12": 9, "13": 10, "15": 12, "16": 13}
"""Statuses of a completion (enum ibv_wc_status) by the syndrome of mlx5's error CQE."""


def completions(text: str) -> tuple[FailureLine, ...]:
    """Return one FailureLine for each syndrome."""
    found: dict[str, FailureLine] = {}
    for match in _DUMP.finditer(text) if "got completion with error:" in text else ():
        code = match["syndrome"]
        status = _STATUSES.get(code, 0)
        said = f"syndrome 0x{code}{f' (status {status})' * (status > 0)}, vendor {match['vendor']}"
        if code in found:
            found[code] = found[code]._replace(times=found[code].times + 1)
        else:
            line = text.count("\n", 0, match.start()) + 1
            said = f"{match['line'].strip()[:LONGEST]} {said}"
            found[code] = FailureLine(status_kind(status), said, line, 1)
    return tuple(found.values())
