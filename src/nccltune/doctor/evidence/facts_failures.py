# SPDX-License-Identifier: Apache-2.0
"""Facts of what logs, tools and the collector say failed."""

from typing import Any

from nccltune.doctor.evidence.parsers.failures import parse_failures, wrong_rows
from nccltune.doctor.evidence.parsers.kernel_log import failure_kinds
from nccltune.doctor.evidence.raw import Evidence, Raw
from nccltune.doctor.facts import Facts

# Outputs of programs, and of tools that state a failure in place of what they were asked for.
_TABLES = ("nvlink", "topo", *(f"p2p-{kind}" for kind in "rwnap"))
_TABLE_BYTES = 1024
"""A tool that failed printed less than a table."""
_ITEMS = (
    *("test", "output", "log", "diagnostics"),
    *("nvidia-smi", "nvidia-smi-q", "nvidia-smi-sm", "nvidia-smi-fabric", *_TABLES),
)
_TOOL = "nvidia-smi"


def add_failures(evidence: Evidence, facts: Facts) -> None:
    """Put in `failures`, `kernel.failures` and `node.collected`, once all else was read."""
    if evidence.is_node:
        facts.add("node.collected", not evidence.live, "this node" if evidence.live else "folder")
    raws: dict[str, Raw] = {}
    # A file that is a log and a test is here once, as the test.
    for item in _ITEMS:
        for raw in evidence.all(item):
            if item not in _TABLES or len(raw.data) < _TABLE_BYTES:
                raws.setdefault(raw.source, raw)
    records: list[dict[str, Any]] = []
    for raw in raws.values():
        rows = evidence.parse(raw, wrong_rows) if raw.name == "test" else ()
        for one in (*rows, *evidence.parse(raw, parse_failures)):
            records.append(_record(one, raw.place(one.line)))
    # Each of the questions to a tool that is not installed is one problem.
    kernel = [one for one in records if one["kind"] == "xid"]
    records = [one for one in records if one["kind"] != "xid"]
    told = "\n".join(
        dict.fromkeys(
            one for one in evidence.problems if _TOOL in one and one.partition(": ")[0] not in raws
        )
    )
    records += [_record(one, "collected.txt") for one in parse_failures(told)]
    if raws or records:
        facts.add("failures", records, next(iter(raws.values())).place() if raws else _TOOL)
    _kernel(facts, kernel)
    if "gpus" not in facts and any(one["text"].startswith(_NO_DEVICES) for one in records):
        facts.add("gpus", [], _TOOL)


def _kernel(facts: Facts, printed: list[dict[str, Any]]) -> None:
    """Put in `kernel.failures`: of the kernel's log, and its lines that a program's output has."""
    logged = facts.get("kernel.log")
    if logged is None and not printed:
        return
    lines = [(one["text"], one["count"]) for one in (logged.value if logged else ())]
    lines += [(one["text"], one["count"]) for one in printed]
    kinds = failure_kinds([text for text, _ in lines])
    found = [
        {"kind": kind, "text": text, "count": count}
        for kind, (text, count) in zip(kinds, lines, strict=True)
        if kind is not None
    ]
    facts.add("kernel.failures", found, logged.source if logged else printed[0]["where"])


_NO_DEVICES = "No devices were found"


def _record(one: Any, place: str) -> dict[str, Any]:
    return {"kind": one.kind, "text": one.text, "count": one.times, "where": place}
