# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from nccltune.native import AlgorithmProtocol, PluginDecision, TableChange, TunerAnswer

ANSWER = {
    "op": "decide",
    "ok": True,
    "collective": "allreduce",
    "bytes": 4096,
    "pipe_ops": 1,
    "registered": False,
    "costs": "given",
    "decided": {"algorithm": "tree", "protocol": "ll", "channels": 4, "chunk_bytes": None},
    "selected": {"algorithm": "tree", "protocol": "ll"},
    "channels_requested": 4,
    "table_changed": [{"algorithm": "tree", "protocol": "ll", "before": 12.5, "after": None}],
    "warnings": [{"code": "not_a_number", "text": "..."}],
    "log": [{"level": "WARN", "text": "careful"}],
    "log_dropped": 0,
    "error": None,
}


def decision(**changes: object) -> PluginDecision:
    return msgspec.convert({**ANSWER, **changes}, PluginDecision)


def test_a_decision_is_read_whole() -> None:
    read = decision()
    assert read.collective is Collective.ALLREDUCE
    assert isinstance(read.decided, TunerAnswer)
    assert read.decided.choice == Choice(Algorithm.TREE, Protocol.LL, 4)
    assert read.selected == AlgorithmProtocol(Algorithm.TREE, Protocol.LL)
    assert read.table_changed == [TableChange(Algorithm.TREE, Protocol.LL, 12.5, None)]
    assert read.warnings[0].code == "not_a_number"
    assert read.label == "tree/ll/4"


@pytest.mark.parametrize(
    ("decided", "label"),
    [
        ("default", "default"),
        (None, "fails"),
        ((None, None, 1, None), "-/-/1"),
        ((None, None, None, 4096), "-/-/-/4096"),
        (("nvls_tree", "simple", None, None), "nvls_tree/simple"),
        (("ring", "ll128", 8, 1920), "ring/ll128/8/1920"),
    ],
)
def test_labels(decided: str | tuple[object, ...] | None, label: str) -> None:
    names = ("algorithm", "protocol", "channels", "chunk_bytes")
    as_sent = dict(zip(names, decided, strict=True)) if isinstance(decided, tuple) else decided
    assert decision(decided=as_sent).label == label


def test_a_decision_without_algorithm_is_no_choice() -> None:
    assert TunerAnswer(None, None, 1, None).choice is None


@pytest.mark.parametrize(
    "change", [{"decided": "tuned"}, {"bytes": "4096"}, {"collective": "alltoallx"}]
)
def test_what_is_not_in_the_contract_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decision(**change)
