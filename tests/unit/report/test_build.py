# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from msgspec.structs import replace

from nccltune.analyze.result import Analysis, Condition, ConditionAnalysis, Noise
from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.rule import RuleState
from nccltune.report import html
from nccltune.report.data import ConditionRow, Report
from nccltune.report.remarks import grouped
from tests.unit.report.fixture import SIZES, TIMES, analysis, built, proof, report, tuning


def allreduce(shown: Report) -> ConditionRow:
    return next(item for item in shown.conditions if item.collective == "allreduce")


def test_the_data_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(report()), type=Report) == report()


def test_curves_carry_every_point_with_its_interval_and_n() -> None:
    default = allreduce(report()).series[0]
    assert (default.label, default.role) == ("default", "default")
    assert default.bytes == SIZES
    assert default.n == [16] * 5
    assert default.time_us == TIMES[Collective.ALLREDUCE]["default"]
    assert default.low_us[0] == pytest.approx(39.2)
    assert default.high_us[0] == pytest.approx(40.8)
    # busbw of an all-reduce: bytes / time x 2 (ranks - 1) / ranks.
    assert default.busbw_gb_per_s[4] == pytest.approx((1 << 26) / 3.1e6 * 30 / 16, rel=1e-5)


def test_the_tuned_curve_takes_the_points_of_the_choices_that_the_rules_name() -> None:
    tuned = allreduce(report()).series[1]
    assert (tuned.label, tuned.role) == ("tuned, expected", "tuned")
    assert tuned.choice == ["tree/ll", "tree/ll", "ring/simple", "default", "default"]
    assert tuned.time_us == [25.0, 40.0, 150.0, 480.0, 3100.0]
    assert tuned.n == [8, 8, 8, 16, 16]


def test_a_size_whose_interval_says_nothing_has_no_gain() -> None:
    group = tuning().groups[0]
    first, *others = group.decisions
    wide = replace(first, gain=1.39, gain_low=0.0, gain_high=2975.66)
    changed = replace(tuning(), groups=[replace(group, decisions=[wide, *others])])
    rows = built(analysis(), changed).groups[0].sizes
    assert [row.gain is None for row in rows] == [True, *(x.gain is None for x in others)]


def test_without_rules_there_is_no_tuned_curve() -> None:
    labels = [line.label for line in report().conditions[0].series]
    assert labels == ["default", "ring/ll"]


def test_a_choice_that_a_condition_lacks_is_a_gap() -> None:
    whole = analysis()
    poorer = whole.conditions[1]
    curves = [curve for curve in poorer.curves if getattr(curve.choice, "label", "") != "tree/ll"]
    changed = replace(whole, conditions=[replace(poorer, curves=curves)])
    row = allreduce(built(changed))
    assert row.series[1].time_us == [None, None, 150.0, 480.0, 3100.0]
    assert row.map.path == [None, None, 1, 0, 0]


def test_the_choice_map_is_relative_to_the_fastest_at_each_size() -> None:
    found = allreduce(report()).map
    assert found.choices == ["default", "ring/simple", "tree/ll"]
    assert found.relative[0] == pytest.approx([1.6, 1.5, 1.4, 480 / 420, 3100 / 3000], rel=1e-5)
    assert found.relative[2] == [1.0, 1.0, 2.0, None, None]
    assert found.path == [2, 2, 1, 0, 0]


def test_findings_are_numbered_marked_and_linked_to_their_curve() -> None:
    shown = report()
    assert [finding.id for finding in shown.findings] == [f"finding-{n}" for n in (1, 2, 3, 4)]
    assert [finding.conditions for finding in shown.findings] == [
        [],
        ["condition-2"],
        ["condition-1"],
        ["condition-2"],
    ]
    marks = [(mark.finding, mark.min_bytes, mark.max_bytes) for mark in allreduce(shown).marks]
    assert marks == [(2, SIZES[0], SIZES[2]), (4, SIZES[2], SIZES[3])]
    assert shown.findings[1].where == "all-reduce"
    assert shown.findings[1].sentence.startswith("From 1 KiB to 256 KiB the default")


def test_what_to_check_first_stands_once_and_only_where_it_is_needed() -> None:
    shown = report()
    base = shown.findings[2]
    assert base.kind is FindingKind.NOT_A_TUNING_PROBLEM
    assert base.sentence == "Even the best choice dips between 256 KiB and 4 MiB."
    assert len(shown.check_first) == 4
    fine = replace(analysis(), findings=[])
    assert built(fine).check_first == []


def in_place(item: ConditionAnalysis) -> ConditionAnalysis:
    condition = replace(item.condition, in_place=True)
    return replace(item, condition=condition, title=condition.title)


