# SPDX-License-Identifier: Apache-2.0
"""Taking rules out of a configuration and of its tuning."""

from pathlib import Path

import pytest

from nccltune.analyze import sort_samples
from nccltune.app.study import open_study
from nccltune.app.tune import save_tuning, tune_study
from nccltune.formats.tuner_config.csv_rules import config_hash, parse_rules, rows_text
from nccltune.model.platform import Platform
from nccltune.model.rule import RuleState
from nccltune.prove.edit import before_path, mark_rules, remove_rules, without
from nccltune.prove.result import Proof, RemovedRule, RuleProof
from nccltune.prove.run import write_proof
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning
from nccltune.tune.study import tune, write
from tests.unit.builders import measure, sizes, study_of
from tests.unit.prove.proofs import K, empty_proof, rule

CONFIG = """\
# nccltune: schema=1 nccl=2.28.9
# mine: do not touch
allreduce,1024,8192,tree,ll,-1,4,4\r

allreduce, 8193, 65536, ring, ll, -1, 4, 4
"""


def rules(text: str) -> list[object]:
    found = parse_rules(text)
    assert not found.problems
    return [item.rule for item in found.rules]


def test_a_removed_rule_stays_as_a_comment_that_says_why() -> None:
    gone = rule(8193, 65536, "ring/ll")
    text = without(CONFIG, [RemovedRule(gone, "slower: 0.93x at 64 KiB (0.91-0.95)")])
    assert rules(text) == [rule(1024, 8192)]
    assert parse_rules(text).header == {"schema": "1", "nccl": "2.28.9"}
    kept, new = CONFIG.splitlines(), text.splitlines()
    assert new[:4] == kept[:4]
    assert new[4] == (
        "# removed by nccltune verify (slower: 0.93x at 64 KiB (0.91-0.95)): "
        "allreduce, 8193, 65536, ring, ll, -1, 4, 4"
    )


def test_a_narrowed_rule_takes_the_place_of_the_old_one() -> None:
    narrow = rule(1024, 4096)
    text = without(CONFIG, [RemovedRule(rule(1024, 8192), "slower", narrow)])
    assert rules(text) == [narrow, rule(8193, 65536, "ring/ll")]
    assert "# narrowed by nccltune verify (slower): allreduce,1024,8192" in text


def test_a_long_reason_does_not_make_a_line_that_nvidias_reader_cuts() -> None:
    text = without(CONFIG, [RemovedRule(rule(1024, 8192), "slower " * 50)])
    assert max(map(len, text.splitlines())) <= 255
    assert not parse_rules(text).notes
    assert "# removed by nccltune verify: allreduce,1024" in text


@pytest.fixture
def study(tmp_path: Path) -> Study:
    def times(size: int) -> dict[str, float]:
        best = {"tree/ll": 10.0} if size <= 8 * K else {"ring/ll": 12.0}
        return {"default": 20.0, "tree/ll": 25.0, "ring/ll": 26.0, **best}

    made = study_of(tmp_path / "study", measure(sizes(1 * K, 128 * K), times, noise=0.01))
    tuning = tune(
        "study", Platform(name="study"), sort_samples(made.samples()), TuneOptions(), created="x"
    )
    write(made, tuning)
    return made


def tuning_of(study: Study) -> Tuning:
    return study.read_json(study.tuning_path, Tuning)


def test_file_and_tuning_stay_in_step(study: Study) -> None:
    before = study.config_path.read_text()
    first, second = tuning_of(study).rules
    remove_rules(
        study.config_path,
        [RemovedRule(first, "slower: 0.93x")],
        keep=before_path(study.config_path),
    )
    after = tuning_of(study)
    assert rules(study.config_path.read_text()) == after.rules == [second]
    assert after.config_hash == config_hash(study.config_path.read_bytes())
    assert before_path(study.config_path).read_text() == before
    (group,) = after.groups
    left = [item for item in group.left_alone if "did not hold in verify" in item.reason]
    assert [(item.min_bytes, item.max_bytes, item.sizes) for item in left] == [(1 * K, 8 * K, 4)]
    gone = [row for row in group.decisions if row.bytes <= 8 * K]
    assert all(row.choice is None and row.gain is None for row in gone)
    assert all(row.tuned_us == row.default_us for row in gone)
    assert group.expected_gain == pytest.approx(20 / 12, abs=0.03)


def test_a_narrowed_rule_keeps_the_evidence_of_its_sizes(study: Study) -> None:
    first = tuning_of(study).rules[0]
    narrow = rule(first.min_bytes, 4 * K)
    remove_rules(study.config_path, [RemovedRule(first, "slower", narrow)], keep=None)
    (group,) = tuning_of(study).groups
    assert group.rules[0].rule == narrow
    assert group.rules[0].sizes == [1 * K, 2 * K, 4 * K]
    assert group.rules[0].gain == pytest.approx(2.0, abs=0.03)
    assert group.rules[0].gain_low is None
    assert [row.bytes for row in group.decisions if row.choice is None] == [8 * K]
    assert not before_path(study.config_path).exists()


def test_a_tuning_that_is_not_of_this_file_is_not_touched(study: Study) -> None:
    first = tuning_of(study).rules[0]
    study.config_path.write_text(study.config_path.read_text() + "# by hand\n")
    before = study.tuning_path.read_bytes()
    remove_rules(
        study.config_path, [RemovedRule(first, "slower")], keep=before_path(study.config_path)
    )
    assert study.tuning_path.read_bytes() == before
    assert first not in rules(study.config_path.read_text())


