# SPDX-License-Identifier: Apache-2.0
"""Check a command with every rule, for every launcher that the command may be for."""

import contextlib
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import Placement
from nccltune.launch.program import is_nccl_test, read_program
from nccltune.launch_lint.boxes import env_files, variables_in
from nccltune.launch_lint.command import (
    ELIDED,
    OF_NODE,
    InnerLaunch,
    LaunchCommand,
    LaunchContext,
    Prediction,
    View,
)
from nccltune.launch_lint.finding import LaunchFinding, note
from nccltune.launch_lint.fix import apply_edits
from nccltune.launch_lint.frontends import as_torchrun
from nccltune.launch_lint.hosts import text_of, with_slurm_gpus
from nccltune.launch_lint.misplaced import misplaced_options
from nccltune.launch_lint.nested import SHELLS, script_at
from nccltune.launch_lint.options import LOCAL, OPENMPI_4, OPENMPI_5, TRAINERS
from nccltune.launch_lint.placed import SEVERAL, predict
from nccltune.launch_lint.read import joined, launcher_at, program_at, read
from nccltune.launch_lint.rules import RULES, arguments, sizes
from nccltune.launch_lint.rules.shape import rules_of
from nccltune.launch_lint.shell import ShellValue, at_once, expanded
from nccltune.launch_lint.source import FoundCommand, from_text
from nccltune.launch_lint.training import predict_training
from nccltune.launch_lint.typography import plain, typographic
from nccltune.launch_lint.words import Line, Word, quoted, split
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.names import listed

_ORDER = list(Severity)
_RANK = re.compile(rf"\$\{{?({'|'.join(OF_NODE)})\b")
_NAMES = re.compile(r"(?<![\w${])(?:[A-Z][A-Z0-9]*_\w+|[A-Z]\w+(?==))")
"""Matches the names of variables that a command gives, and not those that it reads."""
_ROUNDS = 24
"""Maximum number of fixes that are applied to a command, one after another."""


class FlavorFinding(NamedTuple):
    """A finding, and the launchers for which the finding is true."""

    finding: LaunchFinding
    flavors: tuple[Flavor, ...]


class LaunchCheck(NamedTuple):
    """Predictions for a command, each with its launchers, and the findings.

    `fixed` is the command without errors and warnings. It is None if no fix is needed, or if edits
    of this line cannot fix every error and warning. `service` is that of a Compose file. `written`
    is the line of the user, where `command` is what that runs.
    """

    command: LaunchCommand
    predictions: tuple[tuple[Prediction, tuple[Flavor, ...]], ...]
    findings: tuple[FlavorFinding, ...]
    flavors: tuple[Flavor, ...]
    gpus: int | None
    fixed: str | None
    service: str = ""
    written: str = ""

    @property
    def is_wrong(self) -> bool:
        """Return whether there is an error or a warning."""
        return any(held.finding.severity is not Severity.NOTE for held in self.findings)


def check(line: Line, site: LaunchContext, wanted: Sequence[Flavor] = ()) -> LaunchCheck:
    """Return the predictions and findings for a command.

    `wanted` are the launchers to check for. If `wanted` is empty, every launcher is checked that
    the command may be for. Raises InputError if the command has neither a launcher nor a
    program of nccl-tests, has several programs, or cannot be for `wanted`.

    >>> (line,) = split("mpirun -np 8 allreduce_perf -b 8 -e 8G -f 2")
    >>> checked = check(line, LaunchContext(nodes=1))
    >>> checked.findings[0].finding.fix
    'write all_reduce_perf'
    >>> checked.fixed
    'mpirun -np 8 all_reduce_perf -b 8 -e 8G -f 2'
    """
    pasted = typographic(line)
    line = plain(line)
    site = _with_env_files(line, site)
    line, site, own = as_torchrun(given := line, site)
    commands = read(line, wanted, _names(site))
    views = {
        flavor: _view(_unwrapped(command, site), flavor, site)
        for flavor, command in commands.items()
    }
    found: dict[LaunchFinding, list[Flavor]] = {}
    known: dict[tuple[str, str], LaunchFinding] = {}
    for flavor, view in views.items():
        for finding in (*pasted, *own, *_findings(view)):
            same = known.setdefault((finding.id, finding.message), finding)
            flavors = found.setdefault(same, [])
            if flavor not in flavors:
                flavors.append(flavor)
    held = [FlavorFinding(finding, tuple(flavors)) for finding, flavors in found.items()]
    held.sort(key=lambda one: _ORDER.index(one.finding.severity))
    first, view = next(iter(views.items()))
    text = None
    bad = [one for one in held if one.finding.severity is not Severity.NOTE]
    is_wrapped = view.command != next(iter(commands.values()))
    is_whole = not (is_wrapped or site.part or site.is_begun or line is not given) and all(
        one.id != "placeholder" for one in pasted
    )
    if is_whole and (pasted or any(one.finding.edits for one in bad)):
        text = _fixed(view.command, first, site, wanted)
    for kind, why in ((kind, _NOTHING.get(one.finding.id)) for one in held for kind in one.flavors):
        if why is not None:
            views[kind] = views[kind]._replace(prediction=Prediction(None, (), fails=why))
    return LaunchCheck(
        next(iter(commands.values())),
        _predictions(views),
        tuple(held),
        tuple(views),
        view.gpus_per_process,
        text,
        site.service,
        "" if line is given else " ".join(word.raw for word in given.words),
    )