def test_a_finding_shows_only_on_the_condition_that_its_sentence_names() -> None:
    whole = analysis()
    plain = whole.conditions[1]
    shown = built(replace(whole, conditions=[plain, in_place(plain)]))
    assert [item.label for item in shown.conditions] == ["all-reduce", "all-reduce, in place"]
    assert shown.findings[1].conditions == ["condition-1"]
    # The rules hold for both: a tuner does not know whether a call is in place.
    assert [item.group for item in shown.conditions] == ["group-1", "group-1"]


def test_labels_stay_apart_when_titles_do_not() -> None:
    whole = analysis()
    floats = whole.conditions[1]
    condition = replace(floats.condition, dtype="bfloat16")
    halves = replace(floats, condition=condition, title=f"{condition.title}, bfloat16")
    shown = built(replace(whole, conditions=[floats, halves, halves]))
    assert len({item.label for item in shown.conditions}) == 3
    assert "bfloat16" in shown.conditions[1].label


def test_a_collective_no_tuner_is_asked_about_has_curves_and_no_group() -> None:
    whole = analysis()
    sendrecv = replace(
        whole.conditions[0], condition=Condition(Collective.SENDRECV, tuning().groups[0].scale)
    )
    shown = built(replace(whole, conditions=[sendrecv]))
    assert shown.conditions[0].group is None
    assert shown.conditions[0].map.path == [0] * 5


def facts(shown: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in shown.facts}


def test_the_header_says_platform_versions_date_n_and_noise_floor() -> None:
    shown = report()
    assert facts(shown) == {
        "Platform": "16 x NVIDIA H100 · NVLink · 2 nodes · net IB",
        "Versions": "NCCL 2.28.9 · driver 580.159 · nccltune 0.1.0",
        "Measured": "2026-11-21, 2 nodes, 16 ranks",
        "Timings (n)": "320 timings in 8 rounds",
        "Noise floor": "1.1 % typical, 3 % at worst",
        "Settings": "NCCL_IB_HCA=mlx5",
    }
    noise = next(fact for fact in shown.facts if fact.label == "Noise floor")
    assert noise.note == "A/A: the default measured twice in every round"


def test_an_unknown_platform_is_not_made_up() -> None:
    bare = replace(analysis(), platform=Platform(name="somewhere"))
    shown = built(bare, replace(tuning(), nccl_version=None))
    found = facts(shown)
    assert found["Platform"] == "somewhere"
    assert found["Versions"] == "nccltune 0.1.0"
    assert found["Analysed"] == "2026-11-21, 2 nodes, 16 ranks"
    assert "Settings" not in found


def test_assumed_noise_is_called_assumed() -> None:
    whole = analysis()
    single = [
        replace(item, noise=Noise("assumed", 0.05, 0.05, 5), rounds=1) for item in whole.conditions
    ]
    shown = built(replace(whole, conditions=single))
    noise = next(fact for fact in shown.facts if fact.label == "Noise floor")
    assert noise.value == "unknown; 5 % is assumed"
    assert noise.note == "too few timings per point to measure it"
    assert facts(shown)["Timings (n)"] == "320 timings in 1 round"
    assert not shown.conditions[0].noise.known


def test_an_empty_analysis_gives_an_empty_report() -> None:
    empty = Analysis(Platform(name="new"), [], [], 0)
    shown = built(empty, replace(tuning(), groups=[]))
    assert shown.verdict == "Nothing was measured yet."
    assert (shown.conditions, shown.groups, shown.findings) == ([], [], [])


def test_with_a_proof_the_strong_lines_are_those_of_the_proof() -> None:
    proven = proof()
    shown = built(proof=proven)
    default, tuned, *others = allreduce(shown).series
    sizes = proven.groups[0].sizes
    assert (default.role, tuned.role) == ("default", "tuned")
    assert default.bytes == tuned.bytes == [size.bytes for size in sizes]
    assert default.time_us == [size.default_us for size in sizes]
    assert tuned.time_us == [size.tuned_us for size in sizes]
    # The interval of a gain from 0.95 to 1.05 of itself, as times.
    assert tuned.low_us[0] == pytest.approx(100 / 1.05, rel=1e-5)
    assert tuned.high_us[0] == pytest.approx(100 / 0.95, rel=1e-5)
    assert [(line.label, line.role) for line in others] == [
        ("default", "choice"),
        ("ring/simple", "choice"),
        ("tree/ll", "choice"),
    ]
    # A collective that was not proven keeps its own lines.
    labels = [line.label for line in shown.conditions[0].series]
    assert labels == ["default", "ring/ll"]


def test_the_header_names_the_noise_floor_of_the_proof_beside_that_of_the_sweep() -> None:
    shown = built(proof=proof())
    noise = next(fact for fact in shown.facts if fact.label == "Noise floor")
    assert noise.value == (
        "1.1 % typical, 3 % at worst; 1.1 % at worst in the proof, which is another run"
    )


