# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and joining NVIDIA's tuner CSV; NCCL's configuration file, as NCCL reads it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.tuner_config.csv_rules import (
    MAX_CHUNK,
    MAX_LINE,
    MAX_RULES,
    config_hash,
    mark,
    parse_rules,
    read_rules,
    rows_text,
    with_rows,
    write_rules,
)
from nccltune.formats.tuner_config.joined import NamedRules, joined_rules
from nccltune.formats.tuner_config.nccl_conf import (
    conf_lines,
    first_settings,
    read_conf,
    render_conf,
)
from nccltune.model.choice import ALGORITHMS, PROTOCOLS, Algorithm, Choice, Protocol, parse_choice
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.rule import Rule, RuleState

ROW = "allreduce,0,65536,tree,ll,-1,4,32"
RULE = Rule(Collective.ALLREDUCE, 0, 65536, Choice(Algorithm.TREE, Protocol.LL), 4, 32)


def rules(text: str) -> list[Rule]:
    found = parse_rules(text + "\n")
    assert found.problems == []
    return [item.rule for item in found.rules]


def test_rows_of_8_to_10_fields() -> None:
    from msgspec.structs import replace

    assert rules(ROW) == [RULE]
    assert rules(ROW + ",2") == [replace(RULE, pipe_ops=2)]
    assert rules(ROW + ",2,0") == [replace(RULE, pipe_ops=2, registered=False)]
    assert rules(ROW + ",-1,1") == [replace(RULE, registered=True)]
    assert rules(ROW + ",-1,-1") == [RULE]
    any_scale = rules("allreduce,0,65536,tree,ll,8,-1,-1")[0]
    assert (any_scale.nodes, any_scale.ranks, any_scale.choice.channels) == (None, None, 8)


def test_comments_blanks_and_line_ends() -> None:
    text = (
        f"\ufeff# a comment\r\n\r\n {ROW} \r\n  # another\r\n allreduce , 1 ,2,ring, ll,1,1,1\r\n"
    )
    found = parse_rules(text)
    assert [item.line for item in found.rules] == [3, 5]
    assert found.problems == found.notes == []


def test_the_header() -> None:
    found = parse_rules(
        '# nccltune: schema=1 nccl=2.28.9 gpu="NVIDIA H200"\n'
        "# other words=not ours\n"
        '# nccltune: study="h200x4 as 4 nodes" created=2026-11-21\n'
    )
    assert found.header == {
        "schema": "1",
        "nccl": "2.28.9",
        "gpu": "NVIDIA H200",
        "study": "h200x4 as 4 nodes",
        "created": "2026-11-21",
    }
    bad = parse_rules('# nccltune: gpu="NVIDIA H200\n').problems
    assert bad[0].line == 1
    assert "key=value" in bad[0].message


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        (ROW.replace("tree", "NVLS"), "column 4 (algorithm): 'NVLS' is not an algorithm", "'nvls'"),
        (ROW.replace("tree", "ringg"), "column 4 (algorithm)", "'ring'"),
        (ROW.replace("tree", "default"), "column 4 (algorithm)", "leave the row out"),
        (ROW.replace(",ll,", ",LL,"), "column 5 (protocol): 'LL'", "'ll'"),
        (ROW.replace("allreduce", "alltoall"), "column 1 (collective): 'alltoall'", "allreduce"),
        (ROW.replace("allreduce", "AllReduce"), "column 1 (collective)", "'allreduce'"),
        (ROW.replace(",0,", ",1K,"), "column 2 (minBytes): '1K'", "1024"),
        (ROW.replace("65536", "64KiB"), "column 3 (maxBytes): '64KiB'", "65536"),
        (ROW.replace("65536", ""), "column 3 (maxBytes): empty", "whole bytes"),
        (ROW.replace("65536", "1.5"), "column 3 (maxBytes)", "whole bytes"),
        (ROW.replace("65536", "18446744073709551616"), "column 3 (maxBytes)", ""),
        (ROW.replace(",0,65536", ",9,8"), "column 3 (maxBytes): 8 is less than minBytes 9", "swap"),
        (ROW.replace(",-1,4", ",65,4"), "column 6 (channels): '65'", "1 to 64"),
        (ROW.replace(",-1,4", ",0,4"), "column 6 (channels): '0'", "1 to 64"),
        (ROW.replace(",4,32", ",0,32"), "column 7 (nNodes): '0'", "-1 matches any"),
        (ROW.replace(",4,32", ",4,-2"), "column 8 (nRanks): '-2'", "-1 matches any"),
        (ROW.replace(",4,32", ",4,9999999999"), "column 8 (nRanks)", "-1 matches any"),
        (ROW.replace(",4,32", ",4,³"), "column 8 (nRanks)", "-1 matches any"),
        (ROW + ",0", "column 9 (numPipeOps): '0'", "-1 matches any"),
        (ROW + ",1,2", "column 10 (regBuff): '2'", "0 to 1"),
        (ROW + ",1,1,0", "column 11 (chunkBytes): '0'", "1 to 1073741824"),
        (ROW + ",1,1,1073741825", "column 11 (chunkBytes): '1073741825'", "leaves it to NCCL"),
        (ROW + ",1,1,64K", "column 11 (chunkBytes): '64K'", "leaves it to NCCL"),
        (ROW + ",1,1,", "column 11 (chunkBytes): empty", "leaves it to NCCL"),
        (ROW + ",1,1,1,1", "12 columns: too many", "8 to 11"),
        ("allreduce,0,65536,tree,ll,-1,4", "7 columns: too few", "8 to 11"),
        ("ring", "1 column: too few", "8 to 11"),
        ("allreduce,65536,0,tree,ll", "too few; column 3 (maxBytes): 0 is less than", "8 to 11"),
    ],
)
def test_problems(row: str, message: str, hint: str) -> None:
    found = parse_rules(f"{ROW}\n{row}\n{ROW}\n", name="tuner.conf")
    assert [item.line for item in found.rules] == [1, 3]
    (problem,) = found.problems
    assert problem.line == 2
    assert message in problem.message
    assert hint in (problem.hint or "")
    with pytest.raises(InputError) as caught:
        parse_rules(f"{ROW}\n{row}\n", name="tuner.conf", strict=True)
    assert str(caught.value).startswith("tuner.conf:2: ")


