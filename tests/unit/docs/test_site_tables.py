# SPDX-License-Identifier: Apache-2.0
"""The site's hook for pipes in the code of tables."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

HOOK = Path(__file__).parents[3] / "docs" / "site" / "tables.py"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_tables", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        (r"| a | `on\|off` |", "| a | `on|off` |"),
        (r"| `a\|b\|c` | ``d\|`e`` |", "| `a|b|c` | ``d|`e`` |"),
        # A pipe outside of code still needs its backslash, or it would end the cell.
        (r"| a \| b | `c\|d` \| e |", r"| a \| b | `c|d` \| e |"),
        (r"No table: `grep a\|b`", r"No table: `grep a\|b`"),
        ("```\n| `a\\|b` |\n```\n| `a\\|b` |", "```\n| `a\\|b` |\n```\n| `a|b` |"),
        (
            "~~~~\n| `a\\|b` |\n```\n~~~~\n\n| `a\\|b` |\n",
            "~~~~\n| `a\\|b` |\n```\n~~~~\n\n| `a|b` |\n",
        ),
    ],
)
def test_only_code_of_a_table_loses_the_backslash(
    tables: ModuleType, page: str, shown: str
) -> None:
    assert tables.unescaped(page) == shown
