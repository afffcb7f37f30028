# SPDX-License-Identifier: Apache-2.0
"""A rule: its fields in a file (RuleText), and its compiled form (DoctorRule)."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.code import CODE, Code
from nccltune.doctor.language.expression import Compiled, Scope, ValueType, compile_expression
from nccltune.doctor.language.template import Template, compile_template
from nccltune.model.finding import Severity


class RuleScope(StrEnum):
    """Scope of a rule: each node by itself, pairs of nodes, or all nodes together.

    Rules with the scopes PAIR and CLUSTER are evaluated once, on the facts of all nodes.
    """

    NODE = "node"
    PAIR = "pair"
    CLUSTER = "cluster"


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NCCL versions that a rule applies to, from `since` up to but excluding `before`."""

    since: str | None = None
    before: str | None = None

    @property
    def words(self) -> str:
        """The range as text."""
        if self.since and self.before:
            return f"{self.since} to before {self.before}"
        return f"{self.since} and newer" if self.since else f"before {self.before}"


class Compare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Comparison of `value` between the nodes that have the same `within`.

    Without `tolerance`, a node is an outlier if its value differs from the most common value. If
    two values are the most common, all nodes are outliers. With `tolerance` (0.1 is 10 %), a node
    is an outlier if its value is below the median by more than `tolerance`. `what` names the value
    in sentences.
    """

    value: str
    what: str
    within: str | None = None
    tolerance: float | None = None


class RuleText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a rule in a file. `docs/reference/doctor.md` explains each."""

    id: str
    title: str
    check: str
    remedy: str
    source: tuple[str, ...]
    severity: Severity = Severity.ERROR
    number: int | None = None
    scope: RuleScope = RuleScope.NODE
    applies: str | None = None
    finding: str | None = None
    compare: Compare | None = None
    code: str | None = None
    evidence: str | None = None
    alone: bool = False
    fix: tuple[str, ...] = ()
    also: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    cost: str = ""
    nccl: Versions | None = None


class DoctorRule(NamedTuple):
    """A compiled rule. It has exactly one of `finding`, `compare` and `code`.

    `needs` names the facts that its expressions, texts or code function use.
    """

    text: RuleText
    family: str
    applies: Compiled | None
    finding: Compiled | None
    compare: Compiled | None
    within: Compiled | None
    code: Code | None
    evidence: Template | None
    remedy: Template
    also: tuple[tuple[re.Pattern[str], Template], ...]
    commands: tuple[Template, ...]
    fix: tuple[Template, ...]
    needs: frozenset[str]
    asked: tuple[str, ...]
    """`needs`, sorted."""

    @property
    def id(self) -> str:
        """The rule's id."""
        return self.text.id


def compile_rule(text: RuleText, family: str, tables: Mapping[str, Any]) -> DoctorRule:
    """Compile a rule. Raises InputError if an expression is wrong; tests check the other fields."""
    pooled = text.scope is not RuleScope.NODE and text.compare is None
    scope = Scope(tables=tables, pooled=pooled)
    one = Scope(tables=tables)
    applies = _field(text.applies, one if text.compare else scope)
    finding = _field(text.finding, scope)
    beside = text.compare
    compare = _field(beside.value if beside else None, one)
    within = _field(beside.within if beside else None, one)
    many = finding is not None and finding.kind.many
    variables = (
        {"it": ValueType(record=finding.kind.records)} if finding is not None and many else {}
    )
    speaks = Scope(variables, tables, pooled)
    evidence = compile_template(text.evidence, speaks) if text.evidence else None
    plain = Scope(tables=tables, pooled=pooled)
    remedy = compile_template(text.remedy, plain)
    also = tuple((re.compile(where), compile_template(words, plain)) for where, words in text.also)
    commands = tuple(compile_template(c, speaks) for c in text.commands)
    fix = tuple(compile_template(line, speaks) for line in text.fix)
    code = CODE[text.code] if text.code is not None else None
    needs = frozenset(code.needs) if code is not None else frozenset()
    texts = (remedy, *(words for _, words in also), *commands, *fix)
    for part in (applies, finding, compare, within, evidence, *texts):
        needs |= part.needs if part is not None else frozenset()
    if text.nccl is not None:
        needs |= {"nccl.version"}
    return DoctorRule(
        text, family, applies, finding, compare, within, code, evidence, remedy, also, commands,
        fix, needs, tuple(sorted(needs)),
    )  # fmt: skip


def _field(text: str | None, scope: Scope) -> Compiled | None:
    return compile_expression(text, scope) if text is not None else None
