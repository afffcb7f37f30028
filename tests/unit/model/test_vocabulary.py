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
from nccltune.model.rule import Rule
from nccltune.model.sample import Sample, Source


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
