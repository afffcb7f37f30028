# SPDX-License-Identifier: Apache-2.0
"""Render the report as one HTML file that opens without a network."""

import base64
import functools
import gzip
import importlib.resources
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from nccltune.model.numbers import percent_text, share_text, significant, size_form
from nccltune.model.rule import RuleState
from nccltune.model.sizes import format_bytes
from nccltune.report import remarks, words
from nccltune.report.data import (
    ConditionRow,
    GroupRow,
    LeftRow,
    ProofRuleRow,
    Report,
    RuleRow,
    SizeRow,
)
from nccltune.report.examination import FILTERS, Filters, asset, environment

if TYPE_CHECKING:
    from jinja2 import Template

_NAMES = re.compile(r"(\w+-\w+)")
_TIMES = re.compile(r"(?<=\d)x\b")
_BARE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class GlanceCell(msgspec.Struct, frozen=True):
    """One cell of the table below the verdict: a size of a collective. `css` is its CSS class."""

    css: str
    title: str


class GlanceRow(msgspec.Struct, frozen=True):
    """One line of the table below the verdict. `kind` is `proven`, `expected` or empty."""

    title: str
    condition: str | None
    cells: list[GlanceCell]
    gain: float | None
    kind: str
    outcome: str


class Glance(msgspec.Struct, frozen=True):
    """The table below the verdict, with a cell for each size that any row has."""

    first: int
    last: int
    rows: list[GlanceRow]


@functools.cache
def _template() -> "Template":
    filters: Filters = {
        "size": format_bytes,
        "range": words.range_text,
        "form": size_form,
        "ends": _ends,
        "sms": _sms,
        "time": lambda value: "–" if value is None else words.time_text(value, "µs"),
        "percent": percent_text,
        "share": share_text,
        "number": lambda value: significant(value) if value < 1000 else f"{value:,.0f}",
        "figure": significant,
        "sentence": lambda text: words.sentence(typeset(text)),
        "typeset": typeset,
        "pieces": pieces,
        **FILTERS,
    }
    return environment(filters).get_template("page.html.j2")


def render(report: Report) -> str:
    """Return the whole page as HTML, with style, script, data and plotly.js inside."""
    tabs = ordered_conditions(report)
    return _template().render(
        report=report,
        first=tabs[0] if tabs else None,
        tabs=tabs,
        gain_note=remarks.GAIN_NOTE,
        glance=_glance(report),
        tables=_tables(report),
        css=asset("page.css") + (asset("examination.css") if report.checks else ""),
        js=asset("page.js"),
        data=embedded_json(report),
        plotly=packed_plotly(),
    )


def ordered_conditions(report: Report) -> list[ConditionRow]:
    """Return the conditions in the order of the tabs: those with rules first, by gain."""
    gains = {group.id: _gain(group) or 1.0 for group in report.groups if group.rules}
    return sorted(report.conditions, key=lambda item: -gains.get(item.group or "", 0.0))


def _gain(group: GroupRow) -> float | None:
    """Return the displayed gain of a group: the proven gain, else the expected one."""
    if not group.rules:
        return None
    return group.expected_gain if group.proven_gain is None else group.proven_gain


def _ends(rows: Sequence[RuleRow | ProofRuleRow | LeftRow]) -> list[int]:
    return [end for row in rows for end in (row.min_bytes, row.max_bytes)]


def _sms(rule: RuleRow) -> str:
    return words.sms_text(rule.channels, rule.default_channels).removeprefix("SMs ")


def typeset(text: str) -> str:
    """Return `text` with multiplication signs (`1.4×`) and no-break spaces before units."""
    return words.unbroken(_TIMES.sub("×", text))


def pieces(text: str) -> list[str]:
    """Return the pieces of `text`; every second is a hyphenated name, not to be broken."""
    return _NAMES.split(text)


def embedded_json(report: Report) -> str:
    """Return the report as JSON that cannot end its script element."""
    return msgspec.json.encode(report).decode().translate(_BARE)


@functools.cache
def packed_plotly() -> str:
    """Return plotly.js as base64 of gzip, a third of its size."""
    source = importlib.resources.files("plotly").joinpath("package_data", "plotly.min.js")
    return base64.b64encode(gzip.compress(source.read_bytes(), 9, mtime=0)).decode("ascii")


def _tables(report: Report) -> dict[str, list[SizeRow]]:
    groups = {group.id: group.sizes for group in report.groups}
    return {item.id: groups.get(item.group or "", []) for item in report.conditions}


def _glance(report: Report) -> Glance:
    sizes = sorted({row.bytes for group in report.groups for row in group.sizes})
    if not sizes:
        return Glance(0, 0, [])
    shown = {item.group: item.id for item in reversed(report.conditions)}
    rows = []
    for group in sorted(report.groups, key=lambda group: -(_gain(group) or 0.0)):
        gain = _gain(group)
        proven = "" if gain is None else "expected" if group.proven_gain is None else "proven"
        rows.append(
            GlanceRow(
                title=group.label,
                condition=shown.get(group.id),
                cells=_cells(group, sizes),
                gain=gain,
                kind=proven,
                outcome=group.outcome,
            )
        )
    return Glance(sizes[0], sizes[-1], rows)


def _cells(group: GroupRow, sizes: list[int]) -> list[GlanceCell]:
    by_size = {row.bytes: row for row in group.sizes}
    cells = []
    for size in sizes:
        row = by_size.get(size)
        if row is None:
            cells.append(GlanceCell("gap", f"{format_bytes(size)}: not measured"))
        elif row.choice is None:
            cells.append(GlanceCell("keep", f"{format_bytes(size)}: keeps the default"))
        else:
            gain = "" if row.gain is None else f", {row.gain:.2f}×"
            is_candidate = any(
                rule.state is RuleState.CANDIDATE and rule.min_bytes <= size <= rule.max_bytes
                for rule in group.rules
            )
            css = "candidate" if is_candidate else _shade(row.gain)
            state = ", a candidate" if is_candidate else ""
            title = f"{format_bytes(size)}: {row.choice}{state}{gain}"
            cells.append(GlanceCell(css, title))
    return cells


def _shade(gain: float | None) -> str:
    """Return the CSS class of a gain: g1 up to 1.1x, g2 up to 1.25x, else g3 (also if unknown)."""
    if gain is None:
        return "g3"
    return f"g{1 + sum(gain > step for step in (1.1, 1.25))}"
