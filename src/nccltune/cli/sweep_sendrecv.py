# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --sendrecv`: from which size on a message is worth a copy engine."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.env_sendrecv import CONF
from nccltune.cli.manner import Manner
from nccltune.cli.output import hanging, next_step, print_json, stdout
from nccltune.cli.sweep_processes import Told, Way, run_in_study, show_head

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.measure.bench import Launch
    from nccltune.measure.p2p.runs import Kept
    from nccltune.measure.p2p.session import Process, Starter, Status
    from nccltune.measure.sendrecv.driver import Driver, Wanted
    from nccltune.measure.sendrecv.verdict import SizePoint, Verdict
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

SIZES = "4K-256M"
"""What is compared where nobody says."""
_INDENT = 11
_SHORT = {"native": "native", "copy engine": "copy"}
"""Who takes a size, as it stands in a column."""


def compare(
    path: Path, launch: "Launch", library: Path | None, wanted: "Wanted", manner: Manner
) -> int:
    """Compare NCCL with copy engines into the study at `path`; the exit code."""
    from nccltune.measure.p2p.runs import Runs
    from nccltune.measure.sendrecv.driver import Driver, check_wanted
    from nccltune.measure.sendrecv.preload import SENDRECV, UNDER_LOAD

    check_wanted(wanted)
    kept = UNDER_LOAD if wanted.load else SENDRECV
    start = starter(launch, library, wanted.seed, kept)

    def driver(study: "Study", first: "Process", told: Told = lambda _: None) -> Driver:
        return Driver(start, first, Runs(study, kept), wanted, told)

    way = Way(
        name="compare",
        driver=driver,
        show_plan=lambda platform, study, first: _show_plan(
            platform, driver(study, first), manner.as_json
        ),
        warn=lambda _: None,
        words=_words,
        write=lambda study, verdict: _write(study, verdict, manner),
    )
    done = run_in_study(path, launch, start, way, manner)
    if isinstance(done, int):
        return done
    _keep(done.study, done.platform, done.verdict)
    if manner.as_json:
        print_json(done.verdict)
    else:
        _show(done.verdict, done.study)
    return 0


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


def _write(study: "Study", verdict: "Verdict", manner: Manner) -> "Verdict":
    import msgspec

    from nccltune.measure.sendrecv.preload import SENDRECV, UNDER_LOAD

    kept = SENDRECV if verdict.load is None else UNDER_LOAD
    verdict = msgspec.structs.replace(verdict, command=manner.again)
    study.write_json(study.path / f"{kept.name}.json", verdict)
    return verdict


def _keep(study: "Study", platform: "Platform", verdict: "Verdict") -> None:
    """Write the lines to deploy once they are decided; until then those of an earlier comparison
    stay."""
    from nccltune.formats.nccl_conf import render_conf

    if verdict.decided:
        values = {name: str(value) for name, value in verdict.settings.items()}
        study.write_text(study.path / CONF, render_conf(values, _comments(platform, verdict)))


def _comments(platform: "Platform", verdict: "Verdict") -> Iterator[str]:
    from nccltune.measure.sendrecv.settings import MEANING

    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of the library before NCCL by nccltune: {origin}"
    if verdict.load is not None:
        yield "Compared while the GPUs computed"
    yield verdict.why
    for name in verdict.settings:
        yield f"{name}: {MEANING[name]}"


def _show_plan(platform: "Platform", driver: "Driver", as_json: bool) -> None:
    from rich.markup import escape

    from nccltune.cli.progress import seconds_words
    from nccltune.measure.sendrecv.settings import label

    order = driver.order
    if as_json:
        print_json(
            {
                "platform": platform,
                "pairs": order.pairs,
                "policies": [settings.recorded for settings in order.policies],
                "processes": order.still_to_start(),
                "total_seconds": driver.seconds_to_come,
            }
        )
        return
    out = stdout()
    out.print(f"platform   {escape(platform.title)}")
    out.print(f"[dim]pairs      {order.pairs} of native and copy engine[/dim]")
    for settings in order.policies:
        out.print(f"[dim]policy     {escape(label(settings))}[/dim]")
    out.print(
        f"Would start about {order.still_to_start()} processes: some "
        f"{seconds_words(driver.seconds_to_come)}. Nothing was measured or written."
    )


def _words(status: "Status") -> str:
    from nccltune.cli.progress import seconds_words
    from nccltune.measure.sendrecv.settings import label

    name = label(status.settings)
    gain = f" {status.gain:.3f}x" if status.gain is not None and name != "native" else ""
    return (
        f"{status.stage:<9}process {status.processes + status.known}  {name}{gain}  "
        f"{seconds_words(status.left_s)} left"
    )


def _show(verdict: "Verdict", study: "Study") -> None:
    from rich.markup import escape

    out = stdout()
    show_head(verdict, "compare")
    for setting, value in verdict.settings.items():
        out.print(f"set        [bold green]{setting}={value}[/bold green]{_default(verdict)}")
    if verdict.decided:
        hanging(out, "because    ", _INDENT, verdict.why)
    else:
        hanging(out, "[bold]set nothing[/bold]  ", 13, verdict.why)
    _table(out, verdict)
    _policies(out, verdict)
    for label, why in verdict.failed.items():
        out.print(f"[yellow]failed[/yellow]     {escape(label)}: {escape(why)}")
    if verdict.carried is not None:
        ways = ", ".join(f"{way} {messages}" for way, messages in verdict.carried.items())
        hanging(out, "messages   ", _INDENT, ways)
    out.print(f"study      {escape(str(study.path))}")
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
