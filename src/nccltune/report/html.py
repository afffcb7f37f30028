# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file that opens without a network."""

import base64
import gzip
import importlib.resources
import re

import msgspec

from nccltune.model.sizes import format_bytes
from nccltune.report import words
from nccltune.report.data import ConditionRow, GroupRow, Report, SizeRow
from nccltune.report.examination import FILTERS

_NAMES = re.compile(r"(\w+-\w+)")
_TIMES = re.compile(r"(?<=\d)x\b")
_BARE = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class GlanceCell(msgspec.Struct, frozen=True):
    """One size in the strip of a collective; `css` is its class."""

    css: str
    title: str


class GlanceRow(msgspec.Struct, frozen=True):
    """One line of the table under the verdict."""

    title: str
    condition: str | None
    cells: list[GlanceCell]
    gain: float | None
    outcome: str


class Glance(msgspec.Struct, frozen=True):
    """The table under the verdict; all rows have one cell for each size of any of them."""

    first: int
    last: int
    rows: list[GlanceRow]


def render(report: Report) -> str:
    """The whole page: style, script, data and plotly.js are inside it."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "size": format_bytes,
        "range": words.range_text,
        "time": lambda value: "–" if value is None else words.time_text(value, "µs"),
        "percent": words.percent_text,
        "sentence": lambda text: words.sentence(typeset(text)),
        "typeset": typeset,
        "pieces": pieces,
        **FILTERS,
    }
    return environment.get_template("page.html.j2").render(
        report=report,
        first=first_condition(report),
        glance=_glance(report),
        tables=_tables(report),
        css=_asset("page.css") + (_asset("examination.css") if report.checks else ""),
        js=_asset("page.js"),
        data=embedded_json(report),
        plotly=packed_plotly(),
    )


def first_condition(report: Report) -> ConditionRow | None:
    """What the charts show first: the condition with the largest expected gain."""
    gains = {group.id: group.expected_gain or 1.0 for group in report.groups if group.rules}
    if not report.conditions:
        return None
    return max(report.conditions, key=lambda item: gains.get(item.group or "", 0.0))


def typeset(text: str) -> str:
    """`1.4x` with a multiplication sign and units that stay with their number, as print has it."""
    return words.unbroken(_TIMES.sub("×", text))


def pieces(text: str) -> list[str]:
    """`text` cut so that every second piece is a hyphenated name, which must not be broken."""
    return _NAMES.split(text)


def embedded_json(report: Report) -> str:
    """The data as JSON that no content can break out of a script element with."""
    return msgspec.json.encode(report).decode().translate(_BARE)


def packed_plotly() -> str:
    """plotly.js as the plotly package ships it, compressed to a third (base64 of gzip)."""
    source = importlib.resources.files("plotly").joinpath("package_data", "plotly.min.js")
    return base64.b64encode(gzip.compress(source.read_bytes(), 9, mtime=0)).decode("ascii")


def _asset(name: str) -> str:
    folder = importlib.resources.files("nccltune.report").joinpath("page")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _tables(report: Report) -> dict[str, list[SizeRow]]:
    groups = {group.id: group.sizes for group in report.groups}
    return {item.id: groups.get(item.group or "", []) for item in report.conditions}


def _glance(report: Report) -> Glance:
    sizes = sorted({row.bytes for group in report.groups for row in group.sizes})
    if not sizes:
        return Glance(0, 0, [])
    shown = {item.group: item.id for item in reversed(report.conditions)}
    rows = []
    for group in report.groups:
        rows.append(
            GlanceRow(
                title=group.label,
                condition=shown.get(group.id),
                cells=_cells(group, sizes),
                gain=group.expected_gain if group.rules else None,
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
            cells.append(GlanceCell("keep", f"{format_bytes(size)}: left alone"))
        else:
            gain = "" if row.gain is None else f", {row.gain:.2f}×"
            cells.append(GlanceCell(_shade(row.gain), f"{format_bytes(size)}: {row.choice}{gain}"))
    return cells


def _shade(gain: float | None) -> str:
    """Three shades: up to 1.1x, up to 1.25x, and above (or unknown)."""
    if gain is None:
        return "g3"
    return f"g{1 + sum(gain > step for step in (1.1, 1.25))}"
