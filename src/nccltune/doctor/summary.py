# SPDX-License-Identifier: Apache-2.0
"""Summarise an examination: its findings, and the sources that would decide open rules.

An open rule has the verdict CANNOT_TELL, because facts are missing. A source is a file or command.
"""

import textwrap
from collections import Counter

from nccltune.doctor.facts import catalogue
from nccltune.doctor.result import Examination, RuleResult, RuleVerdict, node_names
from nccltune.doctor.rulebase import rule_base
from nccltune.model.finding import Severity
from nccltune.model.scale import count

_LONGEST = 160
_AREAS = (
    ("logs", ("log.", "failures", "ras.", "nccl.")),
    ("tests", ("tests",)),
    ("settings", ("settings", "plugins")),
    ("GPUs", ("gpu", "log.gpu_names", "imex.")),
    ("NICs", ("hca", "nic", "gids", "rdma.")),
    ("PCIe", ("pci.", "topo.", "graph.", "vm_host.")),
    ("the kernel's log", ("kernel.log", "kernel.failures")),
    ("the host", ("node.", "cpu.", "kernel.", "limits.", "shm.", "logind.", "container.")),
)
"""What rules are about, by the beginnings of facts. Clouds are left out: most nodes are in none."""


def verdict_words(examined: Examination) -> str:
    """Return `2 findings: 1 error, 1 warning`, or words for an examination without findings."""
    findings = examined.of(RuleVerdict.FINDING)
    if not findings:
        if not examined.of(RuleVerdict.OK):
            return "nothing could be checked" + _read_alone(examined)
        judged, unknown = judged_areas(examined)
        judged = [_with_lines(examined, area) for area in judged]
        words = f"nothing found in {', '.join(judged)}" if judged else "nothing found"
        words += f"; nothing known of {', '.join(unknown)}" if judged and unknown else ""
        unused = sum(len(node.unused) for node in examined.nodes)
        if not unused:
            return words
        verb = "was" if unused == 1 else "were"
        return f"{words}, but {count(unused, 'file')} {verb} not used"
    severities = Counter(judged.severity for judged in findings)
    parts = [count(severities[level], str(level)) for level in Severity if severities[level]]
    words = f"{count(len(findings), 'finding')}: {', '.join(parts)}"
    lines = _few_lines(examined)
    return f"{words}, in {lines} of logs" if lines else words


def _read_alone(examined: Examination) -> str:
    """Return what was read though it decides no rule alone; "" if nothing was."""
    known = {name for node in examined.nodes for name in node.known} & catalogue().keys()
    known -= {"node.collected"}
    meanings = sorted({catalogue()[name].meaning.partition("; ")[0] for name in known} - {""})
    if meanings:
        return f": read, but not enough alone: {', '.join(meanings)}"
    unread = [words for node in examined.nodes for words in node.unread]
    return f": {unread[0]}" if unread else ""


_FEW = 100
"""A log with fewer lines shows little: most checks of it pass because nothing is in it."""


def _few_lines(examined: Examination) -> str:
    """Return `2 lines` if so little of logs was read; else "", and "" if there are no logs."""
    lines = [node.text_lines for node in examined.nodes if node.text_lines is not None]
    return count(sum(lines), "line") if lines and sum(lines) < _FEW else ""


def _with_lines(examined: Examination, area: str) -> str:
    lines = _few_lines(examined)
    return f"{area} (only {lines})" if area == "logs" and lines else area


def judged_areas(examined: Examination) -> tuple[list[str], list[str]]:
    """Return what rules could judge, and what no fact is known of."""
    needs = {rule.id: rule.needs for rule in rule_base().rules}
    missing = {fact for judged in examined.rules for fact in judged.missing}
    decided = (*examined.of(RuleVerdict.OK), *examined.of(RuleVerdict.FINDING))
    known = {fact for judged in decided for fact in needs.get(judged.rule, ())}
    known -= missing | {"node.collected"}
    found: tuple[list[str], list[str]] = ([], [])
    for area in (name for name, _ in _AREAS):
        if any(_area(fact) == area for fact in known):
            found[0].append(area)
        elif any(_area(fact) == area for fact in missing):
            found[1].append(area)
    return found


def _area(fact: str) -> str | None:
    fitting = [
        (len(one), name) for name, starts in _AREAS for one in starts if fact.startswith(one)
    ]
    return max(fitting)[1] if fitting else None


def deciding_words(examined: Examination) -> str:
    """Return which file or command would decide most of the open rules; "" if none would."""
    sources = [(read.partition("; ")[0], rules) for read, rules in deciding_sources(examined)]
    if not sources:
        return ""
    (first, rules), *others = sources
    words = f"{first} would decide most ({count(rules, 'rule')})"
    if others:
        words += f"; then {', '.join(f'{read} ({number})' for read, number in others)}"
    if examined.source.startswith("this node"):
        return words
    return f"{words}; nccltune doctor --collect FOLDER on the node writes nearly all"


