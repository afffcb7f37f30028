# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.model.numbers import percent_text, significant, size_form


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0696789, "0.0697"),
        (0.47, "0.470"),
        (9.996, "10.0"),
        (91.7, "91.7"),
        (745.2, "745"),
        (999.6, "1,000"),
        (12345.6, "12,300"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_significant_digits_are_within_half_a_percent(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ([1024, 32768, 1 << 20], ["1 KiB", "32 KiB", "1 MiB"]),
        ([1139, 32752, 32768, 246192], ["1.11 KiB", "32.0 KiB", "32.0 KiB", "240 KiB"]),
        ([8, 1040, 1 << 30], ["8 B", "1.02 KiB", "1.00 GiB"]),
        ([(1 << 20) - 1, 102300], ["1.00 MiB", "99.9 KiB"]),
        ([], []),
    ],
)
def test_all_sizes_of_a_column_have_one_form(sizes: list[int], shown: list[str]) -> None:
    assert [size_form(sizes)(size) for size in sizes] == shown


@given(st.lists(st.integers(min_value=0, max_value=1 << 50), min_size=1))
def test_no_size_of_a_column_is_off_by_more_than_half_a_percent(sizes: list[int]) -> None:
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    factors = {unit: 1 << 10 * power for power, unit in enumerate(units)}
    form = size_form(sizes)
    for size in sizes:
        number, unit = form(size).split(" ")
        assert float(number) * factors[unit] == pytest.approx(size, rel=0.0051)
        assert not (unit == "B" and size >= 1024)


@pytest.mark.parametrize(
    ("share", "text"), [(0.011, "1.1 %"), (0.004, "0.4 %"), (0.0995, "10 %"), (0.73, "73 %")]
)
def test_percent_has_two_digits(share: float, text: str) -> None:
    assert percent_text(share) == text
