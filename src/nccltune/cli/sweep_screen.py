# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune sweep`: its plan, and its result."""

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from nccltune.app.sweep import SweepResult
from nccltune.cli.output import hanging, hint, is_json, print_json, stdout, styled
from nccltune.measure.adaptive.plan import Plan
from nccltune.measure.adaptive.size_state import choice_ranges
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.bench.conversation import BenchPoint, PointKey
from nccltune.model.choice import AnyChoice, Choice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.numbers import share_text
from nccltune.model.platform import Platform
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes


def show_plan(platform: Platform, plan: Plan) -> None:
    """Print what would be measured first, and the approximate time of the whole sweep."""
    asks = plan.outline()
    points = sum(1 for ask in asks for _ in ask.points())
    first = sum(plan.seconds(ask) for ask in asks)
    everything = plan.seconds_left()
    if is_json():
        print_json(
            {
                "platform": platform,
                "first": [
                    {
                        "collective": ask.collective,
                        **_kind(ask.calls),
                        "bytes": ask.sizes,
                        "choices": ask.choices,
                        "round": ask.round,
                    }
                    for ask in asks
                ],
                "points": points,
                "seconds": first,
                "total_seconds": everything,
            }
        )
        return
    out = stdout()
    hanging(out, "platform   ", 11, platform.title)
    if platform.replay:
        hanging(out, "replay     ", 11, f"of {platform.replay}")
    for ask in asks:
        name = _name(ask.collective, ask.calls)
        labels = " ".join(choice_label(choice) for choice in ask.choices)
        sizes = ", ".join(format_bytes(size) for size in ask.sizes)
        hanging(out, f"{name:<14}", 14, f"{labels} at {sizes}")
    show_job(plan, out)
    hanging(
        out,
        "",
        0,
        f"Would measure up to {count(points, 'point')} first (about {first:.2g} s); all of it "
        f"takes about {everything:.2g} s. Nothing was measured or written.",
    )


def show_totals(swept: SweepResult, out: Console, name: str) -> None:
    """Print how much was measured and why the sweep ended. `name` begins the line."""
    platform, plan, outcome, _ = swept
    ended = {
        "done": "nothing more is worth measuring",
        "budget": "the budget is spent: the same command goes on",
    }[outcome.reason]
    recorded = " recorded" if platform.replay else ""
    before = f" and {outcome.known} from before" if outcome.known else ""
    hanging(
        out,
        f"{name:<11}",
        11,
        f"{count(outcome.points, 'point')}{before} in {outcome.seconds:.1f}{recorded} seconds · "
        f"gain still to be found under {max(100 * plan.gain_left, 0.01):.2g} % · {ended}",
    )


def show_job(plan: Plan, out: Console) -> None:
    """Print remarks on the recordings of a job, and which of its collectives are not measured."""
    for words in plan.remarks:
        hanging(out, ("note       ", "yellow"), 11, words)
    for collective, share in (plan.left_out or {}).items():
        words = f"{collective.prose}: {share_text(share)} of the job's time in NCCL"
        hanging(out, ("left out   ", "dim"), 11, words)
    for collective, share in plan.unmeasured.items():
        words = f"{collective.prose}: {share_text(share)} of the job's bytes at this scale; "
        words += "not measured here" if collective.tuned else "NCCL asks no tuner about it"
        hanging(out, ("left out   ", "yellow"), 11, words)


def show_result(swept: SweepResult, path: Path, workload: Sequence[str] = ()) -> None:
    """Print the result of a sweep: the ranges that rules would cover, and failed points.

    `workload` are the recordings of the job that it was made for.
    """
    out = stdout()
    show_totals(swept, out, "replay" if swept.platform.replay else "sweep")
    for line in _would_be_rules(swept.plan):
        out.print(line)
    show_job(swept.plan, out)
    failures = swept.outcome.failures
    if swept.platform.replay:
        # Leave out points with a number of channels or a chunk size. A recording may lack them,
        # which is no failure of the platform.
        failures = [item for item in failures if not _is_variant(item[0].choice)]
    for text in left_out_words(failures, is_replay=swept.platform.replay is not None):
        hanging(out, ("left out   ", "yellow"), 11, text)
    out.print(f"study      {path}", soft_wrap=True)
    words = shlex.join([str(path), *(word for one in workload for word in ("--workload", one))])
    hint(f"next: nccltune tune {words}")


def _would_be_rules(plan: Plan) -> Iterator[Text]:
    """Yield a line for every range that a rule would cover, with its gain, or for none."""
    for known in plan.statuses():
        decided = known.decided()
        found = list(choice_ranges(known.states, decided.choices))
        if not found:
            nothing = ("nothing beats the default beyond noise", "dim")
            yield styled(f"{_name(known.collective, known.calls):<14}", nothing)
        for choice, views in found:
            gain = math.exp(math.fsum(view.estimates[choice].gain for view in views) / len(views))
            low, high = format_bytes(views[0].bytes), format_bytes(views[-1].bytes)
            yield styled(
                f"{_name(known.collective, known.calls):<14}{low:>9} - {high:<9}"
                f"{choice.label:<14}  ",
                (f"{gain:.2f}x", "green"),
                "  candidate" if views[0].bytes in decided.candidates else "",
            )


def _name(collective: Collective, calls: CallKind) -> str:
    return f"{collective.value}, {calls.title} " if calls.title else collective.value


def _kind(calls: CallKind) -> dict[str, object]:
    return {"registered": calls.registered, "group_calls": calls.group_calls}


def _is_variant(choice: AnyChoice) -> bool:
    return isinstance(choice, Choice) and choice != choice.without_channels()


def left_out_words(
    failures: Sequence[tuple[PointKey, BenchPoint]], *, is_replay: bool
) -> list[str]:
    """Return which points failed and why, one line for each choice."""
    counted = Counter(
        (
            _name(key.collective, key.calls).rstrip(),
            choice_label(key.choice),
            _failure(point, is_replay=is_replay),
        )
        for key, point in failures
    )
    return [
        f"{collective} {label}: {why} at {count(number, 'point')}"
        for (collective, label, why), number in counted.items()
    ]


def _failure(point: BenchPoint, *, is_replay: bool) -> str:
    if point.error is None:
        return "NCCL ran something else"
    # In a replay only the recording limits what is supported.
    is_missing = is_replay and point.error.kind == "unsupported"
    return "not in the recording" if is_missing else point.error.kind


def as_data(swept: SweepResult) -> dict[str, Any]:
    """Return a sweep in the form that `--json` prints."""
    platform, plan, outcome, summary = swept
    return {
        "platform": platform,
        "sweep": summary,
        "collectives": [
            {
                "collective": known.collective,
                **_kind(known.calls),
                "gain_left": math.expm1(known.gain_left),
                "sizes": [
                    {
                        "bytes": size,
                        "rounds": view.rounds,
                        "best": choice_label(view.best),
                        "gain": math.exp(view.gain),
                    }
                    for size, view in known.states.items()
                ],
            }
            for known in plan.statuses()
        ],
        "failures": [
            {
                "collective": key.collective,
                **_kind(key.calls),
                "bytes": key.bytes,
                "choice": choice_label(key.choice),
                "error": point.error,
            }
            for key, point in outcome.failures
        ],
    }
