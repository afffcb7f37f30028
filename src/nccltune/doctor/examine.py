# SPDX-License-Identifier: Apache-2.0
"""Evaluate rules on facts: each rule on each node, or on all nodes together.

A rule has one of three forms: an expression (`ask`), a comparison of nodes (`_compared`), or a
Python function over all nodes (`_ask_all` calls it). The verdict CANNOT_TELL has four origins:

- `ask`: a fact is missing that the expression needs
- `_compared`: fewer than two nodes have the compared value
- `_ask_all`: the Python function reports missing facts (module `code`)
- `_asked`: the rule raises an error on the values
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from nccltune.doctor.facts import Facts, FactType, catalogue
from nccltune.doctor.facts.results import TEXT_LINES
from nccltune.doctor.language.evaluation import STEPS, UNKNOWN, Env, Unsure, truth
from nccltune.doctor.language.functions import format_value, version_of
from nccltune.doctor.language.template import Template
from nccltune.doctor.result import Evidence, Examination, Fix, Node, RuleResult, RuleVerdict
from nccltune.doctor.rule import DoctorRule, RuleScope
from nccltune.doctor.rulebase import RuleBase
from nccltune.doctor.titles import node_title

MISFIT = "the rule does not fit the facts"
_MAX_COMMANDS = 4
_MAX_READ = 4


Key = tuple[bytes | None, ...]


class NodeGroups:
    """Groups of nodes with equal facts. Facts are compared by their digests (16 bytes)."""

    def __init__(self, nodes: Mapping[str, Facts]) -> None:
        encode = msgspec.msgpack.Encoder().encode
        # Equal values of nodes may be one object. Such an object is digested once.
        known: dict[int, bytes] = {}

        def digest(value: Any) -> bytes:
            found = known.get(id(value))
            if found is None:
                found = known[id(value)] = blake2b(encode(value), digest_size=16).digest()
            return found

        self._digests: dict[str, dict[str, bytes]] = {
            node: {name: digest(fact.value) for name, fact in facts.items()}
            for node, facts in nodes.items()
        }

    def key(self, node: str, rule: DoctorRule) -> Key:
        """Return the group of `node` for `rule`. Nodes with equal values of all facts that the rule
        needs have the same group."""
        digests = self._digests[node]
        return tuple([digests.get(name) for name in rule.asked])


class RuleAnswer(NamedTuple):
    """Result of a rule on one node, or on all nodes together.

    `evidence` holds sentences, each with the names of its nodes. No names means the evaluated node.
    """

    verdict: RuleVerdict
    evidence: tuple[tuple[str, tuple[str, ...]], ...] = ()
    missing: frozenset[str] = frozenset()
    remedy: str = ""
    commands: tuple[str, ...] = ()
    fix: tuple[str, ...] = ()
    check: str | None = None


def examine(nodes: Mapping[str, Facts], base: RuleBase, source: str) -> Examination:
    """Evaluate every rule, on every node or on all nodes together as the rule's scope requires.

    `source` describes the origin of the facts, for the report.
    """
    order = sorted(nodes)
    groups = NodeGroups(nodes)
    values = {name: {key: fact.value for key, fact in nodes[name].items()} for name in order}
    envs = {name: Env(values[name]) for name in order}
    pool = Env(_pooled(values, base) if len(order) > 1 else {})
    judged = []
    for rule in base.rules:
        if rule.text.scope is RuleScope.NODE:
            asked: dict[Any, RuleAnswer] = {}
            answers = {}
            for name, env in envs.items():
                key = groups.key(name, rule)
                if key not in asked:
                    asked[key] = _asked(partial(ask, rule, env))
                answers[name] = asked[key]
        else:
            answers = {"": _asked(partial(_ask_all, rule, envs, values, pool, groups))}
        judged.append(_judged(rule, answers, nodes))
    return Examination(
        source=source,
        nodes=tuple(
            Node(
                name=name,
                title=node_title(nodes[name]),
                facts=len(nodes[name]),
                unread=tuple(nodes[name].unread),
                unused=tuple(nodes[name].unused),
                text_lines=nodes[name].value(TEXT_LINES),
                known=tuple(sorted(nodes[name])) if len(nodes[name]) <= MOST_NAMED else (),
            )
            for name in order
        ),
        rules=tuple(judged),
    )


MOST_NAMED = 8
"""A pasted output has few facts. Of more, the areas that were judged say what was read."""


def ask(rule: DoctorRule, env: Env) -> RuleAnswer:
    """Evaluate `rule` on the facts of one node, or on the records of all nodes together.

    - NOT_APPLICABLE: the rule does not apply.
    - OK: the finding is False, even if it is UNKNOWN whether the rule applies.
    - CANNOT_TELL: the finding is UNKNOWN, or it is UNKNOWN whether the rule applies. `missing`
      names the missing facts.
    - FINDING: all other cases.
    """
    env.missing = set()
    env.names = {}
    env.steps = STEPS
    applies = _applies(rule, env)
    if applies is False:
        return RuleAnswer(RuleVerdict.NOT_APPLICABLE)
    assert rule.finding is not None
    value = rule.finding.run(env)
    found = truth(value)
    if found is False:
        # OK also if `applies` is UNKNOWN: there is nothing to find.
        return RuleAnswer(RuleVerdict.OK)
    if found is UNKNOWN or applies is UNKNOWN:
        return RuleAnswer(RuleVerdict.CANNOT_TELL, missing=frozenset(env.missing))
    return _filled(rule, env, value if rule.finding.kind.many else [None])


def _asked(ask_it: Callable[[], RuleAnswer]) -> RuleAnswer:
    """Return the answer of a rule, or CANNOT_TELL if the rule raises an error on the values.

    Damaged files of one node must not hide the results of the other nodes.
    """
    try:
        return ask_it()
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        return RuleAnswer(RuleVerdict.CANNOT_TELL, missing=frozenset({f"({MISFIT}: {error})"}))


def _applies(rule: DoctorRule, env: Env) -> Any:
    """Return whether a rule applies: True, False or UNKNOWN.

    A rule applies if the NCCL version is in the rule's range and the rule's expression `applies` is
    true. A rule may lack the range, the expression or both.
    """
    ranged: Any = True
    if rule.text.nccl is not None:
        ranged = _in_range(rule, env)
        if ranged is False:
            return False
    if rule.applies is None:
        return ranged
    applies = truth(rule.applies.run(env))
    return applies if ranged is True or applies is False else UNKNOWN


def _in_range(rule: DoctorRule, env: Env) -> Any:
    known = env.facts.get("nccl.version")
    version = UNKNOWN if known is None else version_of(known)
    if version is UNKNOWN:
        env.missing.add("nccl.version")
        return UNKNOWN
    bounds = rule.text.nccl
    assert bounds is not None
    if bounds.since is not None and version < version_of(bounds.since):
        return False
    return bounds.before is None or version < version_of(bounds.before)


def _filled(rule: DoctorRule, env: Env, members: Iterable[Any]) -> RuleAnswer:
    assert rule.evidence is not None
    evidence: dict[str, tuple[str, ...]] = {}
    commands: dict[str, None] = {}
    fix: dict[str, None] = {}
    for member in members:
        env.names = {"it": member}
        nodes = (member["node"],) if isinstance(member, dict) and "node" in member else ()
        words = rule.evidence.fill(env)
        evidence[words] = tuple(dict.fromkeys(evidence.get(words, ()) + nodes))
        _fill_once(rule.commands, env, commands, for_shell=False)
        _fill_once(rule.fix, env, fix, for_shell=True)
    env.names = {}
    unfit = _unfit(env.facts)
    return RuleAnswer(
        RuleVerdict.FINDING,
        tuple(evidence.items()),
        remedy=_remedy(rule, env, evidence),
        commands=tuple(line for line in commands if unfit.search(line) is None),
        fix=tuple(fix),
        check="; ".join(one for one in rule.text.check.split("; ") if not unfit.search(one)),
    )


def _unfit(facts: Mapping[str, Any]) -> re.Pattern[str]:
    """Return what matches commands for GPUs of another vendor, or whose output was given."""
    paths, failures = (facts.get(name) or () for name in ("gpu.paths", "failures"))
    words = []
    if facts.get("log.rccl", False) or any(one.get("kind") == "XGMI" for one in paths):
        words.append(r"(?i:nvidia(?!.*\b(?:rocm|AMD))|nvrm)")
    if any(one.get("kind") == "ras_report" for one in failures):
        words.append(r"ncclras(?! -D)")
    return re.compile("|".join(words) or r"(?!)")


_PLACE = re.compile(r" \([^(\n]*:\d{1,9}\)$")


def _remedy(rule: DoctorRule, env: Env, evidence: Iterable[str]) -> str:
    """Return the remedy with those of its further sentences whose pattern is in the evidence. The
    places of lines (`(FILE:9)`) are left out: 9 is no exit code."""
    shown = "\n".join(_PLACE.sub("", one) for one in evidence)
    said = [rule.remedy, *(words for where, words in rule.also if where.search(shown))]
    return " ".join(part for words in said if (part := words.fill(env).strip()))


def _fill_once(
    lines: Sequence[Template], env: Env, into: dict[str, None], *, for_shell: bool
) -> None:
    """Add lines to `into`, filled in for the current record: equal ones once, and no empty one."""
    for line in lines:
        if words := line.fill(env, for_shell=for_shell):
            into.setdefault(words)


def _ask_all(
    rule: DoctorRule,
    envs: Mapping[str, Env],
    values: Mapping[str, Mapping[str, Any]],
    pool: Env,
    groups: NodeGroups,
) -> RuleAnswer:
    if len(envs) < 2:
        return RuleAnswer(RuleVerdict.NOT_APPLICABLE)
    if rule.compare is not None:
        return _compared(rule, envs, groups)
    if rule.code is not None:
        found = rule.code.run(values)
        if found.sentences:
            return _whole(rule, found.sentences)
        if found.missing:
            return RuleAnswer(RuleVerdict.CANNOT_TELL, missing=frozenset(found.missing))
        return RuleAnswer(RuleVerdict.OK)
    return ask(rule, pool)


class _Compared(NamedTuple):
    """Values of one node for a comparison. A value is UNKNOWN if a fact is missing."""

    applies: Any
    group: Any
    value: Any
    missing: frozenset[str]


def _compared_of(rule: DoctorRule, env: Env) -> _Compared:
    env.missing = set()
    env.names = {}
    env.steps = STEPS
    assert rule.compare is not None
    applies = _applies(rule, env)
    group = rule.within.run(env) if rule.within is not None else ""
    value = rule.compare.run(env)
    if isinstance(value, Unsure):
        value = UNKNOWN
    return _Compared(applies, group, value, frozenset(env.missing))


def _compared(rule: DoctorRule, envs: Mapping[str, Env], node_groups: NodeGroups) -> RuleAnswer:
    """Compare the nodes of each group, and report the outliers. `within` is equal in a group.

    Without outliers, the verdict is OK if a group has two nodes with known values. Otherwise it is
    NOT_APPLICABLE if the rule applies to fewer than two nodes and no fact is missing. In all other
    cases it is CANNOT_TELL.
    """
    assert rule.text.compare is not None
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    missing: set[str] = set()
    excluded = 0
    asked: dict[Any, _Compared] = {}
    for name, env in envs.items():
        key = node_groups.key(name, rule)
        if key not in asked:
            asked[key] = _compared_of(rule, env)
        said = asked[key]
        if said.applies is False:
            excluded += 1
        elif UNKNOWN in (said.applies, said.group, said.value):
            missing |= said.missing
        else:
            groups[repr(said.group)][name] = said.value
    sentences: list[tuple[str, tuple[str, ...]]] = []
    compared = False
    for members in groups.values():
        if len(members) < 2:
            continue
        compared = True
        tolerance = rule.text.compare.tolerance
        sentences += (
            _different(rule.text.compare.what, members)
            if tolerance is None
            else _far(rule.text.compare.what, members, tolerance)
        )
    if sentences:
        return _whole(rule, sentences)
    if compared:
        return RuleAnswer(RuleVerdict.OK)
    if excluded > len(envs) - 2 and not missing:
        return RuleAnswer(RuleVerdict.NOT_APPLICABLE)
    return RuleAnswer(RuleVerdict.CANNOT_TELL, missing=frozenset(missing))


def _different(what: str, members: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return a sentence for each value that differs from the most common value.

    If two values are the most common, return a sentence for each value. If all nodes have the same
    value, return no sentence.
    """
    by_value: dict[str, list[str]] = defaultdict(list)
    values = {}
    for name, value in members.items():
        by_value[repr(value)].append(name)
        values[repr(value)] = value
    if len(by_value) == 1:
        return []
    ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
    (most, with_most), (_, next_most) = ordered[:2]
    if len(with_most) == len(next_most) and len(ordered) > 2:
        return [
            (f"{what}: {format_value(values[value])}", tuple(names)) for value, names in ordered
        ]
    if len(with_most) == len(next_most):
        (one, names), (other, others) = ordered
        return [
            (f"{what}: {_beside(values[one], values[other], 'the others')}", tuple(names)),
            (f"{what}: {_beside(values[other], values[one], 'the others')}", tuple(others)),
        ]
    number = f"({len(with_most)} nodes)"
    return [
        (f"{what}: {_beside(values[value], values[most], 'most')} {number}", tuple(names))
        for value, names in ordered[1:]
    ]


