# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nccltune.model.collective import Collective
from nccltune.model.finding import Severity
from nccltune.model.rule import Rule
from nccltune.tune.lint import LintIssue, NumberedRule, file_issue, foreign_separator, lint_rules
from tests.unit import builders

M = 1 << 20


def rule(low: int, high: int, choice: str = "tree/ll/4", **conditions: object) -> Rule:
    return builders.rule(low, high, choice, **conditions)


def lint(*rules: Rule, nccl: str | None = None) -> list[LintIssue]:
    found = lint_rules([NumberedRule(line, item) for line, item in enumerate(rules, 1)], nccl)
    return [issue for issue in found if issue.kind != "scales"]


def kinds(*rules: Rule) -> list[tuple[str, int | None]]:
    return [(issue.kind, issue.line) for issue in lint(*rules)]


def test_rules_side_by_side_are_fine() -> None:
    assert lint(rule(0, M), rule(M + 1, 9 * M, "ring/simple/8")) == []


def test_what_an_earlier_line_covers_never_applies() -> None:
    assert kinds(rule(0, 8 * M), rule(M, 2 * M, "ring/ll/4")) == [("shadowed", 2)]
    # Two lines may cover a third together; a narrower condition covers nothing wider.
    assert ("shadowed", 3) in kinds(rule(0, M), rule(M + 1, 9 * M), rule(5, 8 * M))
    assert ("shadowed", 2) not in kinds(rule(0, 8 * M, nodes=2), rule(M, 2 * M))
    assert kinds(rule(0, 8 * M), rule(M, 2 * M, nodes=2)) == [("shadowed", 2)]


def test_what_two_lines_share_goes_to_the_first() -> None:
    (issue,) = lint(rule(0, 4 * M), rule(2 * M, 8 * M, "ring/simple/8"))
    assert (issue.kind, issue.line, issue.severity) == ("overlap", 2, Severity.WARNING)
    assert issue.hint == f"begin at {4 * M + 1}"


def test_other_scales_share_nothing() -> None:
    assert kinds(rule(0, M, nodes=2), rule(0, M, nodes=4)) == []
    assert kinds(rule(0, M, registered=True), rule(0, M, registered=False)) == []


def test_a_gap_of_a_few_bytes_is_a_mistake_and_a_wide_one_a_note() -> None:
    (tiny,) = lint(rule(0, M), rule(M + 2, 9 * M, "ring/ll/8"))
    assert (tiny.kind, tiny.severity) == ("gap", Severity.WARNING)
    (wide,) = lint(rule(0, M), rule(4 * M, 9 * M, "ring/ll/8"))
    assert (wide.kind, wide.severity) == ("gap", Severity.NOTE)


def test_what_nccl_cannot_run_is_said() -> None:
    for collective, choice in (
        (Collective.BROADCAST, "tree/ll/4"),
        (Collective.ALLGATHER, "tree/ll/4"),
        (Collective.ALLREDUCE, "pat/simple/4"),
        (Collective.ALLREDUCE, "nvls/ll/4"),
    ):
        (issue, *_) = lint(rule(0, M, choice, collective=collective, nodes=4, ranks=4))
        assert (issue.kind, issue.severity) == ("unreachable", Severity.WARNING)
    assert ("unreachable", 1) in kinds(rule(0, M, "nvls_tree/simple/4", nodes=1))
    assert kinds(rule(0, M, "ring/ll/4", collective=Collective.BROADCAST)) == []
    for choice, nodes, ranks, found in (
        ("nvls_tree/simple/4", 16, 16, 1),
        ("nvls_tree/simple/4", 16, 31, 1),
        ("nvls/simple/4", 4, 4, 1),
        ("nvls_tree/simple/4", 16, 32, 0),
        ("nvls_tree/simple/4", 16, None, 0),
        ("nvls/simple/4", None, 16, 0),
        ("nvls/simple/4", 1, 2, 0),
        ("ring/simple/4", 16, 16, 0),
    ):
        said = kinds(rule(0, M, choice, nodes=nodes, ranks=ranks))
        assert said == [("unreachable", 1)] * found, (choice, nodes, ranks)


def test_sizes_that_look_like_kib_are_questioned() -> None:
    assert kinds(rule(0, 64), rule(65, 1024, "ring/ll/4")) == [("units", None)]


