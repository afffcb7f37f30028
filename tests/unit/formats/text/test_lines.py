# SPDX-License-Identifier: Apache-2.0
"""Split any bytes into lines."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccltune.formats.text.lines import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    check_text,
    line_blocks,
    visible,
)
from nccltune.formats.text.redact import host_hash, keep_setting
from nccltune.model.errors import InputError


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
