# SPDX-License-Identifier: Apache-2.0
"""The sentence and the tables of a proof on the terminal."""

import io

from msgspec.structs import replace
from rich.console import Console

from nccltune.cli.rule_screen import informative_proof, proof_tables
from nccltune.model.rule import Rule
from nccltune.prove.result import Proof, RemovedRule
from nccltune.report.data import ProofGroupRow, ProofReport, ProofSizeRow
from nccltune.report.proof import build_proof, sentence
from tests.unit.prove.proofs import RULE, K, M, empty_proof, proven, rule
from tests.unit.report.fixture import built
from tests.unit.report.fixture import proof as proof_of_report


def proof(*, dropped: list[RemovedRule] | None = None, reason: str = "done") -> Proof:
    plan = proven(1.3, RULE, rule(128 * K, 512 * K, "ring/ll"))
    verdicts = plan.verdicts({RULE: 1.28})
    return empty_proof(
        reason=reason, noise=0.011, rules=verdicts, dropped=dropped or [], groups=plan.groups()
    )


def proven_sizes(tuned: Rule) -> ProofReport:
    """Return the proof of one rule, with its sizes and without its verdict."""
    return build_proof(replace(proof(), groups=proven(1.3, tuned).groups(), rules=[]))


def tables(built: ProofReport, *, width: int = 100, brief: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    proof_tables(built, console, brief=brief)
    return out.getvalue()


def test_the_sentence_counts_kept_narrowed_and_removed_rules() -> None:
    assert sentence(proof()) == "2 of 2 rules hold · 0 sizes slower · noise floor 1.1 %"
    narrow = RemovedRule(rule(4 * K, 128 * K), "slower", rule(4 * K, 64 * K))
    gone = RemovedRule(rule(1 * M, 2 * M), "slower: 0.9x at 2 MiB (0.8-0.95)")
    text = sentence(proof(dropped=[narrow, gone]))
    assert text.startswith("2 of 3 rules hold · 1 removed · 1 narrowed · 0 sizes slower")
    only = replace(proof(), rules=[], dropped=[gone])
    assert sentence(only).startswith("the rule does not hold · 1 removed")


def test_the_tables_show_selected_sizes_and_every_rule() -> None:
    gone = RemovedRule(rule(1 * M, 2 * M), "slower: 0.9x at 2 MiB (0.8-0.95)")
    built = build_proof(proof(dropped=[gone], reason="budget"))
    text = tables(built, width=80)
    assert "The budget was spent before everything was decided" in text
    assert "holds       all-reduce 4 KiB - 64 KiB tree/ll  1.30x  95 % CI 1.29-1.31" in text
    assert "expected 1.28x" in text
    assert "removed     all-reduce 1 MiB - 2 MiB tree/ll" in text
    assert "slower: 0.9x at 2 MiB" in text
    assert max(map(len, text.splitlines())) <= 80
    brief = tables(built, width=80, brief=True)
    assert "holds" not in brief
    assert "removed" in brief


def row(size: int, choice: str | None, verdict: str) -> ProofSizeRow:
    return ProofSizeRow(size, choice, False, verdict, "", 4, 1.0, 1.0, 1.0, 1.0, 1.0, None)


def test_selected_sizes_are_ends_best_neighbours_and_problems() -> None:
    rows = [row(size, "tree/ll" if 4 <= size <= 10 else None, "alike") for size in range(1, 17)]
    rows[6] = replace(rows[6], gain=1.5)
    rows[14] = replace(rows[14], verdict="not alike")
    group = ProofGroupRow("all-reduce", 0.01, 0.01, rows)
    assert [item.bytes for item in informative_proof(group)] == [3, 4, 7, 10, 11, 15]
    alone = ProofGroupRow("all-gather", 0.01, 0.01, [row(1, None, "left alone")])
    assert informative_proof(alone) == []


def test_sizes_on_both_sides_of_an_edge_have_the_form_of_the_column() -> None:
    text = tables(proven_sizes(rule(34_000, 256 * K)))
    edge = [line.split()[-1] for line in text.splitlines() if line.startswith("  33.2 KiB")]
    assert edge == ["alone", "tree/ll"]
    assert " B " not in text
    assert "Two rows of one size" in text


def test_a_size_left_alone_shows_what_was_measured() -> None:
    built = proven_sizes(rule(64 * K, 256 * K))
    alone = replace(built.groups[0].sizes[0], gain=0.93, gain_low=0.8, gain_high=1.1)
    assert alone.verdict == "left alone"
    ruled = next(size for size in built.groups[0].sizes if size.choice)
    group = replace(built.groups[0], sizes=[alone, ruled])
    text = tables(replace(built, groups=[group]))
    assert "0.93x   0.80-1.10   left alone" in text


def test_the_tables_of_a_proof_can_stand_alone() -> None:
    shown = built(proof=proof_of_report()).proof
    assert shown is not None
    lines = tables(shown, width=80).splitlines()
    assert "Proven and expected gains differ" in lines[0]
    first = lines.index("all-reduce") + 2
    # One form for all sizes of the column, also on both sides of an edge.
    assert [line[:10].strip() for line in lines[first : first + 5]] == [
        *("1.00 KiB", "58.6 KiB", "58.6 KiB", "1.00 MiB", "4.00 MiB")
    ]
    assert not any(line != line.rstrip() for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "can differ from the ratio of the two medians" in text
    assert "Two rows of one size are the last byte of one range and the first of the next." in text
    assert "1.50x 95 % CI 1.47-1.53 (per size 1.35-1.65) expected 1.50x" in text


def test_a_narrow_terminal_has_two_lines_for_a_size() -> None:
    shown = built(proof=proof_of_report()).proof
    assert shown is not None
    lines = tables(shown, width=40).splitlines()
    at = lines.index("  1.00 KiB   1.50x   1.42-1.58")
    assert lines[at + 1] == "    150 us -> 100 us  tree/ll"
    assert max(map(len, lines)) <= 40
