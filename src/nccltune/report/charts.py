# SPDX-License-Identifier: Apache-2.0
"""Convert curves to the columns of the two charts: S-curve and choice map."""

from collections.abc import Sequence

from nccltune.analyze.default_runs import ran_label
from nccltune.analyze.result import ConditionAnalysis, Curve, CurvePoint, ModelCurve
from nccltune.model.choice import DEFAULT, TUNED_RUN, AnyChoice, choice_label
from nccltune.model.numbers import percent_text
from nccltune.model.sizes import format_bytes
from nccltune.prove.result import ProofGroup
from nccltune.report import words
from nccltune.report.data import ChoiceMap, Role, Series
from nccltune.tune.result import Decision


def series(curve: Curve, predicted: bool = False) -> Series:
    """Return the columns of one measured curve; `predicted`: by NCCL's cost table."""
    role: Role = "choice"
    if curve.choice == DEFAULT:
        role = "default"
    elif curve.choice == TUNED_RUN:
        role = "measured"
    label = "tuned, measured" if role == "measured" else choice_label(curve.choice)
    ran = None
    if any(point.ran for point in curve.points):
        ran = [ran_label(point) + (" (predicted)" if predicted else "") for point in curve.points]
    return _columns(label, role, [(point.bytes, point) for point in curve.points], ran)


def tuned_series(
    item: ConditionAnalysis, decisions: dict[int, Decision], label: str = "tuned, expected"
) -> Series:
    """Return the curve expected with the rules; sizes without a rule keep the default."""
    by_choice = {curve.choice: {p.bytes: p for p in curve.points} for curve in item.curves}
    sizes = sorted({point.bytes for curve in item.curves for point in curve.points})
    cells: list[tuple[int, CurvePoint | None]] = []
    names: list[str] = []
    for size in sizes:
        wanted = _wanted(decisions, size)
        cells.append((size, by_choice.get(wanted, {}).get(size)))
        names.append(choice_label(wanted))
    return _columns(label, "tuned", cells, names)


def model_series(model: ModelCurve, bus_factor: float) -> Series:
    """Return what NCCL's own cost model gives the default: no timings."""
    times = [_rounded(time) for time in model.times_us]
    return Series(
        label="NCCL's own model",
        role="choice",
        bytes=model.bytes,
        n=[0] * len(times),
        time_us=[*times],
        low_us=[*times],
        high_us=[*times],
        busbw_gb_per_s=[
            _rounded(size / (time * 1e3) * bus_factor)
            for size, time in zip(model.bytes, times, strict=True)
        ],
        choice=model.choices,
    )


def proven_series(group: ProofGroup, bus_factor: float) -> list[Series]:
    """Return the curves of default and tuned as `verify` measured them, with its 95 % band."""
    sizes = [size for size in group.sizes if size.default_us and size.tuned_us]

    def line(
        label: str, role: Role, times: list[float], bounds: list[tuple[float, float]]
    ) -> Series:
        return Series(
            label=label,
            role=role,
            bytes=[size.bytes for size in sizes],
            n=[size.rounds for size in sizes],
            time_us=[_rounded(time) for time in times],
            low_us=[_rounded(low) for low, _ in bounds],
            high_us=[_rounded(high) for _, high in bounds],
            busbw_gb_per_s=[
                _rounded(size.bytes / (time * 1e3) * bus_factor)
                for size, time in zip(sizes, times, strict=True)
            ],
            choice=[size.choice or DEFAULT for size in sizes] if role == "tuned" else None,
        )

    default = [size.default_us or 0.0 for size in sizes]
    tuned = [size.tuned_us or 0.0 for size in sizes]
    bounds = [
        (time, time)
        if size.gain is None or not size.gain_low or not size.gain_high
        else (time * size.gain / size.gain_high, time * size.gain / size.gain_low)
        for size, time in zip(sizes, tuned, strict=True)
    ]
    return [
        line("default, in the proof", "default", default, [(time, time) for time in default]),
        line("tuned, in the proof", "tuned", tuned, bounds),
    ]


def _wanted(decisions: dict[int, Decision], size: int) -> AnyChoice:
    decision = decisions.get(size)
    return DEFAULT if decision is None or decision.choice is None else decision.choice


def _columns(
    label: str, role: Role, cells: Sequence[tuple[int, CurvePoint | None]], choice: list[str] | None
) -> Series:
    points = [point for _, point in cells]
    return Series(
        label=label,
        role=role,
        bytes=[size for size, _ in cells],
        n=[point.n if point else 0 for point in points],
        time_us=[_rounded(p.time_us) if p else None for p in points],
        low_us=[_rounded(p.low_us) if p else None for p in points],
        high_us=[_rounded(p.high_us) if p else None for p in points],
        busbw_gb_per_s=[_rounded(p.busbw_gb_per_s) if p else None for p in points],
        choice=choice,
    )


def choice_map(item: ConditionAnalysis, decisions: dict[int, Decision]) -> ChoiceMap:
    """Return the time of every choice relative to the fastest, and the choices of the rules."""
    curves = [curve for curve in item.curves if curve.choice != TUNED_RUN]
    times = [{point.bytes: point.time_us for point in curve.points} for curve in curves]
    sizes = sorted({size for row in times for size in row})
    best = {size: min(row[size] for row in times if size in row) for size in sizes}
    rows = {curve.choice: index for index, curve in enumerate(curves)}
    ran = {point.bytes: rows.get(point.ran) for point in item.shown.points if point.ran}
    path = []
    for size in sizes:
        row = rows.get(_wanted(decisions, size))
        path.append(row if row is not None and size in times[row] else None)
    return ChoiceMap(
        bytes=sizes,
        choices=[choice_label(curve.choice) for curve in curves],
        relative=[
            [_rounded(row[size] / best[size]) if size in row else None for size in sizes]
            for row in times
        ],
        path=path,
        ran=[ran.get(size) for size in sizes],
    )


def saturation_text(item: ConditionAnalysis) -> str | None:
    """Return a sentence on the peak of a curve and the sizes that reach half and 90 % of it."""
    found = item.saturation
    if found is None:
        return None
    share = ""
    if found.line_rate_share is not None:
        share = f", {percent_text(found.line_rate_share)} of the line rate"
    first = item.shown.points[0].bytes
    shares = {"half of it": found.half_bytes, "90 %": found.ninety_bytes}
    # Smaller sizes than the first were not measured, so "from" would be a guess.
    low = [share for share, size in shares.items() if size == first]
    reached = [f"{share} already at {format_bytes(first)}, the smallest size" for share in low[-1:]]
    reached += [
        f"{share} from {format_bytes(size)}" for share, size in shares.items() if size != first
    ]
    return (
        f"Peak {words.rate_text(found.peak_gb_per_s)} at {format_bytes(found.peak_bytes)}{share}; "
        f"{', '.join(reached)}."
    )


def _rounded(value: float) -> float:
    """Return a value with six significant digits, which halve the size of the page."""
    return float(f"{value:.6g}")
