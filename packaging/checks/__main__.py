# SPDX-License-Identifier: Apache-2.0
"""Check names, words and module lists of the whole tree: `python packaging/checks`.

A module list is the part of a package's docstring that lists its modules. Prints a line `path:line:
complaint` for each complaint. Exits with 1 if there is a complaint.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from homonym_check import find_homonyms
from map_check import find_gaps
from word_check import WordList, find_names, find_words, read_words

ROOT = Path(__file__).parents[2]
PROSE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples", "src", "native")
PROSE += ("tests", "benchmarks", "packaging")
SKIPPED = ("benchmarks/results", "tests/data")  # recorded measurements, and files of other programs
NAMED = ("src", "native", "tests/native")
Complaint = tuple[str, int, str]


def main() -> int:
    """Run all checks; return the exit code."""
    words = read_words()
    files = _tracked(PROSE)

    def checked(check: str, folders: Iterable[str] = ()) -> list[Path]:
        exempt = words.exempt.get(check, ())
        named = [path for path in files if not folders or _below(path, folders)]
        return [path for path in named if not _below(path, exempt)]

    complaints = [
        *_words(checked("words"), words),
        *_names(checked("names", NAMED), words),
        *_homonyms(checked("homonyms", ["src"]), ".py"),
        *_homonyms(checked("homonyms", ["native"]), ".h"),
        *_maps(checked("maps", ["src"])),
    ]
    for path, line, complaint in sorted(complaints):
        print(f"{path}:{line}: {complaint}")
    print(f"names, words and maps: {len(complaints)} complaints in {len(files)} files")
    return 1 if complaints else 0


def _tracked(folders: Iterable[str]) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    # Git lists a file with a merge conflict several times, once for each version.
    paths = (Path(line) for line in dict.fromkeys(listed.stdout.splitlines()))
    return [path for path in paths if not _below(path, SKIPPED) and (ROOT / path).is_file()]


def _below(path: Path, places: Iterable[str]) -> bool:
    return any(path == Path(place) or Path(place) in path.parents for place in places)


def _words(files: Iterable[Path], words: WordList) -> Iterator[Complaint]:
    for path in files:
        for line, complaint in find_words(ROOT / path, words):
            yield str(path), line, complaint


def _names(files: Iterable[Path], words: WordList) -> Iterator[Complaint]:
    for path in files:
        for line, complaint in find_names(ROOT / path, words.bare_names):
            yield str(path), line, complaint


def _homonyms(files: Iterable[Path], suffix: str) -> Iterator[Complaint]:
    for place, complaint in find_homonyms(ROOT / path for path in files if path.suffix == suffix):
        yield str(place.relative_to(ROOT)), 1, complaint.replace(f"{ROOT}/", "")


def _maps(files: Iterable[Path]) -> Iterator[Complaint]:
    for path in files:
        if path.name == "__init__.py":
            yield from ((str(path), 1, text) for text in find_gaps((ROOT / path).parent))


if __name__ == "__main__":
    sys.exit(main())