def test_chunk_sizes_need_nccl_2_30() -> None:
    chunked = rule(0, M, "tree/ll/4/16384")
    (warning, note) = lint(chunked, rule(M + 1, 9 * M, "ring/simple/8/65536"), nccl="2.28.9")
    assert (warning.kind, warning.severity, warning.line) == ("chunk", Severity.WARNING, 1)
    assert "line 1, 2" in warning.message
    assert "NCCL 2.28.9" in warning.message
    assert (note.kind, note.severity) == ("nvidia", Severity.NOTE)
    for version in ("2.30", "2.32.3", "3.1", "someday", None):
        assert [issue.kind for issue in lint(chunked, nccl=version)] == ["nvidia"]
    assert lint(rule(0, M), nccl="2.28.9") == []


def test_chunk_sizes_that_nccl_would_not_run() -> None:
    def of(choice: str, **more: object) -> list[Severity]:
        return [
            issue.severity for issue in lint(rule(0, M, choice, **more)) if issue.kind == "chunk"
        ]

    assert of("tree/ll128/4/1919") == [Severity.WARNING]
    assert of("tree/ll128/4/1920") == []
    assert of("tree/ll/4/65536") == [Severity.NOTE]
    assert of("tree/ll/4/32768") == []
    assert of("tree/simple/4/524289") == [Severity.NOTE]
    assert of("ring/simple/4/2097152") == []
    assert of("ring/simple/4/2097152", collective=Collective.BROADCAST) == [Severity.NOTE]
    assert of("nvls/simple/4/65536") == [Severity.NOTE]


def test_channels_left_to_nccl_are_read_otherwise_by_nvidias_example() -> None:
    (issue,) = lint(rule(0, M, "tree/ll"))
    assert (issue.kind, issue.severity) == ("nvidia", Severity.NOTE)


ends = st.integers(0, 30)
some_rules = st.lists(
    st.builds(
        lambda a, b, nodes, reg: rule(min(a, b), max(a, b), nodes=nodes, registered=reg),
        ends,
        ends,
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, True, False]),
    ),
    max_size=7,
)


@settings(max_examples=300)
@given(some_rules)
def test_shadowed_means_that_no_call_reaches_the_line(rules: list[Rule]) -> None:
    shadowed = {line for kind, line in kinds(*rules) if kind == "shadowed"}
    for line, item in enumerate(rules, 1):
        calls = itertools.product(range(31), (1, 2, 3), (False, True))
        reached = any(
            item.matches(Collective.ALLREDUCE, size, nodes, 4, registered=registered)
            and not any(
                other.matches(Collective.ALLREDUCE, size, nodes, 4, registered=registered)
                for other in rules[: line - 1]
            )
            for size, nodes, registered in calls
        )
        if line in shadowed:
            assert not reached
        elif not reached:
            # Lines of several conditions may cover one together; only single families are claimed.
            conditions = {(other.nodes, other.registered) for other in rules[: line - 1]}
            assert len(conditions) > 1


def test_a_hundred_thousand_lines_are_no_problem() -> None:
    # Quadratic work over this many lines would run into the timeout of the suite.
    one = rule(0, 9, nodes=4)
    side_by_side = [replace(one, min_bytes=i, max_bytes=i + 9) for i in range(0, 1_000_000, 10)]
    assert lint(*side_by_side) == []
    nested = [replace(one, min_bytes=i, max_bytes=400_000 - i) for i in range(100_000)]
    assert len(lint(*nested)) == 99_999


def test_a_narrower_row_before_a_wider_one_is_no_mistake() -> None:
    # Line 1 applies to 4 pipe ops, or to one scale, or to some sizes; line 2 to all others.
    assert lint(rule(0, M, pipe_ops=4, nodes=4, ranks=32), rule(0, M, "ring/ll/4")) == []
    assert lint(rule(0, M, nodes=4), rule(0, M, "ring/ll/4")) == []
    assert lint(rule(0, M, registered=True), rule(0, 4 * M, "ring/ll/4")) == []
    assert lint(rule(M, 2 * M), rule(0, 1 << 40, "ring/simple/8")) == []
    assert lint(rule(0, M), rule(0, 1 << 40, "ring/simple/8")) == []
    # The other order is one: the wider line leaves the narrower none.
    assert kinds(rule(0, M, "ring/ll/4"), rule(0, M, nodes=4)) == [("shadowed", 2)]


