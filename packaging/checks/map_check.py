# SPDX-License-Identifier: Apache-2.0
"""Check that the docstring of each package lists its modules, one line each."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ENTRY = re.compile(r"^(\w+(?:/|\.py)) +\S", re.MULTILINE)


def find_gaps(package: Path) -> Iterator[str]:
    """Yield complaints about the module list in the docstring of `package`.

    A complaint names a module or subpackage that is not listed, or an entry that does not exist.
    """
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    listed = {match[1] for match in _ENTRY.finditer(docstring or "")}
    expected = set()
    for path in package.iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            expected.add(f"{path.name}/")
        elif path.suffix == ".py" and path.name not in {"__init__.py", "__main__.py"}:
            expected.add(path.name)
    for name in sorted(expected - listed):
        yield f"the docstring does not list {name}"
    for name in sorted(listed - expected):
        if not (package / name).exists():
            yield f"the docstring lists {name}, which does not exist"
