# SPDX-License-Identifier: Apache-2.0
"""The closed list of what a report may remark on a measurement, and equal findings as one."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from nccltune.model.finding import Finding, FindingKind

_GROUPED = frozenset({FindingKind.SUSPECT_RUN, FindingKind.NOT_SATURATED, FindingKind.NOISY})
"""Kinds of findings that often are the same for many files or conditions."""
_MOST_SHOWN = 8
"""Limit of the findings of one kind for one curve, such as the falling times of 1000 sizes."""
_MOST_OF_KIND = 16
"""The same of all curves, such as the dips of every type and operation."""
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
    shown: Counter[object] = Counter()
    for finding in findings:
        if finding.kind not in _GROUPED:
            curve = (finding.kind, finding.where)
            shown.update([curve, finding.kind])
            if shown[curve] > _MOST_SHOWN or shown[finding.kind] > _MOST_OF_KIND:
                found[places.get(curve, places[finding.kind, ""])].others.append(finding)
            else:
                places[curve] = places[finding.kind, ""] = len(found)
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


class Remark(NamedTuple):
    """How a kind of finding is shown: the name of its kind, and its style on a terminal.

    `caveat` is that of the verdict, if it makes that less reliable; it names the place if
    `is_placed`, as others may still have gains. `is_serious`: the user should act on it.
    """

    heading: str
    style: str = ""
    caveat: str = ""
    is_placed: bool = False
    is_serious: bool = False


REMARKS = {
    FindingKind.WRONG_RESULTS: Remark(
        "Wrong results", "bold red", "wrong results: their timings are left out", is_serious=True
    ),
    FindingKind.SUSPECT_RUN: Remark(
        "Suspect run", "bold red", "a run is not what it claims to be", is_serious=True
    ),
    FindingKind.SINGLE_SAMPLES: Remark("Single timings", caveat="so few timings do not show noise"),
    FindingKind.NO_DEFAULT: Remark("No default", caveat="the default was not measured"),
    FindingKind.BELOW_EXPECTED: Remark(
        "Below what the links allow",
        "red",
        "slower than the platform should be, check it first",
        is_placed=True,
        is_serious=True,
    ),
    FindingKind.NOT_A_TUNING_PROBLEM: Remark(
        "Not a tuning problem", "red", "not a tuning problem", is_placed=True, is_serious=True
    ),
    FindingKind.BAD_CROSSOVER: Remark("Bad crossover", "yellow", is_serious=True),
    FindingKind.FALLING_TIME: Remark("Slower than a larger message", "yellow", is_serious=True),
    FindingKind.DIP: Remark("Dip", "yellow"),
    FindingKind.PLATEAU: Remark("Plateau", "yellow"),
    FindingKind.NOT_SATURATED: Remark("Not saturated"),
    FindingKind.NOISY: Remark("Noisy"),
    FindingKind.NOT_COMPARED: Remark("Not compared"),
    FindingKind.AS_EXPECTED: Remark("As expected", "green"),
}
"""Every kind of finding; kinds with a caveat come first, worst first."""
NOISE_WORDS = {
    "a/a series": "A/A: the default measured twice in every round",
    "split rounds": "A/A: odd against even rounds of the default",
    "split processes": "A/A: odd against even processes of the default",
    "assumed": "too few timings per point to measure it",
}
GAIN_NOTE = (
    "The gain compares timings of the same round and averages over rounds, so it can differ from "
    "the ratio of the two medians."
)
"""Printed below every table that shows two times and their gain."""
EDGE_NOTE = "Two rows of one size are the last byte of one range and the first of the next."
"""Printed below a table in which two different sizes are printed as the same text."""
