# SPDX-License-Identifier: Apache-2.0
"""Find launch commands in a line, a script or an argument list, and check outputs of tests."""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nccltune.formats.nccl_tests.run import header_part
from nccltune.launch.program import is_nccl_test
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.finding import LaunchFinding
from nccltune.launch_lint.options import SLURM
from nccltune.launch_lint.read import launcher_at, no_launcher, read_options, starts_something
from nccltune.launch_lint.shell import OPERATORS_HOSTFILE, ShellScope, ShellValue, assign, expanded
from nccltune.launch_lint.words import (
    Line,
    Word,
    quoted,
    split,
    substitution_end,
    whole_number,
)
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity

MAX_BYTES = 16 << 20
SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


class FoundCommand(NamedTuple):
    """A launch command, and what the text around it states about nodes, options and variables."""

    line: Line
    site: LaunchContext


def from_text(text: str, site: LaunchContext) -> list[FoundCommand]:
    """Return the commands in a shell text that start a job.

    Raises InputError if no command starts a job, or if a quote is not closed.

    >>> (found,) = from_text("export NCCL_DEBUG=INFO\\nsrun -n 8 all_reduce_perf", LaunchContext())
    >>> found.site.exported
    (('NCCL_DEBUG', 'INFO'),)
    """
    text = _SCRIPT_BEHIND.sub(_as_option, _fenced(text))
    inherited = read_options(tuple(_sbatch_words(text)), SLURM)
    site = _allocated(site._replace(inherited=(*site.inherited, *inherited)))
    scope = _scope(site)
    exported: dict[str, str] = {}
    found = []
    depth = 0
    for line in split(text):
        words, assumed = expanded(line.words, scope)
        if not words:
            continue
        around = site._replace(
            exported=(*site.exported, *exported.items()), scope=scope.copy(), assumed=assumed
        )
        depth = max(0, depth + (words[0].text in _OPENS) - (words[0].text in _CLOSES))
        if starts_something(words):
            found.append(FoundCommand(Line(words, line.tail), _in_salloc(words, around)))
        elif (inner := _inner(words, around)) is not None:
            with contextlib.suppress(InputError):
                found += from_text(*inner)
        else:
            found += _substituted(line.words, around)
            _assign(words, scope, exported, assumed, is_certain=depth == 0)
    if not found:
        raise no_launcher()
    starting = [one for one in found if not _only_asks(one.line)]
    if not starting:
        raise InputError("only asks a launcher for its help or version: nothing is started")
    return starting


_FENCED = re.compile(r"^[ >]*(```+|~~~+)[^`\n]*\n(.*?)^[ >]*\1", re.DOTALL | re.MULTILINE)


def _fenced(text: str) -> str:
    """Return the code blocks of a Markdown text, else the text."""
    return "\n".join(match[2] for match in _FENCED.finditer(text)) or text


