# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune sendrecv fairness`.

Messages are timed while large copies (the traffic) run, whole or cut into chunks.
"""

from pathlib import Path

from rich.console import Console

from nccltune.app.sendrecv_fairness import FairnessPlan
from nccltune.cli.experiment_screen import (
    show_end,
    show_head,
    show_process_plan,
    show_settings,
)
from nccltune.cli.output import hanging, next_step, stdout
from nccltune.measure.engine.gains import ProcessGain
from nccltune.measure.experiments.copies.fairness import Candidate, FairnessVerdict
from nccltune.measure.experiments.copies.settings import label
from nccltune.model.sizes import format_bytes

_NAME = 16


def show_plan(plan: FairnessPlan) -> None:
    """Print the plan of a comparison."""
    names = ", ".join(["native", "copy engine", *(label(item) for item in plan.chunks)])
    details = {"rounds": plan.rounds, "chunks": [settings.recorded for settings in plan.chunks]}
    show_process_plan(plan, details, [("rounds", f"{plan.rounds} of {names}")])


def show(verdict: FairnessVerdict, study: Path, not_written: str | None) -> None:
    """Print a verdict and its evidence."""
    out = stdout()
    show_head(verdict, "fairness")
    show_settings(verdict, {"chunk": "because", "trade": "trade"}.get(verdict.outcome.value, ""))
    if verdict.candidates:
        _times(out, verdict)
        _gains(out, verdict)
    if not_written is not None:
        hanging(out, ("not written  ", "yellow"), 13, not_written)
    show_end(verdict, study, verdict.carried)
    if verdict.settings and not_written is None:
        next_step("nccltune sendrecv env", study)


def _times(out: Console, verdict: FairnessVerdict) -> None:
    """Print the times of messages beside traffic: median and spread over processes."""
    sizes = "".join(f"{format_bytes(size.bytes):>17}" for size in verdict.candidates[0].sizes)
    out.print(f"{'chunk':<{_NAME}}{sizes}{'n':>4}")
    for one in verdict.candidates:
        cells = "".join(f"{size.time_us:>8.4g} us {_spread(size.spread):>5}" for size in one.sizes)
        out.print(f"{one.name:<{_NAME}}{cells}{one.processes:>4}")


def _spread(spread: float | None) -> str:
    return "-" if spread is None else f"±{100 * spread:.0f}%"


def _gains(out: Console, verdict: FairnessVerdict) -> None:
    """Print how much chunks speed up messages and slow down traffic, relative to whole copies."""
    rates = f"{'GB/s alone':>12}{'beside':>8}"
    out.print(f"{'':<{_NAME}}{'messages':>9}  {'95 % CI':<11}{rates}  traffic")
    for one in verdict.candidates:
        gain = one.messages
        messages = f"{'':>22}" if gain is None else f"{gain.gain:>8.2f}x  {_interval(gain)}"
        out.print(
            f"{one.name:<{_NAME}}{messages}{_rate(verdict, one.traffic_alone_us):>12}"
            f"{_rate(verdict, one.traffic_us):>8}{_cost(one)}".rstrip()
        )


def _interval(gain: ProcessGain) -> str:
    return f"{f'{gain.low:.2f}-{gain.high:.2f}':<11}"


def _rate(verdict: FairnessVerdict, us: float | None) -> str:
    return "-" if us is None else f"{verdict.traffic_bytes / us / 1e3:.3g}"


def _cost(one: Candidate) -> str:
    """Return how chunks change the speed of the traffic; empty if unknown.

    For example `0.985x`, followed by a word for the effect.
    """
    if one.traffic is None or one.traffic_effect is None:
        return ""
    return f"  {one.traffic.gain:.3f}x {one.traffic_effect.value}"