def line_words(examined: Examination, most: int = 3) -> str:
    """Return one line: the number of rules that are ok, and the `most` most severe findings."""
    findings = examined.of(RuleVerdict.FINDING)
    well = len(examined.of(RuleVerdict.OK))
    if not findings:
        # Without findings, the number of open rules shows how much was not checked.
        open_ = f" · cannot tell {len(examined.of(RuleVerdict.CANNOT_TELL))}"
        return f"ok {well} · nothing found{open_}" if well else "nothing could be checked"
    noun = "finding" if len(findings) == 1 else "findings"
    parts = [_in_short(judged) for judged in findings[:most]]
    more = len(findings) - len(parts)
    parts += [f"and {more} more: nccltune doctor"] if more else []
    return f"ok {well} · {noun} {len(findings)}: {' · '.join(parts)}"


def _in_short(judged: RuleResult) -> str:
    """Return a finding in short: `GPU 1 is slow (its evidence and 2 more)`.

    If the evidence is complete without a title (`alone`), the title is omitted.
    """
    shown = [
        textwrap.shorten(item.text, _LONGEST, placeholder=" ...")
        for item in judged.evidence[: 3 if judged.alone else 1]
    ]
    more = len(judged.evidence) - len(shown)
    words = "; ".join(shown) + (f" and {more} more" if more else "")
    return words if judged.alone else f"{judged.title} ({words})"


def count_words(examined: Examination) -> str:
    """Return how many rules have each verdict other than finding."""
    return " · ".join(
        f"{words} {len(examined.of(verdict))}"
        for verdict, words in (
            (RuleVerdict.OK, "ok"),
            (RuleVerdict.CANNOT_TELL, "cannot tell"),
            (RuleVerdict.NOT_APPLICABLE, "not applicable"),
        )
    )


def node_words(examined: Examination) -> str:
    """Return the node's name and title. For several nodes, return the number of nodes per title."""
    if len(examined.nodes) == 1:
        (node,) = examined.nodes
        return f"{node.name} · {node.title}" if node.title else node.name
    titles = Counter(node.title or "GPU and NCCL not known" for node in examined.nodes)
    kinds = [f"{number} x ({title})" for title, number in titles.most_common(3)]
    more = len(titles) - len(kinds)
    return f"{len(examined.nodes)} nodes: {' · '.join(kinds)}" + (
        f" · {count(more, 'kind')} more" if more > 0 else ""
    )


def unused_words(examined: Examination) -> list[str]:
    """Return a line for each file of which nothing was used, with the reason.

    Files with the same name on several nodes share one line. Without these lines, users would
    assume that the files were examined.
    """
    nodes: dict[tuple[str, str], list[str]] = {}
    many = len(examined.nodes) > 1
    for node in examined.nodes:
        for one in node.unused:
            name = one.file.removeprefix(f"{node.name}/") if many else one.file
            nodes.setdefault((name, one.why.replace(f"{node.name}/", "")), []).append(node.name)
    return [
        f"{name}: {why}" + (f" — {node_names(names)}" if many else "")
        for (name, why), names in nodes.items()
    ]


def deciding_sources(examined: Examination, most: int = 3) -> list[tuple[str, int]]:
    """Return the sources (files, commands) that have most of the missing facts of open rules.

    The most helpful source is first. The number beside a source counts rules. A rule counts only
    for the first source in the result that has one of its missing facts.
    """
    rules = {
        judged.rule: {_read(fact) for fact in judged.missing}
        for judged in examined.of(RuleVerdict.CANNOT_TELL)
    }
    found: list[tuple[str, int]] = []
    while rules and len(found) < most:
        counted = Counter(read for reads in rules.values() for read in sorted(reads))
        counted.pop("", None)
        if examined.nodes and all("RCCL" in node.title for node in examined.nodes):
            counted = Counter({read: n for read, n in counted.items() if "nvidia" not in read})
        if not counted:
            break
        ((read, helped),) = counted.most_common(1)
        found.append((read, helped))
        rules = {name: reads for name, reads in rules.items() if read not in reads}
    return found


def _read(fact: str) -> str:
    """Return the sources of a fact, or "" if no such fact is declared.

    `fact` is the name of a fact, or the name and a field of its records.
    """
    known = catalogue().get(fact) or catalogue().get(fact.rpartition(".")[0])
    if known is None:
        return ""
    # All facts of an NCCL log come from one file.
    return catalogue()["log.lines"].read if known.name.startswith("log.") else known.read
