# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune ab`: the verdict, its evidence, and the line that deploys the setting."""

import shlex
from pathlib import Path

from rich.console import Console

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
from nccltune.measure.experiments.ab.settings import label
from nccltune.model.numbers import significant
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.report.words import time_text

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
    hanging(out, "setting    ", _INDENT, label(trial.settings))
    hanging(out, "program    ", _INDENT, shlex.join(program) or "our bench")
    out.print(
        f"Would start up to {2 * rounds} processes in {rounds} rounds, with and without it. "
        "Nothing was measured or written."
    )


def show(verdict: TrialVerdict, study: Path) -> None:
    """Print the verdict first, then its evidence."""
    out = stdout()
    style = _STYLE.get(verdict.decision, "bold yellow")
    lead = (f"{_LEAD[verdict.decision]:<{_INDENT}}", style)
    hanging(out, lead, _INDENT, f"{title(verdict)}: {verdict.why}")
    how = "replay" if verdict.replay else "measured"
    hanging(out, f"{how:<{_INDENT}}", _INDENT, _measured(verdict))
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


def _measured(verdict: TrialVerdict) -> str:
    before = f" ({verdict.known} from before)" if verdict.known else ""
    ended = "; the budget is spent: the same command goes on" if verdict.reason == "budget" else ""
    return (
        f"{count(verdict.rounds, 'round')} with and without it in alternating order{before}, "
        f"{count(verdict.processes, 'process')} in {seconds_words(verdict.seconds)}{ended}"
    )


def _table(out: Console, item: CollectiveGain) -> None:
    noise = "noise unknown" if item.noise is None else f"A/A noise {100 * item.noise:.2g} %"
    out.print(
        f"\n{item.collective.prose}, {item.scale}: {_interval(item.overall)} over all sizes, "
        f"{noise}"
    )
    if out.is_terminal and out.width < _TABLE_WIDTH:
        for size in item.sizes:
            gain = size.gain
            words = f"{gain.gain:.2f}x  {gain.low:.2f}-{gain.high:.2f}  {_EFFECT[size.effect]}"
            out.print(f"{format_bytes(size.bytes):>10}  {words}".rstrip())
        return
    out.print(f"{'size':>10}{'default':>12}{'with it':>12}{'GB/s':>8}{'gain':>8}   95 % CI")
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
