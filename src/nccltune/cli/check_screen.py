# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune check`: the verdict, what rules rest on, every rule, what to do."""

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from nccltune.app.check import CheckResult, Fact
from nccltune.app.check_model import ModelChanges
from nccltune.cli.measure_screen import VerifyScreen, Watch, rules_so_far
from nccltune.cli.output import (
    hanging,
    hint,
    is_json,
    note,
    plain_table,
    print_json,
    stdout,
    styled,
)
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.communicator import Watcher
from nccltune.model.scale import count
from nccltune.prove.plan import ProofPlan
from nccltune.prove.spot import SpotCheck, SpotVerdict
from nccltune.report.words import range_text

_STYLES: dict[SpotVerdict, str] = {"keep": "green", "drop": "red", "measure again": "yellow"}
_WORDS: dict[SpotVerdict, str] = {
    "drop": "to be dropped",
    "measure again": "to be measured again",
    "not decided": "not decided",
    "not checked": "not checked",
}
_MOST_CHANGES = 12


class CheckScreen(VerifyScreen):
    """Prints the progress of a check on stderr."""

    def stopped(self, kept: str) -> None:
        """Print nothing: a check keeps no timings."""

    def watching(self, hello: Hello) -> AbstractContextManager[Watcher[ProofPlan]]:
        """Return a display of every rule with its present estimate of the gain."""
        return Watch("check", hello.replay, rules_so_far)

    def checked(self, rule: SpotCheck) -> None:
        """Print the verdict on a rule."""
        note(f"checked    {_name(rule)}  {rule.verdict}")


def show_plan(rules: Sequence[SpotCheck], budget_s: float) -> None:
    """Print the rules in the order in which they would be measured."""
    if is_json():
        print_json({"budget_s": budget_s, "rules": rules})
        return
    for rule in rules if budget_s > 0 else ():
        hanging(stdout(), "rule       ", 11, f"{_name(rule)}  recorded {_recorded(rule)}")
    what = f"measure these rules in this order, for at most {budget_s:g} s, and " * (budget_s > 0)
    stdout().print(
        f"Would {what}compare the file and the platform with what the rules rest on. Nothing was "
        "measured or written."
    )


def show_check(result: CheckResult, path: Path) -> None:
    """Print the verdict, the facts, every rule and the next step."""
    out = stdout()
    hanging(out, "check      ", 11, _headline(result), style="green" if result.holds else "red")
    file = f"{result.config}: {count(len(result.rules), 'rule')}, content {result.config_hash}"
    hanging(out, "file       ", 11, file)
    if result.replay:
        words = f"of {result.replay}: timings are drawn from a recording, nothing is measured here"
        hanging(out, "replay     ", 11, words)
    table = plain_table("<rest on", "<then", "<now", "<", "<")
    for fact in result.facts:
        style = {"differs": "red", "unknown": "dim"}.get(fact.verdict, "")
        shown = styled((fact.verdict, style))
        table.add_row(fact.name, _cell(fact.then), _cell(fact.now), shown, fact.note)
    out.print(table)
    if result.rules and result.seconds:
        _show_rules(result.rules)
    if result.model is not None:
        _show_model(result.model)
    _show_applied(result)
    _next(result, path)


def _headline(result: CheckResult) -> str:
    parts = []
    found = Counter(rule.verdict for rule in result.rules)
    if result.seconds and result.rules:
        release = f" under NCCL {result.nccl}" if result.against else ""
        total = count(len(result.rules), "rule")
        parts.append(f"{found['keep']} of {total} confirmed{release}")
        parts += [f"{found[key]} {words}" for key, words in _WORDS.items() if found[key]]
    elif result.rules:
        parts.append(f"{count(len(result.rules), 'rule')}, not measured")
    else:
        parts.append("the file holds no rule")
    other = [fact.name for fact in result.facts if fact.verdict == "differs"]
    unknown = [fact.name for fact in result.facts if fact.verdict == "unknown"]
    if other:
        parts.append(f"not as when measured: {', '.join(other)}")
    elif any(fact.verdict == "same" for fact in result.facts):
        parts.append("all that could be compared is as when measured")
    if unknown:
        parts.append(f"not compared: {', '.join(unknown)}")
    if not (result.holds or other or found["drop"] or found["measure again"]):
        parts.append("nothing is confirmed")
    return "; ".join(parts)


