# SPDX-License-Identifier: Apache-2.0
"""Run a user's program once, with NCCL's log on, and read its log and its timings."""

import contextlib
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from nccltune.analyze.stats import median
from nccltune.formats.importing.inputs import InputFile, read_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.launch.follow import Follower, placement_differences
from nccltune.launch.run import run
from nccltune.launch.state import RunState
from nccltune.measure.bench.with_launcher import WithLauncher, program_with_launcher
from nccltune.measure.engine.record import timestamp
from nccltune.measure.experiments.ab.speed import Metric, read_speed, unread
from nccltune.model.choice import DEFAULT, TUNED_RUN, Choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError
from nccltune.model.sample import Purpose, Sample
from nccltune.native.child import Child, way_to_start
from nccltune.native.line_process import ending
from nccltune.prove.result import RemovedRule
from nccltune.prove.stock import LOG_SETTINGS, PASSED, LoggedRun, Times

REACH = "do the settings reach the ranks? Open MPI passes them on with " + " ".join(
    f"-x {name}" for name in PASSED
)
REACH_UNDER = "is nccltune at the same path on every node, and does every node see the study?"
_LAST_LINES = 12


class ProgramStart(NamedTuple):
    """The number of a start, how many there are, and the seconds left at most, if known."""

    number: int
    most: int
    left_s: float | None

    @property
    def is_first_round(self) -> bool:
        """Return whether it is one of the first two starts."""
        return self.number <= 2


class ProgramProgress(Protocol):
    """Callbacks of a running verification of a program."""

    def warn(self, sentence: str) -> None:
        """Report a problem that does not stop the verification."""

    def starting(self, which: str, command: str, start: ProgramStart) -> None:
        """Report the command of the next run. `which` is `without` or `with` (the plugin)."""

    def output(self, line: bytes) -> None:
        """Report a line that the program printed in the first round, with its line end."""

    def last_words(self, lines: Sequence[str]) -> None:
        """Report the last output lines of a run that failed."""

    def dropped(self, rules: list[RemovedRule]) -> None:
        """Report rules that did not hold and were removed or narrowed."""

    def stopped(self, kept: str) -> None:
        """Report an early end. `kept` describes the results that are in the study."""


class ProgramRun(NamedTuple):
    """One run of the program that ended well.

    `elsewhere` are sentences on processes that were placed differently than requested.
    """

    logged: LoggedRun
    seconds: float
    samples: list[Sample]
    elsewhere: list[str]

    @property
    def times(self) -> Times:
        """Return the median out-of-place times in us, by collective and size."""
        found: dict[tuple[Collective, int], list[float]] = {}
        for sample in self.samples:
            if not sample.in_place:
                found.setdefault((sample.collective, sample.bytes), []).append(sample.time_us)
        return {key: median(times) for key, times in found.items()}


def run_program(
    program: Sequence[str],
    under: WithLauncher | None,
    environment: Mapping[str, str],
    folder: Path,
    progress: ProgramProgress,
    start: ProgramStart,
    keep: Callable[[Sequence[Sample]], None],
    metric: Metric | None = None,
) -> ProgramRun:
    """Run the program once with NCCL's log on; pass its timings to `keep`, also if it fails.

    The name of `folder` is `without` or `with` (the plugin). Raises LaunchError if the program
    fails, InputError if it cannot be started, writes no NCCL log, or prints nothing of `metric`.
    """
    folder.mkdir()
    log = str(folder / "nccl.%h.%p.log")
    variables = {**environment, **LOG_SETTINGS, "NCCL_DEBUG_FILE": log}
    output = folder / "output.txt"
    started, began = time.monotonic(), time.time()
    elsewhere: list[str] = []
    failure: LaunchError | None = None
    try:
        if under is None:
            # A metric may be on either stream.
            errors = None if metric is None else subprocess.STDOUT
            _run_here(program, variables, output, progress, start, errors)
        else:
            elsewhere = _run_under(program, under, variables, output, progress, start)
    except LaunchError as error:
        failure = error
    except KeyboardInterrupt:
        keep(_samples([output], LoggedRun([]), folder.name))
        raise
    seconds = time.monotonic() - started
    logged = LoggedRun(sorted(folder.glob("nccl.*.log")))
    samples = _samples([output], logged, folder.name)
    if not samples:
        samples = _samples(_result_files(program, began), logged, folder.name)
    keep(samples)
    if failure is not None and not (folder.name == "with" and any(one.wrong for one in samples)):
        raise failure
    if metric is not None and read_speed(printed := [output.read_bytes()], metric) is None:
        raise unread(printed, f"the program printed nothing that {metric.name!r} matches")
    if not logged.log.lines:
        hint = f"does it use NCCL? Then: {REACH}"
        if under is not None:
            hint = f"does it use NCCL? Its first node writes the log to {folder.parent.parent}"
        raise InputError("left no log of NCCL's", where=program[0], hint=hint)
    return ProgramRun(logged, seconds, samples, elsewhere)


