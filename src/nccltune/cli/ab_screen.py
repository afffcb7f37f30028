# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune ab`: the plan, and the verdict with its evidence."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from nccltune.app.ab_releases import RanChange, ReleaseVerdict, candidate_path
from nccltune.cli.check_screen import show_model
from nccltune.cli.output import hanging, hint, is_json, next_step, print_json, stdout, styled
from nccltune.cli.progress import seconds_words
from nccltune.measure.experiments.ab.judge import (
    CollectiveGain,
    SettingGain,
    TrialVerdict,
    never_read,
    title,
)
from nccltune.measure.experiments.ab.runs import SettingTrial
from nccltune.measure.experiments.ab.settings import LIBRARY, label
from nccltune.model.numbers import significant
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.report.words import range_text, time_text

_INDENT = 11
_TABLE_WIDTH = 72
"""The width of the table in columns. A narrower terminal shows only the gains."""
_EFFECT = {"faster": "faster", "slower": "slower", "same": ""}
_STYLE = {"keep": "bold green", "failed": "bold red", "open": "bold"}
_LEAD = {
    "keep": "keep",
    "mixed": "mixed",
    "harms": "not kept",
    "no help": "not kept",
    "failed": "failed",
    "open": "open",
}


def show_plan(trial: SettingTrial, program: list[str], rounds: int, study: Path) -> None:
    """Print the processes that a test would run."""
    if is_json():
        print_json(
            {
                "settings": trial.settings,
                "baseline": trial.baseline,
                "program": program,
                "rounds": rounds,
                "processes": 2 * rounds,
                "study": str(study),
            }
        )
        return
    out = stdout()
    if trial.compares_releases:
        hanging(out, "first      ", _INDENT, str(trial.baseline[LIBRARY]))
        hanging(out, "second     ", _INDENT, str(trial.settings[LIBRARY]))
    else:
        hanging(out, "setting    ", _INDENT, label(trial.settings))
    hanging(out, "program    ", _INDENT, shlex.join(program) or "our bench")
    which = "with each of the two" if trial.compares_releases else "with and without it"
    out.print(
        f"Would start up to {2 * rounds} processes in {rounds} rounds, {which}. "
        "Nothing was measured or written."
    )


def show(verdict: TrialVerdict, study: Path) -> None:
    """Print the verdict first, then its evidence."""
    out = stdout()
    style = _STYLE.get(verdict.decision, "bold yellow")
    lead = (f"{_LEAD[verdict.decision]:<{_INDENT}}", style)
    hanging(out, lead, _INDENT, f"{title(verdict)}: {verdict.why}")
    how = "replay" if verdict.replay else "measured"
    hanging(out, f"{how:<{_INDENT}}", _INDENT, _measured(verdict, "with and without it"))
    unread = never_read(verdict)
    if unread:
        hanging(
            out,
            ("not read   ", "yellow"),
            _INDENT,
            f"NCCL's log does not show that it read {' and '.join(unread)}: misspelt, unknown to "
            "this NCCL, not needed in this run, or not handed on to its processes",
        )
    for words in verdict.changed:
        hanging(out, "changed    ", _INDENT, words)
    for item in verdict.collectives:
        _table(out, item)
    if verdict.decision == "mixed":
        hanging(
            out, "use it     ", _INDENT, "only for jobs of the calls that it makes faster; "
            "nothing was written to deploy"
        )  # fmt: skip
    if verdict.decision == "keep":
        for name, value in verdict.settings.items():
            line = f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            out.print(styled("deploy     ", (line, "bold")), soft_wrap=True)
    out.print(f"study      {study}", soft_wrap=True)
    if verdict.decision == "keep" and any(verdict.settings.values()):
        next_step("nccltune env --format nccl.conf", study)
    elif verdict.decision == "open":
        hint("next: the same command goes on where it stopped")


_OF_RELEASES = {
    "keep": "faster",
    "mixed": "mixed",
    "harms": "slower",
    "no help": "same",
    "failed": "failed",
    "open": "open",
}
_STYLE_OF_RELEASES = {"keep": "bold green", "no help": "bold green", "open": "bold"}


