# SPDX-License-Identifier: Apache-2.0
"""`nccltune explain`: what any tuner plugin decides, offline."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import json_option, print_json, stdout, styled, working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nccltune.formats.tuner_csv import FileRule
    from nccltune.model.collective import Collective
    from nccltune.model.rule import Rule
    from nccltune.model.scale import Scale
    from nccltune.tune.explain import DecidedRange, Explained
    from nccltune.tune.result import Tuning

EPILOG = """\b
Examples:
  nccltune explain studies/h200x4
  nccltune explain --tuner /opt/site/libnccl-tuner.so --nccl 2.28.9 --nodes 4 --ranks 32
"""
_NARROW = 66
"""Below this many columns a range takes two lines."""


@click.command(epilog=EPILOG)
@click.argument("config", required=False, type=click.Path(path_type=Path))
@click.option("--tuner", type=click.Path(path_type=Path), help="Any tuner plugin  [default: ours]")
@click.option("--nccl", metavar="VERSION", help="The NCCL to play  [default: that of the rules]")
@click.option("--nodes", type=click.IntRange(1), help="Nodes of the communicator.")
@click.option("--ranks", type=click.IntRange(1), help="Ranks of the communicator.")
@click.option("--collective", "names", multiple=True, help="Only this collective; repeatable.")
@click.option("--sizes", default="1K-1G", show_default=True, help="Range of sizes to ask about.")
@click.option("--pipe-ops", type=click.IntRange(1), default=1, show_default=True, hidden=True)
@click.option("--registered", is_flag=True, help="As for registered buffers or a CUDA graph.")
@json_option()
def command(
    config: Path | None,
    tuner: Path | None,
    nccl: str | None,
    nodes: int | None,
    ranks: int | None,
    names: tuple[str, ...],
    sizes: str,
    pipe_ops: int,
    registered: bool,
    as_json: bool,
) -> None:
    """Load a tuner plugin as NCCL would and print what it decides, to the byte.

    CONFIG is a study or a tuner configuration; the plugin reads it through
    NCCL_TUNER_CONFIG_FILE. The plugin runs in a process of its own: one that crashes or hangs is
    named and does no harm. `default` means that NCCL decides.
    """
    from nccltune.model.errors import InputError, StudyError
    from nccltune.model.sizes import parse_range
    from nccltune.native import tuner_path
    from nccltune.tune.explain import NEWEST_KNOWN, explain, sizes_to_ask, with_channels

    if config is None and tuner is None:
        raise InputError("nothing to explain", hint="name a study, a configuration, or --tuner")
    path, rules, header = _read(config)
    low, high = parse_range(sizes)
    if low == high:
        high = low + 1
    with working("asking the plugin"):
        found = [
            explain(
                tuner or tuner_path(),
                path,
                nccl_version=nccl or header.get("nccl") or NEWEST_KNOWN,
                scale=scale,
                collectives=_collectives(names, rules),
                sizes=sizes_to_ask([item.rule for item in rules], low, high),
                pipe_ops=pipe_ops,
                registered=registered,
            )
            for scale in _scales(nodes, ranks, [item.rule for item in rules], config)
        ]
    if tuner is None:
        # What a rule takes is an extra: a damaged tuning.json must not hide what is decided.
        with contextlib.suppress(StudyError):
            tuning = _tuning_of(config)
            found = [with_channels(item, tuning) for item in found] if tuning else found
    if as_json:
        print_json(found)
        return
    for item in found:
        _show(item)


def _sms(one: "DecidedRange") -> str:
    """What a decision takes from compute; nothing where NCCL decides and it is not known, or the
    call fails."""
    from nccltune.report.words import sms_text

    if one.decides == "default":
        return "" if one.channels is None else f"  SMs {one.channels}"
    return "" if one.decides == "fails" else "  " + sms_text(one.channels, one.default_channels)


def _read(config: Path | None) -> "tuple[Path | None, Sequence[FileRule], dict[str, str]]":
    """The configuration's path, rules and header; nothing where no configuration is named."""
    from nccltune.formats.tuner_csv import read_rules

    if config is None:
        return None, [], {}
    path = config / "tuner.conf" if config.is_dir() else config
    read = read_rules(path)
    return path, read.rules, read.header


