# SPDX-License-Identifier: Apache-2.0
import os
import re

from nccltune.guard.metrics import metrics_text
from nccltune.guard.node_status import JobStatus, NodeStatus, StatusConflict
from nccltune.native.net_processes import NetWatch
from tests.unit.native.net_pages import page, shown

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
