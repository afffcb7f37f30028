# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --sendrecv`: from which size on a message is worth a copy engine."""

import os
from collections.abc import Mapping
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

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.measure.bench import Launch
    from nccltune.measure.p2p.runs import Kept
    from nccltune.measure.p2p.session import Process, Starter
    from nccltune.measure.sendrecv.driver import Driver, Wanted
    from nccltune.measure.sendrecv.verdict import SizePoint, Verdict
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

SIZES = "4K-256M"
"""What is compared where nobody says."""
_SHORT = {"native": "native", "copy engine": "copy"}
"""Who takes a size, as it stands in a column."""


def compare(
    path: Path, launch: "Launch", library: Path | None, wanted: "Wanted", manner: Manner
) -> int:
    """Compare NCCL with copy engines into the study at `path`; the exit code."""
    from nccltune.measure.p2p.runs import Runs
    from nccltune.measure.sendrecv.driver import Driver, check_wanted
    from nccltune.measure.sendrecv.preload import SENDRECV, UNDER_LOAD
    from nccltune.measure.sendrecv.settings import label

    check_wanted(wanted)
    kept = UNDER_LOAD if wanted.load else SENDRECV
    start = starter(launch, library, wanted.seed, kept)

    def driver(study: "Study", first: "Process", told: Told) -> Driver:
        return Driver(start, first, Runs(study, kept), wanted, told)

    way = Way(
        name="compare",
        result=kept.result,
        driver=driver,
        plan=_plan,
        label=label,
        keep=_keep,
        show=_show,
    )
    return run_in_study(path, launch, start, way, manner)


def starter(
    launch: "Launch",
    library: Path | None,
    seed: int,
    kept: "Kept",
    more: Mapping[str, str] | None = None,
) -> "Starter":
    """What starts the processes of a comparison, on GPUs with the variables `more`, or replays
    them."""
    from nccltune.measure.p2p.replay import replay
    from nccltune.measure.sendrecv.preload import on_gpus
    from nccltune.measure.sendrecv.settings import check_environment
    from nccltune.native import sendrecv_path

    if launch.replay is not None:
        return replay(launch.replay, seed, kept)
    check_environment(os.environ)
    return on_gpus(launch, library or sendrecv_path(), more=more)


def _keep(study: "Study", platform: "Platform", verdict: "Verdict") -> None:
    """Write the lines to deploy once they are decided; until then those of an earlier comparison
    stay."""
    from nccltune.cli.sendrecv_conf import keep_threshold

    if verdict.decided:
        keep_threshold(study, platform, verdict.settings)


def _plan(driver: "Driver") -> Plan:
    from nccltune.measure.sendrecv.settings import label

    order = driver.order
    return Plan(
        {
            "pairs": order.pairs,
            "policies": [settings.recorded for settings in order.policies],
        },
        [
            ("pairs", f"{order.pairs} of native and copy engine"),
            *(("policy", label(settings)) for settings in order.policies),
        ],
    )


def _show(verdict: "Verdict", study: "Study", _: str | None) -> None:
    out = stdout()
    show_head(verdict, "compare")
    for setting, value in verdict.settings.items():
        out.print(
            styled("set        ", (f"{setting}={value}", "bold green"), f"{_default(verdict)}")
        )
    if verdict.decided:
        hanging(out, "because    ", INDENT, verdict.why)
    else:
        hanging(out, ("set nothing  ", "bold"), 13, verdict.why)
    _table(out, verdict)
    _policies(out, verdict)
    show_end(verdict, study, verdict.carried)
    if verdict.decided:
        next_step("nccltune env --sendrecv", study.path)


def _default(verdict: "Verdict") -> str:
    return " (the default)" if verdict.from_bytes == verdict.default_from_bytes else ""


def _table(out: "Console", verdict: "Verdict") -> None:
    """Both by size, and which is taken."""
    from nccltune.model.sizes import format_bytes

    if not verdict.points:
        return
    out.print(
        f"{'size':>10}{'native':>12}{'copy engine':>13}{'GB/s':>7}{'gain':>8}"
        f"  95 % CI             taken{'   load slower' if verdict.load else ''}"
    )
    for point in verdict.points:
        gain = point.gain
        interval = f"{gain.low:.2f}-{gain.high:.2f}  {point.effect.value}"
        taken = _SHORT[point.taken] if verdict.decided else "open"
        out.print(
            f"{format_bytes(point.bytes):>10}{point.native_us:>9.4g} us"
            f"{point.copy_engine_us:>10.4g} us{point.bytes / point.copy_engine_us / 1e3:>7.3g}"
            f"{gain.gain:>7.2f}x  {interval:<20}"
            f"{taken:<8}{_loads(point)}".rstrip()
        )


def _loads(point: "SizePoint") -> str:
    """By how much a load was slower beside each; empty without one."""
    both = (point.native_load_slower, point.copy_engine_load_slower)
    if both == (None, None):
        return ""
    return " / ".join("-" if value is None else f"{value:.2f}x" for value in both)


def _policies(out: "Console", verdict: "Verdict") -> None:
    """Policies over the sizes that copy engines take, the best first."""
    from nccltune.measure.p2p.settings import Settings
    from nccltune.measure.sendrecv.settings import label

    if not verdict.policies:
        return
    out.print(f"{'policy':<34}{'starts':>7}{'over native':>13}  95 % CI    over copy engine")
    for point in verdict.policies:
        gain = point.over_native
        out.print(
            f"{label(Settings.of(point.settings)):<34}{gain.processes:>7}{gain.gain:>12.2f}x"
            f"  {f'{gain.low:.2f}-{gain.high:.2f}':<11}{point.over_copy_engine:.2f}x",
            markup=False,
        )
    if verdict.proof is not None:
        proof = verdict.proof
        out.print(
            f"proof      {label(Settings.of(verdict.champion or {}))} over copy engine: "
            f"{proof.gain:.2f}x ({proof.low:.2f}-{proof.high:.2f})",
            markup=False,
        )
    elif verdict.champion is None:
        out.print("policy     none is ahead of copy engines without one beyond noise", markup=False)
