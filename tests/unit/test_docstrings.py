# SPDX-License-Identifier: Apache-2.0
"""The examples in docstrings give what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

import nccltune
from nccltune.model.errors import PlatformError
from nccltune.native import host_path

SOURCE = Path(nccltune.__file__).parent
MODULES = [
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


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    if name in NEEDS_NATIVE:
        try:
            host_path()
        except PlatformError as error:
            pytest.skip(f"the compiled parts are not installed: {error}")
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert results.attempted > 0
    assert results.failed == 0
