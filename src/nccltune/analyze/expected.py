# SPDX-License-Identifier: Apache-2.0
"""Compare the measured bandwidth of a platform with the expected one.

The comparison distinguishes a platform problem from a tuning problem.
"""

from collections.abc import Iterator

import msgspec

from nccltune.analyze.compared import compared
from nccltune.analyze.result import ConditionAnalysis, CurvePoint
from nccltune.model.choice import DEFAULT, Choice, PartialChoice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.numbers import percent, rate
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes

REACHED = 0.75
"""Share of the links' bandwidth of a healthy platform: 4 healthy H200 reach 83 to 90 %."""
FULL = 0.85
"""Share of what the links allow rings below which a test of the links alone is worth its time."""
BEYOND = 1.1
"""A measured bandwidth above this multiple of the expected one shows that a link was misread."""
FAR = 0.25
"""Share of an assumed bandwidth below which the guess alone is hardly the reason."""
HOPED = 1.05
"""Ratio above which NCCL's model or the line rate needs the limiting link as a reason."""


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """The bandwidth that the links allow for one collective at one scale.

    `limits` is the setting that forces the algorithm, if one does. `limit` is text that names the
    limiting link and its traffic. `hoped_gb_per_s` is the bandwidth in NCCL's own, simpler model;
    None if that model has none. `ring_gb_per_s` is what the links allow a ring, which NCCL may
    choose although `algorithm` could carry more; None if they are the same. `sure` is False if the
    bandwidth of a link was assumed; `at_most` if that can only make the bandwidth lower, since the
    limiting link is known.
    """

    collective: Collective
    scale: Scale
    limits: PartialChoice | None = None
    busbw_gb_per_s: float
    limit: str
    algorithm: str = "ring"
    ring_gb_per_s: float | None = None
    hoped_gb_per_s: float | None = None
    sure: bool = True
    at_most: bool = False


def expected_findings(
    platform: Platform, analysis: ConditionAnalysis, expectation: Expectation
) -> Iterator[Finding]:
    """Yield findings that the platform is healthy, needs tuning, or has a problem.

    There is none below the links' bandwidth while the curve still rises, or not far below it if
    the limiting bandwidth is assumed.
    """
    best = _best(analysis)
    if best is not None:
        yield from _against_links(platform, analysis, expectation, best)


