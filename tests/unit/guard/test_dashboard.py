# SPDX-License-Identifier: Apache-2.0
"""Samples in Prometheus' text format, and the dashboard that asks for them in valid PromQL."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nccltune.guard.audit import AuditedProcess
from nccltune.guard.loaded_rules import LoadedConfiguration, RuleInUse
from nccltune.guard.metrics import metrics_text
from nccltune.guard.node_status import JobStatus, NodeStatus, StatusConflict
from nccltune.native.net_processes import NetWatch
from tests.unit.native.net_pages import page, shown

ROOT = Path(__file__).parents[3]
BOARD = ROOT / "examples" / "grafana" / "nccltune.json"
OF_PROMETHEUS = {"instance"}
"""Labels that Prometheus adds. It renames a label `job` of a file to `exported_job`."""
WORDS = {"by", "without", "and", "or", "unless", "on", "ignoring", "bool", "offset"}
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


@pytest.fixture(scope="module")
def text(request: pytest.FixtureRequest) -> str:
    """The metrics of a process with rules, a conflict and a connection."""
    rules = LoadedConfiguration(
        path="/etc/tuner.conf",
        content="0b51d5cd9d5cfe7c",
        loaded=["0b51d5cd9d5cfe7c"],
        expected=None,
        is_newer=False,
        scales=[],
        scale_source="",
        rules=[RuleInUse(2, "allreduce 0 B - 2 KiB tree/ll", None, True, calls=7)],
        undecided=3,
    )
    name = "SLURM_JOB_ID=41"
    process = AuditedProcess(
        host="n", pid=7, job=name, version="2.28.9", settings=[], configuration=rules
    )
    job = JobStatus(name, [process], [StatusConflict("hash", [7], "x")])
    with shown(page(bulk_bytes=5 << 20)):
        traffic = NetWatch([os.getpid()]).read()
    openmetrics = getattr(request, "param", False)
    return metrics_text(NodeStatus("n", [job], 0), traffic, openmetrics=openmetrics)


@pytest.fixture(scope="module")
def labels(text: str) -> dict[str, set[str]]:
    """The labels of each metric, as they are written."""
    found: dict[str, set[str]] = {}
    for name, inside in re.findall(r"^(\w+)\{(.*)\} \d+$", text, re.M):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', inside))
    # The send/recv library writes a file of its own.
    source = (ROOT / "native" / "sendrecv" / "live_control.cc").read_text()
    own = set(re.findall(r'(\w+)=\\"', source))
    return found | {f"nccltune_sendrecv_{what}_total": own for what in ("bytes", "messages")}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BOARD.read_text())["panels"]
    return found


def queries() -> list[str]:
    return [target["expr"] for one in panels() for target in one["targets"]]


def names_in(query: str) -> set[str]:
    """Return the identifiers of a query that are neither functions nor words of PromQL."""
    plain = re.sub(r'"[^"]*"|\[[^\]]*\]', "", query)
    return set(re.findall(r"\b[a-z_]\w*\b(?!\s*\()", plain)) - WORDS - {"sum", "count"}


@pytest.mark.parametrize("query", queries())
def test_a_query_names_metrics_and_labels_that_are_written(
    query: str, labels: dict[str, set[str]]
) -> None:
    names = names_in(query)
    metrics = {name for name in names if name.startswith("nccltune_")}
    assert metrics
    assert metrics <= labels.keys()
    for metric in metrics:
        assert names - metrics <= labels[metric] | OF_PROMETHEUS
    # Counters are shown as rates, gauges as they are.
    for metric in metrics & {name for name in labels if name.endswith("_total")}:
        assert re.search(rf"(rate|increase)\({metric}|count by", query)


def test_what_is_written_is_shown(labels: dict[str, set[str]]) -> None:
    shown_names = {name for query in queries() for name in names_in(query)}
    counts = {f"nccltune_{what}_messages_total" for what in ("net", "sendrecv")}
    assert labels.keys() - shown_names == {*counts, "nccltune_net_flows_up"}


def test_labels_are_those_of_nccls_inspector(text: str) -> None:
    (line,) = re.findall(r"^nccltune_tuner_rule_calls_total.*", text, re.M)
    for label in ('slurm_job_id="41"', 'node="n"', 'collective="AllReduce"'):
        assert label in line


@NEEDS_PROMTOOL
@pytest.mark.parametrize("text", [True], indirect=True)
def test_prometheus_reads_openmetrics(text: str, tmp_path: Path) -> None:
    *lines, end = text.splitlines()
    assert end == "# EOF"
    assert "# TYPE nccltune_net_bytes counter" in lines
    # Prometheus stores only samples with a time.
    timed = [one if one.startswith("#") else f"{one} 1760000000" for one in lines]
    path, blocks = tmp_path / "counters", tmp_path / "blocks"
    path.write_text("\n".join([*timed, end, ""]))
    done = promtool("tsdb", "create-blocks-from", "openmetrics", str(path), str(blocks))
    assert done.returncode == 0, done.stdout + done.stderr
    (blocks / "wal").mkdir()
    assert "nccltune_tuner_rule_calls_total" in promtool("tsdb", "dump", str(blocks)).stdout


def test_legends_use_labels_of_their_query() -> None:
    board = json.loads(BOARD.read_text())
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "instance"}
    for one in panels():
        for target in one["targets"]:
            by = {word for group in re.findall(r"by \(([^)]*)\)", target["expr"])[:1]
                  for word in group.split(", ")}  # fmt: skip
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= by
    assert len({one["id"] for one in panels()}) == len(panels())


def promtool(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["promtool", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


@NEEDS_PROMTOOL
def test_prometheus_parses_every_query_and_the_metrics(text: str, tmp_path: Path) -> None:
    rules = [
        {"record": f"query{number}", "expr": re.sub(r"\$__\w+", "5m", query)}
        for number, query in enumerate(queries())
    ]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    done = promtool("check", "metrics", text=text)
    assert done.returncode == 0, done.stdout + done.stderr


LINE = re.compile(r'([a-z_]+)\{(?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*\} \d+')
"""A sample in Prometheus' text format."""


def conflicts(*kinds: str) -> NodeStatus:
    found = [StatusConflict(kind, [1], "x") for kind in kinds]
    return NodeStatus("n", [JobStatus("j", [], found)], 0)


def test_every_line_is_one_of_the_text_format() -> None:
    with shown(page(bulk_bytes=5 << 20)), shown(page(bulk_bytes=7 << 20)):
        traffic = NetWatch([os.getpid()]).read()
    text = metrics_text(conflicts("hash", "differs", "hash"), traffic)
    assert text.endswith("\n")
    lines = text.splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in samples), samples
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))
    assert {line.partition("{")[0] for line in samples} <= set(names)
    assert 'nccltune_conflicts{kind="hash"} 2' in lines
    # Two connections with one peer are one sample.
    peer = f'{{pid="{os.getpid()}",role="sends",device="eth0",peer="10.0.0.2:5000"}}'
    assert f"nccltune_net_bytes_total{peer} {2 * (5 << 20)}" in lines
    assert f"nccltune_net_messages_total{peer} 80" in lines
    assert f"nccltune_net_flows_up{peer} 4" in lines


def test_label_values_are_escaped() -> None:
    (line,) = [
        line
        for line in metrics_text(conflicts('a"b\\c\nd'), []).splitlines()
        if not line.startswith("#")
    ]
    assert line == 'nccltune_conflicts{kind="a\\"b\\\\c\\nd"} 1'
