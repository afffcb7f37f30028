# SPDX-License-Identifier: Apache-2.0
import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from nccltune.analyze.result import Analysis
from nccltune.model.platform import Platform
from nccltune.report.data import Report
from nccltune.report.terminal import informative_sizes, proof_tables, render
from tests.unit.report.fixture import (
    COMMANDS,
    SIZES,
    SNAPSHOT,
    built,
    proof,
    report,
    terminal_text,
    tuning,
)


def test_the_form_at_80_columns_is_the_snapshot() -> None:
    """Regenerate with `python -m tests.unit.report.fixture` and read the difference."""
    assert terminal_text(report()) == SNAPSHOT.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 66, 80, 120])
def test_prose_and_tables_fit_the_width(width: int) -> None:
    # Commands are copied, so they are never cut.
    text = terminal_text(proven_report(), width).split("\nnext\n")[0]
    lines = text.splitlines()
    assert max(map(len, lines)) <= max(width, 80 if width >= 66 else 0)
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
    assert "\x1b[1;32m1 rule is" in colours()
    assert "\x1b" not in terminal_text(report())


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = colours()
    assert "[32m" not in shown
    assert "[1;32m" not in shown


def test_names_cannot_steer_the_terminal() -> None:
    hostile = replace(report(), replay="\x1b]0;gone\x07[bold]x[/bold]")
    text = terminal_text(hostile)
    assert "\x1b" not in text
    assert "replay     of ]0;gone[bold]x[/bold]" in text


def test_a_replay_says_so_right_under_the_verdict() -> None:
    replayed = replace(report(), replay="examples/h200x4")
    lines = terminal_text(replayed).splitlines()
    assert lines[lines.index("") + 1] == "replay     of examples/h200x4"


def test_the_size_table_shows_the_ends_and_the_best_of_each_rule_and_its_neighbours() -> None:
    group = report().groups[0]
    assert [row.bytes for row in informative_sizes(group)] == SIZES[:4]
    longer = replace(
        group,
        rules=[replace(group.rules[0], first_bytes=SIZES[1], last_bytes=SIZES[4])],
    )
    # First, best (16 KiB too) and last size of the rule, and the one before it.
    assert [row.bytes for row in informative_sizes(longer)] == [SIZES[0], SIZES[1], SIZES[4]]


def proven_report() -> Report:
    return built(proof=proof())


def test_the_tables_of_a_proof_can_stand_alone() -> None:
    file = io.StringIO()
    shown = proven_report().proof
    assert shown is not None
    proof_tables(shown, Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    assert "Proven and expected gains differ" in lines[0]
    first = lines.index("all-reduce") + 2
    # One form for all sizes of the column, also on both sides of an edge.
    assert [line[:10].strip() for line in lines[first : first + 5]] == [
        *("1.00 KiB", "58.6 KiB", "58.6 KiB", "1.00 MiB", "4.00 MiB")
    ]
    text = " ".join(" ".join(lines).split())
    assert "can differ from the ratio of the two medians" in text
    assert "Two rows of one size are the last byte of one range and the first of the next." in text
    assert "1.50x 95 % CI 1.47-1.53 (per size 1.35-1.65) expected 1.50x" in text


def test_with_a_proof_the_expected_times_are_not_shown_as_well() -> None:
    assert "tuned, expected" in terminal_text(report())
    text = terminal_text(proven_report())
    assert "tuned, expected" not in text
    assert text.startswith("Proven: 2 rules make all-reduce 1.39x faster between 1 KiB and 1 MiB.")


def test_a_narrow_terminal_has_two_lines_for_a_size() -> None:
    lines = terminal_text(report(), 40).splitlines()
    at = lines.index("     1 KiB   1.60x   1.54-1.66")
    assert lines[at + 1] == "    40.0 us -> 25.0 us  tree/ll"


def test_a_candidate_says_what_would_decide_it() -> None:
    found = tuning()
    unsure = replace(found.groups[0].rules[1], decided_by="4 more runs of each choice")
    group = replace(found.groups[0], rules=[found.groups[0].rules[0], unsure])
    changed = replace(found, groups=[group, found.groups[1]])
    shown = built(tuned=changed)
    text = " ".join(terminal_text(shown).split())
    assert "1.30-1.50 candidate" in text
    assert "to decide: 4 more runs of each choice" in text


def test_a_rule_without_measured_sizes_is_no_error() -> None:
    group = report().groups[0]
    rules = [replace(group.rules[0], first_bytes=3, last_bytes=5)]
    assert informative_sizes(replace(group, rules=rules)) == []


def test_an_empty_report_is_no_error() -> None:
    empty = built(
        Analysis(Platform(name="new"), [], [], 0),
        replace(tuning(), groups=[]),
        commands=replace(COMMANDS, deploy=None),
    )
    text = terminal_text(empty)
    assert text.startswith("Nothing was measured yet.\n")
    assert "deploy" not in text.split("\nnext\n")[1]
