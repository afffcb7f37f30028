# SPDX-License-Identifier: Apache-2.0
"""Apply all lint rules to files."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from nccltune.formats.text.lines import encoding_of
from nccltune.formats.topology.graph_xml import Graphs
from nccltune.formats.topology.nccl_xml_rules import refusals
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.topology import Dialect, Topology
from nccltune.topology.files.load import load
from nccltune.topology.lint.across import check_across
from nccltune.topology.lint.balance import check_balance
from nccltune.topology.lint.graphs import check_graphs
from nccltune.topology.lint.here import check_here
from nccltune.topology.lint.issue import Issue
from nccltune.topology.lint.links import check_links
from nccltune.topology.lint.nvlink import check_nvlinks
from nccltune.topology.lint.shape import check_shape

_ORDER = list(Severity)
_XML = (Dialect.NCCL, Dialect.RCCL, Dialect.FLAGCX)


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """The files read and the issues found, sorted by file and then by severity."""

    topologies: tuple[Topology, ...]
    graphs: tuple[Graphs, ...]
    issues: tuple[Issue, ...]
    files: int

    @property
    def is_bad(self) -> bool:
        """Return whether any issue is a warning or an error."""
        return any(issue.severity is not Severity.NOTE for issue in self.issues)


def lint_files(files: Iterable[tuple[str, bytes]], *, here: Path | None = None) -> LintResult:
    """Return the issues of files, given by name and content.

    `here` is the root folder (`/`) of a machine to compare topologies with. An unreadable file is
    an issue. But if no file can be read, the InputError of the first file is raised.

    >>> result = lint_files([("topo.xml", b'<system version="2"><cpu numaid="0"/></system>')])
    >>> [issue.id for issue in result.issues]
    ['no-gpu']
    """
    topologies: list[Topology] = []
    graphs: list[Graphs] = []
    order: list[str] = []
    issues: list[Issue] = []
    first: InputError | None = None
    for source, data in files:
        order.append(source)
        try:
            found = load(data, source)
        except InputError as error:
            first = first or error
            issues.append(_unreadable(source, error))
            continue
        if isinstance(found, Graphs):
            graphs.append(found)
        else:
            topologies.append(found)
            issues += lint_topology(found)
            if here is not None:
                issues += check_here(found, here)
        if isinstance(found, Graphs) or found.dialect in _XML:
            issues += _refused(data, source)
    if first is not None and not topologies and not graphs:
        raise first
    for one in graphs:
        issues += check_graphs(one, topologies)
    issues += check_across(topologies)
    return LintResult(
        topologies=tuple(topologies),
        graphs=tuple(graphs),
        issues=tuple(_sorted(issues, order)),
        files=len(order),
    )


def _unreadable(source: str, error: InputError) -> Issue:
    line = (error.where or "").removeprefix(source).removeprefix(":")
    return Issue(
        severity=Severity.ERROR,
        id="unreadable",
        source=source,
        line=int(line) if line.isdecimal() else None,
        message=error.message,
        hint=error.hint or "dump it again",
    )


def lint_topology(topology: Topology) -> list[Issue]:
    """Return the issues found by the rules that need only one topology."""
    return [
        *check_links(topology),
        *check_nvlinks(topology),
        *check_shape(topology),
        *check_balance(topology),
    ]


def _refused(data: bytes, source: str) -> list[Issue]:
    encoding = encoding_of(data[:4])
    # Keep the byte order mark: a rule reports it.
    text = data.decode("utf-8" if encoding == "utf-8-sig" else encoding, errors="replace")
    return [
        Issue(
            severity=Severity.ERROR if one.fatal else Severity.WARNING,
            id=one.id,
            source=source,
            line=one.line,
            message=one.message,
            hint=one.hint,
        )
        for one in refusals(text)
    ]


def _sorted(issues: list[Issue], order: Sequence[str]) -> list[Issue]:
    places = {source: place for place, source in enumerate(order)}
    return sorted(
        issues,
        key=lambda one: (places[one.source], _ORDER.index(one.severity), one.line or 0),
    )
