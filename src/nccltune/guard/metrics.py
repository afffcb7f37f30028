# SPDX-License-Identifier: Apache-2.0
"""Counters of running processes for Prometheus: rules, connections of the network plugin."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nccltune.guard.node_status import NodeStatus
from nccltune.model.collective import Collective
from nccltune.native.net_processes import NetProcess
from nccltune.native.net_stats import NetConnection

_Sample = tuple[Mapping[str, object], int]


class _Family(NamedTuple):
    name: str
    kind: str
    help: str
    samples: list[_Sample]


class _Counter(NamedTuple):
    name: str
    kind: str
    help: str
    read: Callable[[NetConnection], int]


_CONNECTION = (
    _Counter("bytes_total", "counter", "Bytes of complete messages.", lambda end: end.bytes),
    _Counter("messages_total", "counter", "Complete messages.", lambda end: end.messages),
    _Counter("flow_ends_total", "counter", "TCP flows that died.", lambda end: end.deaths),
    _Counter("flow_returns_total", "counter", "TCP flows that came back.", lambda end: end.returns),
    _Counter("sent_again_total", "counter", "Chunks of dead flows.", lambda end: end.sent_again),
    _Counter(
        "flows_up", "gauge", "TCP flows that are up.", lambda end: sum(f.up for f in end.flows)
    ),
)


def metrics_text(
    status: NodeStatus, traffic: Sequence[NetProcess], *, openmetrics: bool = False
) -> str:
    """Return the counters of the processes, labelled with their numbers, in Prometheus' text
    format or as OpenMetrics 1.0."""
    lines = []
    for family in (_conflicts(status), *_rules(status), *_connections(traffic)):
        name = family.name.removesuffix("_total") if openmetrics else family.name
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        lines += [f"{family.name}{_labels(labels)} {value}" for labels, value in family.samples]
    return "\n".join([*lines, *["# EOF"] * openmetrics]) + "\n"


def _conflicts(status: NodeStatus) -> _Family:
    kinds = Counter(one.kind for one in status.conflicts)
    samples: list[_Sample] = [({"kind": kind}, number) for kind, number in sorted(kinds.items())]
    return _Family("nccltune_conflicts", "gauge", "Conflicts that nccltune status shows.", samples)


def _rules(status: NodeStatus) -> Iterator[_Family]:
    decided = _Family(
        "nccltune_tuner_rule_calls_total", "counter", "Calls that a rule has decided.", []
    )
    rest = _Family(
        "nccltune_tuner_default_calls_total", "counter", "Calls that no rule has decided.", []
    )
    for process in (each for job in status.jobs for each in job.processes):
        rules = process.configuration
        if rules is None or rules.undecided is None:
            continue
        # Labels are named as NCCL's Inspector names its own, and Prometheus has a `job`.
        slurm = re.search(r"\bSLURM_JOB_ID=(\w+)", process.job)
        whose: dict[str, object] = {
            "slurm_job_id": slurm[1] if slurm else "unknown",
            "node": process.host,
            "pid": process.pid,
            "nccl_job": process.job,
            "content": rules.loaded[0],
        }
        rest.samples.append((whose, rules.undecided))
        for rule in rules.rules:
            collective = Collective(rule.rule.split()[0]).prose.title().replace("-", "")
            labels = whose | {"collective": collective, "line": rule.line, "rule": rule.rule}
            decided.samples.append((labels, rule.calls or 0))
    yield from (decided, rest)


def _connections(traffic: Sequence[NetProcess]) -> Iterator[_Family]:
    ends = [(process.pid, end) for process in traffic for end in process.connections]
    for counter in _CONNECTION:
        samples: Counter[tuple[int, str, str, str]] = Counter()
        for pid, end in ends:
            # NCCL makes several connections with one peer.
            samples[pid, end.role, end.device, end.peer] += counter.read(end)
        names = ("pid", "role", "device", "peer")
        yield _Family(
            f"nccltune_net_{counter.name}",
            counter.kind,
            counter.help,
            [(dict(zip(names, key, strict=True)), value) for key, value in samples.items()],
        )


def _labels(labels: Mapping[str, object]) -> str:
    return (
        "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
