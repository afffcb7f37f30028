# SPDX-License-Identifier: Apache-2.0
"""Recognise the title of a table in the text around it.

| form | example |
| --- | --- |
| heading, bold, with a colon | `## Before`, `**Before**`, `Before:` |
| tab of MkDocs | `=== "Before"` |
| other marks of Markdown, reStructuredText and HTML | `- Before`, `_Before_`, `<summary>Before` |
| a line across | `==== before ====`, `[before]` |
| words alone | `P5 before the change` |

All but headings, tabs and bold words are titles only directly above a table.
"""

import re
from collections.abc import Callable, Sequence

_SURE = re.compile(
    r"#{2,6} (\w.{0,78}?) ?#*|\*\*(\w[^*]{0,78}?):?\*\*:?|={3}[!+]{0,2} \"(\w[^\"]{0,78})\""
)
_MARKS = re.compile(
    r"#{1,6} (.+?) ?#*|\*\*(.+?)\*\*|__(.+)__|_(.+)_|\*([^* ].*)\*|\[([^\]]+)\]"
    r"|[-=~*+#>]{3,} ?(.+?) ?[-=~*+#<]*|[-*+] (.+)|\d{1,2}[.)] (.+)|(.+?) ?(?:[:.]| [-\u2013]+)"
)
_TAGS = re.compile(r"</?[a-z][a-z0-9]{0,9}>", re.IGNORECASE)
_MOST_MARKS = 4
_LONGEST = 120
_WORDS = re.compile(r"[^\W_][\w ,.()+/&'-]{2,78}[\w)]")
_LOG = re.compile(
    r"\b(?:logs?|jobs?|jobid|pid|date|elapsed|warning|error|info|hosts?|hostname|runn?ing|load(?:ing|ed)"
    r"|started|starting|launch\w*|using|version|path|stdout|stderr|mon|tue|wed|thu|fri|sat|sun)\b",
    re.IGNORECASE,
)
_SET = re.compile(r"\b(?:NCCL|UCX|FI)_[A-Z0-9_]+=[\w^,.:/+-]*\w")
_OF_CHOICE = re.compile(r"\bNCCL_(?:ALGO|PROTO)=")
_NOT_SET = re.compile(r"\b(?:without|not|no|un\w+|instead|default|vs|versus|or)\b", re.IGNORECASE)
_UNDERLINE = re.compile(r"([=~^\"'-])\1{2,}")
CHOICE = ("NCCL_ALGO", "NCCL_PROTO")
OF_DEFAULT = re.compile(
    r"(?:#{1,6}|//|={2,8}|-{2,8}|\*{2})\s(?:.{0,80}\s)?default\b", re.IGNORECASE
)
_NAMED_PAIR = re.compile(
    r"(?<![\w/])(?:(?P<algo>ring|tree|nvls(?:tree)?|collnet(?:direct|chain)|pat)\s?/\s?"
    r"(?P<proto>LL128|LL|Simple)|(?<=forced )(?P<only>LL128|LL|Simple))(?![\w/])",
    re.IGNORECASE,
)
_COLLECTIVES = r"(?:(?:all|reduce)[ _-]?(?:reduce|gather|scatter)|broadcast|reduce)(?:_perf)?"
# A line with nothing but an algorithm, such as `// Tree` or `**Ring + LL:**`, is a title, too. So
# is one with the collective, `Reducescatter (H100: ring)`.
_ONLY_CHOICE = re.compile(
    r"(?:#{1,6}|//|={2,}|-{1,3}|>|\[)?\s?(?:\*\*|__)?"
    rf"(?:{_COLLECTIVES}\s?[(:,-]?\s?(?:[A-Z]{{1,3}}\d{{2,4}}[ :,]{{1,2}})?)?"
    r"(?:(?:with|using|[NR]CCL|algo(?:rithm)?:?)\s)?"
    r"(?P<algo>ring|tree|nvls(?:tree)?|collnet(?:direct|chain)|pat)"
    r"(?:\s?[/+,]\s?(?P<proto>LL128|LL|Simple))?"
    rf"\)?(?:\s{_COLLECTIVES})?(?:\s(?:algo(?:rithm)?|results?|only))?[\s:*_=#.)\]\u2013-]{{0,80}}",
    re.IGNORECASE,
)
# One # is also how nccl-tests begins the lines of its header.
LEVEL = re.compile(r"#{2,6}(?=\s\S)")
ABOVE = " > "
"""What separates a title from the headings above it that set its table apart."""
SETS_APART = re.compile(
    r"\b(?:tcp|sockets?|ethernet|rdma|infiniband|ib|roce\w*|gdr\w*|efa|shm|p2p|nvlink|pcie"
    r"|float\d{0,2}|half|double|bf(?:loat)?16|fp\d{1,2}\w*|u?int\d{1,2}|sum|avg|max|min|prod"
    r"|(?:one|single|two|three|four|\d{1,5})[ -](?:node|host|machine|server|instance)s?)\b",
    re.IGNORECASE,
)
"""A transport, type, operation or number of hosts in a heading holds for the headings below it."""


