# SPDX-License-Identifier: Apache-2.0
"""Remove the prefixes that launchers, containers and log collectors add to lines.

| writer | prefix |
| --- | --- |
| Open MPI 4 `--tag-output` | `[1,0]<stdout>:` |
| Open MPI 4 `--timestamp-output` | `Sat Nov 21 01:54:54 2026<stdout>:` |
| Open MPI 5 `--output` | `[1,0]<stdout>: `, `[1,0][h:pid]<stdout>: `, `[run-h@1,0]<stdout>: ` |
| `srun -l`, hydra `-l` | `0: `, `[0] ` |
| torchrun | `[default0]:` |
| kubectl `logs --prefix` | `[pod/name/container] ` |
| kubectl `logs --timestamps` | `2024-05-01T12:00:00.000000000Z ` |
| CRI log files | `2024-05-01T12:00:00.000000000Z stdout F ` |
| stern | `pod container ` |
| docker compose | `name-1  \\| ` |
| `ts`, syslog, journalctl | `Nov 21 01:54:54 `, `Nov 21 01:54:54 host unit[12]: ` |
| pdsh, clush, PALS | `host: `, `host 0: ` |
| GNU parallel `--tag`; scripts | `host<tab>`, `[host] ` |
| Ray, SkyPilot | `(task, rank=0, pid=123) ` |
| Python's logging | `INFO:root:`, `2024-05-01 12:00:00,123 - name - INFO - ` |
| vLLM | `INFO 05-01 12:00:00 [a.py:3] ` |
| glog | `I0501 12:00:00.123456 123 a.cc:12] ` |
| any other | words that end with one of `]:>\\|)-` |

Prefixes may be combined. A prefix of plain words (pdsh, stern, docker compose) is removed only
before a line of nccl-tests or NCCL, because before other text it may be part of the text. So are
any other words before a row of nccl-tests or the names of its columns.
"""

import re

_MOST = 5
_LEAST_TAG = 2
_ANSI = re.compile(
    r"(?:\x1b|\^\[)(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)"
    r"|[ -/][0-~]|[=>78cDEHM])"
)
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = "(?:DEBUG|INFO|WARN|WARNING|ERROR)"
# Prefixes that only a launcher or a logger writes. They are removed before any text.
_SURE = re.compile(
    r"[ \t]*(?:\w{3} \w{3} [ \d]?\d \d\d:\d\d:\d\d \d{4} ?)?"  # ctime of --timestamp-output
    r"(?:\[(?P<tag>[^\]\s]{1,128})\](?:\[[^\]\s]{0,128}\])?)?"
    r"<(?:stdout|stderr|stddiag)>:"
    r"|[ \t]*(?P<srun>\d{1,7}):(?=\s|$)"
    r"|\[(?P<hydra>\d{1,7})\](?=\s|$)"
    r"|[ \t]*\[(?P<torch>[A-Za-z][\w-]{0,64}\d)\]:"
    r"|[ \t]*\[(?P<pod>pod/[^\]\s]{1,512})\](?: |$)"
    rf"|\d{{4}}-\d\d-\d\dT{_TIME}{_ZONE}(?: (?:stdout|stderr) [FP](?= |$))?(?: |$)"
    rf"|(?:\([\w-]{{1,40}} pid=\d{{1,10}}\) )?(?:{_LEVEL} (?:\d\d(?:\d\d)?-)?\d\d-\d\d {_TIME} "
    rf"(?:\[[\w./-]{{1,80}}:\d{{1,6}}\]|[\w./-]{{1,80}}:\d{{1,6}}\]) ?|{_LEVEL}:[\w.]{{1,80}}:)"
    rf"|\[?\d{{4}}-\d\d-\d\d[ T]{_TIME}\]?(?: - [\w.]{{1,80}})? ?(?:- )?\[?{_LEVEL}\]?(?: -|:)? "
    rf"|[IWEF]\d{{4}} {_TIME} {{1,8}}\d{{1,10}} [\w./-]{{1,80}}:\d{{1,6}}\] ?"
)
_LABEL = r"[A-Za-z0-9](?:[\w.-]{0,252}[A-Za-z0-9])?"
# Prefixes that may also be part of the text. They are removed only before a line of nccl-tests or
# NCCL.
_PLAIN = re.compile(
    rf"(?:\w{{3}} [ \d]?\d {_TIME}|\d{{4}}-\d\d-\d\d {_TIME}|{_TIME}|\d{{1,12}}\.\d{{3,9}}|"
    rf"\[\d{{4}}-\d\d-\d\d[T ]{_TIME}{_ZONE}\]|\[{_TIME}\])(?:: | - | )"
    rf"|[ \t]*(?P<host>{_LABEL}(?: \d{{1,7}})?): "
    rf"|(?P<unit>{_LABEL} [\w@.:-]{{1,128}}\[\d{{1,10}}\]): "
    rf"|(?P<service>{_LABEL}) {{1,64}}\| ?"
    rf"|\[(?P<box>{_LABEL})\](?::?[ \t]|:(?=[\d#]))"
    rf"|(?P<tagged>{_LABEL})\t"
    r"|(?P<task>\([^()]{0,200}\bpid=\d{1,10}[^()]{0,200}\)) "
    r"|(?:> ?){1,8}"
    rf"|(?P<stern>{_LABEL}(?: {_LABEL}){{1,2}}) "
)
_NAMES = ("host", "unit", "service", "box", "tagged", "task", "stern")
_CONTENT = re.compile(
    r"[ \t]{0,64}(?:"
    r"#(?!wrong)|-?\d{1,20}\s{1,64}-?\d{1,20}\s{1,64}[a-z]\w{1,15}(?:\s{1,64}[^\s|]{1,32}){5}"
    r"|NCCL version \d"
    r"|[^\s:]{1,300}:\d{1,10}:\d{1,10} (?:\S{1,200} ){0,5}?NCCL (?:INFO|WARN|TRACE) "
    r"|[^\s:]{1,300}: Test (?:NCCL|CUDA|timeout)|\.\. \S{1,300} pid \d+: Test failure"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,32}\] [^\s:]{1,300}:\d{1,10}:\d{1,10} )"
)
_ANY = re.compile(
    r"[^#\n]{1,200}?[\]:>|)-] ?(?=\s{0,64}(?:#\s{1,64}(?:size\s{1,64}count\s|\(B\)\s)"
    r"|\d{1,20}\s{1,64}\d{1,20}\s{1,64}[a-z]\w{1,15}(?:\s{1,64}[^\s|]{1,32}){5}))"
)
_LETTER = re.compile(r"[A-Za-z]")
# Words of table cells. Text with such a word is part of a table row, not a prefix.
_CELLS = frozenset(
    ("float", "half", "double", "bfloat16", "int8", "uint8", "int32", "uint32", "int64", "uint64",
     "f8e4m3", "f8e5m2", "char", "int", "sum", "prod", "max", "min", "avg", "mulsum", "none", "N",
     "A")
)  # fmt: skip


