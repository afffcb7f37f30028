# SPDX-License-Identifier: Apache-2.0
"""Lines, diffs, JSON in pieces and YAML documents in text of others."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.app.compare import SidesCompared, compare_paths
from nccltune.app.importing import StatedFacts, studied
from nccltune.formats.text.diffs import is_added, is_diff, sides_of_diff
from nccltune.formats.text.json_stream import JsonStream
from nccltune.formats.text.lines import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    check_text,
    line_blocks,
    visible,
)
from nccltune.formats.text.redact import host_hash, keep_setting
from nccltune.formats.text.yaml_documents import MAX_CHARACTERS, load_documents
from nccltune.model.errors import InputError
from nccltune.study.files import Study


def lines(data: bytes) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the numbered lines, and those that were too long."""
    long: list[tuple[int, str]] = []
    found = [
        (number + at, line)
        for number, block in line_blocks(
            io.BytesIO(data), too_long=lambda number, text: long.append((number, text))
        )
        for at, line in enumerate(block)
    ]
    return found, long


# A leading NUL in UTF-16 turns the byte order mark into that of UTF-32; text has none.
PLAIN = st.text(st.characters(exclude_characters="\0\n\r\ufeff", codec="utf-8"))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(PLAIN, min_size=1, max_size=8),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_lines_survive_encodings_and_line_ends(shown: list[str], encoding: str, end: str) -> None:
    # A last line without a line end counts; an empty rest does not.
    expected = list(enumerate(shown if shown[-1] else shown[:-1], 1))
    assert lines(end.join(shown).encode(encoding)) == (expected, [])


def test_blocks_are_bounded_and_numbered() -> None:
    data = b"".join(b"%d\n" % number for number in range(1, 500_000))
    found, long = lines(data)
    assert [number for number, _ in found] == [int(text) for _, text in found]
    assert long == []
    blocks = list(line_blocks(io.BytesIO(data)))
    assert len(blocks) == -(-len(data) // CHUNK_BYTES)


@pytest.mark.parametrize("extra", [0, 1, CHUNK_BYTES, 5 * CHUNK_BYTES + 3])
def test_long_lines_are_counted_and_not_held(extra: int) -> None:
    data = b"one\n" + b"x" * (MAX_LINE_BYTES + extra) + b"\nthree\n" + b"y" * 3 * MAX_LINE_BYTES
    found, long = lines(data)
    shown = {number: text for number, text in found if text}
    assert {number: text for number, text in shown.items() if len(text) < 9} == {
        1: "one",
        3: "three",
    }
    assert [number for number, _ in long] == ([4] if extra == 0 else [2, 4])
    assert all(len(text) == 200 for _, text in long)
    assert len(found) == 4


def test_progress_is_reported_per_chunk() -> None:
    reported: list[int] = []
    data = b"x\n" * CHUNK_BYTES
    list(line_blocks(io.BytesIO(data), progress=reported.append))
    assert reported == [CHUNK_BYTES, 2 * CHUNK_BYTES]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PK\x03\x04...", "zip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00\x00", "binary"),
        (bytes(range(256)), "binary"),
        ("# nThread 1 nGpus".encode("utf-16-le"), "UTF-16"),
        ("# nThread 1 nGpus".encode("utf-16-be"), "UTF-16"),
    ],
)
def test_binary_and_compressed_data_is_refused(head: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_text(head)


@pytest.mark.parametrize(
    "head", [b"", b"a", b"\x1b[1mred\x1b[0m", "ü".encode("latin-1"), "x".encode("utf-16")]
)
def test_text_of_any_encoding_is_accepted(head: bytes) -> None:
    check_text(head)


def test_control_characters_are_made_visible_and_long_text_is_cut() -> None:
    assert visible("a\x00b\tc\x1b[1m") == "a\\x00b\\tc\\x1b[1m"
    assert visible("x" * 200) == "x" * 117 + "..."
    assert len(visible("\x00" * 100)) == 120
    assert visible("ä€") == "ä€"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_IB_HCA", "mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1"),
        ("NCCL_ALGO", "ring;allreduce:tree", "ring;allreduce:tree"),
        ("NCCL_TOPO_FILE", "/home/me/topo.xml", "topo.xml"),
        ("NCCL_COMM_ID", "10.0.0.1:7", None),
        ("NCCL_HOSTID", "me", None),
        ("NCCL_DEBUG_FILE", "/tmp/x", None),
        ("NCCL_AUTH_TOKEN", "x", None),
        ("NCCL_NET", "https://user:pw@host", None),
        ("NCCL_NET", "A1b2" * 9, None),
        ("NCCL_NET", "x" * 300, None),
        ("NCCL_NET", "a\nb", None),
        ("PATH", "/bin", None),
        ("NCCL_lower", "x", None),
    ],
)
def test_settings_that_may_be_kept(name: str, value: str, kept: str | None) -> None:
    assert keep_setting(name, value) == kept


def test_host_hash() -> None:
    assert host_hash("alpha") == host_hash("alpha") != host_hash("beta")
    assert len(host_hash("alpha")) == 16