def _beside(value: Any, other: Any, whose: str) -> str:
    """Return a text with a value and that of others. For lists, name only the differences."""
    more = less = []
    if isinstance(value, list) and isinstance(other, list):
        more = [member for member in value if member not in other]
        less = [member for member in other if member not in value]
    if not more and not less:
        return f"{format_value(value)}; {whose} have {format_value(other)}"
    parts = [f"has {format_value(more)}"] if more else []
    parts += [f"lacks {format_value(less)}"] if less else []
    return f"{', '.join(parts)}, beside {whose}"


def _far(
    what: str, members: Mapping[str, Any], tolerance: float
) -> list[tuple[str, tuple[str, ...]]]:
    """Return a sentence for each node that is more than `tolerance` (0.1 is 10 %) below the median.

    Nodes above the median are no finding.
    """
    median = statistics.median(members.values())
    middle = f"median of {len(members)} nodes: {format_value(float(median))}"
    return [
        (f"{what}: {format_value(float(value))}; {middle}", (name,))
        for name, value in members.items()
        if value < median * (1 - tolerance)
    ]


def _whole(rule: DoctorRule, sentences: Iterable[tuple[str, tuple[str, ...]]]) -> RuleAnswer:
    env = Env({})
    return RuleAnswer(
        RuleVerdict.FINDING,
        tuple(sentences),
        remedy=rule.remedy.fill(env),
        commands=tuple(line.fill(env) for line in rule.commands),
        fix=tuple(line.fill(env, for_shell=True) for line in rule.fix),
    )


