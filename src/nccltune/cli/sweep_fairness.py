# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --sendrecv --fairness`: whether copies are to be cut so that other messages come
between."""

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.manner import Manner
from nccltune.cli.output import hanging, next_step, stdout, styled
from nccltune.cli.sweep_processes import (
    INDENT,
    Plan,
    Told,
    Way,
    run_in_study,
    show_end,
    show_head,
)
from nccltune.cli.sweep_sendrecv import starter

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.measure.bench import Launch
    from nccltune.measure.p2p.session import Process
    from nccltune.measure.p2p.verdict import Gain
    from nccltune.measure.sendrecv.fairness import Candidate, FairnessVerdict
    from nccltune.measure.sendrecv.fairness_driver import FairnessDriver, FairnessWanted
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

SIZES = "256K-16M"
"""What is compared where nobody says: by powers of eight, with 2 MiB among them."""
_NAME = 16


def compare_fairness(
    path: Path, launch: "Launch", library: Path | None, wanted: "FairnessWanted", manner: Manner
) -> int:
    """Compare chunks beside traffic into the study at `path`; the exit code."""
    import os

    from nccltune.measure.p2p.runs import Runs
    from nccltune.measure.sendrecv.fairness_driver import FairnessDriver, check_fairness_wanted
    from nccltune.measure.sendrecv.preload import BESIDE_TRAFFIC, CONNECTIONS
    from nccltune.measure.sendrecv.settings import label

    check_fairness_wanted(wanted)
    more = {name: value for name, value in CONNECTIONS.items() if name not in os.environ}
    start = starter(launch, library, wanted.seed, BESIDE_TRAFFIC, more)

    def driver(study: "Study", first: "Process", told: Told) -> FairnessDriver:
        return FairnessDriver(start, first, Runs(study, BESIDE_TRAFFIC), wanted, told)

    way = Way(
        name="fairness",
        result=BESIDE_TRAFFIC.result,
        driver=driver,
        plan=_plan,
        label=label,
        keep=_keep,
        show=_show,
        gains=False,
    )
    return run_in_study(path, launch, start, way, manner)


def _keep(study: "Study", platform: "Platform", verdict: "FairnessVerdict") -> str | None:
    """Add a recommended chunk to the lines to deploy; why not, where these are of another kind."""
    from nccltune.cli.sendrecv_conf import keep_chunk

    return keep_chunk(study, platform, verdict.settings) if verdict.settings else None


def _plan(driver: "FairnessDriver") -> Plan:
    from nccltune.measure.sendrecv.settings import label

    order = driver.order
    names = ", ".join(["native", "copy engine", *(label(item) for item in order.chunks)])
    return Plan(
        {"rounds": order.rounds, "chunks": [settings.recorded for settings in order.chunks]},
        [("rounds", f"{order.rounds} of {names}")],
    )


def _show(verdict: "FairnessVerdict", study: "Study", not_kept: str | None) -> None:
    out = stdout()
    show_head(verdict, "fairness")
    for name, value in verdict.settings.items():
        out.print(styled("set        ", (f"{name}={value}", "bold green")))
    label = {"chunk": "because", "trade": "trade"}.get(verdict.outcome.value)
    if label is not None:
        hanging(out, f"{label:<{INDENT}}", INDENT, verdict.why)
    else:
        hanging(out, ("set nothing  ", "bold"), 13, verdict.why)
    if verdict.candidates:
        _times(out, verdict)
        _gains(out, verdict)
    if not_kept is not None:
        hanging(out, ("not written  ", "yellow"), 13, not_kept)
    show_end(verdict, study, verdict.carried)
    if verdict.settings and not_kept is None:
        next_step("nccltune env --sendrecv", study.path)


def _times(out: "Console", verdict: "FairnessVerdict") -> None:
    """Messages beside traffic: median and spread over processes."""
    from nccltune.model.sizes import format_bytes

    sizes = "".join(f"{format_bytes(size.bytes):>17}" for size in verdict.candidates[0].sizes)
    out.print(f"{'chunk':<{_NAME}}{sizes}{'n':>4}", markup=False)
    for one in verdict.candidates:
        cells = "".join(f"{size.time_us:>8.4g} us {_spread(size.spread):>5}" for size in one.sizes)
        out.print(f"{one.name:<{_NAME}}{cells}{one.processes:>4}", markup=False)


def _spread(spread: float | None) -> str:
    return "-" if spread is None else f"±{100 * spread:.0f}%"


def _gains(out: "Console", verdict: "FairnessVerdict") -> None:
    """What chunks gain messages and cost traffic, over whole messages."""
    rates = f"{'GB/s alone':>12}{'beside':>8}"
    out.print(f"{'':<{_NAME}}{'messages':>9}  {'95 % CI':<11}{rates}  traffic", markup=False)
    for one in verdict.candidates:
        gain = one.messages
        messages = f"{'':>22}" if gain is None else f"{gain.gain:>8.2f}x  {_interval(gain)}"
        out.print(
            f"{one.name:<{_NAME}}{messages}{_rate(verdict, one.traffic_alone_us):>12}"
            f"{_rate(verdict, one.traffic_us):>8}{_cost(one)}".rstrip(),
            markup=False,
        )


def _interval(gain: "Gain") -> str:
    return f"{f'{gain.low:.2f}-{gain.high:.2f}':<11}"


def _rate(verdict: "FairnessVerdict", us: float | None) -> str:
    return "-" if us is None else f"{verdict.traffic_bytes / us / 1e3:.3g}"


def _cost(one: "Candidate") -> str:
    """The gain of traffic by itself over whole messages, and whether it is one."""
    if one.traffic is None or one.traffic_effect is None:
        return ""
    return f"  {one.traffic.gain:.3f}x {one.traffic_effect.value}"
