# SPDX-License-Identifier: Apache-2.0
"""Any content of a node's items gives facts of the declared types, and no exception."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nccltune.doctor.evidence.collect import facts_of
from nccltune.doctor.evidence.gather import gather
from nccltune.doctor.evidence.item_names import INDEX, KNOWN
from nccltune.doctor.evidence.raw import NodeEvidence, Raw
from nccltune.doctor.facts import Facts, catalogue
from tests.unit.doctor.evidence import texts
from tests.unit.doctor.evidence.node import ENVIRONMENT, run_made

TEXTS = [value for name, value in vars(texts).items() if name.isupper()]
TEXTS += ["{}", "[]", '{"instance": {"attributes": 3, "machineType": 4}}', '{"compute": {}}']
ITEMS = sorted({*KNOWN, "log", "test", "job"} - {INDEX})
DEPENDENT = {"addresses", "ethtool", "logind", "pci-config"}
"""Items that give facts only together with others."""


@pytest.fixture(scope="module")
def items(root: Path) -> dict[str, bytes]:
    evidence = gather(root, environment=ENVIRONMENT, runner=run_made)
    return {name: evidence.all(name)[0].data for name in evidence.names}


def facts_of_one(name: str, data: bytes) -> Facts:
    evidence = NodeEvidence("node", live=False)
    evidence.put(Raw(name, f"{name}.txt", data))
    return facts_of(evidence)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_items(items: dict[str, bytes], data: st.DataObject) -> None:
    evidence = NodeEvidence("node", live=False)
    changed = data.draw(st.sets(st.sampled_from(ITEMS), max_size=8))
    for name in sorted({*items, *changed}):
        text = items.get(name, b"").decode(errors="replace")
        if name in changed:
            text = data.draw(st.sampled_from([text, *TEXTS]))
            lines = text.split("\n")
            at = data.draw(st.integers(0, len(lines)))
            cut = data.draw(st.integers(0, 30))
            word = data.draw(st.sampled_from(["", "9" * 20, "-1", "0", "N/A", " ", "/", ":", "é"]))
            text = "\n".join([*lines[:at], *(one[:cut] + word + one[cut:] for one in lines[at:])])
        evidence.put(Raw(name, f"node/{name}.txt", text.encode()))
    facts = facts_of(evidence)
    assert set(facts) <= set(catalogue())
    for line in facts.unread:
        name = line.partition(":")[0].removeprefix("node/").removesuffix(".txt")
        assert name in {*items, *changed}, line


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_alone_or_empty_gives_facts_with_a_source(
    name: str, items: dict[str, bytes]
) -> None:
    facts = facts_of_one(name, items.get(name, b""))
    assert bool(facts) is (name not in DEPENDENT) or name not in items
    for found in (facts, facts_of_one(name, b"")):
        assert set(found) <= set(catalogue())
        assert all(fact.source for fact in found.values())


def test_a_node_without_items_has_no_facts(tmp_path: Path) -> None:
    assert dict(facts_of(NodeEvidence("node", live=False))) == {}
    empty = gather(tmp_path, environment={}, runner=None)
    facts = facts_of(empty)
    assert facts.named("settings") == []
    assert facts.named("node.sysfs_pci") is False
