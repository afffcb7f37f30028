# SPDX-License-Identifier: Apache-2.0
"""Find characters that editors and web pages insert: typographic dashes and quotes, blanks."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.words import BLANK, PLACEHOLDER, Line, Word

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_QUOTES = "\u201c\u201d\u2018\u2019\u201e"


_TOKEN = re.compile(r"([\"'])(?:.*[ ,])?</?[a-z_|]+/?>(?:[ ,].*)?\1")
"""A token of a model among the arguments of a script: `"<image>"`, `"<audio>,32002"`."""


_CUT = re.compile(r"((?:NCCL|UCX|CUDA|TORCH_NCCL|RCCL|FI|HSA|OMP)_[A-Z0-9_]+)=")
"""A setting whose value a blank cuts off: `-x NCCL_IB_HCA= mlx5_0`."""
_CUT_OFF = re.compile(
    r"-?\d+|INFO|WARN|TRACE|[Rr]ing|[Tt]ree|LL(?:128)?|[Ss]imple|PIX|PXB|PHB|SYS|LOC|NVL|[\^=]\w+"
    r"|[\^=]?\w[\w:]*(?:,\^?[\w:]+)+|\S+\.(?:xml|txt|log|conf|so)|lo"
    r"|(?:mlx|bnxt_re|hfi|roce|eth|ens|enp|eno|ib|bond)\d[\w:]*"
)
"""A value that no program has as its name."""
_CUT_EXPORT = re.compile(
    r"^[ \t]*(?:[$>] )?export[ \t]+([A-Z]\w{3,})(=[ \t]+|[ \t]+=[ \t]*)"
    r"(?![A-Z]\w*_\w*[ \t]*$)([^\s=;&|#)][^\s=]*)[ \t]*$",
    re.M,
)


def cut_exports(text: str) -> Iterator[LaunchFinding]:
    """Find `export NCCL_IB_HCA= mlx5_0` and `export NCCL_ALGO = Ring` in a script."""
    for name, sign, value in _CUT_EXPORT.findall(text):
        what = "is empty, because a blank ends it" if sign[0] == "=" else "is not set"
        yield error(
            "setting-cut",
            f"export {name}{sign}{value}: {name} {what}, and the shell takes {value} for a name",
            f"write {name}={value} without blanks",
        )


def merge_marks(text: str) -> Iterator[LaunchFinding]:
    """Find the marks of a merge whose conflict nobody resolved."""
    mark = re.search("^<{7} .*", text, re.M)
    if mark is not None and "\n=======" in text and "\n" + ">" * 7 + " " in text:
        said = f"line {text.count(chr(10), 0, mark.start()) + 1}: {mark[0]}: a merge has a conflict"
        yield error("merge-conflict", f"{said}: what was read is neither side", "keep one of them")


def _cut(words: Sequence[Word]) -> set[int]:
    """Return the places of the settings whose value is the next word."""
    return {
        place
        for place, (word, following) in enumerate(pairwise(words))
        if _CUT.fullmatch(word.raw) and _CUT_OFF.fullmatch(following.raw)
    }


def typographic(line: Line) -> tuple[LaunchFinding, ...]:
    """Return a finding for each word that is not what it seems."""
    return tuple(_findings(line))


def _findings(line: Line) -> Iterator[LaunchFinding]:
    if BLANK in line.words:
        at = line.words.index(BLANK)
        before = line.words[at - 1].raw if at else "the line"
        yield error(
            "line-continuation",
            f"a blank follows the backslash after {before}: the command ends there, and the"
            " next line is another command",
            "end the line with the backslash",
        )
    # A script in a word has texts of its own, such as `echo "[rank]"`.
    words = [word for word in line.words if not re.search(r"[\n;]", word.text)]
    script = next((n for n, word in enumerate(words) if word.text.endswith(".py")), len(words))
    words = [w for n, w in enumerate(words) if n < script or not _TOKEN.fullmatch(w.raw)]
    blanks = list(dict.fromkeys(b for w in words for b in PLACEHOLDER.findall(w.raw)))
    if blanks and all(blank.startswith("{{") for blank in blanks):
        said = f"a template fills in {', '.join(blanks)}, which is not known here"
        yield note("placeholder", said)
    elif blanks:
        what = "is a placeholder" if len(blanks) == 1 else "are placeholders"
        fix = f"put {'its value' if len(blanks) == 1 else 'their values'} there"
        yield warning("placeholder", f"{', '.join(blanks)} {what}", fix)
    for place in sorted(_cut(line.words)):
        name, value = line.words[place].text, line.words[place + 1].text
        yield error(
            "setting-cut",
            f"a blank ends {name}, so that it is empty, and {value} is taken for the program",
            f"write {name}{value}",
        )
    for word in line.words:
        if word.text[:1] and word.text[0] in DASHES:
            yield error(
                "dash",
                f"{word.raw} begins with the character U+{ord(word.text[0]):04X}, which is no"
                " hyphen: it is not read as an option",
                f"write {_plain(word).raw}",
            )
        elif any(quote in word.text for quote in _QUOTES):
            quote = next(char for char in word.text if char in _QUOTES)
            yield error(
                "quote",
                f"{word.raw} has the character U+{ord(quote):04X}, which is no quote for a shell",
                "write ' or \"",
            )


def plain(line: Line) -> Line:
    """Return the line as it is meant: with hyphens for dashes, and without misplaced blanks."""
    words: list[Word] = []
    cut = _cut(line.words)
    for place, word in enumerate(line.words):
        if place - 1 in cut:
            words[-1] = Word(words[-1].text + word.text, words[-1].raw + word.raw)
        elif word != BLANK:
            words.append(_plain(word))
    return Line(tuple(words), line.tail)


def _plain(word: Word) -> Word:
    if not word.text or word.text[0] not in DASHES:
        return word
    # A word processor replaces two hyphens by one long dash. So a long name had two hyphens.
    rest = word.text.lstrip(DASHES + "-")
    hyphens = "--" if len(rest.partition("=")[0]) > 2 else "-"
    return Word(hyphens + rest, hyphens + word.raw.lstrip(DASHES + "-"))