def _show_rules(rules: Sequence[SpotCheck]) -> None:
    out = stdout()
    measured = [item for item in rules if item.verdict != "not checked"]
    table = plain_table("<rule", "<", "<", "<verdict", "<gain now", "<recorded", ">rounds")
    for item in measured:
        rule = item.rule
        table.add_row(
            rule.collective.value,
            range_text(rule.min_bytes, rule.max_bytes, "-"),
            rule.choice.label,
            styled((item.verdict, _STYLES.get(item.verdict, "dim"))),
            _gain(item.gain, item.gain_low, item.gain_high),
            _recorded(item),
            str(item.rounds) if item.rounds else "",
        )
    if measured:
        out.print(table)
        out.print(
            "Gains: default over tuned time in alternating rounds at a few sizes, with 95 % CI.",
            style="dim",
        )
    for item in measured:
        if item.verdict != "keep":
            hanging(out, f"{item.verdict + ':':<15}", 15, f"{_name(item)}: {item.reason}")
        if item.changed:
            hanging(out, f"{'default ran:':<15}", 15, f"{_name(item)}: {'; '.join(item.changed)}")
    skipped = Counter(item.reason for item in rules if item.verdict == "not checked")
    for reason, number in skipped.items():
        hanging(out, "not checked:   ", 15, f"{count(number, 'rule')}: {reason}")


def _show_model(model: ModelChanges) -> None:
    out = stdout()
    lead = f"NCCL's own cost model, {model.before or 'unknown'} and {model.after}: "
    if model.changes:
        rows = count(len(model.changes), "range")
        words = f"other choices in {rows} of sizes"
    else:
        words = "not compared" if model.note else "the same choices from 1 KiB to 1 GiB"
    hanging(out, "model      ", 11, f"{lead}{words}" + (f"; {model.note}" if model.note else ""))
    changes = sorted(model.changes, key=lambda item: not item.ruled)
    for item in changes[:_MOST_CHANGES]:
        where = range_text(item.min_bytes, item.max_bytes, "-")
        what = f"{item.collective.prose} {where}, {item.scale}: {item.before} -> {item.after}"
        hanging(out, " " * 11, 11, what + (" (a rule decides here)" if item.ruled else ""))
    if len(changes) > _MOST_CHANGES:
        out.print(f"{'':11}and {len(changes) - _MOST_CHANGES} more: --json", style="dim")


def _show_applied(result: CheckResult) -> None:
    out = stdout()
    if result.unapplied is not None:
        hanging(out, "apply      ", 11, result.unapplied)
    if result.kept_as is None:
        return
    gone = sum(item.verdict == "drop" for item in result.rules)
    words = f"removed {count(gone, 'rule')} of {result.config}; as it was: {result.kept_as}"
    hanging(out, "apply      ", 11, words)
    words = (
        f"the content is now {result.new_hash}: where NCCLTUNE_CONFIG_HASH is set, no rule is used "
        f"until it has this value: nccltune env {shlex.quote(result.config)}"
    )
    hanging(out, "           ", 11, words)


def _next(result: CheckResult, path: Path) -> None:
    name = shlex.quote(str(path))
    gone = any(item.verdict == "drop" for item in result.rules)
    if gone and result.kept_as is None and result.unapplied is None:
        hint(f"remove what no longer holds, while no job starts: nccltune check {name} --apply")
    again = any(item.verdict in ("measure again", "not decided") for item in result.rules)
    if again or any(_is_of_platform(fact) for fact in result.facts):
        hint("rules of this platform: nccltune sweep -o STUDY, nccltune tune STUDY, then verify")


def _is_of_platform(fact: Fact) -> bool:
    return fact.verdict == "differs" and fact.name not in ("deployed file", "NCCLTUNE_CONFIG_HASH")


def _name(item: SpotCheck) -> str:
    rule = item.rule
    where = range_text(rule.min_bytes, rule.max_bytes, "-")
    return f"{rule.collective.prose} {where} {rule.choice.label}"


def _recorded(item: SpotCheck) -> str:
    return _gain(item.recorded, item.recorded_low, item.recorded_high) or "unknown"


def _gain(value: float | None, low: float | None, high: float | None) -> str:
    return "" if value is None else f"{value:.2f}x ({low:.2f}-{high:.2f})"


def _cell(text: str | None) -> str:
    return "unknown" if text is None else text
