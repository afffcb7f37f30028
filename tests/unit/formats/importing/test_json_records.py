# SPDX-License-Identifier: Apache-2.0
"""Tests of records of timings in JSON."""

import json
from pathlib import Path

import pytest

from nccltune.formats.importing.json_records import json_documents
from nccltune.model.collective import Collective
from tests.unit.formats.reading_tools import one

ROWS = [
    {"size": 1 << 20, "time_us": 104.8576, "busbw": 17.5},
    {"size": 1 << 21, "time_us": 209.7152, "busbw": 17.5},
]


@pytest.mark.parametrize(
    "value",
    [
        {"collective": "all_reduce", "nodes": 2, "ranks": 8, "results": ROWS},
        [{"collective": "AllReduce", "nodes": 2, "ranks": 8, **row} for row in ROWS],
        {"nodes": 2, "ranks": 8, "tests": {"all_reduce_perf": ROWS}},
        {"test": "ncclAllReduce", "nodes": 2, "world_size": 8,
         "all_reduce": {str(row["size"]): {"time_us": row["time_us"]} for row in ROWS}},
    ],
)  # fmt: skip
def test_records_are_read_with_what_stands_around_them(tmp_path: Path, value: object) -> None:
    found = one(tmp_path, json.dumps(value, indent=1))
    assert found.report.error is None
    assert [
        (item.collective, item.bytes, item.nodes, item.ranks, item.time_us)
        for item in found.samples
    ] == [(Collective.ALLREDUCE, row["size"], 2, 8, row["time_us"]) for row in ROWS]


def test_lines_of_json_are_read_and_give_the_ranks_by_their_bandwidth(tmp_path: Path) -> None:
    lines = [json.dumps({"op": "all_reduce", "algbw": 10.0, **row}) for row in ROWS]
    found = one(tmp_path, "\n".join(lines))
    assert {(item.collective, item.ranks) for item in found.samples} == {(Collective.ALLREDUCE, 8)}
    assert [item.bytes for item in found.samples] == [1 << 20, 1 << 21]


def test_a_row_of_size_0_says_nothing_of_the_ranks(tmp_path: Path) -> None:
    rows = [{"size": 0, "time_us": 6.5, "busbw": 0.0}, *ROWS]
    found = one(tmp_path, json.dumps({"all_reduce": rows}))
    assert [item.ranks for item in found.samples] == [8, 8]


def test_both_placements_and_the_command_above_are_read(tmp_path: Path) -> None:
    record = {
        "count": 1048576, "type": "float", "redop": "none", "root": "-1",
        "oop_time": 1494.278386, "oop_algbw": 22.455275, "oop_busbw": 19.648366, "oop_error": 0.0,
        "ip_time": 1459.561667, "ip_algbw": 22.989390, "ip_busbw": 20.115716, "ip_error": "N/A",
    }  # fmt: skip
    text = "[root@n ~]# NCCL_P2P_DISABLE=1 ./nccl_alltoall_perf -b 32M -g 8 --json\n" + json.dumps(
        {"identifier": "x", "benchmark": [{"33554432": record}]}
    )
    found = one(tmp_path, text)
    assert [(s.collective, s.ranks, s.in_place, s.time_us) for s in found.samples] == [
        (Collective.ALLTOALL, 8, False, 1494.278386),
        (Collective.ALLTOALL, 8, True, 1459.561667),
    ]


def test_collectives_are_kept_apart(tmp_path: Path) -> None:
    gathered = [{**row, "time_us": 2 * row["time_us"], "busbw": 4.375} for row in ROWS]
    value = {"all_reduce": ROWS, "all_gather": gathered, "host": {"gpus": 8}}
    found = one(tmp_path, json.dumps(value))
    assert [(s.collective.value, s.bytes) for s in found.samples] == [
        (name, row["size"]) for name in ("allreduce", "allgather") for row in ROWS
    ]


