# SPDX-License-Identifier: Apache-2.0
"""The language of conditions: its meaning, what it refuses, and fuzzing."""

import ast
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.doctor.language.evaluation import TOO_MANY, UNKNOWN, Env, Unsure, truth
from nccltune.doctor.language.expression import Scope, compile_expression
from nccltune.doctor.language.functions import FUNCTIONS
from nccltune.model.errors import InputError

GPUS = [{"index": 0, "pcie_width": 16}, {"index": 1, "pcie_width": 8}, {"index": 2}]
FACTS = {
    "gpus": GPUS,
    "cpu.sockets": 2,
    "cpu.vendor": "AuthenticAMD",
    "node.virtual": False,
    "node.services": {"opensm": "active"},
    "settings": [
        {"name": "NCCL_ALGO", "value": "Ring", "in_force": False},
        {"name": "NCCL_PROTO", "value": "LL", "in_force": True},
    ],
    "log.lines": [{"text": "Using network IB"}, {"text": "NET/IB : Using [0]mlx5_0:1"}],
    "limits.cpus": [0, 1],
}


def run(text: str, facts: dict[str, Any] | None = None, **names: Any) -> Any:
    return compile_expression(text).run(Env(FACTS if facts is None else facts, names))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cpu.sockets == 2", True),
        ("1 < cpu.sockets <= 2", True),
        ("1 < cpu.sockets < 2", False),
        ("cpu.sockets * 3 - 1", 5),
        ("-cpu.sockets", -2),
        ("'a' if node.virtual else 'b'", "b"),
        ("cpu.vendor in ['AuthenticAMD', 'GenuineIntel']", True),
        ("cpu.vendor not in ['GenuineIntel']", True),
        ("[g.index for g in gpus if g.index > 0]", [1, 2]),
        ("[g for g in gpus if g.index == 1][0].pcie_width", 8),
        ("len([a for a in gpus for b in gpus if a.index < b.index])", 3),
        ("any(g.index == 2 for g in gpus)", True),
        ("all(g.index < 2 for g in gpus)", False),
        ("sum([g.index for g in gpus])", 3),
        ("max([1, 3, 2]) - min([1, 3, 2])", 2),
        ("distinct(['b', 'a', 'b'])", ["a", "b"]),
        ("[1] + [2]", [1, 2]),
        ("match('^Auth', cpu.vendor)", True),
        ("group('^([A-Z][a-z]+)', cpu.vendor)", "Authentic"),
        ("group('^(x)', cpu.vendor)", ""),
        ("lines(log.lines, 'Using network')", [{"text": "Using network IB"}]),
        ("lines(log.lines, 'no such')", []),
        ("node.services['opensm'] == 'active'", True),
        ("setting('NCCL_PROTO')", "LL"),
        ("setting('NCCL_ALGO')", None),
        ("setting('NCCL_ALGO') == None", True),
        ("setting('NCCL_ALGO', 'x')", "x"),
        ("version('2.9') < version('2.28.9+cuda13.0')", True),
        ("text('a', 1, 2.5, ' ', [1, 2])", "a12.5 1, 2"),
        ("split(' a  b ')", ["a", "b"]),
        ("lower('AB')", "ab"),
        ("starts('mlx5_0', 'mlx5')", True),
        ("size(65536)", "64 KiB"),
        ("known(cpu.family)", False),
        ("known(cpu.vendor)", True),
        ("default(cpu.family, 25)", 25),
        ("default(cpu.vendor, 25)", "AuthenticAMD"),
        ("not any(g.index == 9 for g in gpus)", True),
    ],
)
def test_values_of_expressions(text: str, value: Any) -> None:
    assert run(text) == value


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("cpu.family == 25", "cpu.family"),
        ("cpu.family + 1", "cpu.family"),
        ("not (cpu.family > 1)", "cpu.family"),
        ("-cpu.family", "cpu.family"),
        ("[cpu.family, 1]", "cpu.family"),
        ("1 if cpu.family == 2 else 3", "cpu.family"),
        ("all(g.pcie_width > 4 for g in gpus)", "gpus.pcie_width"),
        ("any(g.pcie_width > 32 for g in gpus)", "gpus.pcie_width"),
        ("sum([g.pcie_width for g in gpus])", "gpus.pcie_width"),
        ("len([g for g in gpus if g.pcie_width > 4])", "gpus.pcie_width"),
        ("node.services['nvidia-imex'] == 'active'", "node.services['nvidia-imex']"),
        ("[h for h in hcas if h.port == 1]", "hcas"),
        ("match('x', gpu.driver)", "gpu.driver"),
        ("max([])", None),
        ("1 / 0", None),
        (f"{10**400} / 2", None),
        ("version('new')", None),
        ("limits.cpus[7]", "limits.cpus[7]"),
    ],
)
def test_unknown_facts_make_an_expression_unknown_and_are_named(
    text: str, missing: str | None
) -> None:
    compiled = compile_expression(text)
    env = Env(FACTS)
    assert compiled.run(env) is UNKNOWN
    assert env.missing == ({missing} if missing else set())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cpu.family == 25 and node.virtual", False),
        ("node.virtual and cpu.family == 25", False),
        ("cpu.family == 25 or not node.virtual", True),
        ("any(g.pcie_width == 8 for g in gpus)", True),
        ("all(g.pcie_width == 16 for g in gpus)", False),
    ],
)
def test_an_expression_is_decided_where_the_unknown_does_not_matter(text: str, value: bool) -> None:
    assert run(text) is value


