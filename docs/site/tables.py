# SPDX-License-Identifier: Apache-2.0
"""Pipes in the code of tables.

GitHub needs `\\|` for a pipe inside a table, also in code. Python-Markdown needs no backslash in
code and shows it.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_FENCE = re.compile(r"(^(`{3,}|~{3,}).*?^\2)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:  # noqa: ARG001
    """Remove the backslashes before each page is rendered."""
    return unescaped(markdown)


def unescaped(markdown: str) -> str:
    """Return the text with `\\|` as `|` in the code of its tables, and nowhere else."""
    parts = _FENCE.split(markdown)
    # A fence is two parts: itself and its marker.
    parts[::3] = [_ROW.sub(_row, part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts)


def _row(row: re.Match[str]) -> str:
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])
