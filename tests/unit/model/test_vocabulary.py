# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nccltune.model.choice import (
    ALGORITHMS,
    DEFAULT,
    PROTOCOLS,
    TUNED_RUN,
    Algorithm,
    Choice,
    Protocol,
    choice_label,
    parse_choice,
)
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.forced import forced
from nccltune.model.names import nearest
from nccltune.model.numbers import percent_text, significant, size_form
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.model.sizes import MAX_BYTES, format_bytes, parse_bytes, parse_range


def test_ids_are_those_of_nccl() -> None:
    assert [c.value for c in TUNED] == [
        "broadcast",
        "reduce",
        "allgather",
        "reducescatter",
        "allreduce",
    ]
    assert [c.nccl_id for c in TUNED] == [0, 1, 2, 3, 4]
    assert [a.nccl_id for a in Algorithm] == list(range(7))
    assert (Algorithm.TREE.nccl_id, Algorithm.RING.nccl_id, Algorithm.PAT.nccl_id) == (0, 1, 6)
    assert [p.nccl_id for p in Protocol] == [0, 1, 2]


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        (Collective.ALLREDUCE, 4, 1.5),
        (Collective.ALLGATHER, 4, 0.75),
        (Collective.REDUCESCATTER, 8, 0.875),
        (Collective.ALLTOALL, 2, 0.5),
        (Collective.BROADCAST, 4, 1.0),
        (Collective.REDUCE, 4, 1.0),
        (Collective.SENDRECV, 4, 1.0),
        (Collective.HYPERCUBE, 4, 0.75),
        (Collective.ALLREDUCE, 1, 0.0),
    ],
)
def test_bus_bandwidth_factors(collective: Collective, ranks: int, factor: float) -> None:
    assert collective.bus_factor(ranks) == factor


def test_bus_bandwidth_of_a_measured_row() -> None:
    # All-reduce of 1 GiB over 4 ranks in 4561.98 us is 353.05 GB/s in nccl-tests' own output.
    value = Collective.ALLREDUCE.busbw_gb_per_s(1 << 30, 4561.98, 4)
    assert value == pytest.approx(353.05, abs=0.01)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("tree/ll", Choice(Algorithm.TREE, Protocol.LL)),
        ("Ring/LL128", Choice(Algorithm.RING, Protocol.LL128)),
        ("NVLSTree/Simple", Choice(Algorithm.NVLS_TREE, Protocol.SIMPLE)),
        ("ring/simple/8", Choice(Algorithm.RING, Protocol.SIMPLE, 8)),
        ("ring/simple/-/131072", Choice(Algorithm.RING, Protocol.SIMPLE, None, 131072)),
        ("default", DEFAULT),
        ("tuned", TUNED_RUN),
    ],
)
def test_choices_are_read(text: str, choice: Choice | str) -> None:
    assert parse_choice(text) == choice


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tre/ll", "did you mean 'tree'"),
        ("tree/l128", "did you mean 'll128'"),
        ("tree", "algorithm/protocol"),
        ("tree/ll/0", None),
        ("tree/ll/65", None),
        ("tree/ll/x", None),
    ],
)
def test_bad_choices_say_what_is_near(text: str, hint: str | None) -> None:
    with pytest.raises(InputError) as caught:
        parse_choice(text)
    if hint:
        assert hint in (caught.value.hint or "")


choices = st.builds(
    Choice,
    st.sampled_from(ALGORITHMS),
    st.sampled_from(PROTOCOLS),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, 1 << 22),
)


@given(choices)
def test_labels_read_back(choice: Choice) -> None:
    assert parse_choice(choice_label(choice)) == choice


@given(
    choices | st.sampled_from([DEFAULT, TUNED_RUN]),
    st.integers(0, 1 << 40),
    st.floats(1e-3, 1e9),
    st.booleans(),
)
def test_samples_survive_their_file_format(
    choice: Choice, size: int, time_us: float, in_place: bool
) -> None:
    sample = Sample(
        study="s",
        collective=Collective.ALLREDUCE,
        bytes=size,
        nodes=2,
        ranks=16,
        in_place=in_place,
        choice=choice,
        time_us=time_us,
        source=Source(tool="test"),
    )
    assert msgspec.json.decode(msgspec.json.encode(sample), type=Sample) == sample


@pytest.mark.parametrize("bad", ["-1", "0", '"4"', "null"])
def test_samples_refuse_impossible_times(bad: str) -> None:
    text = (
        '{"study":"s","collective":"allreduce","bytes":8,"choice":"default",'
        f'"time_us":{bad},"source":{{"tool":"t"}}}}'
    )
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Sample)


