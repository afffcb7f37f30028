# SPDX-License-Identifier: Apache-2.0
from nccltune.model.finding import Finding, FindingKind
from nccltune.report.remarks import grouped


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