MARKED = """\
# candidate: best of 6; against the default unknown
allreduce,1024,8192,tree,ll,-1,4,4
# proven: 1.20x faster than the default
allreduce,8193,65536,ring,ll,-1,4,4
"""


def states(text: str) -> list[str | None]:
    return [item.state and item.state.value for item in parse_rules(text).rules]


def test_a_removed_rule_takes_its_mark_along() -> None:
    text = without(MARKED, [RemovedRule(rule(1024, 8192), "slower")])
    assert states(text) == ["proven"]
    assert "candidate" not in text
    narrow = rule(1024, 4096)
    text = without(MARKED, [RemovedRule(rule(1024, 8192), "slower", narrow)])
    assert states(text) == ["candidate", "proven"]
    assert "best of 6" not in text


def test_rules_that_hold_are_marked_as_proven_in_file_and_tuning(study: Study) -> None:
    before = study.read_json(study.tuning_path, Tuning)
    holds, undecided = before.rules
    assert states(study.config_path.read_text()) == ["sure", "sure"]
    proof = proof_of(
        study,
        RuleProof(rule=holds, verdict="holds", gain=1.9, gain_low=1.8, gain_high=2.0),
        RuleProof(rule=undecided, verdict="open"),
    )
    marked = mark_rules(study, proof)
    text = study.config_path.read_text()
    assert states(text) == ["proven", "sure"]
    assert "# proven: 1.90x faster than the default (95 % CI 1.80-2.00), measured by verify" in text
    assert rules(text) == before.rules
    after = study.read_json(study.tuning_path, Tuning)
    assert marked.config_hash == after.config_hash == config_hash(text.encode())
    (group,) = after.groups
    assert [item.state for item in group.rules] == [RuleState.PROVEN, RuleState.SURE]
    assert group.rules[0].proven_gain == 1.9
    assert mark_rules(study, marked) == marked, "nothing more to write"


def test_rows_written_by_hand_count_as_ours_when_all_are_proven(study: Study) -> None:
    row = "allreduce,262144,524288,ring,ll,-1,4,4\n"
    before = parse_rules(study.config_path.read_text()).header["rows"]
    study.config_path.write_text(study.config_path.read_text() + row)
    every = [item.rule for item in parse_rules(study.config_path.read_text()).rules]
    held = [
        RuleProof(rule=one, verdict="holds", gain=1.9, gain_low=1.8, gain_high=2.0) for one in every
    ]
    undecided = RuleProof(rule=every[-1], verdict="open")
    mark_rules(study, proof_of(study, *held[:-1], undecided))
    assert parse_rules(study.config_path.read_text()).header["rows"] == before
    mark_rules(study, proof_of(study, *held))
    assert parse_rules(study.config_path.read_text()).header["rows"] == rows_text(every)


def test_a_proof_that_is_no_longer_decided_takes_the_mark_back(study: Study) -> None:
    study.config_path.write_text(MARKED)
    undecided = rule(8193, 65536, "ring/ll")
    mark_rules(study, proof_of(study, RuleProof(rule=undecided, verdict="open")))
    assert states(study.config_path.read_text()) == ["candidate", "candidate"]


def test_a_rule_that_was_not_measured_keeps_its_mark(study: Study) -> None:
    study.config_path.write_text(MARKED)
    other = rule(8193, 65536, "ring/ll")
    proof = proof_of(study, RuleProof(rule=other, verdict="unverified", reason="another scale"))
    assert mark_rules(study, proof) == proof
    assert study.config_path.read_text() == MARKED


def test_rules_that_were_proven_stay_proven_when_tuned_again(study: Study) -> None:
    tuning = study.read_json(study.tuning_path, Tuning)
    held = RuleProof(rule=tuning.rules[0], verdict="holds", gain=1.9, gain_low=1.8, gain_high=2.0)
    write_proof(study, mark_rules(study, proof_of(study, held)))
    again = save_tuning(study, tune_study(open_study(study.path)))
    assert again.rules == tuning.rules
    assert states(study.config_path.read_text()) == ["proven", "sure"]
    assert [item.state.value for item in again.groups[0].rules] == ["proven", "sure"]


def test_a_rule_that_did_not_hold_is_not_offered_again(study: Study) -> None:
    first, second = tuning_of(study).rules
    narrow = rule(first.min_bytes, 4 * K)
    dropped = [RemovedRule(first, "slower: 0.93x at 8 KiB", narrow), RemovedRule(second, "no gain")]
    write_proof(study, empty_proof(dropped=dropped))
    again = save_tuning(study, tune_study(open_study(study.path)))
    assert again.rules == [narrow]
    assert rules(study.config_path.read_text()) == [narrow]
    reasons = {item.min_bytes: item.reason for item in again.groups[0].left_alone}
    assert reasons[8 * K] == "tree/ll did not hold in verify: slower: 0.93x at 8 KiB"
    assert "ring/ll did not hold in verify: no gain" in reasons.values()
    # What replaced it did not hold, either.
    dropped.append(RemovedRule(narrow, "no gain beyond noise"))
    write_proof(study, empty_proof(dropped=dropped))
    assert tune_study(open_study(study.path)).rules == []


def proof_of(study: Study, *found: RuleProof) -> Proof:
    return empty_proof(
        config_hash=config_hash(study.config_path.read_bytes()), noise=0.01, rules=list(found)
    )
