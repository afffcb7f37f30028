# SPDX-License-Identifier: Apache-2.0
"""Facts of what NCCL said itself: its log, its diagnostics, outputs of its tests."""

import io
import re
from typing import Any

from nccltune.doctor.evidence.parsers.failures import has_rows
from nccltune.doctor.evidence.parsers.nccl_lines import NcclLines, parse_nccl_lines
from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.evidence.raw import Evidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.formats.context import Context, ReadOptions
from nccltune.formats.file_names import named_choice
from nccltune.formats.nccl_diagnostics import read_diagnostics
from nccltune.formats.nccl_tests_json import read_json
from nccltune.formats.nccl_tests_text import read_text
from nccltune.formats.reading import FileReport
from nccltune.model.choice import DEFAULT, Choice, parse_algorithm
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample
from nccltune.model.scale import count

_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)")
_DEVICE = re.compile(r"#\s+Rank\s+\d+ (?:Group\s+\d+ )?Pid\s+\d+ on\s+(?P<host>\S{1,255}) device")
_MOST_MESSAGES = 2000


def add_logs(evidence: Evidence, facts: Facts) -> None:
    """Put in `log.*`, `nccl.version`, `ras.checks` and `tests`."""
    logs = [(raw, evidence.parse(raw, parse_nccl_lines)) for raw in evidence.all("log")]
    logs = [(raw, log) for raw, log in logs if log.messages or log.version]
    if logs:
        _logs(facts, logs)
    checks = _checks(evidence)
    if checks is not None:
        facts.add("ras.checks", *checks)
    tests = [record for raw in evidence.all("test") for record in _tests(evidence, raw)]
    if tests:
        facts.add("tests", tests, evidence.all("test")[0].place())


def _logs(facts: Facts, logs: list[tuple[Raw, NcclLines]]) -> None:
    raw, log = max(logs, key=lambda one: one[1].ranks or 0)
    place = raw.place()
    messages = [message for _, one in logs for message in one.messages]
    messages.sort(key=lambda one: not one.warn)
    facts.add(
        "log.lines",
        [
            {"text": one.text, "warn": one.warn, "line": one.line, "count": one.times}
            for one in messages[:_MOST_MESSAGES]
        ],
        place,
    )
    facts.add(
        "log.warnings",
        [
            {"text": one.text, "line": one.line, "count": one.times}
            for one in messages[:_MOST_MESSAGES]
            if one.warn
        ],
        place,
    )
    vias: dict[tuple[str, str], int] = {}
    for _, one in logs:
        for via in one.vias:
            vias[via.direction, via.via] = vias.get((via.direction, via.via), 0) + via.times
    if vias:
        facts.add(
            "log.vias",
            [
                {"direction": way, "via": via, "gdr": "GDRDMA" in via, "count": times}
                for (way, via), times in vias.items()
            ],
            place,
        )
    for name, value in (
        ("nccl.version", log.version or next((o.version for _, o in logs if o.version), None)),
        ("log.net", log.net),
        ("log.net_devices", None if log.net_devices is None else list(log.net_devices)),
        ("log.net_relaxed_ordering", log.relaxed_ordering),
        ("log.bootstrap", log.bootstrap),
        ("log.ranks", log.ranks),
        ("log.nodes", log.nodes),
        ("log.coll_channels", log.coll_channels),
        ("log.nvls_channels", log.nvls_channels),
    ):
        if value is not None:
            facts.add(name, value, place)
    if log.graphs:
        facts.add(
            "log.graphs",
            [
                {
                    "pattern": one.pattern,
                    "channels": one.channels,
                    "gb_per_s_intra": one.gb_per_s_intra,
                    "gb_per_s_inter": one.gb_per_s_inter,
                    "kind_intra": one.kind_intra,
                    "kind_inter": one.kind_inter,
                }
                for one in log.graphs
            ],
            place,
        )


