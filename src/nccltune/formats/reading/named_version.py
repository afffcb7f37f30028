# SPDX-License-Identifier: Apache-2.0
"""The version of NCCL that prose names."""

import re

VERSION = r"2\.\d{1,2}\.\d{1,2}"
TITLE = re.compile(r"#{1,6}\s|\*\*|={2,}|-{2,}\s?\w")
MOST_PROSE = 400
"""Characters of a line of prose that are read."""
_NAMED_VERSION = re.compile(
    rf"(?<![\w.])[nr]ccl(?: ?version| ?版本)?[ =:：-]{{1,3}}v?({VERSION})(?![\w.]*\d)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"([nr]ccl)?[ _-]?v?(2\.(\d{1,2})\.\d{1,2})(?:-\d)?", re.IGNORECASE)
_FIRST_ALONE = 14
_OTHER_VERSION = re.compile(
    r"grad(?:e|ing)|updat|newer|older|fix|since|requir|support|introduc|later|latest|>=|\btr(?:y|ied)\b"
    r"|until|as of|releas|升级|降级|更新|\bfrom\b|\bnot\b|\bif\b|\bvs\b",
    re.IGNORECASE,
)


def version_of_text(text: str) -> str | None:
    """Return the version of NCCL that the prose of a text names; None for none and for several.

    None, too, if a line with it may be about another version than that of the text's tables, or is
    a title, which is of its own tables only (`CommandFound.nccl`).
    """
    found = set()
    for line in text.split("\n"):
        if "ccl" in line or "CCL" in line:
            versions = _NAMED_VERSION.findall(line[:MOST_PROSE])
            titled = TITLE.match(line) or line.rstrip().endswith((":", "："))
            if versions and (titled or _OTHER_VERSION.search(line)):
                return None
            found.update(versions)
    return found.pop() if len(found) == 1 else None


def version_of_heading(heading: str) -> str | None:
    """Return the version of NCCL that the heading of a column is: `NCCL 2.28.9`, `v2.22.3-1`.

    A version alone is NCCL's from 2.14 on: no other library of these tables has such a version.
    """
    match = _HEADING.fullmatch(heading.strip())
    return match[2] if match is not None and (match[1] or int(match[3]) >= _FIRST_ALONE) else None
