# SPDX-License-Identifier: Apache-2.0
"""Find launch commands in a line, a script or an argument list."""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nccltune.launch.program import is_nccl_test
from nccltune.launch_lint.around import read_around
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.directives import allocated, scope_of, with_directives
from nccltune.launch_lint.flow import (
    HERE,
    Branches,
    Node,
    ShellFunction,
    ShellLoop,
    lines_of,
    nodes_of,
    with_lists,
    without_here,
)
from nccltune.launch_lint.hosts import text_of
from nccltune.launch_lint.nested import (
    REMOTE,
    SHELLS,
    hides_command,
    in_salloc,
    only_asks,
    over_ssh,
    script_at,
    script_inside,
)
from nccltune.launch_lint.options import SLURM
from nccltune.launch_lint.pasted import (
    blocks_of,
    commands_in,
    has_program,
    out_of_prose,
    scripts_of,
)
from nccltune.launch_lint.read import (
    WRAPPERS,
    joined,
    launcher_at,
    no_launcher,
    read_options,
    starts_something,
)
from nccltune.launch_lint.recipes import as_script, started_by
from nccltune.launch_lint.shell import (
    ShellScope,
    ShellValue,
    assign,
    at_once,
    expanded,
    here_text,
)
from nccltune.launch_lint.words import (
    Line,
    Word,
    is_open,
    quoted,
    split,
    substitution_end,
    whole_number,
)
from nccltune.model.errors import InputError


class FoundCommand(NamedTuple):
    """A launch command, and what the text around it states about nodes, options and variables.

    Commands of one `origin` are rounds of a loop, or calls of a function, of the same line.
    """

    line: Line
    site: LaunchContext
    origin: int = 0


def from_text(text: str, site: LaunchContext) -> list[FoundCommand]:
    """Return the commands in a shell text that start a job.

    A command in a loop is returned for each round in which it differs. Raises InputError if no
    command starts a job, or if a quote is not closed.

    >>> (found,) = from_text("export NCCL_DEBUG=INFO\\nsrun -n 8 all_reduce_perf", LaunchContext())
    >>> found.site.exported
    (('NCCL_DEBUG', 'INFO'),)
    """
    text = started_by(as_script(text))
    site = read_around(text, site._replace(ran=site.ran or _ROW.search(text) is not None))
    try:
        is_page = len(blocks_of(text)) > 1
        found = [one for script in scripts_of(text) for one in _of_script(script, site, is_page)]
        if is_page:
            # A page shows options by themselves, too.
            found = [one for one in found if has_program(one.line.words)] or found
    except InputError:
        # Prose has apostrophes, which no second one closes.
        found = from_lines(text, site)
        if not found and re.search(r"\w'\w", text) is None:
            raise
    found = found or from_lines(text, with_directives(text, site))
    if not found and not _CELLS.search(text) and not text.startswith("#!"):
        found = from_lines(_ROOT_PROMPT.sub("", text), site)
    if not found and _RAY.search(text):
        raise InputError(
            "ray starts its processes from Python: this text does not show how many, and where",
            hint="check the command lines that start ranks, if there are any",
        )
    if not found:
        lines: list[Line] = []
        with contextlib.suppress(InputError):
            lines = split(text)
        raise no_launcher(lines)
    starting = [one for one in found if not only_asks(one.line)]
    if not starting:
        raise InputError("only asks a launcher for its help or version: nothing is started")
    return starting


def from_lines(text: str, site: LaunchContext) -> list[FoundCommand]:
    """Return the commands that lines of prose, of a terminal or of a test's output show."""
    return [
        FoundCommand(line, site._replace(is_begun=is_value))
        for line, is_value in dict.fromkeys(commands_in(text))
    ]