def test_all_problems_are_listed() -> None:
    found = parse_rules("a\n" + ROW + "\nb\n\nc\n")
    assert [problem.line for problem in found.problems] == [1, 3, 5]


def test_a_line_that_nvidias_reader_would_cut_is_noted() -> None:
    found = parse_rules("#" + "x" * MAX_LINE + "\n" + ROW + "\n")
    assert [note.line for note in found.notes] == [1]
    assert [item.line for item in found.rules] == [2]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "tuner.conf"
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(path)
    with pytest.raises(InputError, match="folder"):
        read_rules(tmp_path)
    path.write_text(f"{ROW}\nx\n")
    assert len(read_rules(path).rules) == 1
    with pytest.raises(InputError, match=r"tuner\.conf:2"):
        read_rules(path, strict=True)
    path.write_bytes(ROW.encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        read_rules(path)
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(InputError, match="binary"):
        read_rules(path)
    path.write_bytes(b"")
    assert read_rules(path).rules == []


def test_a_large_file() -> None:
    lines = [f"allreduce,{at * 100},{at * 100 + 99},ring,ll,-1,4,32" for at in range(100_000)]
    found = parse_rules("\n".join(lines) + "\n")
    assert len(found.rules) == 100_000
    assert found.rules[-1].rule.max_bytes == 9_999_999
    with pytest.raises(InputError, match="32 MiB"):
        parse_rules(b"#" * ((32 << 20) + 1))


def test_more_rows_than_a_plugin_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_RULES == 1 << 18
    monkeypatch.setattr("nccltune.formats.tuner_config.csv_rules.MAX_RULES", 2)
    found = parse_rules(f"{ROW}\n" * 3)
    assert len(found.rules) == 2
    assert "at most 2" in found.problems[0].message


def test_written_rules_and_header() -> None:
    header = {
        "schema": "1",
        "nccl": "2.28.9",
        "gpu": "NVIDIA H200",
        "study": "h200x4-as-4-nodes",
        "created": "2026-11-21",
    }
    text = write_rules([RULE], header)
    assert text.splitlines() == [
        '# nccltune: schema=1 nccl=2.28.9 gpu="NVIDIA H200" study="h200x4-as-4-nodes"'
        ' created=2026-11-21 end="below"',
        "# colltype,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff",
        ROW,
        "# nccltune: end=here",
    ]
    assert parse_rules(text).header == header | {"end": "below"}


def test_chunk_sizes() -> None:
    from msgspec.structs import replace

    chunked = replace(RULE, choice=replace(RULE.choice, chunk_bytes=65536))
    text = write_rules([RULE, chunked, replace(chunked, registered=True)], {})
    assert text.splitlines() == [
        "# colltype,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff,"
        "chunkBytes",
        ROW,
        ROW + ",-1,-1,65536",
        ROW + ",-1,1,65536",
    ]
    assert [item.rule for item in parse_rules(text).rules][1] == chunked
    for blank in (" {}", "{} ", "\t{}"):
        (read,) = parse_rules(ROW + ",-1,-1," + blank.format(65536) + "\n").rules
        assert read.rule == chunked
    (unset,) = parse_rules(ROW + ",-1,-1,-1\n").rules
    assert unset.rule == RULE


def test_long_and_awkward_header_values() -> None:
    header = {
        "study": 'a "b"\nc',
        "gpu": "ä" * 300,
        "empty": " ",
        "created": "2026",
        "x": "y" * 200,
    }
    text = write_rules([], header)
    assert all(len(line.encode()) <= MAX_LINE for line in text.splitlines())
    read = parse_rules(text)
    assert read.problems == read.notes == []
    assert read.header["study"] == "a 'b' c"
    assert set(read.header) == {"study", "gpu", "created", "x", "end"}
    assert "ä" * 100 in read.header["gpu"]


def test_rules_that_the_format_cannot_hold_are_refused() -> None:
    from msgspec.structs import replace

    with pytest.raises(InputError, match="1 to 1073741824 bytes"):
        write_rules([replace(RULE, choice=replace(RULE.choice, chunk_bytes=MAX_CHUNK + 1))], {})
    with pytest.raises(InputError, match="asks no tuner"):
        write_rules([replace(RULE, collective=Collective.ALLTOALL)], {})


sizes = st.integers(0, (1 << 64) - 1)
any_rule = st.builds(
    lambda collective, ends, choice, nodes, ranks, pipe, registered: Rule(
        collective, min(ends), max(ends), choice, nodes, ranks, pipe, registered
    ),
    st.sampled_from(TUNED),
    st.tuples(sizes, sizes),
    st.builds(
        Choice,
        st.sampled_from(ALGORITHMS),
        st.sampled_from(PROTOCOLS),
        st.none() | st.integers(1, 64),
        st.none() | st.integers(1, MAX_CHUNK),
    ),
    st.none() | st.integers(1, (1 << 31) - 1),
    st.none() | st.integers(1, (1 << 31) - 1),
    st.none() | st.integers(1, 9),
    st.none() | st.booleans(),
)
words = st.text(
    st.characters(codec="utf-8", exclude_characters='"', categories=["L", "N", "P"]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(any_rule, max_size=8),
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), words, max_size=4),
)
def test_round_trip(shown: list[Rule], header: dict[str, str]) -> None:
    found = parse_rules(write_rules(shown, header))
    assert found.problems == found.notes == []
    assert [item.rule for item in found.rules] == shown
    assert found.header == (header | {"end": "below"} if header else {})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_result_or_an_error(data: bytes) -> None:
    try:
        found = parse_rules(data)
    except InputError:
        return
    lines = {item.line for item in found.rules} | {problem.line for problem in found.problems}
    assert len(lines) <= data.count(b"\n") + 1