def _with_env_files(line: Line, site: LaunchContext) -> LaunchContext:
    """Return `site` with the variables of the files of `docker run --env-file`, if known."""
    named = env_files((*site.around, *(word.text for word in line.words)))
    read = [pair for name in named for pair in variables_in(text_of(name, site) or "")]
    if not any(word.text == "docker" for word in line.words):
        # Podman may drop quotes, which docker keeps.
        read = [(name, value.strip("\"'")) for name, value in read]
    return site._replace(exported=(*site.exported, *read))


def check_all(
    found: Sequence[FoundCommand],
    wanted: Sequence[Flavor] = (),
    refused: list[tuple[str, InputError]] | None = None,
) -> list[LaunchCheck]:
    """Return the checks of commands, without rounds of a loop that have the same outcome.

    If rounds differ, no edit of the line is right for all of them, so that it is not fixed. Appends
    the text of a command that cannot be checked to `refused`, or raises its InputError.
    """
    side = [one.origin for one in found if re.search("(?<!&)&$", one.line.tail.rstrip())]
    found = [part for one in found for part in _programs(one)]
    by_origin: dict[int, list[LaunchCheck]] = {}
    common = _common(found) if not wanted else {}
    for at, one in enumerate(found):
        try:
            checked = check(one.line, one.site, wanted or common.get(at, ()))
        except InputError as raised:
            if refused is None:
                raise
            refused.append((" ".join(word.raw for word in one.line.words), raised))
            continue
        same = by_origin.setdefault(one.origin, [])
        if one.origin == 0 or _compared(checked) not in map(_compared, same):
            same.append(checked)
    checks: list[LaunchCheck] = []
    seen: list[object] = []
    for origin, same in by_origin.items():
        differ = origin != 0 and len(same) > 1
        for checked in same:
            # A shell inside the line, as in `docker run ... -c TEXT`, hides that it is a round.
            key = (checked.service, checked.command.text, _compared(checked))
            if key not in seen:
                seen.append(key)
                many = side.count(origin) if origin else 1
                checks.append(checked._replace(fixed=None) if differ else _of_rounds(checked, many))
    return checks


def _programs(found: FoundCommand) -> list[FoundCommand]:
    """Return a command for each program of `mpirun OPTIONS A : OPTIONS B`."""
    words = found.line.words
    at, colons = launcher_at(words), [n for n, word in enumerate(words) if word.text == ":"]
    if at is None or not colons or colons[0] < at:
        return [found]
    ends = (at, *colons, len(words))
    parts = []
    for number, (start, end) in enumerate(itertools.pairwise(ends), 1):
        site = found.site._replace(part=f"{number} of {len(ends) - 1}")
        line = Line((*words[: at + 1], *words[start + 1 : end]), found.line.tail)
        parts.append(found._replace(line=line, site=site))
    return parts


def _common(found: Sequence[FoundCommand]) -> dict[int, tuple[Flavor, ...]]:
    """Return the launchers that each command may be for, by the command's place.

    One word, such as `mpirun`, is one program in all commands that name it, if it can be.
    """
    kinds: dict[str, dict[int, tuple[Flavor, ...]]] = {}
    for at, one in enumerate(found):
        with contextlib.suppress(InputError):
            commands = read(plain(one.line), (), _names(one.site))
            name = next(iter(commands.values())).launcher.text
            kinds.setdefault(name, {})[at] = tuple(commands)
    common: dict[int, tuple[Flavor, ...]] = {}
    for name, by_place in kinds.items():
        first = next(iter(by_place.values()))
        kept = tuple(one for one in first if all(one in kind for kind in by_place.values()))
        if name and len(set(by_place.values())) > 1:
            common |= dict.fromkeys(by_place, kept)
    return common