def _checks(evidence: Evidence) -> tuple[list[dict[str, Any]], str] | None:
    found: list[dict[str, Any]] = []
    source = ""
    for raw in evidence.all("diagnostics"):
        for report in evidence.parse(raw, _diagnostics):
            source = source or raw.place()
            found += [
                {"name": one.check, "status": "OK" if one.ok else "INFO", "text": one.text}
                for one in report.results
            ]
    return (found, source) if found else None


def _diagnostics(text: str) -> list[Any]:
    return list(read_diagnostics(text.split("\n"))) if "NCCL DIAG " in text else []


def _tests(evidence: Evidence, raw: Raw) -> list[dict[str, Any]]:
    text = evidence.parse(raw, str)
    # Where nothing in it names the collective, the file's name may.
    samples = _samples(evidence, text, raw.source)
    averages = [float(match[1]) for match in _AVERAGE.finditer(text)]
    hosts = sorted({m["host"] for _, line in lines_of(text) if (m := _DEVICE.search(line))})
    by_collective: dict[str, list[Sample]] = {}
    for sample in samples:
        by_collective.setdefault(sample.collective.value, []).append(sample)
    log = evidence.parse(raw, parse_nccl_lines) if "NCCL " in text else None
    devices = log.net_devices if log is not None else None
    found = []
    for number, (_, group) in enumerate(by_collective.items()):
        rates = [(_busbw(one), one.bytes) for one in group if one.time_us > 0]
        peak, at = max(rates, default=(None, None))
        ranks = max((one.ranks or 0 for one in group), default=0) or None
        nodes = len(hosts) or max((one.nodes or 0 for one in group), default=0) or None
        found.append(
            {
                "file": raw.source,
                "collective": _TEST_NAMES.get(group[0].collective.value, group[0].collective.value),
                "nodes": nodes,
                "hosts": hosts,
                "ranks": ranks,
                "min_bytes": min(one.bytes for one in group),
                "max_bytes": max(one.bytes for one in group),
                "sizes": len({one.bytes for one in group}),
                "avg_busbw_gb_per_s": averages[number] if number < len(averages) else None,
                "peak_busbw_gb_per_s": peak,
                "peak_bytes": at,
                "nics": len(devices) if devices else None,
                "gpus_per_node": ranks // nodes if ranks and nodes else None,
                "algorithm": _forced(log, raw.source),
            }
        )
    return found


def _forced(log: NcclLines | None, name: str) -> str | None:
    """The only algorithm that NCCL was left, as its log or the file's name says."""
    for setting in log.settings if log is not None else ():
        if setting.name == "NCCL_ALGO":
            try:
                return parse_algorithm(setting.value.lower()).value
            except InputError:
                return None
    named = named_choice(name)
    choice = named.choice if named is not None else None
    return choice.algorithm.value if isinstance(choice, Choice) else None


_TEST_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
}


def _busbw(sample: Sample) -> float:
    factor = sample.collective.bus_factor(sample.ranks) if sample.ranks else 1.0
    return sample.bytes / sample.time_us / 1e3 * factor


def _samples(evidence: Evidence, text: str, name: str) -> list[Sample]:
    report = FileReport(name=name, asked=False)
    # Which choice it was is nothing to refuse a measurement for here.
    options = ReadOptions(study="doctor", choice=DEFAULT, started_here=True)
    context = Context(name=name, options=options, report=report)
    found: list[Sample] = []
    try:
        reader = read_json if text.lstrip().startswith("{") else read_text
        for batch in reader(io.BytesIO(text.encode()), context):
            found += batch.samples
    except InputError as error:
        report.refuse(error.message)
    if report.unreadable:
        evidence.problems.append(f"{name}: {count(report.unreadable, 'line')} not understood")
    if not found and report.error is None and has_rows(text):
        evidence.refuse(
            f"{name} (its table of nccl-tests)",
            "nothing names the collective; let the file's name begin with it: all_reduce-1.log",
        )
    if report.error is not None:
        evidence.refuse(name, report.error)
        return []
    return found
