# SPDX-License-Identifier: Apache-2.0
"""The checks of names and module lists in `make lint` find bad samples, and pass on good ones."""

import sys
from pathlib import Path

from tests.programs import completed, load_script

ROOT = Path(__file__).parents[3]
CHECKS = ROOT / "packaging" / "checks.py"
checks = load_script(CHECKS)


def homonyms(*paths: Path) -> list[str]:
    return [complaint for _, complaint in checks.find_homonyms(paths)]


def gaps(package: Path) -> list[str]:
    return list(checks.find_gaps(package))


def test_two_public_classes_of_one_name_in_a_package_are_found(tmp_path: Path) -> None:
    a, b, elsewhere = tmp_path / "a.py", tmp_path / "b.py", tmp_path / "other" / "c.py"
    elsewhere.parent.mkdir()
    a.write_text("class Status: ...\nclass _Cell: ...\n")
    b.write_text("class Status: ...\nclass _Cell: ...\nclass Other:\n    class Status: ...\n")
    elsewhere.write_text("class Other: ...\n")
    assert homonyms(a, b, elsewhere) == ["class Status is also in b.py"]


def test_two_classes_of_cpp_headers_are_found(tmp_path: Path) -> None:
    a, b = tmp_path / "a.h", tmp_path / "b.h"
    a.write_text(
        "struct Opened {\n  struct Inner {};\n};\nclass Only;\nenum class Mode : int {\n};\n"
    )
    b.write_text(
        "class Opened final {\n  struct Inner {};\n};\nclass Only {\n};\nenum class Mode {\n};\n"
    )
    assert [words.split()[1] for words in homonyms(a, b)] == ["Mode", "Opened"]


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
    done = completed([sys.executable, CHECKS], cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("names and module lists: 0 complaints")