def show_releases(found: ReleaseVerdict, study: Path, prove: str) -> None:
    """Print the verdict on two releases, and the rules that `prove` measures with the second."""
    out = stdout()
    before, after = (version or "of unknown version" for version in found.releases)
    why = found.why
    if found.holds and found.worst is not None:
        room = significant(max(0.0, 100 * (1 / found.worst - 1)))
        why += f"; no size is slower beyond noise, their intervals leave room for {room} %"
    style = _STYLE_OF_RELEASES.get(found.decision, "bold red")
    lead = (f"{_OF_RELEASES[found.decision]:<{_INDENT}}", style)
    hanging(out, lead, _INDENT, f"NCCL {after} instead of {before}: {why}")
    how = "replay" if found.replay else "measured"
    hanging(out, f"{how:<{_INDENT}}", _INDENT, _measured(found, "with each"))
    for lead_words, path, version in (
        ("first", found.baseline[LIBRARY], before),
        ("second", found.settings[LIBRARY], after),
    ):
        hanging(out, f"{lead_words:<{_INDENT}}", _INDENT, f"NCCL {version}  {path}")
    if not found.confirmed and found.decision != "failed":
        words = "that each side loaded its library: nothing names two different versions"
        hanging(out, ("not shown  ", "yellow"), _INDENT, words)
    for words in found.changed:
        hanging(out, "changed    ", _INDENT, words)
    for words in _chosen(found):
        hanging(out, "chosen     ", _INDENT, words)
    if found.model is not None:
        show_model(found.model)
    for item in found.collectives:
        _table(out, item, (before, after))
    for rule in found.rules:
        where = range_text(rule.min_bytes, rule.max_bytes, "-")
        words = f"{rule.collective.prose} {where} {rule.choice.label}  candidate, not measured"
        hanging(out, "rule       ", _INDENT, f"{words} with NCCL {after}")
    out.print(f"study      {study}", soft_wrap=True)
    if found.candidate is not None:
        hint(f"next: prove the rules with NCCL {after}: {prove}")
    elif found.rules:
        other = candidate_path(study, found.releases[1])
        hint(f"the rules are not written: {other} has others, or verify changed them")
    elif found.decision == "open":
        hint("next: the same command goes on where it stopped")


def _chosen(found: ReleaseVerdict) -> Iterator[str]:
    """Yield what the two releases chose otherwise; where only channels did no harm, in one line."""
    shown = [one for one in found.ran if one.effect != "same" or one.before.channels is None]
    yield from map(_change_words, shown)
    if others := len(found.ran) - len(shown):
        yield f"other channels in {count(others, 'range')} of sizes, as fast within noise"
    if found.collectives and not found.ran:
        sizes = count(found.known_ran, "size")
        same = f"the same by both at all {sizes} at which that is known"
        unknown = "unknown: neither the program nor NCCL's log names it"
        yield same if found.known_ran else unknown


def _change_words(one: RanChange) -> str:
    where = range_text(one.min_bytes, one.max_bytes, "-")
    gains = sorted({f"{gain:.2f}x" for gain in (one.least, one.most)})
    effect = one.effect
    if effect == "slower":
        gains = sorted({f"{1 / gain:.2f}x" for gain in (one.least, one.most)})
    words = "as fast within noise" if effect == "same" else f"{' to '.join(gains)} {effect}"
    return f"{one.prose} {where}, {one.scale}: {one.before.label} -> {one.after.label}, {words}"


def _measured(verdict: TrialVerdict, sides: str) -> str:
    before = f" ({verdict.known} from before)" if verdict.known else ""
    ended = "; the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    return (
        f"{count(verdict.rounds, 'round')} {sides} in alternating order{before}, "
        f"{count(verdict.processes, 'process')} in {seconds_words(verdict.seconds)}{ended}"
    )


def _table(
    out: Console, item: CollectiveGain, titles: tuple[str, str] = ("default", "with it")
) -> None:
    noise = "noise unknown" if item.noise is None else f"A/A noise {100 * item.noise:.2g} %"
    out.print(f"\n{item.prose}, {item.scale}: {_interval(item.overall)} over all sizes, {noise}")
    if out.is_terminal and out.width < _TABLE_WIDTH:
        for size in item.sizes:
            gain = size.gain
            words = f"{gain.gain:.2f}x  {gain.low:.2f}-{gain.high:.2f}  {_EFFECT[size.effect]}"
            out.print(f"{format_bytes(size.bytes):>10}  {words}".rstrip())
        return
    out.print(f"{'size':>10}{titles[0]:>12}{titles[1]:>12}{'GB/s':>8}{'gain':>8}   95 % CI")
    for size in item.sizes:
        effect = f"  {_EFFECT[size.effect]}".rstrip()
        gain = size.gain
        out.print(
            f"{format_bytes(size.bytes):>10}{time_text(size.default_us):>12}"
            f"{time_text(size.set_us):>12}{significant(size.set_gb_per_s):>8}"
            f"{gain.gain:>7.2f}x   {gain.low:.2f}-{gain.high:.2f}{effect}"
        )


def _interval(gain: SettingGain) -> str:
    unsure = "" if gain.known else ", few rounds"
    return f"{gain.gain:.2f}x ({gain.low:.2f}-{gain.high:.2f}{unsure})"