def test_no_part_of_a_file_gives_rules() -> None:
    """Every prefix that a reader may see while the file is copied."""
    whole = write_rules([RULE, RULE], {"schema": "1"})
    assert whole.startswith('# nccltune: schema=1 end="below"\n')
    assert whole.endswith(f"\n{ROW}\n# nccltune: end=here\n")
    for size in range(len(whole) - 1):
        found = parse_rules(whole[:size])
        assert not found.rules
        if ROW in whole[:size]:
            assert "cut off" in found.problems[-1].message
            with pytest.raises(InputError):
                parse_rules(whole[:size], strict=True)
    # The line end of the last comment does not matter, and rows may be added below it.
    assert len(parse_rules(whole[:-1]).rules) == 2
    assert len(parse_rules(f"{whole}{ROW}\n").rules) == 3


def test_a_row_without_a_line_end_is_a_problem() -> None:
    """32 ranks may be the beginning of 320."""
    found = parse_rules(f"{ROW}\n{ROW}")
    assert [item.line for item in found.rules] == [1]
    assert [(problem.line, problem.hint) for problem in found.problems] == [(2, "add a line end")]


def test_the_hash_is_fnv_1a() -> None:
    # Test vectors of the FNV authors (isthe.com/chongo/tech/comp/fnv).
    assert config_hash(b"") == "cbf29ce484222325"
    assert config_hash(b"a") == "af63dc4c8601ec8c"
    assert config_hash(b"foobar") == "85944171f73967e8"