_SCRIPT_BEHIND = re.compile(
    r"^(.*\b(?:ba|da|z)?sh)(?: -s)?[ \t]*<<-?[ \t]*([\"']?)(\w+)\2[ \t]*\n(.*?)^[ \t]*\3[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


def _as_option(match: re.Match[str]) -> str:
    """Return `bash <<EOF`, which reads its script from the lines behind it, as `bash -c SCRIPT`."""
    return f"{match[1]} -c {shlex.quote(match[4])}"


def _substituted(words: tuple[Word, ...], site: LaunchContext) -> list[FoundCommand]:
    """Return the tests that a line starts to keep their output: `out=$(srun ... PROGRAM)`."""
    found: list[FoundCommand] = []
    for word in words:
        at = word.raw.find("$(")
        if at < 0 or word.raw.startswith("$((", at):
            continue
        inner = word.raw[at + 2 : substitution_end(word.raw, at) - 1]
        with contextlib.suppress(InputError):
            found += from_text(inner, site)
    return [one for one in found if any(is_nccl_test(word.text) for word in one.line.words)]


def _in_salloc(words: tuple[Word, ...], site: LaunchContext) -> LaunchContext:
    """Return the context with the options of `salloc OPTIONS srun ...`."""
    at = launcher_at(words)
    if words[0].text.rpartition("/")[2] != "salloc" or at is None:
        return site
    options = read_options(words[1:at], SLURM)
    return _allocated(site._replace(inherited=(*site.inherited, *options)))


_ASKS = frozenset({"--help", "--version", "--usage", "-h", "-V", "--mpi=list"})


def _only_asks(line: Line) -> bool:
    """Return whether a line such as `srun --help | grep pyxis` only asks the launcher."""
    at = launcher_at(line.words)
    after = [word.text for word in line.words[at + 1 :]] if at is not None else []
    return bool(after) and after[0] in _ASKS


_OPENS = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSES = frozenset({"fi", "done", "esac"})


def _scope(site: LaunchContext) -> ShellScope:
    """Return the variables that the context gives: those of a container, and Slurm's own."""
    if site.scope is not None:
        return site.scope.copy()
    values = {name: ShellValue(value) for name, value in site.exported}
    by_meaning = {option.meaning: whole_number(option.value) for option in site.inherited}
    per_node = by_meaning.get("per_node")
    total = by_meaning.get("total") or (
        per_node * site.nodes if per_node is not None and site.nodes is not None else None
    )
    known = {
        "SLURM_NNODES": site.nodes,
        "SLURM_JOB_NUM_NODES": site.nodes,
        "SLURM_NTASKS": total,
        "SLURM_NPROCS": total,
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_GPUS_PER_NODE": site.gpus_per_node if "gpus_per_node" in by_meaning else None,
        "SLURM_GPUS_ON_NODE": site.gpus_per_node,
    }
    if site.inherited:
        for name, number in known.items():
            if number is not None:
                values.setdefault(name, ShellValue(str(number)))
    if site.workers is not None:
        for name in ("OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"):
            values.setdefault(name, ShellValue(OPERATORS_HOSTFILE))
    return ShellScope(values, {}, site.nodes, site.gpus_per_node, site.workers)


def _assign(
    words: tuple[Word, ...],
    scope: ShellScope,
    exported: dict[str, str],
    assumed: tuple[str, ...],
    *,
    is_certain: bool,
) -> None:
    """Store the variables that a line assigns or exports.

    A variable that is assigned below an `if` or in a loop is unknown from then on.
    """
    is_export = words[0].text == "export"
    is_keyword = is_export or words[0].text in ("declare", "local", "readonly", "typeset")
    for word in words[1:] if is_keyword else words:
        name = assign(scope, word, assumed)
        if name is None:
            if is_export and word.text in scope.values:
                exported[word.text] = scope.values[word.text].text
                continue
            if is_keyword and word.text.startswith("-"):
                is_export = is_export or "x" in word.text
                continue
            break
        if (is_export or name in exported) and name in scope.values:
            exported[name] = scope.values[name].text
        if not is_certain:
            scope.values.pop(name, None)
            scope.arrays.pop(name, None)


def _inner(words: tuple[Word, ...], site: LaunchContext) -> tuple[str, LaunchContext] | None:
    """Return the script in `bash -c TEXT`, `eval TEXT`, `ssh HOST TEXT` or `sbatch --wrap TEXT`.

    Also return the script's context.

    The context has the options of sbatch. Return None for other lines.
    """
    names = [word.text.rpartition("/")[2] for word in words]
    if names[0] == "sbatch":
        options = read_options(words[1:], SLURM)
        wrapped = next((option.value for option in options if option.name == "wrap"), None)
        if wrapped is None:
            return None
        return wrapped, _allocated(site._replace(inherited=(*site.inherited, *options)))
    if names[0] == "eval":
        return " ".join(word.text for word in words[1:]), site
    if names[0] in ("ssh", "pdsh") and " " in words[-1].text:
        return words[-1].text, site
    for at, name in enumerate(names[:-2]):
        if name in SHELLS and is_c(names[at + 1]) and " " in words[at + 2].text:
            return words[at + 2].text, site
    return None


def _sbatch_words(text: str) -> Iterator[Word]:
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            for part in split(line.removeprefix("#SBATCH")):
                yield from part.words


def _allocated(site: LaunchContext) -> LaunchContext:
    """Return `site` with the nodes, slots and GPUs of its inherited options (`#SBATCH`).

    An mpirun in the script uses these numbers.
    """
    by_meaning = {option.meaning: option.value for option in site.inherited}

    def number(meaning: str) -> int | None:
        return whole_number(by_meaning.get(meaning, "")) or None

    nodes = number("nodes") or site.nodes
    slots = number("per_node") or site.slots
    total = number("total")
    if slots is None and total is not None:
        slots = -(-total // (nodes or 1))
    gpus = re.fullmatch(r"(?:\w+:)?([1-9][0-9]{0,4})", by_meaning.get("gpus_per_node", ""))
    return site._replace(
        nodes=nodes, slots=slots, gpus_per_node=int(gpus[1]) if gpus else site.gpus_per_node
    )


def read_text(path: Path) -> str:
    """Return the text in the first `MAX_BYTES` of a file.

    Raises InputError if the file cannot be read or is binary.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if b"\0" in raw:
        raise InputError("is not text", where=str(path))
    return raw.decode(errors="replace")


def is_output(text: str) -> bool:
    """Return whether a text is an output of nccl-tests."""
    return any(
        (part := header_part(_bare(line))) is not None and part[0] == "parameters"
        for line in text.splitlines()
    )


def _bare(line: str) -> str:
    """Return a line from its first `#` on, because launchers print a prefix before the line.

    A line without `#` is returned unchanged.
    """
    at = line.find("#")
    return line[at:] if at >= 0 else line


def from_words(words: list[str], site: LaunchContext, *, strict: bool = True) -> list[FoundCommand]:
    """Return the commands in an argument list, or in the script of `bash -c SCRIPT`.

    If there is no command, raises InputError if `strict`, else returns an empty list. For a shell
    without `-c SCRIPT` the list is empty in either case.
    """
    if words and words[0].rpartition("/")[2] in SHELLS:
        scripts = [words[at + 1] for at, word in enumerate(words[:-1]) if is_c(word)]
        try:
            return from_text(scripts[0], site) if scripts else []
        except InputError:
            if strict:
                raise
            return []
    line = Line(tuple(quoted(word) for word in words), "")
    if not starts_something(line.words):
        if strict:
            return from_text(" ".join(words), site)
        return []
    return [FoundCommand(line, site)]


def is_c(word: str) -> bool:
    """Return whether a word is the option -c of a shell: `-c`, `-lc`."""
    return word.startswith("-") and not word.startswith("--") and word.endswith("c")


def judge_output(text: str) -> list[LaunchFinding]:
    """Return findings on how a test was started, from the test's output.

    The processes did not join one MPI job if there are several tables, and each has only rank 0 or
    a second table begins before the first has ended. One table with only rank 0 is a warning.
    """
    tables = done = before_end = 0
    ranks: list[int] = []
    for line in text.splitlines():
        part = header_part(_bare(line))
        if part is not None and part[0] == "parameters":
            tables += 1
            before_end += done == 0
        elif part is not None and part[0] == "device":
            ranks.append(int(part[1]["rank"]))
        elif "Avg bus bandwidth" in line:
            done += 1
    alone = bool(ranks) and set(ranks) == {0}
    if tables > 1 and (alone or before_end > 1):
        each = "of rank 0 alone" if alone else "that begin with rank 0 before the first has ended"
        return [
            LaunchFinding(
                Severity.ERROR,
                "no-mpi-build",
                f"{tables} tables {each}: the processes did not know of each other, as when"
                " nccl-tests was built without MPI",
                "build it with make MPI=1 MPI_HOME=..., with the MPI whose mpirun starts it",
            )
        ]
    if tables == 1 and alone:
        return [
            LaunchFinding(
                Severity.WARNING,
                "one-rank",
                "only 1 rank: nothing is sent, busbw is 0",
                "give -g the GPUs of this node, or start more processes",
            )
        ]
    return []
