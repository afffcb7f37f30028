# SPDX-License-Identifier: Apache-2.0
"""Facts of failures that logs, tools and the collector report."""

import re
from typing import Any

from nccltune.doctor.evidence.parsers.failures import (
    FailureLine,
    completions,
    crash_frames,
    failed_diagnostics,
    parse_failures,
    raised,
)
from nccltune.doctor.evidence.parsers.kernel_log import DRIVER_LINE, failure_kinds, is_of_others
from nccltune.doctor.evidence.parsers.nccl_init import shared_gpus
from nccltune.doctor.evidence.parsers.ras import ras_ranks
from nccltune.doctor.evidence.parsers.result_rows import lone_ranks, wrong_rows
from nccltune.doctor.evidence.parsers.watchdog import ranks_apart, stalled_ranks, stuck_at_exit
from nccltune.doctor.evidence.raw import NodeEvidence, Raw
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.gpu import GPUS
from nccltune.doctor.facts.node import KERNEL_LOG, NODE_COLLECTED
from nccltune.doctor.facts.pci import PCI_LINKS
from nccltune.doctor.facts.results import (
    FAILURES,
    KERNEL_FAILURES,
    TEXT_LINES,
    KernelFailure,
    StatedFailure,
)

# Tools that print a table. A tool that fails may print an error instead.
_TABLES = ("nvlink", "topo", *(f"p2p-{kind}" for kind in "rwnap"))
_TABLE_BYTES = 1024
"""If a tool in _TABLES prints at least this many bytes, the output is a table. A table is not
searched for failures."""
_LOGS = ("test", "output", "log", "diagnostics")
_ITEMS = (
    *_LOGS,
    *("nvidia-smi", "nvidia-smi-q", "nvidia-smi-sm", "nvidia-smi-fabric", *_TABLES),
)
_TOOL = "nvidia-smi"


def add_failures(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `failures`, `kernel.failures` and `node.collected`. Call this after all other facts.

    If `gpus` is not known and nvidia-smi printed that there is no GPU, also add an empty `gpus`.
    """
    if evidence.is_node:
        facts.add(NODE_COLLECTED, not evidence.live, "this node" if evidence.live else "folder")
    raws: dict[str, Raw] = {}
    # A file that is both a log and a test appears once, as the test.
    for item in _ITEMS:
        for raw in evidence.all(item):
            if item not in _TABLES or len(raw.data) < _TABLE_BYTES:
                raws.setdefault(raw.source, raw)
    records: list[StatedFailure] = []
    for raw in raws.values():
        rows: tuple[FailureLine, ...] = ()
        if raw.name in _LOGS:
            parsers = (
                *(lone_ranks, failed_diagnostics, ranks_apart, stalled_ranks),
                *(completions, shared_gpus, ras_ranks, crash_frames, raised, stuck_at_exit),
            )
            rows = tuple(row for parser in parsers for row in evidence.parse(raw, parser))
        if raw.name == "test":
            rows = (*evidence.parse(raw, wrong_rows), *rows)
        # What a parser says with the lines below, a single line does not say again.
        has_ras = any(one.kind == "ras_report" for one in rows)
        stated = evidence.parse(raw, parse_failures)
        rows += tuple(one for one in stated if not (has_ras and one.kind == "ras_report"))
        records += [_record(one, raw.place(one.line)) for one in rows]
    kernel = [one for one in records if one.kind == "kernel"]
    records = [one for one in records if one.kind != "kernel"]
    # If nvidia-smi is not installed, each query of nvidia-smi reports the same problem. `fromkeys`
    # removes the repetitions.
    refused = "\n".join(
        dict.fromkeys(
            one for one in evidence.problems if _TOOL in one and one.partition(": ")[0] not in raws
        )
    )
    records += [_record(one, "collected.txt") for one in parse_failures(refused)]
    logs = [raw for raw in raws.values() if raw.name in _LOGS]
    if logs:
        lines = sum(len(raw.data.splitlines()) for raw in logs)
        facts.add(TEXT_LINES, lines, logs[0].place())
    # A table alone says nothing of a failure of a job.
    if records or logs:
        facts.add(FAILURES, records, next(iter(raws.values())).place() if raws else _TOOL)
    _kernel(facts, kernel)
    if "gpus" not in facts and any((one.text or "").startswith(_NO_DEVICES) for one in records):
        facts.add(GPUS, [], _TOOL)


def _kernel(facts: Facts, printed: list[StatedFailure]) -> None:
    """Add `kernel.failures`, from the kernel's log and from kernel lines in a program's output."""
    logged = facts.value(KERNEL_LOG)
    both = (*(logged or ()), *printed)
    lines = [(one.text or "", one.count, getattr(one, "where", None)) for one in both]
    kinds = failure_kinds([text for text, *_ in lines])
    shown = DRIVER_LINE.findall("\n".join(text for text, *_ in lines))
    devices: list[tuple[str | None, str]] = [("gpu" if gpu else "nic", slot) for gpu, slot in shown]
    links = facts.value(PCI_LINKS) or ()
    devices += [(one.kind, one.bus_id.partition(":")[2][:5]) for one in links if one.bus_id]
    gpus, nics = ({slot for of, slot in devices if of == kind} for kind in ("gpu", "nic"))
    found = [
        KernelFailure(kind=kind, text=text, count=count, where=where)
        for kind, (text, count, where) in zip(kinds, lines, strict=True)
        if kind is not None and not (kind == "iommu" and is_of_others(text, gpus, nics))
    ]
    if logged is None and not found:
        return
    file = re.sub(r":\d+$", "", (printed[0].where or "") if printed else "")
    source = facts[KERNEL_LOG.name].source if logged is not None else file
    facts.add(KERNEL_FAILURES, found, source)


_NO_DEVICES = "No devices were found"


def _record(one: Any, place: str) -> StatedFailure:
    return StatedFailure(kind=one.kind, text=one.text, count=one.times, where=place)