def test_rules_match_as_nvidias_reader_does() -> None:
    rule = Rule(
        Collective.ALLREDUCE, 1024, 4096, Choice(Algorithm.TREE, Protocol.LL), nodes=4, ranks=4
    )
    inside = (Collective.ALLREDUCE, 4096, 4, 4)
    assert rule.matches(*inside)
    assert rule.matches(*inside, pipe_ops=7, registered=True)
    assert not rule.matches(Collective.ALLREDUCE, 4097, 4, 4)
    assert not rule.matches(Collective.ALLREDUCE, 1023, 4, 4)
    assert not rule.matches(Collective.REDUCE, 4096, 4, 4)
    assert not rule.matches(Collective.ALLREDUCE, 4096, 2, 4)
    narrow = replace(rule, pipe_ops=1, registered=False)
    assert narrow.matches(*inside)
    assert not narrow.matches(*inside, registered=True)


@pytest.mark.parametrize(
    ("algorithms", "protocols", "label"),
    [
        ("Tree", "LL", "tree/ll"),
        ("TREE", "ll128", "tree/ll128"),
        ("ring;allreduce:tree", "LL", "tree/ll"),
        ("ring;broadcast:tree", "LL", "ring/ll"),
        ("NVLS", None, "nvls/simple"),
        ("^ring,collnetdirect,collnetchain,nvls,nvlstree,pat", "^LL,LL128", "tree/simple"),
        ("NVLSTree", "Simple", "nvls_tree/simple"),
        ("Tree,Ring", "LL", None),
        ("Tree", None, None),
        (None, "LL", None),
        (None, None, None),
    ],
)
def test_forced_choices(algorithms: str | None, protocols: str | None, label: str | None) -> None:
    found = forced(algorithms, protocols, Collective.ALLREDUCE).choice
    assert (found.label if found else None) == label


RULES = [f"rule-{number:02}" for number in range(40)] + ["gdr-read", "gdr-level", "gdr-unused"]


def test_a_short_list_is_named_whole() -> None:
    assert nearest("Ring", ["ring", "tree"]) == "did you mean 'ring'? valid: ring tree"
    assert nearest("zzz", ["ring", "tree"]) == "valid: ring tree"


def test_of_a_long_list_the_nearest_are_named() -> None:
    hint = nearest("gdr", RULES)
    assert "gdr-read" in hint
    assert "gdr-level" in hint
    assert "rule-07" not in hint
    assert hint.endswith("43 are valid")
    assert nearest("gdr-reed", RULES).startswith("did you mean 'gdr-read'?")
    assert nearest("xyz", RULES).endswith("and 35 more")


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


@pytest.mark.parametrize(
    ("tool", "read", "purpose"),
    [
        ("nccltune-bench", "nccltune-bench", Purpose.TUNE),
        ("nccltune-bench verify", "nccltune-bench", Purpose.VERIFY),
        ("nccltune-bench replay verify", "nccltune-bench replay", Purpose.VERIFY),
        ("nccl-tests try", "nccl-tests", Purpose.AB),
        ("nccl-tests replay", "nccl-tests replay", Purpose.TUNE),
        ("verify", "verify", Purpose.TUNE),
    ],
)
def test_older_files_have_the_purpose_in_the_name_of_the_tool(
    tool: str, read: str, purpose: Purpose
) -> None:
    source = msgspec.json.decode(msgspec.json.encode({"tool": tool}), type=Source)
    assert (source.tool, source.purpose) == (read, purpose)
    assert msgspec.json.decode(msgspec.json.encode(source), type=Source) == source


def test_the_purpose_of_tuning_is_not_written() -> None:
    assert msgspec.json.encode(Source(tool="x")) == b'{"tool":"x"}'
    written = msgspec.json.encode(Source(tool="x", purpose=Purpose.AB))
    assert written == b'{"tool":"x","purpose":"ab"}'


def test_an_unknown_purpose_is_damage() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"tool":"x","purpose":"other"}', type=Source)


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


@pytest.mark.parametrize(
    ("gpu", "title"),
    [("AMD Instinct MI300X", "RCCL 2.26.6"), ("NVIDIA H200", "NCCL 2.26.6"), (None, "NCCL 2.26.6")],
)
def test_the_library_of_amd_gpus_is_rccl(gpu: str | None, title: str) -> None:
    platform = Platform(name="here", gpu=gpu, nccl_version="2.26.6")
    assert platform.title.split(" · ")[-1] == title