def strip_prefix(line: str) -> tuple[str, str]:
    """Split `line` into the name of its source process (empty: unknown) and its own text.

    Blanks after a prefix are kept, so that all lines of a source have the same column positions.
    Terminal colours are removed.
    """
    if "\x1b" in line or "^[" in line:
        line = _ANSI.sub("", line)
    source = ""
    for _ in range(_MOST):
        match = _SURE.match(line)
        if match is not None and match.end():
            tag = match["tag"] or match["srun"] or match["hydra"] or match["torch"] or match["pod"]
            line = line[match.end() :]
            if line.startswith((" [", " <")):
                line = line[1:]
        else:
            found = _plain_prefix(line)
            if found is None:
                break
            tag, line = found
        if tag:
            source = f"{source}|{tag}" if source else tag
    return source, line


def strip_repeated(line: str, text: str) -> str:
    """Return `text`, the text of `line` without its prefix, also without repeats of the prefix.

    A launcher puts its tag before each piece that a process writes, so also into a row that the
    process writes in several pieces.
    """
    tag = line[: len(line) - len(text)].strip() if line.endswith(text) else ""
    return text.replace(tag, "") if tag.startswith("[") and len(tag) > _LEAST_TAG else text


def _plain_prefix(line: str) -> tuple[str, str] | None:
    """Split off a prefix of plain words if a line of nccl-tests or NCCL follows.

    Return the source process and the text after the prefix; None if there is no such prefix. The
    source is empty if the prefix names no process.
    """
    if line[:1] in "# \t" and not line.lstrip(" \t")[:1].isalpha():
        return None
    match = _PLAIN.match(line)
    rest = "" if match is None else line[match.end() :]
    if match is None or (_CONTENT.match(rest) is None and not _followed(rest)):
        other = _ANY.match(line)
        return None if other is None else ("", line[other.end() :])
    words = next((match[name] for name in _NAMES if match[name] is not None), None)
    if words is None:
        return "", rest
    parts = words.split()[: 1 if match["host"] else None]
    if match["host"] is not None and rest.startswith("Test "):
        return None
    if any(part in _CELLS for part in parts) or not all(map(_LETTER.search, parts)):
        return None
    return words, rest


def _followed(rest: str) -> bool:
    """Return whether more prefixes and then a line of nccl-tests or NCCL follow in `rest`."""
    for _ in range(_MOST - 1):
        match = _SURE.match(rest)
        if match is None or not match.end():
            match = _PLAIN.match(rest)
        if match is None or not match.end():
            return False
        rest = rest[match.end() :]
        if _CONTENT.match(rest) is not None:
            return True
    return False
