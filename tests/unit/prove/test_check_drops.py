# SPDX-License-Identifier: Apache-2.0
"""What `check` removed is not offered again, until its choice is measured again."""

import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nccltune.app.study import open_study
from nccltune.app.tune import tune_study
from nccltune.model.choice import DEFAULT, Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.rule import Rule
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.prove.check_drops import drops_in_force, keep_drops, overlapping
from nccltune.prove.result import RemovedRule
from nccltune.study.files import Study
from nccltune.tune.result import RuleEvidence, TuneOptions
from tests.unit.builders import measure, sizes, study_of
from tests.unit.prove.proofs import K

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


class Later(Sample, frozen=True, weakref=True):
    """A sample that can be looked for in memory."""


def test_the_samples_are_streamed(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[weakref.ref[Later]] = []
    in_memory = []

    def later(_: Study) -> Iterator[Sample]:
        for _at in range(50):
            sample = Later(**{**AGAIN, "ranks": 4})  # type: ignore[arg-type]
            given.append(weakref.ref(sample))
            in_memory.append(sum(one() is not None for one in given))
            yield sample

    monkeypatch.setattr(Study, "samples", later)
    assert len(drops_in_force(study)) == 1
    assert max(in_memory) <= 3


def test_a_damaged_file_is_an_error_and_not_a_rule_that_is_offered_again(study: Study) -> None:
    with (study.path / "check.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(StudyError, match="is damaged"):
        drops_in_force(study)


def test_a_study_without_removals_has_none(tmp_path: Path) -> None:
    assert drops_in_force(Study.create(tmp_path / "t")) == []


@pytest.mark.parametrize(
    ("change", "sizes", "narrowed"),
    [
        ({}, [4096], None),
        ({"min_bytes": 1023, "max_bytes": 65537}, [4096], None),
        ({"min_bytes": 2048, "max_bytes": 1 << 40}, [4096], None),
        ({"nodes": None, "ranks": None}, [4096], None),
        ({"registered": True}, [4096], None),
        ({"pipe_ops": 4}, [4096], None),
        ({"choice": Choice(Algorithm.TREE, Protocol.LL, channels=8)}, [4096], None),
        ({"max_bytes": 1 << 20}, [4096, 1 << 17, 1 << 20], (65537, 1 << 20)),
        ({"min_bytes": 64}, [64, 512, 4096], (64, 1023)),
        ({"min_bytes": 64, "max_bytes": 1 << 20}, [64, 4096, 1 << 17, 1 << 20], (65537, 1 << 20)),
    ],
)
def test_a_removed_choice_does_not_come_back_in_a_rule_of_another_form(
    change: dict[str, object], sizes: list[int], narrowed: tuple[int, int] | None
) -> None:
    rule = msgspec.structs.replace(RULE, **change)
    found = overlapping(RuleEvidence(rule, sizes, 8, ""), RemovedRule(RULE, "slower", by="check"))
    assert found is not None
    kept = found.narrowed
    assert (kept and (kept.min_bytes, kept.max_bytes)) == narrowed
    more = "" if narrowed is None else "; the removed rule was from 1 KiB to 64 KiB"
    assert found.reason == f"slower{more}"


@pytest.mark.parametrize(
    "change",
    [
        {"min_bytes": 65537, "max_bytes": 1 << 20},
        {"min_bytes": 1, "max_bytes": 1023},
        {"choice": Choice(Algorithm.TREE, Protocol.LL128)},
        {"collective": Collective.ALLGATHER},
        {"nodes": 4},
        {"ranks": 16},
    ],
)
def test_a_rule_for_other_calls_is_not_removed(change: dict[str, object]) -> None:
    evidence = RuleEvidence(msgspec.structs.replace(RULE, **change), [4096], 8, "")
    assert overlapping(evidence, RemovedRule(RULE, "slower", by="check")) is None


def test_registered_and_plain_calls_that_were_measured_apart_are_removed_apart() -> None:
    plain, registered = (msgspec.structs.replace(RULE, registered=of) for of in (False, True))
    drop = RemovedRule(registered, "slower", by="check")
    assert overlapping(RuleEvidence(plain, [4096], 8, ""), drop) is None


@pytest.mark.parametrize("options", [{}, {"extend": True}, {"any_scale": True}, {"min_gain": 0.0}])
def test_other_options_do_not_offer_a_removed_choice_again(
    tmp_path: Path, options: dict[str, object]
) -> None:
    times = {"default": 10.0, "tree/ll": 5.0, "ring/ll": 11.0}
    study = study_of(tmp_path / "s", measure(sizes(4 * K, 32 * K), times), nccl_version="2.28.9")
    opened, other = open_study(study.path), TuneOptions(**options)  # type: ignore[arg-type]
    (first,) = tune_study(opened).rules
    assert tune_study(opened, other).rules != []
    keep_drops(study, [RemovedRule(first, "slower", by="check")], None, "2026-11-27T05:00")
    assert tune_study(opened, other).rules == []