def _against_links(
    platform: Platform,
    analysis: ConditionAnalysis,
    expected: Expectation,
    best: tuple[CurvePoint, str, Choice | None],
) -> Iterator[Finding]:
    point, label, choice = best
    peak, most = _peak(analysis), point.busbw_gb_per_s
    ceiling = expected.busbw_gb_per_s
    known = expected.sure or expected.at_most
    flat = analysis.saturation is not None and analysis.saturation.saturated
    about = "" if known else " (partly assumed)"
    most_of = "at most " if known and not expected.sure else ""
    lead = f"the links allow {most_of}{rate(ceiling)}{about}, got"
    ring = expected.ring_gb_per_s
    evidence = {"expected_gb_per_s": ceiling, "peak_gb_per_s": peak, "best_gb_per_s": most}
    if peak > BEYOND * ceiling and not known:
        words = f"{lead} {rate(peak)}: what is assumed of {expected.limit} is too low"
        yield _finding(analysis, FindingKind.AS_EXPECTED, words, evidence)
    elif peak > BEYOND * ceiling:
        yield _finding(
            analysis,
            FindingKind.AS_EXPECTED,
            f"{lead} {rate(peak)}: more than the links of the topology file carry, so it is not "
            "of this machine, or a link in it is misread (nccltune lint)",
            evidence,
        )
    elif peak >= REACHED * ceiling:
        several = compared([analysis]).anything
        rest = "; what is slow below the peak is tuning" if several else ""
        words = _reached(platform, expected, peak, lead, rest)
        yield _finding(analysis, FindingKind.AS_EXPECTED, words, evidence)
    elif most >= REACHED * ceiling:
        yield _finding(
            analysis,
            FindingKind.AS_EXPECTED,
            f"{lead} {rate(peak)} with the default and {rate(most)} with {label} at "
            f"{format_bytes(point.bytes)}: the platform is fine, this is tuning",
            evidence,
            better=choice,
            tuning=True,
        )
    elif ring is not None and peak >= REACHED * ring:
        verdict = "the platform does what rings allow"
        if peak < FULL * ring:
            test = "ib_write_bw between the nodes" if expected.scale.nodes > 1 else "nvbandwidth"
            verdict = f"somewhat low; test the links alone ({test})"
        yield _finding(
            analysis,
            FindingKind.AS_EXPECTED,
            f"the links allow {most_of}{rate(ring)} by ring and {rate(ceiling)}{about} by "
            f"{expected.algorithm}, got {rate(peak)} ({percent(peak / ring)} of the ring): "
            f"{verdict}",
            evidence,
        )
    elif flat and (expected.sure or most < FAR * ceiling):
        other = f", with the best choice {rate(most)}" if most > 1.02 * peak else ""
        several = len(analysis.curves) > 1
        verdict = "not a tuning problem" if several else "no other choice was measured"
        if not expected.sure:
            verdict = "far below, unless the assumed part is far too high"
        yield _finding(
            analysis,
            FindingKind.BELOW_EXPECTED,
            f"{lead} {rate(peak)} ({percent(peak / ceiling)}){other}: {verdict}. At "
            f"{rate(ceiling)} {expected.limit}; look for what keeps it from there (nccltune "
            "doctor, nccltune lint)",
            evidence,
            tuning=False if several else None,
        )


def _reached(platform: Platform, expected: Expectation, peak: float, lead: str, rest: str) -> str:
    """Return that the platform reaches its links; `rest` is on the sizes below the peak."""
    ceiling = expected.busbw_gb_per_s
    higher = [
        (estimate, words)
        for estimate, words in (
            (platform.line_rate_gb_per_s, "by the line rate"),
            (expected.hoped_gb_per_s, "by NCCL's own model"),
        )
        if estimate is not None and estimate > HOPED * ceiling
    ]
    if higher:
        estimate, words = max(higher)
        return (
            f"expected {rate(estimate)} {words}, got {rate(peak)}: {expected.limit}, which allows "
            f"{rate(ceiling)}. The platform is fine{rest}"
        )
    return (
        f"{lead} {rate(peak)} ({percent(peak / ceiling)}): the platform is fine. "
        f"{expected.limit}{rest}"
    )


def _peak(analysis: ConditionAnalysis) -> float:
    """Return the highest bus bandwidth of the default, else of all, in GB/s."""
    shown = analysis.curve(DEFAULT)
    curves = analysis.curves if shown is None else [shown]
    return max(point.busbw_gb_per_s for curve in curves for point in curve.points)


def _best(analysis: ConditionAnalysis) -> tuple[CurvePoint, str, Choice | None] | None:
    """Return the point of highest bus bandwidth, with label and choice (None: default)."""
    points = [(point, curve.choice) for curve in analysis.curves for point in curve.points]
    point, choice = max(points, key=lambda item: item[0].busbw_gb_per_s)
    if point.busbw_gb_per_s <= 0:
        return None
    return point, choice_label(choice), choice if isinstance(choice, Choice) else None


def _finding(
    analysis: ConditionAnalysis,
    kind: FindingKind,
    words: str,
    evidence: dict[str, float],
    *,
    better: Choice | None = None,
    tuning: bool | None = None,
) -> Finding:
    condition = analysis.condition
    return Finding(
        kind=kind,
        sentence=f"{analysis.title}: {words}",
        where=analysis.title,
        collective=condition.collective,
        scale=condition.scale,
        better=better,
        tuning=tuning,
        evidence=evidence,
    )
