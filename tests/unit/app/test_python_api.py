# SPDX-License-Identifier: Apache-2.0
"""The documented Python API, and the examples in docstrings."""

import ast
import doctest
import importlib
import re
import sys
from pathlib import Path

import pytest

import nccltune
import nccltune.app
from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.model.errors import PlatformError
from nccltune.native import host_path
from nccltune.study.files import Study
from tests.programs import completed

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "python" / "tune_a_recording.py"
MODULES = sorted(Path(nccltune.app.__file__).parent.glob("[a-z]*.py"))


def test_the_example_makes_a_configuration_and_a_report(tmp_path: Path) -> None:
    path = tmp_path / "study"
    done = completed([sys.executable, str(EXAMPLE), str(path)])
    assert (done.returncode, done.stderr) == (0, "")
    study = Study.open(path)
    rules = [item.rule for item in read_rules(study.config_path).rules]
    assert rules
    assert all(f"{rule.min_bytes} {rule.max_bytes}" in done.stdout for rule in rules)
    assert study.report_path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_page_quotes_the_example_literally() -> None:
    shown = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert shown[1].strip() in EXAMPLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(app\.\w+\.\w+)", PAGE))))
def test_functions_that_the_page_names_exist(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert callable(getattr(importlib.import_module(f"nccltune.{module}"), attribute))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_use_case_imports_the_terminal_or_prints(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    used = {name.split(".")[0] for name in imported} | {
        name.split(".")[1] for name in imported if name.startswith("nccltune.")
    }
    assert not used & {"click", "rich", "cli"}
    calls = [
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print" not in calls


SOURCE = Path(nccltune.__file__).parent
DOCUMENTED = [
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]

NEEDS_NATIVE = frozenset(
    {
        "nccltune.measure.bench.process",
        "nccltune.measure.engine.replayed_bench",
        "nccltune.measure.experiments.choices",
        "nccltune.native.plugin_host",
        "nccltune.tune.explain",
    }
)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_examples(name: str) -> None:
    if name in NEEDS_NATIVE:
        try:
            host_path()
        except PlatformError as error:
            pytest.skip(f"the compiled parts are not installed: {error}")
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0
