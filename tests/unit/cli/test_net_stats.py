# SPDX-License-Identifier: Apache-2.0
"""`nccltune net stats`: tables, JSON and errors."""

import os
from pathlib import Path

import pytest

from tests.unit.native.net_pages import page, shown
from tests.unit.runs import Cli

ME = str(os.getpid())


def test_the_table_names_connections_and_flows(cli: Cli) -> None:
    with shown(page(flows=3)), shown(page(role=1)):
        out = cli("net", "stats", ME, "--interval", "0.01").out
    title, rest = out.split("\n", 1)
    assert title.startswith(f"pid {ME}  2 connections  ")
    assert rest == Path(__file__).with_name("net-stats.txt").read_text()


def test_brief_leaves_the_flows_out(cli: Cli) -> None:
    with shown(page()):
        lines = cli("net", "stats", ME, "--brief", "--interval", "0").out.splitlines()
    assert len(lines) == 2
    assert "B/s" not in lines[1]


def test_json_is_one_document(cli: Cli) -> None:
    with shown(page()):
        document = cli("net", "stats", ME, "--json", "--interval", "0.01").document
    assert document["schema_version"] == 1
    assert document["interval_s"] == 0.01
    (process,) = document["processes"]
    assert process["pid"] == os.getpid()
    (connection,) = process["connections"]
    assert connection["kinds"] == {"eager": 10, "bulk": 34}
    assert connection["flows"][1]["busy_bytes_per_s"] == 16


def test_no_process_to_show_is_no_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.native.net_processes.NetWatch._all", lambda _: [])
    captured = cli("net", "stats")
    assert captured.out == ""
    assert "no process of this user has a connection of the network plugin" in captured.err
    assert cli("net", "stats", "--json").document["processes"] == []


def test_a_missing_process_exits_with_2(cli: Cli) -> None:
    err = cli("net", "stats", "99999999", code=2).err
    assert "error: there is no process 99999999" in err
    assert "hint:  ids are those of this namespace" in err


def test_watch_needs_an_interval(cli: Cli) -> None:
    err = cli("net", "stats", "--watch", "--interval", "0", code=2).err
    assert "--watch needs --interval" in err