@pytest.mark.parametrize("wrong", ["#wrong", "wrong"])
def test_lines_of_rccl_tests_without_cycles_are_read(tmp_path: Path, wrong: str) -> None:
    lines = [
        json.dumps({wrong: "0", "algBw": 0.053, "busBw": 0.08, "gpus": 4, "inPlace": place,
                    "name": "AllReduce", "redop": "sum", "size": 1024, "time": 19.18 + place,
                    "type": "float"})
        for place in (0, 1)
    ]  # fmt: skip
    found = one(tmp_path, "\n".join(lines))
    assert [(s.ranks, s.in_place, s.wrong, s.time_us) for s in found.samples] == [
        (4, False, 0, 19.18),
        (4, True, 0, 20.18),
    ]


def document(*parts: tuple[str, float, int]) -> str:
    """Return a page with a list of timings, each `slower`, under each title, with few digits."""
    texts = []
    for title, slower, digits in parts:
        times = [round(104.8576 * slower * (1 << at), digits) for at in range(3)]
        rows = [
            {"size": size, "time_us": time, "busbw": round(1.75e-3 * size / time, digits)}
            for size, time in zip((1 << 20, 1 << 21, 1 << 22), times, strict=True)
        ]
        texts.append(f"{title}\n\n```json\n{json.dumps(rows, indent=1)}\n```\n")
    return "\n".join(texts)


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_lists_of_a_page_are_runs_with_their_titles(tmp_path: Path, digits: int) -> None:
    page = document(
        ("# Results\n\nAll-reduce on 8 x H100 (one host):", 1, digits),
        ("After the upgrade:", 1.5, digits),
    )
    found = one(tmp_path, page)
    assert (found.report.tables, found.doubtful) == (2, set())
    assert {(s.collective, s.ranks) for s in found.samples} == {(Collective.ALLREDUCE, 8)}


def test_lists_of_a_page_without_words_between_them_are_one_run(tmp_path: Path) -> None:
    lists = document(("## All-reduce", 1, 2)).replace("},\n", "}]\n```\n\n```json\n[", 1)
    assert one(tmp_path, lists).report.tables == 1


@pytest.mark.parametrize(
    "end",
    [
        ', {"size": 4194304, "time_us": 3', ', {"size": "{[\\"', ",",
        ', {"si\0', ', {"size": 8, "note": "a\0', ', {"note": "\\u12\0', ', {"is_ok": tru\0',
    ],
)  # fmt: skip
def test_whole_records_of_a_document_that_is_cut_off_are_read(tmp_path: Path, end: str) -> None:
    quoted = [{**row, "note": 'of "{" and "["'} for row in ROWS]
    value = {"collective": "all_reduce", "nodes": 2, "ranks": 8, "results": quoted}
    text = json.dumps(value)
    cut = text[: text.rindex("]")] + end
    # A zero byte stands for the end of the whole text.
    found = one(tmp_path, f"Output:\n```\n{cut}\n```\n".partition("\0")[0])
    assert [sample.bytes for sample in found.samples] == [row["size"] for row in ROWS]
    assert found.sentence("aborted") == "JSON is cut off: its whole records are read"
    assert "aborted" not in one(tmp_path, text).flags


@pytest.mark.parametrize("padding", [4088, 4093, 4096, 5000])
def test_a_long_document_below_lines_with_brackets_is_read_whole(
    padding: int, tmp_path: Path
) -> None:
    value = {"nodes": 2, "ranks": 8, "note": "x" * padding, "all_reduce": ROWS}
    text = "[2026-01-01 10:00:00] step\n[1,\n[0] done\n" * 10 + json.dumps(value)
    assert len(list(json_documents(text))[-1][2]["all_reduce"]) == len(ROWS)  # type: ignore[index]
    cut: list[int] = []
    found = list(json_documents(text[: text.index("209.7152")], cut))
    assert cut == [31]
    assert found[-1][2]["all_reduce"] == ROWS[:1]  # type: ignore[index]
