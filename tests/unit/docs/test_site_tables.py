# SPDX-License-Identifier: Apache-2.0
"""The site's hook for pipes in the code of tables."""

from pathlib import Path

import pytest

from tests.programs import load_script

TABLES = load_script(Path(__file__).parents[3] / "docs" / "site" / "tables.py")


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
def test_only_code_of_a_table_loses_the_backslash(page: str, shown: str) -> None:
    assert TABLES.unescaped(page) == shown
