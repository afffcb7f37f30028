# SPDX-License-Identifier: Apache-2.0
"""Tests of headers: names of columns in other languages, values that are no header."""

from collections.abc import Callable

import pytest

from nccltune.formats.reading import table_header
from nccltune.formats.reading.table_header import column_of, header_of


@pytest.mark.parametrize(
    ("cell", "role", "unit", "placement"),
    [
        ("消息大小（字节）", "size", "bytes", ""),
        ("数据量", "size", "", ""),
        ("平均时间 (us)", "time", "us", ""),
        ("时间（微秒）", "time", "us", ""),
        ("非原地时间(us)", "time", "us", "out-of-place"),
        ("原地时间(us)", "time", "us", "in-place"),
        ("总线带宽(GB/s)", "busbw", "GB/s", ""),
        ("算法带宽", "algbw", "", ""),
        ("サイズ", "size", "", ""),
        ("帯域幅 (GB/s)", "bandwidth", "GB/s", ""),
        ("크기", "size", "", ""),
        ("время, мкс", "time", "us", ""),
        ("Größe", "size", "", ""),
        ("Taille (octets)", "size", "bytes", ""),
        ("Δ time (us)", "", "us", ""),
        ("A0 基线 (µs)", "", "µs", ""),
        ("时间 %", "", "", ""),
        ("kleinzeit", "", "", ""),
    ],
)
def test_columns_in_other_languages(cell: str, role: str, unit: str, placement: str) -> None:
    found = column_of(cell)
    assert (found.role, found.unit, found.placement) == (role, unit, placement)


@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("form", ["| {} | time (us) |", "{}\tring (us)\ttree (us)", "{},busbw"])
def test_each_name_of_a_size_is_that_of_a_header(form: str, case: Callable[[str], str]) -> None:
    names = [name for name, role in table_header._ROLES.items() if role == "size"]
    names += ["Msg Sz", "octets", "Message (KiB)", "\u5927\u5c0f"]
    lines = [form.format(case(name)) for name in names]
    assert [line for line in lines if header_of(line) is None] == []


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,25165824,100663296,<algo>,<proto>,<ch>,1,8,-1,-1",
        "collective,bytesPerRank,algorithm,protocol,channels",
        "collective_type,min_bytes,max_bytes,algorithm,protocol",
    ],
)
def test_rules_and_templates_are_no_header_of_measurements(line: str) -> None:
    assert header_of(line) is None


def test_a_table_in_chinese_is_a_header() -> None:
    header = header_of("| 数据量 | 时间（微秒） | 总线带宽 (GB/s) |")
    assert header is not None
    assert header.roles == {"size", "time", "busbw"}
    assert not header.raw
