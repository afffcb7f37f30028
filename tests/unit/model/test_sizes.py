# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.model.errors import InputError
from nccltune.model.sizes import MAX_BYTES, format_bytes, parse_bytes, parse_range


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("8", 8),
        ("64K", 65536),
        ("64k", 65536),
        ("1.5M", 1572864),
        ("8G", 8 << 30),
        ("2T", 2 << 40),
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("96KB", 98304),
        ("0.5K", 512),
    ],
)
def test_sizes_are_read_as_nccl_tests_reads_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        *("", "K", "-1", "1e6", "1.5", "0.3", "64iB", "12X", "1 2", "0x10", "9E", "8388608T"),
        *("9" * 5000, "１２", "1٣"),
    ],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_bytes(text)


@given(st.integers(0, MAX_BYTES))
def test_plain_numbers_are_bytes(size: int) -> None:
    assert parse_bytes(str(size)) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (98304, "96 KiB"),
        (1023 * 1024, "1023 KiB"),
        (3 << 19, "1.5 MiB"),
        (1 << 30, "1 GiB"),
        ((1 << 20) - 1, "1 MiB"),
        (1 << 50, "1 PiB"),
        (1 << 63, "8 EiB"),
    ],
)
def test_sizes_are_shown_with_three_digits(size: int, text: str) -> None:
    assert format_bytes(size) == text


@given(st.integers(0, 40), st.sampled_from([1, 3]))
def test_what_is_shown_can_be_read_back(power: int, factor: int) -> None:
    size = factor << power
    assert parse_bytes(format_bytes(size).replace(" ", "")) == size


def test_ranges() -> None:
    assert parse_range("64K-8M") == (65536, 8 << 20)
    assert parse_range("1K") == (1024, 1024)
    with pytest.raises(InputError, match="backwards"):
        parse_range("8M-64K")
