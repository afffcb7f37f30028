# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --p2p`: race settings of native send/recv, each in processes of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.manner import Manner
from nccltune.cli.output import hanging, next_step, print_json, stderr, stdout
from nccltune.cli.sweep_processes import Told, Way, run_in_study, show_head

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.measure.bench import Launch
    from nccltune.measure.p2p.driver import Driver, Wanted
    from nccltune.measure.p2p.session import Process, Status
    from nccltune.measure.p2p.verdict import Effects, Gain, Verdict
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

SIZES = "4K-256M"
"""What is raced over where nobody says."""
CONF = "p2p.conf"
RESULT = "p2p.json"
_INDENT = 11


def race(path: Path, launch: "Launch", wanted: "Wanted", manner: Manner) -> int:
    """Race settings into the study at `path`; the exit code."""
    from nccltune.measure.p2p.driver import Driver, on_gpus
    from nccltune.measure.p2p.replay import replay
    from nccltune.measure.p2p.runs import Runs

    start = replay(launch.replay, wanted.seed) if launch.replay else on_gpus(launch)

    def driver(study: "Study", first: "Process", told: Told = lambda _: None) -> Driver:
        return Driver(start, first, Runs(study), wanted, told)

    way = Way(
        name="race",
        driver=driver,
        show_plan=lambda platform, study, first: _show_plan(
            platform, driver(study, first), manner.as_json
        ),
        warn=_warn_of_settings,
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


def _write(study: "Study", verdict: "Verdict", manner: Manner) -> "Verdict":
    import msgspec

    verdict = msgspec.structs.replace(verdict, command=manner.again)
    study.write_json(study.path / RESULT, verdict)
    return verdict


def _keep(study: "Study", platform: "Platform", verdict: "Verdict") -> None:
    """Write the lines to deploy where there are any. Lines of an earlier race that this one does
    not confirm are taken away."""
    from nccltune.formats.nccl_conf import render_conf

    conf = study.path / CONF
    if verdict.settings:
        values = {name: str(value) for name, value in verdict.settings.items()}
        study.write_text(conf, render_conf(values, _comments(platform, verdict)))
    elif verdict.reason == "done":
        conf.unlink(missing_ok=True)


def _comments(platform: "Platform", verdict: "Verdict") -> Iterator[str]:
    from nccltune.measure.p2p.settings import MEANING

    origin = f"replay of {platform.replay}" if platform.replay else platform.title
    yield f"Settings of native send/recv by nccltune: {origin}"
    if verdict.champion is not None:
        for line in _effect_lines(verdict.champion):
            yield line.strip()
    for name in verdict.settings:
        yield f"{name}: {MEANING[name]}"


def _warn_of_settings(platform: "Platform") -> None:
    from nccltune.measure.p2p.settings import MEANING

    for name in MEANING:
        if name in platform.settings and not platform.replay:
            stderr().print(
                f"[yellow]warning[/yellow]    {name}={platform.settings[name]} is set: it is part "
                "of the default here",
                soft_wrap=True,
            )


def _show_plan(platform: "Platform", driver: "Driver", as_json: bool) -> None:
    from rich.markup import escape

    from nccltune.cli.progress import seconds_words

    first = driver.first_moves()
    if as_json:
        print_json(
            {
                "platform": platform,
                "first": [settings.as_dict for settings in first],
                "processes": driver.race.still_to_start(),
                "total_seconds": driver.seconds_to_come,
            }
        )
        return
    out = stdout()
    out.print(f"platform   {escape(platform.title)}")
    for settings in first:
        out.print(f"[dim]first      {escape(settings.label)}[/dim]")
    out.print(
        f"Would start about {driver.race.still_to_start()} processes, a default for every two of "
        f"others: some {seconds_words(driver.seconds_to_come)}. Nothing was measured or written."
    )


def _words(status: "Status") -> str:
    from nccltune.cli.progress import seconds_words

    label = status.settings.label
    gain = f" {status.gain:.3f}x" if status.gain is not None and label != "default" else ""
    return (
        f"{status.stage:<9}process {status.processes + status.known}  {label}{gain}  "
        f"{seconds_words(status.left_s)} left"
    )


def _show(verdict: "Verdict", study: "Study") -> None:
    from rich.markup import escape

    out = stdout()
    show_head(verdict, "race")
    champion = verdict.champion
    if verdict.settings:
        for setting, value in verdict.settings.items():
            out.print(f"set        [bold green]{setting}={value}[/bold green]")
        hanging(out, "because    ", _INDENT, verdict.why)
    else:
        hanging(out, "[bold]set nothing[/bold]  ", 13, verdict.why)
    if champion is not None:
        if not verdict.settings:
            out.print(f"what led   {_label(champion)}", markup=False)
        _table(out, champion)
        for line in _effect_lines(champion):
            out.print(line, markup=False)
        _memory(out, verdict)
        for part in verdict.parts:
            hanging(out, "alone      ", _INDENT, f"{_label(part)}: {_in_short(part)}")
    for label, why in verdict.failed.items():
        out.print(f"[yellow]failed[/yellow]     {escape(label)}: {escape(why)}")
    out.print(f"study      {escape(str(study.path))}")
    if verdict.settings:
        next_step("nccltune env --format nccl.conf", study.path)


def _label(effects: "Effects") -> str:
    return " ".join(f"{name}={value}" for name, value in effects.settings.items())


def _interval(gain: "Gain") -> str:
    unsure = "" if gain.known else ", few starts"
    return f"{gain.gain:.2f}x ({gain.low:.2f}-{gain.high:.2f}{unsure})"


def _table(out: "Console", champion: "Effects") -> None:
    """Send/recv by size."""
    from nccltune.measure.p2p.workload import RACED
    from nccltune.model.sizes import format_bytes

    out.print(f"{'size':>10}{'default':>12}{'settings':>12}{'GB/s':>7}{'gain':>8}   95 % CI")
    for point in champion.sizes.get(RACED, []):
        gain = point.gain
        told = {"faster": "", "slower": "  slower", "same": "  within noise"}[point.effect]
        out.print(
            f"{format_bytes(point.bytes):>10}{point.default_us:>9.4g} us{point.time_us:>9.4g} us"
            f"{point.bytes / point.time_us / 1e3:>7.3g}{gain.gain:>7.2f}x"
            f"   {gain.low:.2f}-{gain.high:.2f}{told}"
        )


def _effect_lines(effects: "Effects") -> Iterator[str]:
    """By collective: the ranges that are faster or slower, else that none is."""
    from nccltune.model.sizes import format_bytes

    for collective in effects.sizes:
        changed = [
            item
            for item in effects.ranges
            if item.collective is collective and item.effect != "same"
        ]
        for item in changed:
            low, high = format_bytes(item.from_bytes), format_bytes(item.to_bytes)
            sizes = low if low == high else f"{low} - {high}"
            yield f"{collective.prose:<11}{sizes:<20} {item.effect} {_interval(item.gain)}"
        if not changed:
            overall = _interval(effects.overall[collective])
            yield f"{collective.prose:<11}as before beyond noise: {overall} over all sizes"


def _memory(out: "Console", verdict: "Verdict") -> None:
    from nccltune.model.sizes import format_bytes

    champion = verdict.champion
    if champion is None or champion.memory_bytes is None or verdict.default_memory_bytes is None:
        return
    out.print(
        "memory     buffers for all peers on a GPU: up to "
        f"{format_bytes(champion.memory_bytes)}, by default "
        f"{format_bytes(verdict.default_memory_bytes)}"
    )


def _in_short(part: "Effects") -> str:
    """What settings do, in one line."""
    from nccltune.model.sizes import format_bytes

    words = []
    for collective, gain in part.overall.items():
        ranges = [
            f"{item.effect} {_interval(item.gain)} at "
            f"{format_bytes(item.from_bytes)} - {format_bytes(item.to_bytes)}"
            for item in part.ranges
            if item.collective is collective and item.effect != "same"
        ]
        told = "; ".join(ranges) or f"as before, {_interval(gain)}"
        words.append(f"{collective.prose} {told}")
    return " · ".join(words)