def _of_script(text: str, site: LaunchContext, is_page: bool) -> list[FoundCommand]:
    text, here = without_here(with_lists(text))
    site = with_directives(text, site)
    if is_page:
        # What another block of the page loads may be for another machine.
        site = site._replace(modules=())
    nodes = nodes_of(split(text))
    script = _Script(site, scope_of(site), nodes, here)
    script.run(nodes)
    script.run_uncalled()
    return script.found


_ROW = re.compile(
    r"\s\d+\s+\d+\s+(?:u?int\d+|half|float|double|bfloat16|f8\w+)\s+\w+(?:\s+-?\d+)?"
    r"\s+[\d.]+\s+[\d.]+\s+(?=\d*\.?\d*[1-9])[\d.]+\s"
)
"""A row of a test's table with a bus bandwidth: there was more than one rank."""
_ROOT_PROMPT = re.compile(r"^[ \t]*# ?(?=[^\s#])", re.M)
_CELLS = re.compile(r"^\s*\w+\s*[,;]\s*\d", re.M)
"""A row of a table, whose comments may name commands."""
_RAY = re.compile(r"^[^#\n]*\bray (?:start|submit|up|job) ", re.M)
MAX_ROUNDS = 32
"""Maximum number of rounds of a loop that are followed."""
MAX_FOUND = 256
"""Maximum number of commands of a script."""
_MAX_CALLS = 8
_ORIGINS = itertools.count(1)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_KEYWORDS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_LEAVES = frozenset({"break", "continue", "return", "exit"})
_ALL = re.compile(r"\$[@*]|\$\{[^}]*[@*][^}]*\}")
_OF_SHELL = re.compile(
    r"(?:.*/)?(?:\.?(?:bash|zsh)?_?(?:rc|profile)|activate|conda\.sh|os-release|(?:ba)?sh"
    r"|[\w-]*init[\w-]*\.sh|[\w-]*vars\.sh|lmod(?:\.sh)?|modules?(?:\.sh)?|profile\.d/.*)"
    r"|.*(?i:mpi_?vars).*"
)
"""Files that set up a shell, a compiler or MPI, and no job."""
_BRACES = re.compile(r"(.*)\{(-?\d+)\.\.(-?\d+)\}(.*)")
_PROMPT = re.compile(r"(?:[a-z][\w@.~-]*)?[$%]|\d{1,2}[.)]|\++")
"""A prompt, the number of an item in a list, or the `+` of `set -x`."""


