# SPDX-License-Identifier: Apache-2.0
"""NCCL's log of a program run without and with the plugin."""

from pathlib import Path

import pytest

from nccltune.prove.stock import LoggedRun, StockRun, points_of, problems_of
from tests.unit.prove.proofs import K, rule

SMALL, LARGE = 4 * K, 1024 * K


def logged(folder: Path, name: str, ran: dict[int, tuple[str, str, int]]) -> LoggedRun:
    """A run of 4 nodes whose log has these choices, with their number of channels."""
    prefix = "alpha:7:8 [0] NCCL INFO "
    lines = ["ncclCommInitRankConfig comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0"]
    lines += [
        f"AllReduce: {size} Bytes -> Algo {algorithm} proto {protocol} "
        f"channel{{Lo..Hi}}={{0..{channels - 1}}}"
        for size, (algorithm, protocol, channels) in ran.items()
    ]
    path = folder / name
    path.write_text("".join(f"{prefix}{line}\n" for line in lines))
    return LoggedRun([path])


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (("TREE", "LL", 16), "as the rule says"),
        # NCCL takes fewer channels for small messages than a rule allows.
        (("TREE", "LL", 2), "as the rule says"),
        (("TREE", "SIMPLE", 16), "not as the rule says"),
    ],
)
def test_a_rule_is_followed_if_its_algorithm_and_protocol_ran(
    tmp_path: Path, ran: tuple[str, str, int], verdict: str
) -> None:
    before = logged(tmp_path, "before", {SMALL: ("RING", "SIMPLE", 4)})
    after = logged(tmp_path, "after", {SMALL: ran})
    (point,) = points_of(before, after, [rule(0, 64 * K, "tree/ll/16")], ({}, {}))
    assert point.verdict == verdict
    assert point.before == "ring/simple/4"


def test_calls_without_a_rule_run_as_before(tmp_path: Path) -> None:
    before = logged(
        tmp_path, "before", {LARGE: ("RING", "SIMPLE", 4), 2 * LARGE: ("RING", "SIMPLE", 4)}
    )
    after = logged(tmp_path, "after", {LARGE: ("RING", "SIMPLE", 8), 2 * LARGE: ("RING", "LL", 4)})
    points = points_of(before, after, [rule(0, 64 * K, "tree/ll")], ({}, {}))
    assert [(point.rule, point.verdict) for point in points] == [
        (None, "left alone"),
        (None, "changed"),
    ]


def run(*hashes: str) -> StockRun:
    return StockRun(
        seconds=1.0,
        logs=1,
        nccl_version=None,
        nodes=4,
        ranks=4,
        tuner=None,
        config_hashes=list(hashes),
    )


def test_another_configuration_is_a_problem(tmp_path: Path) -> None:
    before = logged(tmp_path, "before", {SMALL: ("RING", "SIMPLE", 4)})
    after = logged(tmp_path, "after", {SMALL: ("TREE", "LL", 4)})
    points = points_of(before, after, [rule(0, 64 * K, "tree/ll")], ({}, {}))
    assert problems_of(run(), run("a" * 16), points, "a" * 16) == []
    (problem,) = problems_of(run(), run("b" * 16), points, "a" * 16)
    assert "another configuration" in problem
    (problem,) = problems_of(run("a" * 16), run("a" * 16), points, "a" * 16)
    assert "without the plugin" in problem
