# SPDX-License-Identifier: Apache-2.0
"""Apply the mutants of mutants.toml one at a time and run the tests that must kill each.

python tests/mutants/run.py [--only PATTERN] [--save FILE.md]

A mutant is a change of one place in a copy of the package; the working tree stays unchanged. Exit
code 1: more than two survive, a mutant does not fit the source any more, breaks the import, or the
tests fail without any mutant.
"""

import argparse
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from nccltune.model.errors import NccltuneError
from nccltune.native.locate import ENVIRONMENT_VARIABLE, tuner_path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
TABLE = Path(__file__).with_name("mutants.toml")
MOST_SURVIVORS = 2
LIMIT_S = 300.0
"""Of one run of tests; a mutant that hangs is killed."""
# An editable installation finds the package by a hook that comes before sys.path.
_START = """
import sys
copy = sys.argv.pop(1)
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable_")]
sys.path.insert(0, copy)
import nccltune
assert nccltune.__file__.startswith(copy), nccltune.__file__
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""
_TESTS_FAILED = 1


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`old` occurs once in `file` (under src/nccltune) and becomes `new`; `wrong` is what that
    breaks, `tests` (under tests/unit) must fail."""

    name: str
    file: str
    old: str
    new: str
    wrong: str
    tests: list[str]

    @property
    def path(self) -> Path:
        """The file, relative to src/."""
        return Path("nccltune", self.file)

    @property
    def fits(self) -> bool:
        """Whether the source still has the place, once."""
        source = SOURCES / self.path
        return source.is_file() and source.read_text(encoding="utf-8").count(self.old) == 1


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: list[Mutant]


class Result(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    STALE = "stale: the source has no such place, or several"
    BROKEN = "broken: the tests do not start"


def mutants() -> list[Mutant]:
    """Read the table. Raises ValueError where a name is there twice."""
    found = msgspec.toml.decode(TABLE.read_bytes(), type=_Table).mutant
    names = [mutant.name for mutant in found]
    if len(set(names)) != len(names):
        raise ValueError("a mutant's name is there twice")
    return found


class Copies:
    """Copies of the package in which mutants are tried, one for each that runs at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        for number in range(count):
            copy = folder / str(number) / "src"
            shutil.copytree(SOURCES, copy)
            # Found beside src/ where the package is not installed.
            copy.with_name("examples").symlink_to(ROOT / "examples")
            self._free.put(copy)

    def try_mutant(self, mutant: Mutant) -> tuple[Result, float]:
        """Apply a mutant, run its tests, take it back. Returns what came of it, and the seconds."""
        if not mutant.fits:
            return Result.STALE, 0.0
        copy = self._free.get()
        started = time.monotonic()
        target = copy / mutant.path
        original = target.read_bytes()
        try:
            text = original.decode().replace(mutant.old, mutant.new)
            target.write_text(text, encoding="utf-8")
            status = run_tests(copy, mutant.tests)
        finally:
            target.write_bytes(original)
            self._free.put(copy)
        return _result(status), time.monotonic() - started

    def fails_without(self, tests: Sequence[str]) -> bool:
        """Whether tests fail in an unchanged copy."""
        copy = self._free.get()
        try:
            return run_tests(copy, tests, first_only=False, show=True) != 0
        finally:
            self._free.put(copy)


def _result(status: int | None) -> Result:
    if status == 0:
        return Result.SURVIVED
    return Result.KILLED if status in (None, _TESTS_FAILED) else Result.BROKEN


def run_tests(
    copy: Path, tests: Sequence[str], *, first_only: bool = True, show: bool = False
) -> int | None:
    """The exit status of pytest with the package in `copy`; None where the time was over."""
    command = [sys.executable, "-c", _START, str(copy), "-q", "-p", "no:cacheprovider"]
    command += ["--no-header", *(["-x"] if first_only else [])]
    command += [str(Path("tests/unit", test)) for test in tests]
    # Compiled files are distinguished by whole seconds, in which two mutants may follow each other.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy), "CI": "1"}
    output = None if show else subprocess.DEVNULL
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=False, stdout=output, timeout=LIMIT_S
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def use_native_parts() -> None:
    """Let a copy of the package find the native parts of the installed one."""
    if ENVIRONMENT_VARIABLE not in os.environ:
        try:
            os.environ[ENVIRONMENT_VARIABLE] = str(tuner_path().parents[1])
        except NccltuneError as error:
            print(f"note: tests of native parts will fail: {error.message}", file=sys.stderr)


def table_of(rows: Sequence[tuple[Mutant, Result]]) -> Iterator[str]:
    """The result as lines of Markdown."""
    killed = sum(result is Result.KILLED for _, result in rows)
    yield "# Mutants of the core"
    yield ""
    yield (
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}: {killed} of {len(rows)} "
        "killed by the tests of their own package."
    )
    yield ""
    yield "    make mutants"
    yield ""
    yield "| file | mutant | what it breaks | result |"
    yield "| --- | --- | --- | --- |"
    for mutant, result in rows:
        yield f"| `{mutant.file}` | {mutant.name} | {mutant.wrong} | {result.value} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="a name or pattern of mutants or files")
    parser.add_argument("--save", type=Path, help="write the table to this file, too")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    wanted = [
        mutant
        for mutant in mutants()
        if not options.only
        or fnmatch(mutant.name, options.only)
        or fnmatch(mutant.file, options.only)
    ]
    if not wanted:
        parser.error("no mutant of this name")
    use_native_parts()
    with tempfile.TemporaryDirectory() as folder:
        copies = Copies(Path(folder), options.jobs)
        every = sorted({test for mutant in wanted for test in mutant.tests})
        if copies.fails_without(every):
            print("error: tests fail without any mutant", file=sys.stderr)
            return 1
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = []
            for mutant, (result, seconds) in zip(
                wanted, pool.map(copies.try_mutant, wanted), strict=True
            ):
                print(f"{mutant.name:32} {result.value} ({seconds:.0f} s)", flush=True)
                rows.append((mutant, result))
    results = [result for _, result in rows]
    if options.save is not None:
        options.save.write_text("\n".join(table_of(rows)) + "\n", encoding="utf-8")
    survivors = results.count(Result.SURVIVED)
    unusable = results.count(Result.STALE) + results.count(Result.BROKEN)
    print(f"{results.count(Result.KILLED)} of {len(results)} killed, {survivors} survived")
    return 1 if survivors > MOST_SURVIVORS or unusable else 0


if __name__ == "__main__":
    sys.exit(main())