class _Script:
    """Follow a script from its first line to its last, and collect the commands that start a job.

    Of `if` and `case` every branch is followed, because their conditions are unknown. What a
    branch assigns is unknown behind it.
    """

    def __init__(
        self, site: LaunchContext, scope: ShellScope, nodes: Sequence[Node], here: Sequence[str]
    ) -> None:
        self.found: list[FoundCommand] = []
        self._site = site
        self._scope = scope
        self._here = list(here)
        # The id of a line is that of another once this line is deleted, as with its script.
        self._kept: list[Sequence[Node]] = []
        self._origins: dict[int, int] = {}
        self._unseen = list(site.unseen)
        self._sourced: set[str] = set()
        self._exported: dict[str, str] = {}
        self._functions: dict[str, ShellFunction] = {}
        self._lines = list(lines_of(nodes))
        self._called: set[str] = set()
        self._calls = 0
        self._all_exported = False

    def run(self, nodes: Sequence[Node]) -> None:
        """Follow the nodes, in order."""
        self._kept.append(nodes)
        for node in nodes:
            if len(self.found) >= MAX_FOUND:
                return
            if isinstance(node, Line):
                self._line(node)
            elif isinstance(node, Branches):
                self._branch(node)
            elif isinstance(node, ShellLoop):
                self._loop(node)
            else:
                self._functions[node.name] = node

    def run_uncalled(self) -> None:
        """Follow the functions that no line calls, from the last on: it may call earlier ones."""
        self._site = self._site._replace(on_first="")
        while left := [name for name in self._functions if name not in self._called]:
            self._called.add(left[-1])
            self.run(self._functions[left[-1]].body)

    def _branch(self, node: Branches) -> None:
        """Follow every body. What all of them leave alike is known behind them."""
        test = _IS_SET.fullmatch(" ".join(word.raw for word in node.condition))
        value = self._scope.values.get(test[2]) if test is not None else None
        is_job = test is not None and self._site.inherited and test[2] in _SET_BY_SLURM
        if test is not None and (is_job or (value and value.text and not is_open(value.text))):
            for body in node.bodies[:1] if test[1] == "n" else node.bodies[1:]:
                self.run(body)
            return
        before = self._scope
        left = [] if node.is_full else [dict(before.values)]
        ends = [len(self.found)]
        for body in node.bodies:
            self._scope = before.copy()
            self.run(body)
            left.append(self._scope.values)
            ends.append(len(self.found))
        many = sum(first < last for first, last in itertools.pairwise(ends))
        for at in range(ends[0], ends[-1]) if many > 1 else ():
            one = self.found[at]
            assumed = (*_key(one).site.assumed, f"one of {many} {_BRANCHED}")
            self.found[at] = one._replace(site=one.site._replace(assumed=assumed))
        self._scope = before
        names = {name for body in node.bodies for name in _assigned(body)}
        self._forget(node.bodies)
        for name in names:
            values = [one[name] for one in left if name in one]
            texts = {value.text: value for value in values}
            tests = [text for text in texts if is_nccl_test(text) and not is_open(text)]
            if len(values) < len(left) or not tests:
                continue
            folders, ends = zip(*(text.rpartition("/")[::2] for text in texts), strict=True)
            if len(texts) == 1:
                self._scope.values[name] = values[0]
            elif len(set(folders)) == 1 or len(set(ends)) == 1:
                said = f"{name} is {tests[0]}, one of {len(texts)} that branches of the script set"
                self._scope.values[name] = ShellValue(tests[0], (said,))

    def _forget(self, bodies: Iterable[Sequence[Node]]) -> None:
        """Make every variable unknown that some line of the bodies assigns."""
        for body in bodies:
            for name in _assigned(body):
                self._scope.values.pop(name, None)
                self._scope.arrays.pop(name, None)
                if name == "@":
                    self._numbered(None)

    def _numbered(self, words: tuple[str, ...] | None) -> None:
        """Set the arguments of a script or a function, `$1` and so on; None makes them unknown."""
        values, arrays = self._scope.values, self._scope.arrays
        for number in range(1, 10):
            values.pop(str(number), None)
        arrays.pop("@", None)
        # How many words `"$@"` of an outer call becomes is unknown.
        given = list(itertools.takewhile(lambda word: not _ALL.fullmatch(word), words or ()))
        if words is not None and len(given) == len(words):
            arrays["@"] = words
        values |= {str(n): ShellValue(word) for n, word in enumerate(given[:9], 1)}

    def _loop(self, loop: ShellLoop) -> None:
        words = loop.head.words
        name = words[1].text if len(words) > 1 else ""
        is_list = words[0].text in ("for", "select") and len(words) > 3 and words[2].text == "in"
        items = self._items(words[3:]) if is_list else None
        if items is None or len(items) > MAX_ROUNDS:
            self._forget([loop.body])
            self._scope.values.pop(name, None)
            before = dict(self._scope.files or {})
            self.run(loop.body)
            # How many lines the rounds write is unknown.
            now = (self._scope.files or {}).items()
            kept = {file: text for file, text in now if before.get(file) == text}
            self._scope = self._scope._replace(files=kept)
        else:
            for item in items:
                self._scope.values[name] = ShellValue(item, (f"{name} is {item} in this round",))
                self.run(loop.body)
            if all(line.words[0].text not in _LEAVES for line in lines_of(loop.body) if line.words):
                self._keep({f"{name} is {item} in this round" for item in items})
                return
        self._forget([loop.body])

    def _keep(self, rounds: set[str]) -> None:
        """Keep what the known rounds of a loop leave, which is no assumption behind it."""
        for name, value in self._scope.values.items():
            assumed = tuple(one for one in value.assumed if one not in rounds)
            self._scope.values[name] = value._replace(assumed=assumed)

    def _items(self, words: Sequence[Word]) -> list[str] | None:
        """Return the words of a `for` loop, or None if some are unknown."""
        items: list[str] = []
        for word in expanded(words, self._scope)[0]:
            if is_open(word.text):
                return None
            braces = _BRACES.fullmatch(word.raw)
            if braces is None:
                items.append(word.text)
                continue
            low, high = int(braces[2]), int(braces[3])
            step = 1 if low <= high else -1
            if abs(high - low) > MAX_ROUNDS:
                return None
            items += [f"{braces[1]}{n}{braces[4]}" for n in range(low, high + step, step)]
        return items

    def _line(self, line: Line) -> None:
        if line.words and _PROMPT.fullmatch(line.words[0].raw):
            line = line._replace(words=line.words[1:])
            self._kept.append([line])
        words, assumed = expanded(line.words, self._scope)
        if not words:
            return
        around = self._site._replace(
            exported=(*self._site.exported, *self._exported.items()),
            scope=self._scope.copy(),
            assumed=assumed,
            unseen=tuple(dict.fromkeys(self._unseen)),
        )
        match = HERE.search(" ".join([*(word.text for word in words), line.tail]))
        if match is not None:
            self._reads(line._replace(words=words), self._here[int(match[1])], around)
            return
        self._started(line, words, around)

    def _started(self, line: Line, words: tuple[Word, ...], around: LaunchContext) -> None:
        call = _head(Line(words, ""))
        function = self._functions.get(words[call].text)
        if words[0].text in ("source", ".") and len(words) > 1:
            self._source(words[1].text, around)
        elif words[0].text in ("shift", "set", "unset"):
            self._shift([word.text for word in words])
        elif launcher_at(whole := joined(words)) == len(whole) - 1 and len(self._lines) > 1:
            return  # A list of programs, or prose.
        elif starts_something(words) and not hides_command(words):
            if not (words := out_of_prose(words)):
                return
            origin = self._origins.setdefault(id(line), next(_ORIGINS))
            self._add(FoundCommand(Line(words, line.tail), in_salloc(words, around), origin))
        elif function is not None and self._calls < _MAX_CALLS:
            self._call(function, words[:call], words[call + 1 :])
        elif words[0].text == "eval":
            text = " ".join(word.text for word in words[1:])
            with contextlib.suppress(InputError):
                self.run(nodes_of(split(text)))
        elif (inner := script_inside(words, around)) is not None:
            with contextlib.suppress(InputError):
                self._add(*from_text(*inner))
        else:
            self._substituted(line.words)
            self._assign(words, around.assumed)
            self._written(line.tail, words)
            if line.tail.startswith("|"):
                self.run(nodes_of(split(line.tail.lstrip("|&"))))

    def _source(self, name: str, site: LaunchContext) -> None:
        """Follow a file that the script reads, if it is known. `$DIR/FILE` may be beside it."""
        end = substitution_end(name, 0)
        beside = name[end + 1 :] if name[end : end + 1] == "/" and end else name
        text = text_of(beside, site)
        if text is None:
            self._unseen += [] if _OF_SHELL.fullmatch(name) else [name]
        elif beside not in self._sourced:
            self._sourced.add(beside)
            text, here = without_here(with_lists(text), len(self._here))
            self._here += here
            with contextlib.suppress(InputError):
                self.run(nodes_of(split(text)))

    def _substituted(self, words: Sequence[Word]) -> None:
        """Follow the tests that a line starts to keep their output: `out=$(srun ... PROGRAM)`."""
        for word in words:
            at = word.raw.find("$(")
            if at < 0 or word.raw.startswith("$((", at):
                continue
            before, self.found = self.found, []
            scope = self._scope.copy()
            with contextlib.suppress(InputError):
                inner = word.raw[at + 2 : substitution_end(word.raw, at) - 1]
                self.run(nodes_of(split(inner)))
            found, self.found, self._scope = self.found, before, scope
            self._add(*(f for f in found if any(is_nccl_test(w.text) for w in f.line.words)))

    def _assign(self, words: tuple[Word, ...], assumed: tuple[str, ...]) -> None:
        """Store the variables that a line assigns or exports."""
        scope, exported = self._scope, self._exported
        is_export = words[0].text == "export" or self._all_exported
        is_keyword = words[0].text in _KEYWORDS
        for word in words[1:] if is_keyword else words:
            name = assign(scope, word, assumed)
            if name is None:
                if is_keyword and word.text.startswith("-"):
                    is_export = is_export or "x" in word.text
                    continue
                if is_keyword and is_export and word.text.isidentifier():
                    value = scope.values.get(word.text)
                    exported[word.text] = value.text if value is not None else ""
                    continue
                break
            if (is_export or name in exported) and name in scope.values:
                exported[name] = scope.values[name].text

    def _shift(self, words: list[str]) -> None:
        """Follow `shift N`, `set -- WORDS`, `unset NAME`, `set -a`, which exports what follows."""
        given = self._scope.arrays.get("@")
        for name in words[1:] if words[0] == "unset" else ():
            self._scope.values.pop(name, None)
            self._exported.pop(name, None)
            # Without it srun exports all.
            self._exported |= {name: "ALL"} if name == "SLURM_EXPORT_ENV" else {}
        if words[0] == "shift":
            number = whole_number(words[1]) if len(words) > 1 else 1
            self._numbered(given[number:] if given is not None and number is not None else None)
        elif words[1:] in (["-a"], ["-o", "allexport"]):
            self._all_exported = True
        elif words[1:2] == ["--"]:
            self._numbered(tuple(words[2:]))

    def _written(self, tail: str, words: Sequence[Word]) -> None:
        """Keep the text that `echo TEXT > FILE` writes, or `echo TEXT | tee FILE`."""
        match = re.fullmatch(
            r"(>>?|\|\s*tee(?:\s+-a)?)\s*[\"']?([^\s\"'>|-][^\s\"'>|]*)[\"']?(?:\s*>\S+)?", tail
        )
        if match is None or words[0].text != "echo":
            return
        files = dict(self._scope.files or {})
        before = files.get(match[2], "") if match[1].endswith((">>", "-a")) else ""
        files[match[2]] = f"{before}{' '.join(word.text for word in words[1:])}\n"
        self._scope = self._scope._replace(files=files)

    def _add(self, *found: FoundCommand) -> None:
        for one in found:
            key = _key(one)
            if all(key != _key(other) for other in self.found):
                self.found.append(one)

    def _call(self, function: ShellFunction, lead: Sequence[Word], words: Sequence[Word]) -> None:
        """Follow the body of a function with the arguments of a call."""
        self._called.add(function.name)
        outer = (self._scope, dict(self._exported))
        self._scope = self._scope.copy()
        self._numbered(tuple(word.text for word in words))
        for word in lead:
            name, _, value = word.text.partition("=")
            self._exported[name] = value
        self._calls += 1
        self.run(function.body)
        self._calls -= 1
        self._scope, self._exported = outer
        self._forget([function.body])

    def _reads(self, line: Line, text: str, around: LaunchContext) -> None:
        """Follow the text behind `<<` if a command reads it as a script, or keep it as a file."""
        names = [word.text.rpartition("/")[2] for word in line.words if not HERE.search(word.text)]
        written = re.search(r">>?\s*[\"']?([^\s\"'>]+)", line.tail)
        if names[:1] == ["cat"] and written is not None:
            files = self._scope.files if self._scope.files is not None else {}
            files[written[1]], _ = here_text(text, self._scope)
            self._scope = self._scope._replace(files=files)
        if "read" in names[:2] and names[-1].isidentifier():
            content, assumed = here_text(text, self._scope)
            held = content.strip() if "-d" in names else content.strip().partition("\n")[0]
            value = ShellValue(held, assumed, at_once(f'"{text}"', self._scope))
            self._scope.values[names[-1]] = value
            return
        at = next((n for n, name in enumerate(names) if name in SHELLS), None)
        if at is not None and starts_something(line.words):
            kept = [word for word in line.words if not HERE.search(word.text)]
            script, _ = here_text(text)
            self._started(line, (*kept[: at + 1], Word("-c", "-c"), quoted(script)), around)
            return
        if names and re.fullmatch(r"python[\d.]*|kubectl|oc|psql", names[0]):
            return
        of_shell = {"cat", "tee", "sbatch", "qsub", "bsub", "sudo", *REMOTE}
        is_own = not of_shell.isdisjoint(names[:1])
        text, assumed = here_text(text, self._scope if is_own else None)
        site = around._replace(scope=None, assumed=assumed) if is_own else around
        site = site._replace(on_first="")  # Whoever reads the file may start it on each node.
        if names[:1] == ["sbatch"]:
            options = read_options(line.words[1:-1], SLURM)
            site = site._replace(inherited=(*site.inherited, *options), on_first="Slurm")
            site = allocated(site)
        with contextlib.suppress(InputError):
            self._add(*from_text(text, over_ssh(line.words, site)))


