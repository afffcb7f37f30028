# SPDX-License-Identifier: Apache-2.0
"""`nccltune sweep --p2p`: race settings of native send/recv, each in processes of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.manner import Manner
from nccltune.cli.output import hanging, next_step, stderr, stdout, styled
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
    from nccltune.measure.p2p.driver import Driver, Wanted
    from nccltune.measure.p2p.session import Process
    from nccltune.measure.p2p.verdict import Effects, Gain, Verdict
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study

SIZES = "4K-256M"
"""What is raced over where nobody says."""
CONF = "p2p.conf"


def race(path: Path, launch: "Launch", wanted: "Wanted", manner: Manner) -> int:
    """Race settings into the study at `path`; the exit code."""
    from nccltune.measure.p2p.driver import Driver, on_gpus
    from nccltune.measure.p2p.replay import replay
    from nccltune.measure.p2p.runs import P2P, Runs

    start = replay(launch.replay, wanted.seed) if launch.replay else on_gpus(launch)

    def driver(study: "Study", first: "Process", told: Told) -> Driver:
        return Driver(start, first, Runs(study), wanted, told)

    way = Way(
        name="race",
        result=P2P.result,
        driver=driver,
        plan=_plan,
        label=lambda settings: settings.label,
        keep=_keep,
        show=_show,
        warn=_warn_of_settings,
    )
    return run_in_study(path, launch, start, way, manner)


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
                styled(
                    ("warning", "yellow"),
                    f"    {name}={platform.settings[name]} is set: it is part of the default here",
                ),
                soft_wrap=True,
            )


def _plan(driver: "Driver") -> Plan:
    first = driver.first_moves()
    return Plan(
        {"first": [settings.as_dict for settings in first]},
        [("first", settings.label) for settings in first],
        ", a default for every two of others",
    )


def _show(verdict: "Verdict", study: "Study", _: str | None) -> None:
    out = stdout()
    show_head(verdict, "race")
    champion = verdict.champion
    if verdict.settings:
        for setting, value in verdict.settings.items():
            out.print(styled("set        ", (f"{setting}={value}", "bold green")))
        hanging(out, "because    ", INDENT, verdict.why)
    else:
        hanging(out, ("set nothing  ", "bold"), 13, verdict.why)
    if champion is not None:
        if not verdict.settings:
            out.print(f"what led   {_label(champion)}", markup=False)
        _table(out, champion)
        for line in _effect_lines(champion):
            out.print(line, markup=False)
        _memory(out, verdict)
        for part in verdict.parts:
            hanging(out, "alone      ", INDENT, f"{_label(part)}: {_in_short(part)}")
    show_end(verdict, study)
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
