# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune check`: the verdict, what rules rest on, every rule, what to do."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nccltune.app.check import CheckResult, NodesResult
from nccltune.app.check_model import ModelChanges
from nccltune.cli.measure_screen import VerifyScreen
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
from nccltune.formats.tuner_config.csv_rules import FileRule
from nccltune.model.rule import Rule
from nccltune.model.scale import count
from nccltune.prove.spot import Gain, SpotCheck, SpotVerdict, by_weight
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

    watched = "check"

    def stopped(self, kept: str) -> None:
        """Print nothing: a check keeps no timings."""

    def checked(self, rule: SpotCheck) -> None:
        """Print the verdict on a rule."""
        note(f"checked    {_name(rule.rule)}  {rule.verdict}")


def show_plan(rules: Sequence[FileRule], budget_s: float) -> None:
    """Print the rules in the order in which they would be measured."""
    order = [rules[index] for index in by_weight(rules)] if budget_s > 0 else []
    if is_json():
        print_json({"budget_s": budget_s, "rules": order})
        return
    for item in order:
        hanging(stdout(), "rule       ", 11, f"{_name(item.rule)}  {item.words}")
    what = f"measure these rules in this order, for at most {budget_s:g} s, and " * bool(order)
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
        verdict = styled((fact.verdict, "red" if fact.verdict == "differs" else "dim"))
        table.add_row(fact.name, fact.then or "unknown", fact.now or "unknown", verdict, fact.note)
    out.print(table)
    if isinstance(result, NodesResult):
        _show_nodes(result)
    if result.seconds:
        _show_rules(result.rules)
    if result.model is not None:
        show_model(result.model)
    if result.unapplied is not None:
        hanging(out, "apply      ", 11, result.unapplied)
    if result.kept_as is not None:
        hanging(out, "apply      ", 11, _applied(result))
    _next(result, shlex.quote(str(path)))


def _headline(result: CheckResult) -> str:
    rules, found = count(len(result.rules), "rule"), Counter(rule.verdict for rule in result.rules)
    parts = [f"{rules}, not measured" if result.rules else "the file holds no rule"]
    if result.seconds:
        release = f" under NCCL {result.nccl}" if result.against else ""
        parts = [f"{found['keep']} of {rules} confirmed{release}"]
        parts += [f"{found[key]} {words}" for key, words in _WORDS.items() if found[key]]
    by_verdict = {
        verdict: ", ".join(fact.name for fact in result.facts if fact.verdict == verdict)
        for verdict in ("differs", "same", "unknown")
    }
    if by_verdict["differs"]:
        parts.append(f"not as when measured: {by_verdict['differs']}")
    elif by_verdict["same"]:
        parts.append("all that could be compared is as when measured")
    if by_verdict["unknown"]:
        parts.append(f"not compared: {by_verdict['unknown']}")
    if not (result.holds or by_verdict["differs"] or found["drop"] or found["measure again"]):
        parts.append("nothing is confirmed")
    return "; ".join(parts)


def _show_nodes(result: NodesResult) -> None:
    """Print the nodes that are not as expected, and how many are."""
    out = stdout()
    fine = 0
    for node in result.nodes:
        faults = [f"{one.name} was {one.then}, is {one.now}" for one in node.differs]
        if node.config_hash not in (None, result.config_hash, result.new_hash):
            faults.insert(0, f"another file: content {node.config_hash}")
        if node.problem is not None:
            faults = [f"could not be checked: {node.problem}"]
        fine += not faults
        if faults:
            hanging(out, ("node       ", "red"), 11, f"{node.host}: {'; '.join(faults)}")
    words = f"{fine} of {len(result.nodes) + result.missing} have this file, and nothing differs"
    if result.missing:
        words += f"; {result.missing} did not answer: is the current folder shared by all nodes?"
    hanging(out, "nodes      ", 11, words)


def _show_rules(rules: Sequence[SpotCheck]) -> None:
    out = stdout()
    measured = [item for item in rules if item.verdict != "not checked"]
    table = plain_table("<rule", "<", "<", "<verdict", "<gain now", "<recorded", ">rounds")
    for item in measured:
        table.add_row(
            item.rule.collective.value,
            range_text(item.rule.min_bytes, item.rule.max_bytes, "-"),
            item.rule.choice.label,
            styled((item.verdict, _STYLES.get(item.verdict, "dim"))),
            _gain(item.gain),
            _gain(item.recorded),
            str(item.rounds),
        )
    if measured:
        out.print(table)
        words = "Gains: default over tuned time in alternating rounds at a few sizes, with 95 % CI."
        out.print(words, style="dim")
    for item in measured:
        if item.verdict != "keep":
            hanging(out, f"{item.verdict + ':':<15}", 15, f"{_name(item.rule)}: {item.reason}")
        if item.changed:
            words = f"{_name(item.rule)}: {'; '.join(item.changed)}"
            hanging(out, f"{'default ran:':<15}", 15, words)
    skipped = Counter(item.reason for item in rules if item.verdict == "not checked")
    for reason, number in skipped.items():
        hanging(out, "not checked:   ", 15, f"{count(number, 'rule')}: {reason}")


def show_model(model: ModelChanges) -> None:
    """Print what NCCL's own model chooses otherwise in another release."""
    out = stdout()
    changes = sorted(model.changes, key=lambda item: not item.ruled)
    words = "the same choices from 1 KiB to 1 GiB" if not model.notes else "no other choices found"
    if not model.is_asked:
        words = "not asked"
    elif changes:
        words = f"other choices in {count(len(changes), 'range')} of sizes"
    words = "; ".join([f"NCCL's own cost model: {words}", *model.notes])
    hanging(out, "model      ", 11, words)
    for item in changes[:_MOST_CHANGES]:
        where = range_text(item.min_bytes, item.max_bytes, "-")
        what = f"{item.collective.prose} {where}, {item.scale}: {item.before} -> {item.after}"
        hanging(out, " " * 11, 11, what + (" (a rule decides here)" if item.ruled else ""))
    if len(changes) > _MOST_CHANGES:
        out.print(f"{'':11}and {len(changes) - _MOST_CHANGES} more: --json", style="dim")


def _applied(result: CheckResult) -> str:
    gone = count(sum(item.verdict == "drop" for item in result.rules), "rule")
    return (
        f"removed {gone} of {result.config}; as it was: {result.kept_as}; the content is now "
        f"{result.new_hash}: where NCCLTUNE_CONFIG_HASH is set, no rule is used until it has this "
        f"value: nccltune env {shlex.quote(result.config)}"
    )


def _next(result: CheckResult, name: str) -> None:
    found = {item.verdict for item in result.rules}
    if "drop" in found and result.kept_as is None and result.unapplied is None:
        hint(f"remove what no longer holds, while no job starts: nccltune check {name} --apply")
    if found & {"measure again", "not decided"} or result.is_elsewhere:
        hint("rules of this platform: nccltune sweep -o STUDY, nccltune tune STUDY, then verify")


def _name(rule: Rule) -> str:
    where = range_text(rule.min_bytes, rule.max_bytes, "-")
    return f"{rule.collective.prose} {where} {rule.choice.label}"


def _gain(gain: Gain | None) -> str:
    return "" if gain is None else f"{gain.value:.2f}x ({gain.low:.2f}-{gain.high:.2f})"
