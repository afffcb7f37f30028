# SPDX-License-Identifier: Apache-2.0
"""An examination in a few sentences: the verdict, and what would tell what could not be told."""

import textwrap
from collections import Counter

from nccltune.doctor.facts import catalogue
from nccltune.doctor.result import Examination, Judged, Verdict, node_names
from nccltune.doctor.rule import Severity
from nccltune.model.scale import count

_LONGEST = 160


def verdict_words(examined: Examination) -> str:
    """`2 findings: 1 error, 1 warning`, or that nothing was found."""
    findings = examined.of(Verdict.FINDING)
    if not findings:
        if not examined.of(Verdict.OK):
            return "nothing could be checked"
        unused = sum(len(node.unused) for node in examined.nodes)
        if not unused:
            return "nothing found"
        verb = "was" if unused == 1 else "were"
        return f"nothing found, but {count(unused, 'file')} {verb} not used"
    severities = Counter(judged.severity for judged in findings)
    parts = [count(severities[level], str(level)) for level in Severity if severities[level]]
    return f"{count(len(findings), 'finding')}: {', '.join(parts)}"


def line_words(examined: Examination, most: int = 3) -> str:
    """All of it in one line: how many rules say ok, and the `most` gravest findings in words."""
    findings = examined.of(Verdict.FINDING)
    well = len(examined.of(Verdict.OK))
    if not findings:
        # Without findings the line must not look better than it is.
        open_ = f" · cannot tell {len(examined.of(Verdict.CANNOT_TELL))}"
        return f"ok {well} · nothing found{open_}" if well else "nothing could be checked"
    noun = "finding" if len(findings) == 1 else "findings"
    parts = [_in_short(judged) for judged in findings[:most]]
    more = len(findings) - len(parts)
    parts += [f"and {more} more: nccltune doctor"] if more else []
    return f"ok {well} · {noun} {len(findings)}: {' · '.join(parts)}"


def _in_short(judged: Judged) -> str:
    """`GPU 1 is slow (its evidence and 2 more)`; evidence that says it all goes without a title."""
    shown = [
        textwrap.shorten(item.text, _LONGEST, placeholder=" ...")
        for item in judged.evidence[: 3 if judged.alone else 1]
    ]
    more = len(judged.evidence) - len(shown)
    words = "; ".join(shown) + (f" and {more} more" if more else "")
    return words if judged.alone else f"{judged.title} ({words})"


def count_words(examined: Examination) -> str:
    """How many rules have each of the other verdicts."""
    return " · ".join(
        f"{words} {len(examined.of(verdict))}"
        for verdict, words in (
            (Verdict.OK, "ok"),
            (Verdict.CANNOT_TELL, "cannot tell"),
            (Verdict.NOT_APPLICABLE, "not applicable"),
        )
    )


def node_words(examined: Examination) -> str:
    """The node and what it is; of many nodes how many of each kind there are."""
    if len(examined.nodes) == 1:
        (node,) = examined.nodes
        return f"{node.name} · {node.title}" if node.title else node.name
    titles = Counter(node.title or "nothing known" for node in examined.nodes)
    kinds = [f"{number} x ({title})" for title, number in titles.most_common(3)]
    more = len(titles) - len(kinds)
    return f"{len(examined.nodes)} nodes: {' · '.join(kinds)}" + (
        f" · {count(more, 'kind')} more" if more > 0 else ""
    )


def unused_words(examined: Examination) -> list[str]:
    """Return a line for each file of which nothing was used, with the reason; files alike of many
    nodes are one line. These are what nobody may take for examined."""
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


def what_would_tell(examined: Examination, most: int = 3) -> list[tuple[str, int]]:
    """What to read so that the rules that cannot tell can, and how many it would help; the most
    helpful first. A rule counts for the first of its missing facts that is asked for."""
    rules = {judged.rule: set(judged.missing) for judged in examined.of(Verdict.CANNOT_TELL)}
    found: list[tuple[str, int]] = []
    while rules and len(found) < most:
        counted = Counter(_read(fact) for missing in rules.values() for fact in missing)
        counted.pop("", None)
        if not counted:
            break
        ((read, helped),) = counted.most_common(1)
        found.append((read, helped))
        rules = {
            name: missing
            for name, missing in rules.items()
            if read not in {_read(fact) for fact in missing}
        }
    return found


def _read(fact: str) -> str:
    """Where a fact is read, by its name or that of a field of its records."""
    known = catalogue().get(fact) or catalogue().get(fact.rpartition(".")[0])
    if known is None:
        return ""
    # All that an NCCL log tells is one thing to hand in.
    return catalogue()["log.lines"].read if known.name.startswith("log.") else known.read