def test_what_the_default_ran_is_on_curve_and_map() -> None:
    whole = analysis()
    item = whole.conditions[1]
    default = item.curves[0]
    names = [curve.choice for curve in item.curves]
    ran = next(choice for choice in names if isinstance(choice, Choice))
    points = [replace(point, ran=ran) for point in default.points]
    points[0] = replace(points[0], ran=None)
    curves = [replace(default, points=points), *item.curves[1:]]
    known = replace(item, curves=curves)
    (shown,) = built(replace(whole, conditions=[known])).conditions
    row = shown.map.choices.index(ran.label)
    assert shown.map.ran == [None, *[row] * (len(points) - 1)]
    assert shown.series[0].choice == ["unknown", *[ran.label] * (len(points) - 1)]
    assert shown.ran is not None
    assert shown.ran.endswith(f"{ran.label} above")
    predicted = replace(known, ran_predicted=True)
    (shown,) = built(replace(whole, conditions=[predicted])).conditions
    assert shown.series[0].choice is not None
    assert shown.series[0].choice[1] == f"{ran.label} (predicted)"
    (unknown,) = built(replace(whole, conditions=[item])).conditions
    assert (unknown.ran, unknown.series[0].choice, set(unknown.map.ran)) == (None, None, {None})


def test_candidates_are_called_so_on_curve_and_glance() -> None:
    found = tuning()
    group = found.groups[0]
    rules = [replace(item, state=RuleState.CANDIDATE) for item in group.rules]
    only = replace(found, groups=[replace(group, rules=rules), *found.groups[1:]])
    shown = built(tuned=only)
    assert "candidates" in [line.label for line in allreduce(shown).series]
    page = html.render(shown)
    assert '<i class="candidate" title="1 KiB: tree/ll, a candidate' in page
    assert "has a candidate, not proven" in page
    sure = [replace(item, state=RuleState.SURE) for item in group.rules]
    firm = replace(found, groups=[replace(group, rules=sure), *found.groups[1:]])
    shown = built(tuned=firm)
    assert "a candidate, not proven" not in html.render(shown)


def test_what_was_not_compared_is_no_mark_on_the_curve() -> None:
    whole = analysis()
    kinds = [replace(finding, kind=FindingKind.NOT_COMPARED) for finding in whole.findings]
    shown = built(replace(whole, findings=kinds))
    assert len(shown.findings) > 0
    assert [item.marks for item in shown.conditions] == [[], []]


def suspect(sentence: str) -> Finding:
    return Finding(kind=FindingKind.SUSPECT_RUN, sentence=sentence)


def test_runs_that_differ_in_file_choice_and_numbers_only_are_one_group() -> None:
    sentences = [
        f"runs/{choice.replace('/', '-')}-{number}.txt: {number} of 8 rows ran {choice} and not "
        f"what 'NCCL_ALGO={number}' asked for at {number << 10} B"
        for number in range(1, 5)
        for choice in ("tree/ll", "ring/simple", "default")
    ]
    sentences = [text for text in sentences if "ran default" not in text]
    found = grouped([suspect(text) for text in sentences])
    assert len(found) == 1
    assert found[0].first.sentence == sentences[0]
    assert [other.sentence for other in found[0].others] == sentences[1:]
    assert found[0].more == f"{len(sentences) - 1} more like this"


def test_other_reasons_and_other_kinds_stay_apart_in_their_order() -> None:
    dips = [Finding(kind=FindingKind.DIP, sentence=f"all-reduce: dip {n}") for n in (1, 2)]
    findings = [
        suspect("a.txt: ran on one host"),
        suspect("b.txt: the table is cut"),
        suspect("3 timings left out because the scale is unknown: import again"),
        suspect("3 timings left out because they are of one rank: import again"),
        *dips,
    ]
    found = grouped(findings)
    assert [item.first for item in found] == findings
    assert [item.more for item in found] == [""] * 6


def test_a_sentence_about_several_files_is_one_of_its_group() -> None:
    findings = [
        suspect("my runs/a.txt: rank 3 is missing (and in 2 files more)"),
        suspect("my runs/b.txt: rank 4 is missing"),
    ]
    assert [item.others for item in grouped(findings)] == [[findings[1]]]


def test_nothing_is_lost() -> None:
    findings = [suspect(f"{n}.txt: rank {n} is missing") for n in range(28)]
    (group,) = grouped(findings)
    assert [group.first, *group.others] == findings


def test_curves_that_all_still_grow_are_one_group() -> None:
    def growing(dtype: str, rate: int) -> Finding:
        where = f"all-reduce, 1 node, 8 ranks, {dtype}"
        return Finding(
            kind=FindingKind.NOT_SATURATED,
            sentence=f"{where}: bus bandwidth still grows at the largest size ({rate} GB/s)",
            where=where,
        )

    findings = [growing("float", 104), growing("half", 107), growing("int8", 110)]
    (group,) = grouped(findings)
    assert group.others == findings[1:]
