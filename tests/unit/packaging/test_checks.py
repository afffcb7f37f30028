# SPDX-License-Identifier: Apache-2.0
"""The checks of names, words and maps in `make lint` find bad samples, and pass on good ones."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "packaging" / "checks"


@pytest.fixture(autouse=True)
def _modules_of_the_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(CHECKS))


def complaints(tmp_path: Path, name: str, text: str) -> list[str]:
    from word_check import find_words, read_words

    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [f"{line} {complaint}" for line, complaint in find_words(path, read_words())]


def bare_names(tmp_path: Path, name: str, text: str = "") -> list[int]:
    from word_check import find_names, read_words

    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [line for line, _ in find_names(path, read_words().bare_names)]


@pytest.mark.parametrize(
    "sentence",
    [
        "The log says which choice ran.",
        "What it could not tell stands in the last line.",
        "Whoever comes first posts the message.",
        "a proposed setting against how it is, in turn",
        "The default is left as NCCL has it.",
        "Runs with it and without it,\nin\nturn.",
        "This mends the file.",
        "It has nothing to do with noise.",
        "A program is started as it is.",
    ],
)
def test_a_phrase_of_the_list_is_found_in_a_document(tmp_path: Path, sentence: str) -> None:
    assert complaints(tmp_path, "page.md", f"# Title\n\n{sentence}\n")


@pytest.mark.parametrize(
    "text",
    [
        "The essay is long and the teller counts.",
        "The verdict is *cannot tell*.",
        "`nccltune say` prints it.",
        "```\nit says so\n```",
        "    $ echo told\n",
        "NCCL's default as it is documented.",
    ],
)
def test_what_is_meant_is_not_found(tmp_path: Path, text: str) -> None:
    assert complaints(tmp_path, "page.md", f"{text}\n") == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"""Tell what ran."""\n', 1),
        ("x = 1  # as the log\n# says\n", 2),
        ('def f() -> str:\n    return f"the log says {f}"\n', 2),
        ('"""One.\n\nIt told\nso.\n"""\n', 3),
    ],
)
def test_a_phrase_in_python_is_found_at_its_line(tmp_path: Path, text: str, line: int) -> None:
    (found,) = complaints(tmp_path, "module.py", text)
    assert found.startswith(f"{line} ")


def test_an_identifier_or_a_key_is_no_phrase(tmp_path: Path) -> None:
    assert complaints(tmp_path, "module.py", 'said = {"told": 1}\nsay(said["told"])\n') == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int f();\n// What the peer\n// said.\n", 3),
        ('void f() { Log("the peer says no"); }\n', 1),
        ("/* It tells. */\n", 1),
    ],
)
def test_a_phrase_in_cpp_is_found(tmp_path: Path, text: str, line: int) -> None:
    (found,) = complaints(tmp_path, "part.cc", text)
    assert found.startswith(f"{line} ")


def test_a_complaint_names_the_replacement(tmp_path: Path) -> None:
    (found,) = complaints(tmp_path, "page.md", "measured in turn\n")
    assert "'in turn': write in alternating runs" in found


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