def test_a_list_with_undecided_members_is_true_or_unknown_and_never_false() -> None:
    found = run("[g for g in gpus if g.pcie_width < 16]")
    assert found == [GPUS[1]]
    assert isinstance(found, Unsure)
    assert truth(found) is True
    assert truth(run("[g for g in gpus if g.pcie_width < 4]")) is UNKNOWN
    assert truth(run("[g for g in gpus if g.index > 9]")) is False


def test_unknown_has_no_truth_of_its_own() -> None:
    with pytest.raises(TypeError):
        bool(UNKNOWN)


WRONG = [
    "open('x')",
    "cpu.vendor.format(1)",
    "[g.__class__ for g in gpus]",
    "(lambda: 1)()",
    "9 ** 9",
    "cpu.vendor is None",
    "default(x=1, y=2)",
    "[a for a, b in gpus]",
    "[gpus for gpus in gpus]",
    "match(cpu.vendor, 'x')",
    "setting(cpu.vendor)",
    "table",
    "table.none",
    "any([1, 2])",
    "gpu",
    "gpus.index",
    "[g.idx for g in gpus]",
    "[c.index for c in limits.cpus]",
    "it.index",
    "",
    "1 +",
]


@pytest.mark.parametrize("text", WRONG)
def test_text_that_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        compile_expression(text)


@pytest.mark.parametrize("text", ["'x' * 9", "'a' + 'b'", "cpu.vendor / 3", "[1] * 3"])
def test_arithmetic_is_for_numbers(text: str) -> None:
    with pytest.raises(TypeError):
        run(text)


def test_loops_over_many_records_are_bounded() -> None:
    facts = {"gpus": [{"index": number} for number in range(3000)]}
    env = Env(facts)
    text = "[a for a in gpus for b in gpus if a.index == b.index and a.index < 0]"
    assert compile_expression(text).run(env) is UNKNOWN
    assert TOO_MANY in env.missing


def test_an_expression_lists_the_facts_it_needs() -> None:
    compiled = compile_expression("setting('A') == '1' and any(g.sm > cpu.family for g in gpus)")
    assert compiled.needs == {"settings", "gpus", "cpu.family"}


def test_pooled_records_have_a_node_and_facts_of_one_node_are_refused() -> None:
    pooled = Scope(pooled=True)
    compiled = compile_expression("[g.node for g in gpus]", pooled)
    assert compiled.run(Env({"gpus": [{"node": "a"}]})) == ["a"]
    with pytest.raises(InputError, match="of one node"):
        compile_expression("cpu.vendor", pooled)
    with pytest.raises(InputError, match="no field 'node'"):
        compile_expression("[g.node for g in gpus]")


def test_every_function_is_described_by_its_own_name() -> None:
    for name, function in FUNCTIONS.items():
        assert function.signature.startswith(f"{name}(")
        assert function.meaning


LEAVES = st.sampled_from(["True", "False", "node.virtual", "cpu.family == 1", "cpu.sockets == 2"])
LOGIC = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
    ),
    max_leaves=8,
)


@given(LOGIC)
def test_logic_agrees_with_python_for_every_value_of_the_unknown(text: str) -> None:
    found = run(text)
    filled = text.replace("node.virtual", "False").replace("cpu.sockets == 2", "True")
    outcomes = set()
    for family in ("True", "False"):
        shown = filled.replace("cpu.family == 1", family)
        assert re.fullmatch(r"[TrueFalsandot ()]+", shown), shown
        outcomes.add(_boolean(ast.parse(shown, mode="eval").body))
    # Kleene's logic may give unknown where both agree; it never gives the opposite.
    assert found is UNKNOWN or outcomes == {found}


def _boolean(node: ast.expr) -> bool:
    """Python's own meaning of a tree of and, or, not, True and False."""
    if isinstance(node, ast.BoolOp):
        values = [_boolean(value) for value in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.UnaryOp):
        return not _boolean(node.operand)
    assert isinstance(node, ast.Constant)
    return bool(node.value)
