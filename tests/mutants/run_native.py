# SPDX-License-Identifier: Apache-2.0
"""Apply the native mutants one at a time, build the test program that must notice, and run it.

python -m tests.mutants.run_native [--only PATTERN] [--save FILE.md]

The tables are tests/mutants/native/*.toml. A mutant is a change of one place in a copy of native/
(build/mutants, kept for the next run); the working tree stays unchanged. Exit code 1: more than two
survive, a mutant does not fit the source any more or does not compile, or the tests fail without
any mutant.
"""

import argparse
import filecmp
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from tests.mutants.run import MOST_SURVIVORS, ROOT, Result

TABLES = Path(__file__).parent / "native"
SCRATCH = ROOT / "build" / "mutants"
COPIED = ("native", "tests/native", "cmake", "CMakeLists.txt", "CMakePresets.json")
LINKED = ("src", "docs", "examples")
"""What the build and the tests read but no mutant changes."""
LIMIT_S = 180.0
"""Of one run of tests; a mutant that hangs is killed."""


class NativeMutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`old` occurs once in `file` (under native/) and becomes `new`; `wrong` is what that breaks.
    The GoogleTest program `target` must fail with `filter`."""

    name: str
    file: str
    old: str
    new: str
    wrong: str
    target: str
    filter: str = "*"

    @property
    def path(self) -> Path:
        """The file, relative to the repository."""
        return Path("native", self.file)

    @property
    def fits(self) -> bool:
        """Whether the source still has the place, once."""
        source = ROOT / self.path
        return source.is_file() and source.read_text(encoding="utf-8").count(self.old) == 1


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutant: list[NativeMutant]


def native_mutants() -> list[NativeMutant]:
    """Read all tables. Raises ValueError where a name is there twice."""
    found = [
        mutant
        for table in sorted(TABLES.glob("*.toml"))
        for mutant in msgspec.toml.decode(table.read_bytes(), type=_Table).mutant
    ]
    names = [mutant.name for mutant in found]
    if len(set(names)) != len(names):
        raise ValueError("a mutant's name is there twice")
    return found


class Tree:
    """A copy of the native sources with a build folder of its own."""

    def __init__(self, root: Path, jobs: int) -> None:
        self._source = root / "source"
        self._build = root / "build"
        self._jobs = jobs

    def update(self) -> None:
        """Copy what has changed, remove what is gone, and configure."""
        self._source.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            _mirror(ROOT / name, self._source / name)
        for name in LINKED:
            link = self._source / name
            if not link.is_symlink():
                link.symlink_to(ROOT / name)
        command = ["cmake", "-G", "Ninja", "-S", str(self._source), "-B", str(self._build)]
        # Not optimised, and warnings allowed: a mutant may leave a name unused.
        command += ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -D_GLIBCXX_ASSERTIONS"]
        command += ["-DNCCLTUNE_BUILD_TESTS=ON", "-DNCCLTUNE_WARNINGS_AS_ERRORS=OFF"]
        if shutil.which("ccache"):
            command += [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def build(self, targets: Sequence[str], *, show: bool = False) -> bool:
        """Build test programs. Returns whether that worked."""
        command = ["cmake", "--build", str(self._build), "-j", str(self._jobs), "--target"]
        output = None if show else subprocess.DEVNULL
        environment = os.environ | {
            "CCACHE_BASEDIR": str(self._source.parent),
            "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        }
        return (
            subprocess.run(
                [*command, *targets], check=False, stdout=output, stderr=output, env=environment
            ).returncode
            == 0
        )

    def passes(self, target: str, tests: str, *, show: bool = False) -> bool:
        """Whether a test program succeeds within the time limit."""
        program = next(self._build.glob(f"tests/native/**/{target}"))
        output = None if show else subprocess.DEVNULL
        command = [str(program), f"--gtest_filter={tests}", "--gtest_brief=1"]
        try:
            status = subprocess.run(
                command,
                check=False,
                cwd=program.parent,
                stdout=output,
                stderr=output,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            return False
        return status.returncode == 0

    def try_mutant(self, mutant: NativeMutant) -> tuple[Result, float]:
        """Apply a mutant, build and run its tests, take it back. Returns the result and seconds."""
        if not mutant.fits:
            return Result.STALE, 0.0
        started = time.monotonic()
        target = self._source / mutant.path
        original = target.read_bytes()
        try:
            text = original.decode().replace(mutant.old, mutant.new)
            target.write_text(text, encoding="utf-8")
            if not self.build([mutant.target]):
                result = Result.BROKEN
            elif self.passes(mutant.target, mutant.filter):
                result = Result.SURVIVED
            else:
                result = Result.KILLED
        finally:
            target.write_bytes(original)
        return result, time.monotonic() - started


def _mirror(source: Path, copy: Path) -> None:
    """Make `copy` like `source`. An equal file keeps its time, so that it is not compiled again."""
    if source.is_file():
        if not copy.is_file() or not filecmp.cmp(source, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        return
    copy.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in source.iterdir() if entry.name != "__pycache__"}
    for entry in copy.iterdir():
        if entry.name not in names:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for name in names:
        _mirror(source / name, copy / name)


def table_of(rows: Sequence[tuple[NativeMutant, Result]], only: str | None) -> Iterator[str]:
    """Return the result as lines of Markdown; `only` is the pattern that selected the mutants."""
    killed = sum(result is Result.KILLED for _, result in rows)
    yield "# Mutants of the native parts"
    yield ""
    yield (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {len(os.sched_getaffinity(0))} cores: "
        f"{killed} of {len(rows)} killed by the test program that is named for them."
    )
    yield ""
    if only:
        yield f"    python -m tests.mutants.run_native --only '{only}'"
    else:
        yield "    make mutants-native"
    yield ""
    yield "| file | mutant | what it breaks | test program | result |"
    yield "| --- | --- | --- | --- | --- |"
    for mutant, result in rows:
        yield (
            f"| `{mutant.file}` | {mutant.name} | {mutant.wrong} | `{mutant.target}` "
            f"| {result.value} |"
        )


def _unmutated_tests_pass(tree: Tree, wanted: Sequence[NativeMutant]) -> bool:
    if not tree.build(sorted({mutant.target for mutant in wanted}), show=True):
        return False
    # Each program once, with all that its mutants need.
    filters: dict[str, set[str]] = {}
    for mutant in wanted:
        filters.setdefault(mutant.target, set()).add(mutant.filter)
    return all(
        tree.passes(target, ":".join(sorted(each)), show=True)
        for target, each in sorted(filters.items())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="a name or pattern of mutants or files")
    parser.add_argument("--save", type=Path, help="write the table to this file, too")
    parser.add_argument("--tree", type=Path, default=SCRATCH, help="folder of the copy")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    wanted = [
        mutant
        for mutant in native_mutants()
        if not options.only
        or fnmatch(mutant.name, options.only)
        or fnmatch(mutant.file, options.only)
    ]
    if not wanted:
        parser.error("no mutant of this name")
    tree = Tree(options.tree, options.jobs)
    tree.update()
    if not _unmutated_tests_pass(tree, wanted):
        print("error: tests fail without any mutant", file=sys.stderr)
        return 1
    rows = []
    for mutant in wanted:
        result, seconds = tree.try_mutant(mutant)
        print(f"{mutant.name:32} {result.value} ({seconds:.0f} s)", flush=True)
        rows.append((mutant, result))
    results = [result for _, result in rows]
    if options.save is not None:
        options.save.write_text("\n".join(table_of(rows, options.only)) + "\n", encoding="utf-8")
    survivors = results.count(Result.SURVIVED)
    unusable = results.count(Result.STALE) + results.count(Result.BROKEN)
    print(f"{results.count(Result.KILLED)} of {len(results)} killed, {survivors} survived")
    return 1 if survivors > MOST_SURVIVORS or unusable else 0


if __name__ == "__main__":
    sys.exit(main())
