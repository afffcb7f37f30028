# SPDX-License-Identifier: Apache-2.0
"""Group findings that differ only in files, places, choices or numbers.

Many such findings would hide other findings.
"""

import re
from collections.abc import Sequence

import msgspec

from nccltune.model.finding import Finding, FindingKind

_GROUPED = frozenset({FindingKind.SUSPECT_RUN, FindingKind.NOT_SATURATED, FindingKind.NOISY})
"""Kinds of findings that often are the same for many files or conditions."""
_MOST_SHOWN = 8
"""Limit of the findings of one kind for one curve, such as the falling times of 1000 sizes."""
_PLACE = re.compile(r"^(?:\S+|[^:]*[./][^:]*)(?=: )")
"""The file name at the start of a sentence."""
_COUNT = re.compile(r" \(and in [\d,]+ files? more\)$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_PATH = re.compile(r"\S*[/.]\S*\w")
_NUMBER = re.compile(r"\d[\d.,]*")
_CHOICE = re.compile(
    r"\b(?:tree|ring|collnet_direct|collnet_chain|nvls|nvls_tree|pat)/\w+(?:/\d+)*"
)


class AlikeFindings(msgspec.Struct, frozen=True):
    """Findings that differ only in files, places, choices or numbers: `first`, and `others`."""

    first: Finding
    others: list[Finding]

    @property
    def more(self) -> str:
        """Return `27 more like this`; empty for a single finding."""
        return f"{len(self.others)} more like this" if self.others else ""


def grouped(findings: Sequence[Finding]) -> list[AlikeFindings]:
    """Return `findings` in their order, with those of the kinds `_GROUPED` grouped."""
    found: list[AlikeFindings] = []
    places: dict[tuple[FindingKind, str | None], int] = {}
    shown: dict[tuple[FindingKind, str | None], int] = {}
    for finding in findings:
        if finding.kind not in _GROUPED:
            curve = (finding.kind, finding.where)
            shown[curve] = shown.get(curve, 0) + 1
            if shown[curve] > _MOST_SHOWN:
                found[places[curve]].others.append(finding)
            else:
                places[curve] = len(found)
                found.append(AlikeFindings(finding, []))
            continue
        key = (finding.kind, _skeleton(finding.sentence.removeprefix(f"{finding.where}: ")))
        if key in places:
            found[places[key]].others.append(finding)
        else:
            places[key] = len(found)
            found.append(AlikeFindings(finding, []))
    return found


def _skeleton(sentence: str) -> str:
    text = _COUNT.sub("", _PLACE.sub("", sentence))
    for pattern in (_QUOTED, _CHOICE, _PATH, _NUMBER):
        text = pattern.sub("#", text)
    return text