def _run_here(
    program: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    progress: ProgramProgress,
    start: ProgramStart,
    errors: int | None,
) -> None:
    progress.starting(output.parent.name, " ".join(program), start)
    try:
        process = Child(list(program), env=environment, stdout=subprocess.PIPE, stderr=errors)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        hint = way_to_start(program[0]) if is_missing else "check the command"
        message = f"cannot be started: {error.strerror}"
        raise InputError(message, where=program[0], hint=hint) from error
    with process, output.open("wb") as kept:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                if start.is_first_round:
                    progress.output(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        if not start.is_first_round:
            text = output.read_text(encoding="utf-8", errors="replace")
            progress.last_words(text.splitlines()[-_LAST_LINES:])
        raise _failed(f"the command {ending(process.returncode)}", output, start)


def _run_under(
    program: Sequence[str],
    under: WithLauncher,
    environment: Mapping[str, str],
    output: Path,
    progress: ProgramProgress,
    start: ProgramStart,
) -> list[str]:
    rendered = program_with_launcher(program, under, environment)
    progress.starting(output.parent.name, rendered.command, start)
    show = progress.output if start.is_first_round else _ignore
    follower = Follower(lambda line: show(line.encode() + b"\n"))
    end = run(rendered.words, output, follower, environment)
    if end.signal is not None:
        raise KeyboardInterrupt(end.signal)
    if end.state is not RunState.DONE:
        progress.last_words(follower.last_words)
        raise _failed(end.why, output, start)
    return placement_differences(rendered.placement, follower)


def _ignore(_: bytes) -> None: ...


def _failed(how: str, output: Path, start: ProgramStart) -> LaunchError:
    which = output.parent.name
    hint = "it has to work without nccltune first" if which == "without" else None
    if not start.is_first_round:
        hint = f"it ended well in {start.number - 1} starts before; the same command goes on"
    return LaunchError(f"{how} {which} the plugin", hint=hint)


def _result_files(program: Sequence[str], began: float) -> list[Path]:
    found = []
    for word, following in zip(program, [*program[1:], ""], strict=True):
        name, is_joined, value = word.partition("=")
        if name in ("-J", "--output_file"):
            path = Path(value if is_joined else following)
            with contextlib.suppress(OSError):
                # File systems store times more coarsely than the clock shows them.
                found += [path] if path.stat().st_mtime >= began - 1 else []
    return found


def _samples(files: Sequence[Path], logged: LoggedRun, which: str) -> list[Sample]:
    log = logged.log
    options = ReadOptions(
        study="verify", choice=DEFAULT, started_here=True, nodes=log.nodes, ranks=log.ranks
    )
    process, at = secrets.token_hex(8), timestamp()
    inputs = [InputFile(path, path.name, False) for path in files if path.is_file()]
    return [
        msgspec.structs.replace(
            sample,
            choice=DEFAULT if which == "without" else TUNED_RUN,
            ran=ran if isinstance(ran, Choice) else None,
            at=at,
            source=msgspec.structs.replace(
                sample.source, process=process, purpose=Purpose.VERIFY, file_hash=None
            ),
        )
        for reading in read_inputs(inputs, options)
        for batch in reading.batches()
        for sample in batch.samples
        for ran in [log.ran(sample.collective, sample.bytes, log.ranks)]
    ]