def _pooled(values: Mapping[str, Mapping[str, Any]], base: RuleBase) -> dict[str, Any]:
    """Return the records of all nodes, by fact, for the expressions of rules about all nodes.

    Each record gets the name of its node as `node`.
    """
    asked: set[str] = set()
    for rule in base.rules:
        if rule.text.scope is not RuleScope.NODE and rule.finding is not None:
            asked |= rule.needs
    pooled: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for node, facts in values.items():
        for name in asked & facts.keys():
            # A fact without records, such as nccl.version, has no place for the node's name.
            if catalogue()[name].type is FactType.RECORDS:
                pooled[name] += [record | {"node": node} for record in facts[name]]
    return dict(pooled)


def _judged(
    rule: DoctorRule, answers: Mapping[str, RuleAnswer], nodes: Mapping[str, Facts]
) -> RuleResult:
    by_verdict: dict[RuleVerdict, list[str]] = defaultdict(list)
    evidence: dict[str, dict[str, None]] = defaultdict(dict)
    fixes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    commands: dict[str, None] = {}
    missing: set[str] = set()
    remedy = ""
    for name, answer in answers.items():
        about = (name,) if name else ()
        by_verdict[answer.verdict] += about
        missing |= answer.missing
        for words, named in answer.evidence:
            evidence[words].update(dict.fromkeys(named or about))
        commands.update(dict.fromkeys(answer.commands))
        remedy = remedy or answer.remedy
        if answer.fix:
            fixes[answer.fix] += about or sorted({n for _, named in answer.evidence for n in named})
    verdict = next(
        (v for v in RuleVerdict if v in by_verdict),
        RuleVerdict.NOT_APPLICABLE,
    )
    text = rule.text
    return RuleResult(
        rule=rule.id,
        number=text.number,
        family=rule.family,
        title=text.title,
        severity=text.severity,
        scope=text.scope,
        verdict=verdict,
        nodes={key: tuple(names) for key, names in by_verdict.items() if names},
        evidence=tuple(
            Evidence(text=words, nodes=tuple(named), read=_read(rule, named, nodes))
            for words, named in evidence.items()
        ),
        alone=text.alone,
        missing=tuple(sorted(missing)) if verdict is RuleVerdict.CANNOT_TELL else (),
        check=next((one.check for one in answers.values() if one.check is not None), text.check),
        remedy=remedy or text.remedy,
        commands=tuple(commands)[:_MAX_COMMANDS],
        cost=text.cost,
        fix=tuple(
            Fix(nodes=tuple(dict.fromkeys(named)), lines=lines) for lines, named in fixes.items()
        ),
        source=tuple(link(source) for source in text.source),
        nccl=text.nccl.words if text.nccl is not None else None,
    )