def _of_rounds(checked: LaunchCheck, many: int) -> LaunchCheck:
    """Return a check without the round of a loop. If `many` run side by side, say so."""
    starts = []
    for one, flavors in checked.predictions:
        parts = [p for p in (one.assumed or "").split("; ") if not p.endswith(" in this round")]
        parts += ["this is one of several starts of the line in the background"] * (many > 1)
        starts.append((one._replace(assumed="; ".join(filter(None, parts)) or None), flavors))
    return checked._replace(predictions=tuple(starts))


def _names(site: LaunchContext) -> list[str]:
    return [*(name for name, _ in site.exported), *(f"module:{name}" for name in site.modules)]


def _compared(checked: LaunchCheck) -> tuple[object, ...]:
    starts = [
        (one.placement, one.fails, one.unknown, one.processes) for one, _ in checked.predictions
    ]
    found = [
        (one.finding.id, one.finding.severity is Severity.NOTE or one.finding.message)
        for one in checked.findings
    ]
    return starts, found, checked.gpus


def check_program(words: Sequence[str]) -> list[LaunchFinding]:
    """Return the errors and warnings for the arguments of a program of nccl-tests.

    >>> [one.id for one in check_program(["all_reduce_perf", "-b", "1G", "-e", "10G", "-f", "2"])]
    ['end-not-reached']
    """
    program = tuple(quoted(word) for word in words)
    view = _view(LaunchCommand((), Word("", ""), (), program), LOCAL, LaunchContext())
    rules = (*rules_of(arguments), *rules_of(sizes))
    found = [finding for rule in rules for finding in rule(view)]
    return [finding for finding in found if finding.severity is not Severity.NOTE]


class _Inside(NamedTuple):
    """What the program of a command starts: its words, and whether a shell on the node reads them.

    `site` is the context there, with the variables that the script sets.
    """

    words: tuple[Word, ...]
    site: LaunchContext
    on_node: bool
    is_script: bool


def _inside(command: LaunchCommand, site: LaunchContext) -> _Inside:
    """Return the last command of a script that a command starts: `srun bash -c "... PROGRAM"`.

    Without a script, or if nothing in it is known, return the program.
    """
    words = command.program
    names = [word.text.rpartition("/")[2] for word in words]
    plain = _Inside(joined(words), site, on_node=False, is_script=False)
    texts = [word.text for word in words]
    places = [script_at(texts, at + 1) for at, name in enumerate(names) if name in SHELLS]
    scripts = [words[at] for at in places if at is not None]
    if len(words) > 1 and is_nccl_test(words[-1].text.partition(" ")[0]) and " " in words[-1].text:
        scripts.append(words[-1])  # A wrapper that gets the command as one word.
    for script in scripts:
        try:
            found = from_text(script.text, site._replace(inherited=()))
        except InputError:
            return plain
        now, then = map(_RANK.findall, (at_once(script.raw, site.scope), script.text))
        on_node = not then or sorted(now) != sorted(then)
        return _Inside(joined(found[-1].line.words), found[-1].site, on_node, is_script=True)
    return plain


def _unwrapped(command: LaunchCommand, site: LaunchContext) -> LaunchCommand:
    """Return the command with the program of nccl-tests that a script starts, if there is one."""
    inside = _inside(command, site)
    launcher = launcher_at(inside.words)
    if inside.is_script and launcher is not None and inside.words[launcher].text != "srun":
        kinds = read(Line(inside.words[launcher:], ""))
        is_mpi = not any(flavor in TRAINERS for flavor in kinds)
        return command._replace(program=inside.words[launcher:]) if is_mpi else command
    at = program_at(inside.words) if inside.is_script else None
    if at is None or launcher is not None:
        return command
    return command._replace(program=inside.words[at:])


def _of_inner_mpi(
    command: LaunchCommand, site: LaunchContext, outer: Prediction
) -> Prediction | None:
    """Return what `srun -n 1 mpirun -np 8 PROGRAM` starts: that of the launcher in one process."""
    at = launcher_at(command.program)
    if at is None or outer.placement is None or outer.placement.processes != 1:
        return None
    flavor, inner = next(iter(read(Line(command.program[at:], "")).items()))
    if flavor in TRAINERS:
        return None
    program = read_program([word.text for word in inner.program])
    one = site._replace(nodes=site.nodes or 1, inherited=())
    found = predict(inner, flavor, one, program.gpus if program is not None else None)
    return found._replace(is_inner=True)