@pytest.mark.parametrize("line", ["," * 200_000, '# nccltune: gpu="' + "x" * 200_000 + '"'])
def test_a_very_long_line_is_a_problem_and_not_read(line: str) -> None:
    found = parse_rules(f"{line}\nallreduce,0,65536,tree,ll,-1,1,4\n")
    assert [rule.line for rule in found.rules] == [2]
    (problem,) = found.problems
    assert (problem.line, "is not read" in problem.message) == (1, True)
    assert found.header == {}
    with pytest.raises(InputError, match="is not read"):
        parse_rules(line, strict=True)


def test_a_comment_directly_above_a_row_states_how_much_is_known() -> None:
    row = "allreduce,{},{},ring,ll,-1,4,4"
    text = "\n".join(
        [
            "# candidate: best of 6; against the default unknown",
            row.format(0, 9),
            row.format(10, 19),
            "# proven: 1.20x faster than the default",
            "# removed by nccltune verify (slower): allreduce,20,29,tree,ll,-1,4,4",
            row.format(30, 39),
            "#   sure: 1.30x, 95 % CI 1.20-1.40\r",
            row.format(40, 49) + "\r",
            "# surely: not a state",
            row.format(50, 59),
        ]
    )
    found = parse_rules(text + "\n")
    assert found.problems == []
    assert [item.state for item in found.rules] == [
        RuleState.CANDIDATE,
        None,
        None,
        RuleState.SURE,
        None,
    ]


def test_marks_are_written_above_their_rows_in_lines_that_nvidias_reader_takes_whole() -> None:
    rule = Rule(Collective.ALLREDUCE, 0, 9, Choice(Algorithm.RING, Protocol.LL), 4, 4)
    text = write_rules(
        [rule], {}, {rule: mark(RuleState.CANDIDATE, "best\nof \u00e4 " + "6" * 300)}
    )
    assert text.splitlines()[-2].startswith("# candidate: best of ? 666")
    assert max(map(len, text.splitlines())) == MAX_LINE
    (read,) = parse_rules(text).rules
    assert (read.rule, read.state) == (rule, RuleState.CANDIDATE)


@pytest.mark.parametrize("first", ["collective_type", "colltype", "Collective"])
def test_names_of_columns_need_a_comment_sign(first: str) -> None:
    row = "allreduce,0,65536,tree,simple,2,1,-1"
    data = f"{first},min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n{row}\n"
    read = parse_rules(data)
    assert len(read.rules) == 1
    assert [(item.line, item.hint) for item in read.problems] == [(1, "write # before it")]
    assert parse_rules("# " + data).problems == []


def test_all_invalid_cells_of_a_row_are_named() -> None:
    (problem,) = parse_rules("allreduce,0,9,-1,-1,256,2,16,-1,-1\n").problems
    for cell in ("(algorithm): '-1'", "(protocol): '-1'", "(channels): '256'"):
        assert cell in problem.message


@pytest.mark.parametrize(
    ("comment", "gain"),
    [
        ("# sure: 1.46x, 95 % CI 1.33-1.59", (1.46, 1.33, 1.59)),
        (
            "# proven: 1.27x faster than the default (95 % CI 1.22-1.33), measured by verify on "
            "2026-11-27",
            (1.27, 1.22, 1.33),
        ),
        ("# candidate: 1.10x, 95 % CI 0.90-1.30; few timings", (1.10, 0.90, 1.30)),
        ("# candidate: the default was not measured", None),
        ("# sure: about 1.2x", None),
        ("# mine: 1.46x, 95 % CI 1.33-1.59", None),
    ],
)
def test_the_comment_of_a_state_has_the_gain(
    comment: str, gain: tuple[float, float, float] | None
) -> None:
    (item,) = parse_rules(f"{comment}\n{_row_of(RULE)}\n").rules
    assert item.gain == gain


def _row_of(rule: Rule) -> str:
    return write_rules([rule], {}).splitlines()[1]


def test_the_hash_of_rows_is_of_rules_and_not_of_text() -> None:
    row = _row_of(RULE)
    assert rows_text([RULE]).startswith("1 ")
    assert rows_text([RULE]) != rows_text([RULE, RULE]) != rows_text([])
    spaced = "# a comment\n" + row.replace(",", " , ") + "\r\n"
    assert rows_text([item.rule for item in parse_rules(spaced).rules]) == rows_text([RULE])
    whole = write_rules([RULE, RULE], {"schema": "1", "rows": rows_text([RULE, RULE])})
    fewer = with_rows(whole.replace(row + "\n", "", 1))
    assert parse_rules(fewer).header["rows"] == rows_text([RULE])
    assert with_rows(row + "\n") == row + "\n"


HEADER = {"schema": "1", "nccl": "2.28.9", "gpu": "NVIDIA H200"}


