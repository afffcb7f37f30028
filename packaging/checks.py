# SPDX-License-Identifier: Apache-2.0
"""Check what the other tools of `make lint` do not: names within a package, and module lists.

`python packaging/checks.py` prints a line `path: complaint` for each complaint, and exits with 1 if
there is one.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Matches only at the start of a line, so nested classes, which are indented, are not found.
_CPP_CLASS = re.compile(
    r"^(?:class|struct|enum class|enum|union)\s+(?:alignas\([^)]*\)\s+)?(\w+)\b[^;{]*\{",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^(\w+(?:/|\.py)) +\S", re.MULTILINE)


def find_homonyms(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield a complaint for each public class that several files of one folder define."""
    places: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in paths:
        for name in dict.fromkeys(_public_classes(path)):
            places[path.parent, name].append(path)
    for (_, name), files in sorted(places.items()):
        if len(files) > 1:
            yield files[0], f"class {name} is also in {', '.join(path.name for path in files[1:])}"


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


def main() -> int:
    """Check all tracked sources; return the exit code."""
    listed = subprocess.run(
        ["git", "ls-files", "--", "src", "native"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    # Git lists a file with a merge conflict several times, once for each version.
    files = [ROOT / line for line in dict.fromkeys(listed.stdout.splitlines())]
    files = [path for path in files if path.is_file()]
    complaints = list(find_homonyms(files))
    for path in files:
        if path.name == "__init__.py":
            complaints += [(path, text) for text in find_gaps(path.parent)]
    for path, complaint in sorted(complaints):
        print(f"{path.relative_to(ROOT)}: {complaint}")
    print(f"names and module lists: {len(complaints)} complaints in {len(files)} files")
    return 1 if complaints else 0


def _public_classes(path: Path) -> Iterator[str]:
    if path.suffix == ".py":
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
    elif path.suffix == ".h":
        for match in _CPP_CLASS.finditer(path.read_text(encoding="utf-8")):
            yield match[1]


if __name__ == "__main__":
    sys.exit(main())
