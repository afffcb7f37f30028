# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats`: tables, JSON and errors."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nccltune.cli import run
from tests.unit.native.net_pages import page, shown

ME = str(os.getpid())


def test_the_table_names_connections_and_flows(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(page(flows=3)), shown(page(role=1)):
        assert run(["net", "stats", ME, "--interval", "0.01"]) == 0
    out = capsys.readouterr().out
    title, rest = out.split("\n", 1)
    assert title.startswith(f"pid {ME}  2 connections  ")
    assert rest == Path(__file__).with_name("net-stats.txt").read_text()


def test_brief_leaves_the_flows_out(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(page()):
        assert run(["net", "stats", ME, "--brief", "--interval", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "B/s" not in lines[1]


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(page()):
        assert run(["net", "stats", ME, "--json", "--interval", "0.01"]) == 0
    document: Any = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["interval_s"] == 0.01
    (process,) = document["processes"]
    assert process["pid"] == os.getpid()
    (connection,) = process["connections"]
    assert connection["kinds"] == {"eager": 10, "bulk": 34}
    assert connection["flows"][1]["busy_bytes_per_s"] == 16


def test_no_process_to_show_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nccltune.native.net_processes.NetWatch._all", lambda _: [])
    assert run(["net", "stats"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no process of this user has a connection of the network plugin" in captured.err
    assert run(["net", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["processes"] == []


def test_a_missing_process_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["net", "stats", "99999999"]) == 2
    err = capsys.readouterr().err
    assert "error: there is no process 99999999" in err
    assert "hint:  ids are those of this namespace" in err


def test_watch_needs_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["net", "stats", "--watch", "--interval", "0"]) == 2
    assert "--watch needs --interval" in capsys.readouterr().err
