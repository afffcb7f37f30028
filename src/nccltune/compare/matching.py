# SPDX-License-Identifier: Apache-2.0
"""Find the tests of two sides to compare: equal ones, or else those that differ in the least."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccltune.compare.runs import (
    FactDifference,
    MeasuredRun,
    MeasuredTest,
    may_be_one_scale,
    scale_text,
)

_LOOSENED: list[tuple[str, ...]] = [
    (),
    ("registered", "graph"),
    ("registered", "graph", "dtype", "redop", "root"),
    ("registered", "graph", "dtype", "redop", "root", "scale"),
]
"""The properties in which tests may differ. The first entry that gives a pair of tests counts."""


class PairedTests(NamedTuple):
    """A test of each side, and the choice labels of both sides to compare."""

    first: MeasuredTest
    second: MeasuredTest
    labels: list[tuple[str, str]]

    @property
    def title(self) -> str:
        """Return the title of both tests: what they share, and both scales if they differ."""
        one, other = self.first, self.second
        # A captured call has registered buffers anyway.
        registered = one.registered and other.registered and one.graph == other.graph
        kept = one._replace(registered=registered, graph=one.graph and other.graph)
        scales = dict.fromkeys(scale_text(test.scale) for test in (self.first, self.second))
        if self.one_scale:  # the number of nodes is of one side
            scales = dict.fromkeys([min(scales, key=len)])
        return kept.title.replace(scale_text(self.first.scale), " and ".join(scales))

    @property
    def differs(self) -> list[FactDifference]:
        """Return the properties in which the tests differ, with their values as texts."""
        words = {"graph": "CUDA graph", "dtype": "type", "redop": "operation"}
        return [
            FactDifference(words.get(name, name), _words(one), _words(other))
            for name, one, other in self._different()
            if name != "registered" or self.first.graph == self.second.graph
        ]

    @property
    def one_scale(self) -> bool:
        """Return whether nothing shows that the scales of the tests differ."""
        return may_be_one_scale(self.first.scale, self.second.scale)

    def _different(self) -> list[tuple[str, object, object]]:
        values = zip(self.first._fields, self.first, self.second, strict=True)
        return [
            (name, one, other)
            for name, one, other in values
            if one != other and not (name == "scale" and self.one_scale)
        ]


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return scale_text(value) if isinstance(value, tuple) else str(value or "not shown")


class NothingInCommonError(ValueError):
    """The two sides share no test, or no size of one."""


def paired_tests(first: Sequence[MeasuredRun], second: Sequence[MeasuredRun]) -> list[PairedTests]:
    """Return the pairs of tests of both sides to compare: equal, or the clearly nearest.

    The default if both have it, else a single choice of each, else those that both have. Raises
    NothingInCommonError.
    """
    sides = [_labels(runs) for runs in (first, second)]
    for loosened in _LOOSENED:
        here, there = (_grouped(side, loosened) for side in sides)
        pairs = [
            PairedTests(one[0], other[0], labels)
            for key, one in here.items()
            if len(one) == len(other := there.get(key, [])) == 1
            and ("scale" not in loosened or None not in (one[0].scale[1], other[0].scale[1]))
            and (labels := _paired(sides[0][one[0]], sides[1][other[0]]))
        ]
        if pairs:
            return sorted(pairs, key=lambda pair: pair.first.words)
        if any(key in there for key in here) and not loosened:
            raise NothingInCommonError("the sides share no choice (algorithm and protocol)")
    titles = ["; ".join(sorted({test.words for test in side})[:4]) for side in sides]
    raise NothingInCommonError(f"no common test. First: {titles[0]}. Second: {titles[1]}")


def _labels(runs: Iterable[MeasuredRun]) -> dict[MeasuredTest, list[str]]:
    found: dict[MeasuredTest, dict[str, None]] = {}
    for test, label in (key for run in runs for key in run.curves):
        found.setdefault(test, {})[label] = None
    return {test: list(labels) for test, labels in found.items()}


def _grouped(
    tests: Iterable[MeasuredTest], loosened: tuple[str, ...]
) -> dict[MeasuredTest, list[MeasuredTest]]:
    """Return the tests by what is left of them without the properties `loosened`."""
    found: dict[MeasuredTest, list[MeasuredTest]] = {}
    for test in tests:
        found.setdefault(test._replace(**dict.fromkeys(loosened)), []).append(test)  # type: ignore[arg-type]
    return found


def _paired(here: list[str], there: list[str]) -> list[tuple[str, str]]:
    if "default" in here and "default" in there:
        return [("default", "default")]
    if len(here) == len(there) == 1:
        return [(here[0], there[0])]
    return [(label, label) for label in here if label in there]