def _key(found: FoundCommand) -> FoundCommand:
    assumed = tuple(one for one in found.site.assumed if not one.endswith(_BRANCHED))
    return found._replace(site=found.site._replace(scope=None, unseen=(), assumed=assumed))


_IS_SET = re.compile(r"\[{1,2} -([zn]) \"?\$\{?(\w+)(?::?-)?\}?\"? \]{1,2}")
_SET_BY_SLURM = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_BRANCHED = "branches of the script, whose condition decides which one starts"


def _assigned(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the names of the variables that lines assign."""
    for line in lines_of(nodes):
        if line.words and line.words[0].text in ("for", "select", "read", "unset"):
            yield from (word.text for word in line.words[1:])
        if line.words and (
            line.words[0].text == "shift" or [w.text for w in line.words[:2]] == ["set", "--"]
        ):
            yield "@"
        for word in line.words:
            if (match := _ASSIGNMENT.match(word.text)) is not None:
                yield match[1]
            elif word.text not in _KEYWORDS and not word.text.startswith("-"):
                break


def _head(line: Line) -> int:
    """Return the index of the word that a line starts, behind variables, `time` and the like."""
    for at, word in enumerate(line.words):
        is_option = at > 0 and (word.text.startswith("-") or whole_number(word.text) is not None)
        if not (_ASSIGNMENT.match(word.text) or word.text in WRAPPERS or is_option):
            return at
    return 0


def from_words(words: list[str], site: LaunchContext, *, strict: bool = True) -> list[FoundCommand]:
    """Return the commands in an argument list, or in the script of `bash -c SCRIPT`.

    If there is no command, raises InputError if `strict`, else returns an empty list. For a shell
    without `-c SCRIPT` the list is empty in either case.
    """
    if words and words[0].rpartition("/")[2] in SHELLS:
        script = script_at(words, 1)
        try:
            return from_text(words[script], site) if script is not None else []
        except InputError:
            if strict:
                raise
            return []
    line = Line(tuple(quoted(word) for word in words), "")
    if not starts_something(line.words):
        if strict:
            return from_text(" ".join(words), site)
        return []
    return [FoundCommand(line, read_around(" ".join(words), site))]
