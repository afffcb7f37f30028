# SPDX-License-Identifier: Apache-2.0
import io

import msgspec
import pytest
from rich.console import Console

from nccltune.analyze.result import Analysis
from nccltune.model.platform import Platform
from nccltune.report.build import build
from nccltune.report.terminal import render, size_table, telling_sizes
from tests.unit.report.fixture import COMMANDS, SIZES, SNAPSHOT, report, terminal_text, tuning


def test_the_form_at_80_columns_is_the_snapshot() -> None:
    """Regenerate with `python -m tests.unit.report.fixture` and read the difference."""
    assert terminal_text(report()) == SNAPSHOT.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_prose_and_tables_fit_the_width(width: int) -> None:
    lines = terminal_text(report(), width).splitlines()
    assert max(map(len, lines)) <= max(width, 75)
    assert not any(line != line.rstrip() for line in lines)


def test_wide_terminals_do_not_make_long_lines() -> None:
    assert terminal_text(report(), 300) == terminal_text(report(), 120)


def test_without_utf_8_everything_is_ascii() -> None:
    text = terminal_text(report(), encoding="ascii")
    assert "16 x NVIDIA H100 - NVLink - 2 nodes" in text
    assert "?" not in text


def colours(**options: bool) -> str:
    file = io.StringIO()
    render(report(), Console(file=file, width=80, force_terminal=True, **options))
    return file.getvalue()


def test_colour_never_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32m2 rules make" in colours()
    assert "\x1b" not in terminal_text(report())


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = colours()
    assert "[32m" not in shown
    assert "[1;32m" not in shown


def test_names_cannot_steer_the_terminal() -> None:
    hostile = msgspec.structs.replace(report(), replay="\x1b]0;gone\x07[bold]x[/bold]")
    text = terminal_text(hostile)
    assert "\x1b" not in text
    assert "replay     of ]0;gone[bold]x[/bold]" in text


def test_a_replay_says_so_right_under_the_verdict() -> None:
    replayed = msgspec.structs.replace(report(), replay="examples/h200x4")
    lines = terminal_text(replayed).splitlines()
    assert lines[3] == "replay     of examples/h200x4"


def test_the_size_table_shows_the_ends_and_the_best_of_each_rule_and_its_neighbours() -> None:
    group = report().groups[0]
    assert [row.bytes for row in telling_sizes(group)] == SIZES[:4]
    longer = msgspec.structs.replace(
        group,
        rules=[msgspec.structs.replace(group.rules[0], first_bytes=SIZES[1], last_bytes=SIZES[4])],
    )
    # First, best (16 KiB too) and last size of the rule, and the one before it.
    assert [row.bytes for row in telling_sizes(longer)] == [SIZES[0], SIZES[1], SIZES[4]]


def test_the_size_table_can_stand_alone() -> None:
    file = io.StringIO()
    size_table(report(), Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    assert lines[1] == "all-reduce"
    assert lines[3] == "     1 KiB     40.0 us     25.0 us   1.60x   1.54-1.66   tree/ll"
    assert len(lines) == 7


def test_an_empty_report_is_no_error() -> None:
    empty = build(
        Analysis(Platform(name="new"), [], [], 0),
        msgspec.structs.replace(tuning(), groups=[]),
        commands=msgspec.structs.replace(COMMANDS, deploy=None),
        tool_version="0.1.0",
    )
    text = terminal_text(empty)
    assert text.startswith("Nothing was measured yet.\n")
    assert "deploy" not in text.split("\nnext\n")[1]
