# SPDX-License-Identifier: Apache-2.0
"""The checks of names, words and maps in `make lint` find bad samples, and pass on good ones."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "packaging" / "checks"
SAMPLES = tomllib.loads(Path(__file__).with_name("word_samples.toml").read_text())["sample"]


@pytest.fixture(autouse=True)
def _modules_of_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKS))


def complaints(tmp_path: Path, sample: dict[str, Any]) -> list[tuple[int, str]]:
    from word_check import find_words, read_words

    path = tmp_path / sample["file"]
    path.write_text(sample["text"], encoding="utf-8")
    return list(find_words(path, read_words()))


def bare_names(tmp_path: Path, name: str, text: str = "") -> list[int]:
    from word_check import find_names, read_words

    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [line for line, _ in find_names(path, read_words().bare_names)]


@pytest.mark.parametrize(
    "sample", SAMPLES, ids=lambda sample: f"{sample['file']}-{sample['text'].split()[0]}"
)
def test_phrases_are_found_at_their_lines(tmp_path: Path, sample: dict[str, Any]) -> None:
    assert [line for line, _ in complaints(tmp_path, sample)] == sample["lines"]


def test_a_complaint_names_the_phrase_and_its_replacement(tmp_path: Path) -> None:
    phrase = SAMPLES[0]["text"].split()[2]
    ((_, complaint),) = complaints(tmp_path, SAMPLES[0])
    assert complaint.startswith(f"{phrase!r}: write report, state, ")


def test_bare_names_are_found(tmp_path: Path) -> None:
    text = "class Found:\n    def look(self): ...\n\n\ndef _told(): ...\n"
    assert sorted(bare_names(tmp_path, "module.py", text)) == [1, 2, 5]
    assert bare_names(tmp_path, "goal.py") == [1]
    cpp = "namespace x {\nstruct Part {\n};\nclass Way final : Base {\n};\nclass Later;\n}\n"
    assert bare_names(tmp_path, "part_copies.h", cpp) == [2, 4]


def test_names_with_a_noun_of_the_field_pass(tmp_path: Path) -> None:
    text = "class LaneCount: ...\ndef found_tables(): ...\ndef search_goal(): ...\n"
    assert bare_names(tmp_path, "retired_communicators.py", text) == []


def homonyms(*paths: Path) -> list[str]:
    from homonym_check import find_homonyms

    return [complaint for _, complaint in find_homonyms(paths)]


def test_two_public_classes_of_one_name_are_found(tmp_path: Path) -> None:
    a, b = tmp_path / "a.py", tmp_path / "b.py"
    a.write_text("class Status: ...\nclass _Cell: ...\n")
    b.write_text("class Status: ...\nclass _Cell: ...\nclass Other:\n    class Status: ...\n")
    (found,) = homonyms(a, b)
    assert "Status" in found
    assert "b.py" in found


def test_two_classes_of_cpp_headers_are_found(tmp_path: Path) -> None:
    a, b = tmp_path / "a.h", tmp_path / "b.h"
    a.write_text(
        "struct Opened {\n  struct Inner {};\n};\nclass Only;\nenum class Mode : int {\n};\n"
    )
    b.write_text(
        "class Opened final {\n  struct Inner {};\n};\nclass Only {\n};\nenum class Mode {\n};\n"
    )
    assert [words.split()[1] for words in homonyms(a, b)] == ["Mode", "Opened"]


def gaps(package: Path) -> list[str]:
    from map_check import find_gaps

    return list(find_gaps(package))


def test_a_module_that_the_map_misses_is_found(tmp_path: Path) -> None:
    for name in ("curves.py", "stats.py", "inner/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    text = '"""Curves.\n\ncurves.py  from timings to curves\nold.py  no longer here\n"""\n'
    (tmp_path / "__init__.py").write_text(text)
    assert gaps(tmp_path) == [
        "the docstring does not list inner/",
        "the docstring does not list stats.py",
        "the docstring lists old.py, which does not exist",
    ]


def test_a_whole_map_passes(tmp_path: Path) -> None:
    (tmp_path / "curves.py").touch()
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.toml").touch()
    (tmp_path / "__init__.py").write_text('"""A.\n\ncurves.py  curves\nrules/  data\n"""\n')
    assert gaps(tmp_path) == []


def test_the_tree_passes() -> None:
    done = subprocess.run(
        [sys.executable, CHECKS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("names, words and maps: 0 complaints")
