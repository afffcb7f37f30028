# SPDX-License-Identifier: Apache-2.0
"""What `check` removed is not offered again, until its choice is measured again."""

from pathlib import Path

import pytest

from nccltune.model.choice import DEFAULT, Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.rule import Rule
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.prove.check_drops import drops_in_force, keep_drops
from nccltune.prove.result import RemovedRule
from nccltune.study.files import Study

TREE = Choice(Algorithm.TREE, Protocol.LL)
RULE = Rule(Collective.ALLREDUCE, 1024, 65536, TREE, nodes=2, ranks=8)
AGAIN = {
    "study": "s",
    "collective": Collective.ALLREDUCE,
    "bytes": 4096,
    "nodes": 2,
    "ranks": 8,
    "choice": TREE,
    "time_us": 9.0,
    "source": Source(tool="nccltune-bench"),
}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study from which a rule was removed after one sample of it."""
    study = Study.create(tmp_path / "s")
    study.append_lines(study.samples_path, [Sample(**AGAIN)])
    keep_drops(study, [RemovedRule(RULE, "not faster", by="check")], "2.32.3", "2026-11-27T05:00")
    return study


def test_a_removed_rule_states_why_when_and_under_which_nccl(study: Study) -> None:
    (dropped,) = drops_in_force(study)
    assert (dropped.rule, dropped.by, dropped.narrowed) == (RULE, "check", None)
    assert dropped.reason.startswith("not faster (2026-11-27, NCCL 2.32.3)")


@pytest.mark.parametrize(
    ("change", "is_in_force"),
    [
        ({}, False),
        ({"choice": Choice(Algorithm.TREE, Protocol.LL, channels=8)}, False),
        ({"choice": Choice(Algorithm.RING, Protocol.LL)}, True),
        ({"choice": DEFAULT}, True),
        ({"bytes": 131072}, True),
        ({"ranks": 4}, True),
        ({"nodes": 1}, True),
        ({"collective": Collective.ALLGATHER}, True),
        ({"source": Source(tool="nccltune-bench", purpose=Purpose.VERIFY)}, True),
    ],
)
def test_only_its_own_choice_measured_afterwards_brings_it_back(
    study: Study, change: dict[str, object], is_in_force: bool
) -> None:
    study.append_lines(study.samples_path, [Sample(**{**AGAIN, **change})])  # type: ignore[arg-type]
    assert bool(drops_in_force(study)) == is_in_force


def test_each_removal_counts_from_its_own_time(study: Study) -> None:
    study.append_lines(study.samples_path, [Sample(**AGAIN)])
    keep_drops(study, [RemovedRule(RULE, "slower", by="check")], None, "2026-12-04T05:00")
    (dropped,) = drops_in_force(study)
    assert dropped.reason.startswith("slower (2026-12-04);")


def test_a_damaged_file_is_an_error_and_not_a_rule_that_is_offered_again(study: Study) -> None:
    with (study.path / "check.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(StudyError, match="is damaged"):
        drops_in_force(study)


def test_a_study_without_removals_has_none(tmp_path: Path) -> None:
    assert drops_in_force(Study.create(tmp_path / "t")) == []
