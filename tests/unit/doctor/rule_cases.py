# SPDX-License-Identifier: Apache-2.0
"""The cases of `tests/data/doctor`: facts of one node or of some, and the verdict on them."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from nccltune.doctor.facts import Facts
from nccltune.doctor.result import RuleVerdict
from nccltune.doctor.rulebase import rule_base

FOLDER = Path(__file__).parents[2] / "data" / "doctor"


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A case and what the examination must contain.

    `says` is a text in the evidence, `named` are its nodes, `missing` is a fact that would decide
    the rule, `advises` is a text in the remedy or a command, and `fix` is a line of the script.
    """

    verdict: RuleVerdict
    facts: dict[str, Any] | None = None
    nodes: dict[str, dict[str, Any]] | None = None
    says: str | None = None
    named: list[str] | None = None
    missing: str | None = None
    advises: str | None = None
    fix: str | None = None

    def collected(self) -> dict[str, Facts]:
        """Return the facts by node; a single node is called `node`."""
        nodes = self.nodes if self.nodes is not None else {"node": self.facts or {}}
        return {name: facts_of(name, values) for name, values in nodes.items()}


def facts_of(node: str, values: dict[str, Any]) -> Facts:
    """Return facts with these values and a made-up source."""
    facts = Facts(node)
    for name, value in values.items():
        facts.add_named(name, value, "the case")
    return facts


_ON_LINES = re.compile(r"\[f for f in (failures|kernel\.failures) if f\.kind == '(\w+)'\]")


def _lines_of_a_kind() -> Iterator[tuple[str, Case]]:
    """Yield each rule on lines of one kind: with such a line it finds that, and with lines of all
    other kinds nothing."""
    found = [(rule.id, _ON_LINES.fullmatch(rule.text.finding or "")) for rule in rule_base().rules]
    on_lines = [(rule, match[1], match[2]) for rule, match in found if match is not None]
    for rule, fact, kind in on_lines:
        others = [
            {"kind": other, "text": "a line", "count": 1}
            for _, of, other in on_lines
            if of == fact and other != kind
        ]
        yield rule, Case(verdict=RuleVerdict.OK, facts={fact: others})
        own = {"kind": kind, "text": f"a line of {kind}", "count": 2}
        if fact == "failures":
            own["where"] = "run.log:3"
        says = f"a line of {kind} ({own.get('where', 'seen 2 times')}"
        facts = {fact: [*others, own]}
        yield rule, Case(verdict=RuleVerdict.FINDING, says=says, facts=facts)


@cache
def cases() -> dict[str, list[Case]]:
    """Return the cases of each rule, by its id."""
    found: dict[str, list[Case]] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for rule, tables in tomllib.loads(path.read_text(encoding="utf-8")).items():
            assert rule not in found, f"{path.name}: {rule} has cases in another file"
            found[rule] = msgspec.convert(tables, list[Case])
    for rule, case in _lines_of_a_kind():
        found.setdefault(rule, []).append(case)
    return found
