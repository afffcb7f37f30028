# SPDX-License-Identifier: Apache-2.0
"""Read, check and compile every file of `rules/` once."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.rule import DoctorRule, RuleText, compile_rule
from nccltune.model.errors import InputError
from nccltune.model.names import nearest


class Family(NamedTuple):
    """A file of rules: its name, its title and its rules."""

    name: str
    title: str
    rules: tuple[DoctorRule, ...]


class RuleBase(NamedTuple):
    """All families of rules."""

    families: tuple[Family, ...]

    @property
    def rules(self) -> tuple[DoctorRule, ...]:
        """All rules in the order of the files."""
        return tuple(rule for family in self.families for rule in family.rules)

    def rule(self, name: str) -> DoctorRule:
        """Return the rule with that id or number. Raises InputError if there is none."""
        for rule in self.rules:
            if name in (rule.id, str(rule.text.number)):
                return rule
        raise InputError(
            f"no rule is called {name!r}", hint=nearest(name, [rule.id for rule in self.rules])
        )


@cache
def rule_base() -> RuleBase:
    """Return the rules that are part of nccltune."""
    folder = files("nccltune.doctor").joinpath("rules")
    texts = {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }
    return read_rules(texts)


def read_rules(texts: Mapping[str, str]) -> RuleBase:
    """Return the rules of files (`name -> text`). Raises InputError that names file and rule."""
    return RuleBase(tuple(_family(name, text) for name, text in texts.items()))


class _Shell(msgspec.Struct, forbid_unknown_fields=True):
    """A file of rules. The rules are still dicts and are converted one by one, so that an error can
    name its rule."""

    family: str
    title: str
    rule: list[dict[str, Any]]
    tables: dict[str, Any] = {}


_SEEN = "{it.text} (seen {default(it.count, 1)} times{default(text(', first at ', it.where), '')})"
# Short forms of the finding and the evidence that most rules on lines have: the fact, the evidence.
_SHORT = {
    "failure": ("failures", "{it.text} ({default(it.where, 'where unknown')})"),
    "kernel_failure": ("kernel.failures", _SEEN),
}


def _written_out(table: dict[str, Any]) -> dict[str, Any]:
    """Return a rule with the short form `failure = KIND` replaced by a finding and its evidence,
    and the scope of a comparison."""
    full = {key: value for key, value in table.items() if key not in _SHORT}
    if "compare" in full:
        full["scope"] = "cluster"
    for key in table.keys() & _SHORT.keys():
        fact, evidence = _SHORT[key]
        full |= {
            "finding": f"[f for f in {fact} if f.kind == '{table[key]}']",
            "evidence": evidence,
        }
    return full


def _family(name: str, text: str) -> Family:
    shell = msgspec.convert(tomllib.loads(text), _Shell)
    rules = []
    for table in shell.rule:
        try:
            rule = msgspec.convert(_written_out(table), RuleText)
            rules.append(compile_rule(rule, shell.family, shell.tables))
        except (msgspec.ValidationError, InputError) as error:
            raise InputError(str(error), where=f"{name}: rule {table.get('id')}") from error
    return Family(shell.family, shell.title, tuple(rules))