def _read(rule: DoctorRule, named: Iterable[str], nodes: Mapping[str, Facts]) -> tuple[str, ...]:
    """Return where the rule's facts were read on the first node in `named`.

    At most _MAX_READ places are returned. The result is empty if `named` is empty or its first node
    is unknown.
    """
    first = next(iter(named), None)
    if first is None or first not in nodes:
        return ()
    facts = nodes[first]
    assert rule.finding or rule.compare or rule.code
    asked = rule.finding or rule.compare
    # Omit these: each record has its own source in the field `where`.
    names = sorted((asked.needs if asked is not None else rule.needs) - {"settings", "failures"})
    return tuple(dict.fromkeys(facts[name].source for name in names if name in facts))[:_MAX_READ]


_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"


def link(source: str) -> str:
    """Return `words (address)`, or only the words if they have no address.

    `docs:PAGE` is a page of NCCL's user guide. Words may follow the page.
    """
    if source.startswith("docs:"):
        page = source.removeprefix("docs:")
        return f"NCCL user guide, {page} ({_DOCS}{page.partition(' ')[0]}.html)"
    found = _THREAD.fullmatch(source)
    # GitHub redirects issues/N to the pull request if N is one.
    return f"{source} (https://github.com/{found[1]}/issues/{found[2]})" if found else source