def _with_inner(command: LaunchCommand, site: LaunchContext, outer: Prediction) -> Prediction:
    """Return a prediction with the launcher of PyTorch that each process starts."""
    if site.scope is not None and outer.placement is not None and outer.assumed is None:
        known = {
            **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), len(outer.placement.nodes)),
            **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), outer.placement.processes),
        }
        scope = site.scope.copy()
        for name, number in known.items():
            scope.values.setdefault(name, ShellValue(str(number)))
        site = site._replace(scope=scope)
    inside = _inside(command, site)
    run = as_torchrun(Line(inside.words, ""), inside.site)
    inside = inside._replace(words=run.line.words, site=run.site)
    at = launcher_at(inside.words)
    if at is None:
        return outer
    flavor, read_as = next(iter(read(Line(inside.words[at:], "")).items()))
    if flavor not in TRAINERS or read_as.last("cpu") is not None:
        return outer  # With --cpu accelerate starts the script once.
    read_as = read_as._replace(lead=inside.words[:at])
    # What the outer launcher starts, no batch script runs on its first node alone.
    inner = predict_training(read_as, flavor, inside.site._replace(on_first=""))
    each = nodes = None
    if inner.placement is not None:
        each, nodes = inner.placement.nodes[0].processes, len(inner.placement.nodes)
    why = inner.unknown or inner.fails
    launch = InnerLaunch(flavor, read_as, nodes, each, why, inside.on_node)
    placement = outer.placement
    if placement is not None and each is not None:
        placement = placement._replace(gpus_per_process=each)
    sentences = [text for text in (outer.assumed, inner.assumed) if text is not None]
    return outer._replace(
        inner=launch, placement=placement, assumed="; ".join(dict.fromkeys(sentences)) or None
    )


def _findings(view: View) -> list[LaunchFinding]:
    found = [finding for rule in RULES for finding in rule(view)]
    # What is to be left out needs no option that passes it on.
    out = {match[1] for one in found if (match := _LEFT_OUT.match(one.fix))}
    found = [one for one in found if one.id != _ALONE or one.message.partition(" ")[0] not in out]
    inner = view.prediction.inner
    # Of several programs, an option of the first may hold for all.
    commands = (view.command, *([inner.command] if inner is not None else ()))
    if view.site.part or view.site.is_begun or any(map(_is_partial, commands)):
        found = [finding for finding in found if finding.id not in _MISSING_OPTIONS]
    if view.site.is_begun:
        said = "a variable holds this command: what may follow it is not known, and was not checked"
        found.append(note("command-begun", said))
    if view.site.is_begun or (view.program is not None and view.program.hidden):
        found = [finding for finding in found if finding.id not in _MISSING_ARGUMENTS]
    return found


_NOTHING = {"no-program": "the command names no program", "asks-help": "-h only prints the help"}
"""Findings for which nothing starts, and why."""
_LEFT_OUT = re.compile(r"leave out ([A-Z][A-Z0-9_]+)")
_ALONE = "env-not-exported"


def _is_partial(command: LaunchCommand) -> bool:
    """Return whether some options are not shown.

    They are in a variable, `...` is for them, or a program that is given the command adds them.
    """
    is_given = any(word.text.endswith(".py") for word in command.lead)
    return bool(command.hidden or command.all(ELIDED) or is_given)


_MISSING_OPTIONS = frozenset(
    listed("""
root-refused default-binding env-not-exported export-drops mpi-type idle-gpus srun-cpus total-unsaid
srun-per-node-unsaid torchrun-one-process torchrun-endpoint torchrun-node-rank accelerate-address
accelerate-rank inner-alone no-program server-address server-rank
""")
)
_MISSING_ARGUMENTS = frozenset(
    listed("zero-cta device-needs-symmetric many-steps sizes-backwards one-rank")
)
"""Findings that an option or an argument is missing, which a variable of the line may hold."""


def _bad(view: View) -> list[LaunchFinding]:
    return [finding for finding in _findings(view) if finding.severity is not Severity.NOTE]


def _view(command: LaunchCommand, flavor: Flavor, site: LaunchContext) -> View:
    site = with_slurm_gpus(command, flavor, site)
    words = [word.text for word in command.program]
    misplaced = misplaced_options(words, flavor)
    skip = {at for one in misplaced for at in range(one.at, one.at + one.length)}
    program = read_program(words, skip)
    gpus = program.gpus if program is not None else None
    prediction = predict(command, flavor, site, gpus)
    if (started := _of_inner_mpi(command, site, prediction)) is not None:
        prediction = started
    elif flavor not in TRAINERS:
        prediction = _with_inner(command, site, prediction)
        nodes = prediction.inner.nodes if prediction.inner is not None else None
        is_open = "assumed" in (prediction.assumed or "") or (
            nodes != 1 and prediction.unknown == SEVERAL
        )
        if nodes and site.nodes is None and is_open and (nodes > 1 or not command.last("hostfile")):
            # What is started on the nodes knows their number.
            site = site._replace(nodes=nodes)
            prediction = _with_inner(command, site, predict(command, flavor, site, gpus))
    if site.assumed:
        sentences = (*site.assumed, prediction.assumed) if prediction.assumed else site.assumed
        prediction = prediction._replace(assumed="; ".join(sentences))
    return View(command, flavor, site, program, prediction, misplaced)