def rule(low: int, high: int, nodes: int | None, choice: str = "tree/ll", **more: int) -> Rule:
    ranks = None if nodes is None else 8 * nodes
    return Rule(Collective.ALLREDUCE, low, high, parse_choice(choice), nodes, ranks, **more)  # type: ignore[arg-type]


def part(name: str, *rules: Rule, **header: str) -> NamedRules:
    marks = dict.fromkeys(rules, f"# sure: of {name}")
    return NamedRules(name, write_rules(rules, HEADER | {"study": name} | header, marks))


def test_the_rules_of_all_scales_are_in_one_whole_file() -> None:
    first, second = rule(1, 9, 2), rule(1, 99, 4, "ring/simple")
    text = joined_rules([part("a", first, created="1", rows="9"), part("b", second, created="2")])
    found = parse_rules(text, strict=True)
    assert [item.rule for item in found.rules] == [first, second]
    assert [item.state for item in found.rules] == ["sure", "sure"]
    joint = {"study": "a + b", "rows": rows_text([first, second]), "end": "below"}
    assert found.header == HEADER | joint
    assert text.splitlines()[-1] == "# nccltune: end=here"
    assert "# sure: of b" in text


def test_a_file_by_hand_needs_no_header_and_no_last_line_end() -> None:
    rows = "allreduce,1,9,tree,ll,-1,{0},{0}\n"
    text = joined_rules(
        [NamedRules("a", rows.format(2)), NamedRules("b", "\ufeff" + rows.format(4))]
    )
    assert len(parse_rules(text, strict=True).rules) == 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (part("b", rule(1, 9, 4), nccl="2.30.7"), "nccl is 2.28.9 in a, 2.30.7 in b"),
        (part("b", rule(1, 9, 4), gpu="NVIDIA B200"), "gpu is NVIDIA H200 in a, NVIDIA B200 in b"),
        (NamedRules("b", "allreduce,1,9,tree,ll,-1,4,32\n"), "nccl is 2.28.9 in a, unknown in b"),
        (part("b", rule(5, 50, 2, "ring/ll")), "a:4 and b:4 are different rules"),
        (part("b", rule(5, 50, None, "ring/ll")), "a:4 and b:4 are different rules"),
        (NamedRules("b", "allreduce,1K,9,tree,ll,-1,4,32\n"), "b:1: column 2"),
    ],
)
def test_what_does_not_fit_into_one_file_is_refused(other: NamedRules, message: str) -> None:
    with pytest.raises(InputError) as caught:
        joined_rules([part("a", rule(1, 9, 2)), other])
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "other",
    [rule(10, 50, 2, "ring/ll"), rule(1, 9, 4, "ring/ll"), rule(1, 9, 2, "tree/ll")],
    ids=["other sizes", "another scale", "the same choice"],
)
def test_rules_that_do_not_contradict_fit(other: Rule) -> None:
    joined_rules([part("a", rule(1, 9, 2)), part("b", other)])


TEXT = "# NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n #NCCL_X=1\nno sign\n\nNCCL_ALGO=Tree\nNCCL_A=b=c # d"


def test_lines_with_their_numbers() -> None:
    assert list(conf_lines(TEXT)) == [
        (2, "NCCL_ALGO", "Ring"),
        # Only a `#` in the first column starts a comment.
        (3, " #NCCL_X", "1"),
        (6, "NCCL_ALGO", "Tree"),
        (7, "NCCL_A", "b=c # d"),
    ]


def test_the_first_line_of_a_name_counts(tmp_path: Path) -> None:
    assert first_settings(TEXT) == {"NCCL_ALGO": "Ring", " #NCCL_X": "1", "NCCL_A": "b=c # d"}
    (tmp_path / "nccl.conf").write_text(TEXT)
    assert read_conf(tmp_path / "nccl.conf") == first_settings(TEXT)


def test_only_a_line_feed_ends_a_line() -> None:
    assert first_settings("NCCL_A=1\x0bNCCL_B=2\u2028NCCL_C=3") == {
        "NCCL_A": "1\x0bNCCL_B=2\u2028NCCL_C=3"
    }


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    settings = {"NCCL_ALGO": "^nvls", "NCCL_NET_PLUGIN": "/a b/libx.so"}
    path = tmp_path / "nccl.conf"
    path.write_text(render_conf(settings, ["made by a test", ""]))
    assert read_conf(path) == settings
    with pytest.raises(InputError, match="cannot be read"):
        read_conf(tmp_path / "none")


def test_a_file_of_a_size_that_no_configuration_has(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("NCCL_ALGO=" + "x" * (1 << 20))
    with pytest.raises(InputError, match="1 MiB"):
        read_conf(path)