def title_of(line: str, above: str, below: Sequence[str], begins_table: Callable[[], bool]) -> str:
    """Return the title that a line is; empty if it is none.

    `above` is the line before it, `below` the lines after it. `begins_table` returns whether a
    table, a code block or a command follows.
    """
    line = line.strip()
    if (sure := _SURE.fullmatch(line)) is not None:
        return sure[sure.lastindex or 0].rstrip(" :-\u2013")
    if len(line) > _LONGEST:
        return ""
    underlined = bool(below) and _UNDERLINE.fullmatch(below[0].strip()) is not None
    header = line == "# Using devices" or (line[:1] == "#" and above.lstrip().startswith("#"))
    if header or not (underlined or begins_table()):
        return ""
    words = _TAGS.sub("", line).strip()
    marks = underlined + (words != line)
    for _ in range(_MOST_MARKS):
        if (match := _MARKS.fullmatch(words)) is None:
            break
        words, marks = match[match.lastindex or 0].strip(), marks + 1
    if line.endswith(":"):
        settings = _SET.findall(words)
        rest = _SET.sub("", words)
        if not any(char in rest for char in ":|=") and not _OF_CHOICE.search(words):
            # One setting names its run. Of `without` it, the words do.
            named = settings[0] if len(settings) == 1 and not _NOT_SET.search(words) else words
            return named.replace("`", "") if words[:1].isalpha() else ""
    shown = words.split()
    told = sum(word.isalpha() for word in shown)
    if not _WORDS.fullmatch(words) or (_LOG.search(words) and re.search(r"\d|/", words)):
        return ""
    alone = not above.strip() or above.lstrip()[:1] in "$`"
    # A row of a table has more numbers than words.
    many = told > 1 and 3 * told > len(shown)
    return words if many or (told == len(shown) and (marks or alone)) else ""


def forced_by(heading: str) -> str:
    """Return the settings for a choice that a heading names, `Ring/LL` or `forced Tree`; or none.

    A heading that compares several choices names none.
    """
    if (only := _ONLY_CHOICE.fullmatch(heading.strip())) is not None:
        return _settings(only["algo"], only["proto"])
    if LEVEL.match(heading) is None:
        return ""
    found = {match.group().lower() for match in _NAMED_PAIR.finditer(heading)}
    match = _NAMED_PAIR.search(heading)
    if len(found) != 1 or match is None or OF_DEFAULT.match(heading):
        return ""
    return _settings(match["algo"], match["proto"] or match["only"])


def _settings(algorithm: str | None, protocol: str | None) -> str:
    words = zip(CHOICE, (algorithm, protocol), strict=True)
    return f" ({','.join(f'{name}={word}' for name, word in words if word)})"