def _collectives(names: "Sequence[str]", rules: "Sequence[FileRule]") -> "list[Collective]":
    """The collectives asked for; else those with rules; else all that NCCL tunes."""
    from nccltune.model.collective import TUNED
    from nccltune.model.errors import InputError
    from nccltune.model.names import nearest

    valid = {item.value: item for item in TUNED}
    for name in names:
        if name not in valid:
            raise InputError(
                f"{name!r} is not a collective that NCCL tunes", hint=nearest(name, valid)
            )
    if names:
        return [valid[name] for name in names]
    return list(dict.fromkeys(item.rule.collective for item in rules)) or list(reversed(TUNED))


def _scales(
    nodes: int | None, ranks: int | None, rules: "Sequence[Rule]", config: Path | None
) -> "list[Scale]":
    """The scale asked for; else every scale that the rules name; else, for a study, every scale
    that `tune` looked at (it may have found no rule, or rules for any scale)."""
    from nccltune.model.errors import InputError
    from nccltune.model.scale import Scale

    if nodes is not None and ranks is not None:
        return [Scale(nodes, ranks)]
    named = [
        Scale(rule.nodes, rule.ranks)
        for rule in rules
        if rule.nodes is not None and rule.ranks is not None
    ] or _tuned_scales(config)
    chosen = [
        scale
        for scale in dict.fromkeys(named)
        if nodes in (None, scale.nodes) and ranks in (None, scale.ranks)
    ]
    if not chosen:
        raise InputError("the scale is not known: no rule names it", hint="add --nodes N --ranks R")
    return chosen


def _tuned_scales(config: Path | None) -> "list[Scale]":
    tuning = _tuning_of(config)
    return [] if tuning is None else [group.scale for group in tuning.groups]


def _tuning_of(config: Path | None) -> "Tuning | None":
    """The tuning of a study; None for a configuration alone, or where `tune` has not run."""
    from nccltune.model.study import Study
    from nccltune.tune.result import Tuning

    if config is None or not config.is_dir():
        return None
    study = Study.open(config)
    return study.read_json(study.tuning_path, Tuning) if study.tuning_path.is_file() else None


def _show(item: "Explained") -> None:
    from nccltune.report.words import size_form

    out = stdout()
    interface = "" if item.interface is None else f" (interface v{item.interface})"
    out.print(f"plugin     {item.tuner}{interface}, as NCCL {item.nccl} loads it")
    for line in item.log:
        style = "yellow" if line.level == "WARN" else "dim"
        out.print(styled((f"{line.level.lower():<11}{line.text}", style)))
    for warning in item.warnings:
        out.print(styled((f"{'warning':<11}{warning}", "yellow")))
    for collective, ranges in item.collectives.items():
        out.print(styled((f"{collective.value:<14}{item.scale}", "bold")))
        form = size_form(end for one in ranges for end in (one.min_bytes, one.max_bytes))
        for one in ranges:
            low, high = form(one.min_bytes), form(one.max_bytes)
            style = "dim" if one.decides == "default" else "green"
            exact = f"{one.min_bytes}-{one.max_bytes} bytes{_sms(one)}"
            if out.width < _NARROW:
                out.print(styled(f"{low:>9} - {high:<9} ", (one.decides, style)))
                out.print(styled((f"{'':>4}{exact}", "dim")))
            else:
                out.print(
                    styled(f"{low:>9} - {high:<9} ", (f"{one.decides:<16}", style), (exact, "dim"))
                )
            for warning in dict.fromkeys(one.warnings):
                out.print(styled(f"{'':>22}", (warning, "yellow")))
