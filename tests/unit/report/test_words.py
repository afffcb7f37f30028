# SPDX-License-Identifier: Apache-2.0
import pytest

from nccltune.model.finding import FindingKind
from nccltune.model.numbers import gain_text
from nccltune.report import words
from nccltune.report.remarks import REMARKS
from nccltune.report.words import no_shapes


def test_every_kind_of_finding_has_its_words_and_caveats_come_first() -> None:
    assert set(REMARKS) == set(FindingKind)
    caveats = [bool(remark.caveat) for remark in REMARKS.values()]
    assert caveats == sorted(caveats, reverse=True)


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


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([1, 2, 3], "between 2 and 8 KiB"),
        ([1, 2, 5, 6], "between 2 and 4 KiB and between 32 and 64 KiB"),
        ([1, 5], "at 2 KiB and at 32 KiB"),
        ([0, 2, 4, 5], "in 3 ranges between 1 and 32 KiB"),
    ],
)
def test_where_is_always_told_in_ranges_of_sizes(places: list[int], text: str) -> None:
    measured = [1 << power for power in range(10, 20)]
    assert words.where_text([measured[place] for place in places], measured) == text


def test_gains_have_one_form_and_intervals_a_label() -> None:
    assert gain_text(1.3) == "1.30x"
    assert words.interval_text(1.149, 1.283) == "95 % CI 1.15-1.28"
    assert words.interval_text(None, 1.2) == ""
    assert words.per_size_text(1.03, 1.43) == "per size 1.03-1.43"
    assert words.per_size_text(1.4, 1.4) == ""
    assert words.per_size_text(None, None) == ""


@pytest.mark.parametrize(
    ("channels", "default", "text"),
    [
        (16, 24, "SMs 16 (default 24)"),
        (48, None, "SMs 48 (default unknown)"),
        (None, 24, "SMs unknown (default 24)"),
        (None, None, "SMs unknown"),
    ],
)
def test_channels_are_shown_as_sms(channels: int | None, default: int | None, text: str) -> None:
    assert words.sms_text(channels, default) == text


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
        ("nccltune sweep --rounds 8", "nccltune sweep --rounds 8."),
        ("mpirun -n 2 all_reduce_perf", "mpirun -n 2 all_reduce_perf."),
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
    interval = words.unbroken("1.2x  95 % CI 1.1-1.3  (per size 1.0-1.4)")
    assert interval.split(" ") == [
        *("1.2x", "", "95\u00a0%\u00a0CI\u00a01.1-1.3", "", "(per\u00a0size\u00a01.0-1.4)")
    ]


@pytest.mark.parametrize(
    ("sizes", "rates", "known", "said"),
    [
        (1, True, True, "one size: it shows no shape"),
        (9, True, True, "no dip, no plateau and no falling time beyond noise"),
        (9, False, True, "no falling time beyond noise"),
        (
            *(9, False, False),
            "no clear falling time; the noise is unknown, so smaller ones may not show",
        ),
    ],
)
def test_curves_without_findings_claim_no_noise_that_is_unknown(
    sizes: int, rates: bool, known: bool, said: str
) -> None:
    assert no_shapes(sizes, rates=rates, known=known) == said
