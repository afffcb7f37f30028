# SPDX-License-Identifier: Apache-2.0
"""Rules as their files hold them, and compiled."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.code import CODE, Code
from nccltune.doctor.expression import Compiled, Kind, Scope, compile_expression
from nccltune.doctor.template import Template, compile_template
from nccltune.model.errors import InputError
from nccltune.model.names import nearest


class Severity(StrEnum):
    """An error breaks or costs most, a warning costs, a note is worth to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Of(StrEnum):
    """What a rule looks at: each node, pairs of nodes, or all of them beside each other."""

    NODE = "node"
    PAIR = "pair"
    CLUSTER = "cluster"


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NCCL versions that a rule is about: from `since` on, up to but not with `before`."""

    since: str | None = None
    before: str | None = None

    @property
    def words(self) -> str:
        """For people."""
        if self.since and self.before:
            return f"{self.since} to before {self.before}"
        return f"{self.since} and newer" if self.since else f"before {self.before}"


class Remedy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do. `commands` do or confirm it, `cost` is what it costs."""

    text: str
    commands: tuple[str, ...] = ()
    cost: str = ""


class Compare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes beside each other: `value` of each, among those for which `within` gives the same.

    With `tolerance` they are numbers, and a node is an outlier that is farther than this share
    from the median. `what` is how the value is called.
    """

    value: str
    what: str
    within: str | None = None
    tolerance: float | None = None


class RuleText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as it stands in a file; `docs/reference/doctor.md` says what each field means."""

    id: str
    title: str
    severity: Severity
    check: str
    remedy: Remedy
    source: tuple[str, ...]
    number: int | None = None
    scope: Of = Of.NODE
    applies: str | None = None
    finding: str | None = None
    compare: Compare | None = None
    code: str | None = None
    evidence: str | None = None
    alone: bool = False
    fix: tuple[str, ...] = ()
    by_hand: str | None = None
    nccl: Versions | None = None


class Rule(NamedTuple):
    """A rule ready to run. Of `finding`, `compare` and `code` one is there."""

    text: RuleText
    family: str
    applies: Compiled | None
    finding: Compiled | None
    compare: Compiled | None
    within: Compiled | None
    code: Code | None
    evidence: Template | None
    remedy: Template
    commands: tuple[Template, ...]
    fix: tuple[Template, ...]
    needs: frozenset[str]
    asked: tuple[str, ...]
    """`needs` in one order."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.text.id


_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VERSION = re.compile(r"2\.\d+(\.\d+)?")


def compile_rule(text: RuleText, family: str, tables: Mapping[str, Any]) -> Rule:
    """A rule compiled. Raises InputError, which names the field that is wrong."""
    _check(text)
    pooled = text.scope is not Of.NODE and text.compare is None
    scope = Scope(tables=tables, pooled=pooled)
    one = Scope(tables=tables)
    applies = _field("applies", text.applies, one if text.compare else scope)
    finding = _field("finding", text.finding, scope)
    beside = text.compare
    compare = _field("compare.value", beside.value if beside else None, one)
    within = _field("compare.within", beside.within if beside else None, one)
    many = finding is not None and finding.kind.many
    variables = {"it": Kind(record=finding.kind.records)} if finding is not None and many else {}
    speaks = Scope(variables, tables, pooled)
    evidence = _template("evidence", text.evidence, speaks) if text.evidence else None
    remedy = _template("remedy.text", text.remedy.text, Scope(tables=tables, pooled=pooled))
    commands = tuple(_template("remedy.commands", c, speaks) for c in text.remedy.commands)
    fix = tuple(_template("fix", line, speaks) for line in text.fix)
    code = CODE[text.code] if text.code is not None else None
    needs = frozenset(code.needs) if code is not None else frozenset()
    for part in (applies, finding, compare, within, evidence, remedy, *commands, *fix):
        needs |= part.needs if part is not None else frozenset()
    if text.nccl is not None:
        needs |= {"nccl.version"}
    return Rule(
        text, family, applies, finding, compare, within, code, evidence, remedy, commands, fix,
        needs, tuple(sorted(needs)),
    )  # fmt: skip


def _check(text: RuleText) -> None:
    """What the types of the fields do not say."""
    if _ID.fullmatch(text.id) is None:
        raise InputError(f"id: {text.id!r} is not lower case words parted by dashes")
    for field in ("title", "check"):
        if not getattr(text, field).strip():
            raise InputError(f"{field}: is empty")
    if not text.source:
        raise InputError("source: is empty; a rule says where it is from")
    given = [name for name in ("finding", "compare", "code") if getattr(text, name) is not None]
    if len(given) != 1:
        raise InputError(f"finding, compare or code: exactly one is needed, not {given or 'none'}")
    if text.finding is not None and not text.evidence:
        raise InputError("evidence: is empty; it says what was found")
    if text.compare is not None and text.scope is not Of.CLUSTER:
        raise InputError("compare: is for scope = 'cluster'")
    if text.code is not None and text.code not in CODE:
        raise InputError(
            f"code: no function is called {text.code!r}", hint=nearest(text.code, CODE)
        )
    if bool(text.fix) == bool(text.by_hand):
        raise InputError("fix or by_hand: exactly one; by_hand says why no script should do it")
    if text.nccl is not None:
        bounds = [bound for bound in (text.nccl.since, text.nccl.before) if bound is not None]
        if not bounds or any(_VERSION.fullmatch(bound) is None for bound in bounds):
            raise InputError("nccl: since or before, a version such as 2.21 or 2.30.7")


def _field(name: str, text: str | None, scope: Scope) -> Compiled | None:
    if text is None:
        return None
    try:
        return compile_expression(text, scope)
    except InputError as error:
        raise InputError(f"{name}: {error.message}", hint=error.hint) from error


def _template(name: str, text: str, scope: Scope) -> Template:
    try:
        return compile_template(text, scope)
    except InputError as error:
        raise InputError(f"{name}: {error.message}", hint=error.hint) from error