def test_an_overlap_is_one_only_where_the_earlier_line_matches_every_call() -> None:
    assert kinds(rule(0, 4 * M, nodes=4), rule(2 * M, 8 * M, "ring/ll/4")) == []
    assert ("overlap", 2) in kinds(rule(0, 4 * M), rule(2 * M, 8 * M, "ring/ll/4", nodes=4))


def test_more_nodes_than_ranks_cannot_be() -> None:
    (issue,) = lint(rule(0, M, nodes=32, ranks=8))
    assert (issue.kind, issue.line, issue.severity) == ("scale", 1, Severity.ERROR)
    assert issue.hint is not None
    assert "8,32" in issue.hint
    assert lint(rule(0, M, nodes=8, ranks=8)) == []
    assert lint(rule(0, M, nodes=8)) == []


def test_the_scales_that_rules_apply_to_are_stated() -> None:
    def scales(*pairs: tuple[int | None, int | None]) -> list[str]:
        rules = [rule(0, M, nodes=nodes, ranks=ranks) for nodes, ranks in pairs]
        return [issue.message for issue in lint_rules([NumberedRule(1, one) for one in rules])]

    said = "the rules apply to 2 nodes, 16 ranks; 4 nodes, any ranks"
    assert said in scales((4, None), (2, 16), (2, 16))
    assert not any("apply to" in words for words in scales((2, 16), (None, None)))
    assert any(words.endswith("; ...") for words in scales(*[(n, None) for n in range(1, 8)]))


@pytest.mark.parametrize(
    ("scales", "line"),
    [
        ([(2, 16), (4, 32), (8, 8)], 3),
        ([(8, 8), (2, 16)], 1),
        # One rank a node is measured at several scales, or eight ranks on one node.
        ([(2, 16), (2, 2), (8, 8)], None),
        ([(1, 8), (8, 8)], None),
        ([(2, 16), (4, 4)], None),
        ([(2, 16), (8, None), (None, 8)], None),
    ],
)
def test_ranks_are_those_of_all_nodes(
    scales: list[tuple[int | None, int | None]], line: int | None
) -> None:
    found = lint(*[rule(0, M, nodes=nodes, ranks=ranks) for nodes, ranks in scales])
    expected = [] if line is None else [("scale", line, Severity.NOTE)]
    assert [(issue.kind, issue.line, issue.severity) for issue in found] == expected
    assert not found or "8,64" in (found[0].hint or "")


ROW = "allreduce,0,65536,tree,ll,-1,-1,-1\n"


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        (ROW.replace(",", ";"), "separator", "tr ';' ',' < tuner.conf > commas.conf"),
        ("\ufeff" + ROW.replace(",", ";"), "separator", "tr ';' ',' < tuner.conf > commas.conf"),
        ("# a\n" + ROW.replace(",", "\t"), "separator", "tr '\\t' ',' < tuner.conf > commas.conf"),
        ("AllReduce;0;65536,0;tree;ll;-1;-1;-1", "separator", None),
        ("allreduce;0;6,55E+04;tree;ll;-1;-1;-1", "separator", None),
        ("allreduce,0,1.05E+06,tree,ll,-1,-1,-1", "rounded", None),
        (
            "collective,bytes,algorithm,latency_us\nallreduce,8,tree,9.1",
            "measurements",
            "make rules of it: nccltune tune tuner.conf -o FOLDER",
        ),
        (ROW, None, None),
        ("allreduce,0,65536,tree,ll,e1,-1,-1", None, None),
    ],
)
def test_what_a_spreadsheet_did_to_the_file(text: str, kind: str | None, hint: str | None) -> None:
    issue = file_issue(text, "tuner.conf")
    assert (issue.kind if issue is not None else None) == kind
    if issue is not None and hint is not None:
        assert issue.hint == hint
    elif issue is not None:
        assert issue.hint is not None
        assert not issue.hint.startswith("tr ")


def test_rows_with_blanks_are_named_and_prose_is_not() -> None:
    assert foreign_separator("# c\nallreduce 0 65536 tree ll 2 1 8\n") == " "
    assert foreign_separator("allreduce is as fast as broadcast here\n") is None
