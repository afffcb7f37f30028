# SPDX-License-Identifier: Apache-2.0
"""Facts have the names and types of the catalogue."""

import pytest

from nccltune.doctor.facts import Facts, FactType, catalogue
from nccltune.model.errors import InputError


def test_each_fact_in_the_catalogue_has_a_meaning_and_a_source() -> None:
    for name, known in catalogue().items():
        assert known.name == name
        assert known.meaning
        assert known.read
        assert bool(known.fields) == (known.type is FactType.RECORDS)
        for field in known.fields:
            assert field.meaning, f"{name}.{field.name}"
            assert field.type not in (FactType.MAP, FactType.RECORDS)


def test_a_fact_is_held_with_its_source() -> None:
    facts = Facts("a")
    facts.add_named("gpus", [{"index": 0, "numa": None}, {"index": 1}], "nvidia-smi -q -x")
    assert facts["gpus"].value[1] == {"index": 1}
    assert facts["gpus"].source == "nvidia-smi -q -x"
    assert facts.named("cpu.vendor") is None
    assert list(facts) == ["gpus"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gpu", [], "no fact is called 'gpu'"),
        ("gpus", {}, "gpus is records"),
        ("gpus", [{"idx": 0}], r"unknown field `idx`.*\$\[0\]"),
        ("gpus", [{"index": "0"}], r"Expected `int \| null`, got `str` - at `\$\[0\].index`"),
        ("cpu.sockets", "2", "cpu.sockets is int"),
        ("cpu.sockets", True, "cpu.sockets is int"),
        ("node.services", {"a": 1}, "node.services is map"),
    ],
)
def test_facts_that_do_not_fit_the_catalogue_are_refused(
    name: str, value: object, message: str
) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Facts("a").add_named(name, value, "lscpu.txt:3")
    assert raised.value.where == "lscpu.txt:3"


@pytest.mark.parametrize("value", [10**400, -(2**63) - 1])
def test_a_number_that_no_counter_can_have_is_not_read(value: int) -> None:
    facts = Facts("a")
    facts.add_named("node.vcpus", value, "lscpu.txt:3")
    facts.add_named("gpus", [{"index": value}], "smi.txt")
    facts.add_named("limits.cpus", [1, value], "status.txt")
    assert list(facts) == []
    assert facts.unread[0] == "lscpu.txt:3: node.vcpus: a number beyond 64 bits"
