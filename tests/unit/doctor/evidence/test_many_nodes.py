# SPDX-License-Identifier: Apache-2.0
"""A folder of many nodes: several processes read the same as one."""

import os
from pathlib import Path

import pytest

from nccltune.doctor.evidence import many_nodes
from nccltune.doctor.facts import Facts
from nccltune.model.errors import InputError


def folder(path: Path, nodes: int) -> Path:
    for number in range(nodes):
        node = path / f"n{number}"
        node.mkdir(parents=True)
        (node / "env.txt").write_text(f"NCCL_DEBUG=WARN\nNCCL_HOSTID=n{number % 2}\n")
        (node / "modules.txt").write_text("nvidia_peermem 16384 0 - Live 0x0\n")
        (node / "what.xml").write_text("<nothing/>")
    return path


def plain(nodes: dict[str, Facts]) -> object:
    return [(name, dict(facts), facts.unread) for name, facts in nodes.items()]


def test_several_processes_read_what_one_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, 5)
    alone = many_nodes.read_nodes(path)
    monkeypatch.setattr(many_nodes, "NODES_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    together = many_nodes.read_nodes(path)
    assert list(alone) == [f"n{number}" for number in range(5)]
    assert plain(together) == plain(alone)
    assert alone["n1"]["settings"].value[0]["name"] == "NCCL_DEBUG"
    assert together["n1"]["node.modules"].value is together["n2"]["node.modules"].value


def test_one_process_reads_all_where_no_other_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        return None

    path = folder(tmp_path, 2)
    monkeypatch.setattr(many_nodes, "NODES_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(many_nodes, "_in_processes", refused)
    assert list(many_nodes.read_nodes(path)) == ["n0", "n1"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        many_nodes.read_nodes(tmp_path / "none")
