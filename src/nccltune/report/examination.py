# SPDX-License-Identifier: Apache-2.0
"""Render the doctor's findings as one HTML file that opens without a network."""

import importlib.resources
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import nccltune
from nccltune.doctor.result import Examination, RuleResult, RuleVerdict, node_names, read_words
from nccltune.doctor.summary import count_words, deciding_sources, node_words, verdict_words
from nccltune.report.data import Checks

if TYPE_CHECKING:
    from jinja2 import Environment

Filters = Mapping[str, Callable[..., Any]]
"""Functions that a template calls by name."""


def asset(name: str) -> str:
    """Return the text of a file in `page/`: a template, a style or a script."""
    folder = importlib.resources.files("nccltune.report").joinpath("page")
    return folder.joinpath(name).read_text(encoding="utf-8")


def environment(filters: Filters) -> "Environment":
    """Return the environment of templates. HTML is escaped, and an undefined name is an error."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= filters
    return made


_SOURCE = re.compile(r"(?:(?P<words>.*) )?\(?(?P<address>https://[^\s()]+)\)?")
_TITLES = {
    RuleVerdict.CANNOT_TELL: "Cannot tell",
    RuleVerdict.OK: "Checked, without a finding",
    RuleVerdict.NOT_APPLICABLE: "Does not apply here",
}


class SourceLink(NamedTuple):
    """The text of a source and its address; `address` is empty if there is none."""

    words: str
    address: str


class VerdictGroup(NamedTuple):
    """The doctor's rules without a finding that have the same verdict."""

    title: str
    rules: tuple[RuleResult, ...]


def render(examined: Examination) -> str:
    """Return the whole page as HTML, in the style of the report."""
    findings = examined.of(RuleVerdict.FINDING)
    return (
        environment(FILTERS)
        .get_template("examination.html.j2")
        .render(
            examined=examined,
            version=nccltune.__version__,
            css=asset("page.css") + asset("examination.css"),
            verdict=_verdict(examined),
            tone="right" if not findings else "bad" if examined.is_wrong else "unknown",
            looked_at=node_words(examined),
            findings=findings,
            others=[VerdictGroup(title, examined.of(kind)) for kind, title in _TITLES.items()],
            deciding_sources=deciding_sources(examined, 5),
            unread=[
                (node.name, words)
                for node in examined.nodes
                for words in dict.fromkeys(
                    (*(f"{one.file}: {one.why}" for one in node.unused), *node.unread)
                )
            ],
            counts=[
                ("Findings", len(findings)),
                *((title, len(examined.of(kind))) for kind, title in _TITLES.items()),
            ],
        )
    )


def checks_of(examined: Examination, nodes: int = 1) -> Checks:
    """Return the doctor's part of a report: its findings, and counts of the other rules."""
    looked_at = node_words(examined)
    if len(examined.nodes) == 1 and nodes > 1:
        looked_at += f" · one of {nodes} nodes; the others were not looked at"
    return Checks(
        verdict=f"{verdict_words(examined)} · {count_words(examined)}",
        looked_at=looked_at,
        many=len(examined.nodes) > 1,
        findings=list(examined.of(RuleVerdict.FINDING)),
    )


def _verdict(examined: Examination) -> str:
    words = verdict_words(examined)
    if not examined.of(RuleVerdict.FINDING):
        return words[:1].upper() + words[1:] + "."
    first = examined.of(RuleVerdict.FINDING)[0]
    return f"{words}. First: {first.title}."


def source_parts(text: str) -> SourceLink:
    """Return the text and address of a source: `words (address)` or an address alone."""
    found = _SOURCE.fullmatch(text)
    if found is None:
        return SourceLink(text, "")
    return SourceLink(found["words"] or found["address"], found["address"])


FILTERS: Filters = {"names": node_names, "places": read_words, "source": source_parts}
"""The filters that the template of findings (`examination_findings.html.j2`) uses."""
