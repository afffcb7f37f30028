# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.report import words


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
    assert words.significant(value) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_significant_digits_are_within_half_a_percent(value: float) -> None:
    assert float(words.significant(value).replace(",", "")) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (8.25, "8.25 us"),
        (999.4, "999 us"),
        (999.6, "1.00 ms"),
        (1.25e4, "12.5 ms"),
        (2e6, "2.00 s"),
    ],
)
def test_times_change_their_unit_where_three_digits_do(time_us: float, text: str) -> None:
    assert words.time_text(time_us) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (2 << 10, 256 << 10, "between 2 and 256 KiB"),
        (512 << 10, 4 << 20, "between 512 KiB and 4 MiB"),
        (1 << 20, 1 << 20, "at 1 MiB"),
        (8, 1 << 10, "between 8 B and 1 KiB"),
    ],
)
def test_between_says_the_unit_once(low: int, high: int, text: str) -> None:
    assert words.between_text(low, high) == text


def test_where_names_a_range_or_counts_the_holes() -> None:
    measured = [1 << power for power in range(10, 20)]
    assert words.where_text(measured[1:4], measured) == "between 2 and 8 KiB"
    assert words.where_text([measured[1], measured[5]], measured) == "at 2 of 10 sizes"


@pytest.mark.parametrize(
    ("share", "text"), [(0.011, "1.1 %"), (0.004, "0.4 %"), (0.0995, "10 %"), (0.73, "73 %")]
)
def test_percent_has_two_digits(share: float, text: str) -> None:
    assert words.percent_text(share) == text


def test_lists_read_as_prose() -> None:
    assert words.listed([]) == ""
    assert words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("even the best choice dips", "Even the best choice dips."),
        ("tree/ll looks faster", "tree/ll looks faster."),
        ("run-3.txt: one host", "run-3.txt: one host."),
        ("Done!", "Done!"),
        ("", ""),
    ],
)
def test_a_sentence_starts_with_a_capital_unless_it_is_a_name(text: str, sentence: str) -> None:
    assert words.sentence(text) == sentence


def test_control_characters_are_taken_out() -> None:
    assert words.printable("a\x1b[31mb\u202ec\nd\x00é") == "a[31mbc dé"


def test_units_stay_with_their_number() -> None:
    assert words.unbroken("5 % of 64 KiB in 8 rounds") == "5\u00a0% of 64\u00a0KiB in 8 rounds"
