# SPDX-License-Identifier: Apache-2.0
"""Find public classes that have the same name in several files."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

# Matches only at the start of a line, so nested classes, which are indented, are not found.
_CPP_CLASS = re.compile(
    r"^(?:class|struct|enum class|enum|union)\s+(?:alignas\([^)]*\)\s+)?(\w+)\b[^;{]*\{",
    re.MULTILINE,
)


def public_classes(path: Path) -> Iterator[str]:
    """Yield the public classes of a Python module, or the classes of a C++ header."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
    elif path.suffix == ".h":
        yield from (match[1] for match in _CPP_CLASS.finditer(text))


def find_homonyms(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield a complaint for each class name that several files define.

    Each complaint comes with the first of these files, and names the other files.
    """
    places: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for name in dict.fromkeys(public_classes(path)):
            places[name].append(path)
    for name, files in sorted(places.items()):
        if len(files) > 1:
            others = ", ".join(str(path) for path in files[1:])
            yield files[0], f"class {name} is also in {others}"