NAMES = " #  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
OLD = "-  1048576  262144  float  sum  -1  210.0  4.99  9.36  0\n"
NEW = "+  1048576  262144  float  sum  -1  110.0  9.53  17.87  0\n"
TABLE = (
    "@@ -1,4 +1,4 @@\n ## All-reduce, 8 GPUs\n \n | size | time (us) |\n |---|---|\n"
    "-| 1024 | 20 |\n+| 1024 | 10 |\n | 2048 | 30 |\n-| 4096 | 40 |\n+| 4096 | 20 |\n"
)
GIT = "diff --git a/r.txt b/r.txt\nindex 1..2 100644\n--- a/r.txt\n+++ b/r.txt\n"


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (NAMES + OLD + NEW, [(210.0, 110.0)]),
        (f"-{NAMES[1:]}{OLD}+{NAMES[1:]}{NEW}", [(210.0, 110.0)]),
        (TABLE, [(20.0, 10.0), (30.0, 30.0), (40.0, 20.0)]),
        (GIT + TABLE, [(20.0, 10.0), (30.0, 30.0), (40.0, 20.0)]),
        (f"{GIT}@@ -1,2 +1,2 @@\n{NAMES}{OLD}{NEW}", [(210.0, 110.0)]),
        ("--- a/r.txt\n+++ b/r.txt\n" + NAMES + OLD + NEW, [(210.0, 110.0)]),
    ],
)
def test_both_sides_of_a_diff_are_compared(
    tmp_path: Path, text: str, times: list[tuple[float, float]]
) -> None:
    path = tmp_path / "change.diff"
    path.write_text(text, encoding="utf-8")
    found = compare_paths([path], assumed_noise=0.05, collective="allreduce")
    assert isinstance(found, SidesCompared)
    shown = [(point.first_us, point.second_us) for point in found.tests[0].points]
    assert shown == [pytest.approx(pair) for pair in times]


@pytest.mark.parametrize(
    "text",
    [
        "- size 1024 takes 20 us, 2048 takes 30\n- size 4096 takes 40 us\n",
        "--- a\n+++ b\n",
        "-1 2 3\n-4 5 6\n",
        NAMES + OLD,
        "+ NCCL_ALGO=Ring\n- first\n",
        "+ size 1024\n+ 8 GPUs\n",
        "+ mpirun -np 8 -N 8 ./all_reduce_perf\n- hosts: node-01 8 GPUs, node-02 8 GPUs\n",
    ],
)
def test_lists_and_traces_are_no_diff(text: str) -> None:
    assert not is_diff(text)
    assert not is_added(text)


def test_a_table_that_a_diff_adds_is_one_run(tmp_path: Path) -> None:
    path = tmp_path / "added.diff"
    rows = "".join(f"+  {1 << i}  {1 << i - 2}  float  sum  -1  20.0  {(1 << i) / 2e4:.2f}  "
                   f"{(1 << i) * 1.875 / 2e4:.2f}  0\n" for i in (20, 21))  # fmt: skip
    path.write_text(
        f"README.md:70\n```diff\n@@ -0,0 +1,3 @@\n+{NAMES}{rows}```\n", encoding="utf-8"
    )
    with studied(path, StatedFacts(nodes=2), split=True) as given:
        (study,) = map(Study, given.studies)
        samples = list(study.samples())
    assert [(item.bytes, item.time_us) for item in samples] == [(1 << 20, 20.0), (1 << 21, 20.0)]


def test_common_lines_are_on_both_sides() -> None:
    blocks = [(1, [" both", "-1 2 3", "+4 5 6", " after"])]
    assert list(sides_of_diff(blocks)) == [
        (1, ["## old lines"]),
        (1, [" both"]),
        (2, ["1 2 3"]),
        (4, [" after"]),
        (3, ["## new lines"]),
        (3, [" both"]),
        (3, ["4 5 6"]),
        (4, [" after"]),
    ]


def _read(text: str) -> list[tuple[object, int]]:
    stream = JsonStream(io.BytesIO(text.encode()), frozenset({"list"}))
    return [(json.loads(item.raw or b""), item.line) for item in stream if item.key == "list"]


@pytest.mark.parametrize("depth", range(1, 10))
def test_elements_of_any_depth(depth: int) -> None:
    element: object = 'a "quoted" ] }, text \\'
    for level in range(depth):
        element = {"in": element} if level % 2 else [element, 1, {}]
    text = json.dumps({"first": 1, "list": [element, 3, element, "x"], "last": [2]}, indent=1)
    lines = text.split("\n")
    found = _read(text)
    assert [item for item, _ in found] == [element, 3, element, "x"]
    assert [lines[line - 1].strip(" ,") for _, line in found][1] == "3"


def test_a_list_that_is_cut_off_keeps_whole_elements() -> None:
    text = json.dumps({"list": [{"a": [1, {"b": "]"}]}] * 5})
    for end in range(len(text)):
        assert all(item == {"a": [1, {"b": "]"}]} for item, _ in _read(text[:end]))


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)
)


def test_documents() -> None:
    assert load_documents("a: &x [1, 2]\nb: *x\n---\n- c\n", "f") == [
        {"a": [1, 2], "b": [1, 2]},
        ["c"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "aliases expanded"),
        ("a: &a [*a]\n", "part of"),
        ("x" * (MAX_CHARACTERS + 1), "4 MiB"),
        ("[" * 5000, "not YAML"),
        ("a: [1", "not YAML"),
        ("a: !!python/object:os.system x", "not YAML"),
        ("a: 2026-99-99", "not YAML"),
        ("- x\n" * 20_000, "values"),
    ],
)
def test_documents_that_are_refused(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr("nccltune.formats.text.yaml_documents.MAX_NODES", 10_000)
    with pytest.raises(InputError, match=message) as caught:
        load_documents(text, "job.yaml")
    assert caught.value.where == "job.yaml"
