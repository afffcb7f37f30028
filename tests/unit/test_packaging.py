# SPDX-License-Identifier: Apache-2.0
"""The scripts that build and install: packaging/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import completed

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def run(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return completed(
        [sys.executable, str(PACKAGING / script), *words],
        env={**os.environ, **environment},
        timeout=60,
    )


def test_progress_counts_the_steps_of_a_build(tmp_path: Path) -> None:
    build = "echo '[3/40] Building CXX object x.o'; sleep 2"
    done = run("progress.py", str(tmp_path / "log"), "compiling", build, "libraries", "true")
    assert done.returncode == 0
    assert "compiling: 3 of 40" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("compiling: done; libraries: done")
    assert (tmp_path / "log.1").read_text().startswith("[3/40]")


def test_progress_ends_the_rest_when_one_fails(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = run(
        "progress.py",
        str(tmp_path / "log"),
        "compiling",
        "echo 'x.cc: error: no'; exit 7",
        "libraries",
        f"sleep 30; touch {mark}",
    )
    assert done.returncode == 7
    assert "x.cc: error: no" in done.stderr
    assert f"error: compiling failed; all that it printed is in {tmp_path / 'log.1'}" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("words", "requirement"),
    [((), "numpy"), (("test",), "pytest"), (("lint",), "ruff"), (("wheels",), "ziglang==")],
)
def test_dependencies_are_those_of_the_project(words: tuple[str, ...], requirement: str) -> None:
    done = run("dependencies.py", *words)
    assert any(line.startswith(requirement) for line in done.stdout.splitlines())


def test_unknown_architecture() -> None:
    done = run("wheels.py", "sparc")
    assert done.returncode == 2
    assert "choose from x86_64 aarch64" in done.stderr


HOOK = "import build_backend as b; print(b.get_requires_for_build_{}())"


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_no_compiler_is_an_error_at_once(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "CMAKE_ARGS")}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(PACKAGING)}

    def ask(**more: str) -> subprocess.CompletedProcess[str]:
        return completed(
            [sys.executable, "-c", HOOK.format(kind)], cwd=PACKAGING.parent, env=environment | more
        )

    refused = ask()
    assert refused.returncode == 1
    for words in ("error: no C++ compiler", "manylinux_2_28", "g++", "NCCLTUNE_NATIVE=off"):
        assert words in refused.stderr
    assert ask(NCCLTUNE_NATIVE="off").returncode == 0
    compiler = tmp_path / "my-compiler"
    compiler.touch()
    compiler.chmod(0o755)
    assert ask(CXX="my-compiler -O2").returncode == 0