def _fixed(
    command: LaunchCommand, flavor: Flavor, site: LaunchContext, wanted: Sequence[Flavor] = ()
) -> str | None:
    """Return the command after at most _ROUNDS fixes.

    After each fix the command is checked again, because a fix can add or remove findings. Return
    None if errors or warnings remain, if the result cannot be read as one command, or if it is not
    known what the result starts.
    """
    first = _view(command, flavor, site)
    before = first.prediction
    asked = {finding.id for finding in _bad(first)}
    given: set[str] = set(_NAMES.findall(command.text))
    named: set[str] = set()
    for _ in range(_ROUNDS):
        changed = None
        for finding in _bad(_view(command, flavor, site)):
            changed = apply_edits(command, finding.edits)
            if changed.text != command.text:
                # Of two values, one is kept.
                if finding.id != "env-twice":
                    named |= set(_NAMES.findall(finding.message))
                break
            changed = None
        if changed is None:
            break
        command = read(Line(changed.words, changed.tail), (flavor,))[flavor]
    text = command.text
    try:
        lines = split(text)
        # A variable may only get lost if a finding names it.
        if len(lines) != 1 or given - named - set(_NAMES.findall(text)):
            return None
        line = lines[0]
        if site.scope is not None:
            line = line._replace(words=expanded(line.words, site.scope)[0])
        again = read(line, wanted, _names(site))
    except InputError:
        return None
    views = [_view(one, kind, site) for kind, one in again.items()]
    # A line whose start was known must not become one that nobody can predict.
    starts = [view.prediction for view in views]
    is_known = all(one.placement or one.processes for one in starts) or before.placement is None
    is_right = is_known and not any(one.fails for one in starts)
    # A fix of something else must not change how many start.
    if (meant := _processes(before)) is not None and not asked & _COUNTS:
        is_right = is_right and all(_processes(one) in (meant, None) for one in starts)
    return text if is_right and not any(map(_bad, views)) else None


_COUNTS = frozenset(
    listed("""
total-below-per-node too-few-slots hydra-wraps srun-per-node-forgotten too-many-gpus task-gpus
idle-nodes uneven-nodes idle-gpus srun-N-is-nodes one-rank hydra-N option-behind-program
hosts-split option-unknown option-without-value srun-x nested-launcher dash quote line-continuation
torchrun-one-process torchrun-processes accelerate-total inner-alone inner-nodes value-as-program
""")
)
"""Findings that say that another number of processes was meant."""


def _processes(prediction: Prediction) -> int | None:
    placement = prediction.placement
    return placement.processes if placement is not None else prediction.processes


def placement_of_one(checks: Sequence[LaunchCheck]) -> Placement | None:
    """Return the largest placement of commands, if none of them uses two GPUs of a node."""
    found = [one.placement if c.gpus else None for c in checks for one, _ in c.predictions]
    known = [one for one in found if one is not None and one.most_gpus == 1]
    largest = max(known, key=lambda one: len(one.nodes), default=None)
    return largest if len(known) == len(found) else None


def _predictions(views: dict[Flavor, View]) -> tuple[tuple[Prediction, tuple[Flavor, ...]], ...]:
    grouped: dict[tuple[object, ...], tuple[Prediction, list[Flavor]]] = {}
    for flavor, view in views.items():
        one = view.prediction
        key = (one.placement, one.fails, one.unknown, one.processes)
        grouped.setdefault(key, (one, []))[1].append(flavor)
    return tuple((one, tuple(flavors)) for one, flavors in grouped.values())


def names(flavors: Sequence[Flavor]) -> str:
    """Return the names of launchers: `Open MPI 4.1 and 5.0`, `hydra`."""
    if OPENMPI_4 in flavors and OPENMPI_5 in flavors:
        rest = [flavor.words for flavor in flavors if flavor.launcher is not Launcher.OPENMPI]
        return ", ".join(["Open MPI 4.1 and 5.0", *rest])
    return ", ".join(flavor.words for flavor in flavors)
