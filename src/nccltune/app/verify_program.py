# SPDX-License-Identifier: Apache-2.0
"""Verify a stock program: run it without and with the deployed rules, and compare."""

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.analyze.stats import median
from nccltune.app.env import conflicts, deployment
from nccltune.app.study import saving
from nccltune.formats.importing.inputs import InputFile, read_inputs
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules
from nccltune.launch.follow import Follower, placement_differences
from nccltune.launch.run import run
from nccltune.launch.state import RunState
from nccltune.measure.bench.with_launcher import WithLauncher, program_with_launcher
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, UnwritableError
from nccltune.native.child import Child
from nccltune.native.line_process import ending
from nccltune.prove.stock import (
    LOG_SETTINGS,
    LoggedRun,
    StockProof,
    Times,
    points_of,
    problems_of,
)
from nccltune.study import names
from nccltune.study.files import Study

_OURS = ("NCCLTUNE_CONFIG", "NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_STRICT", "NCCLTUNE_STALE")
_REACH = (
    "do the settings reach the ranks? Open MPI passes them on with -x NCCL_TUNER_PLUGIN "
    "-x NCCL_TUNER_CONFIG_FILE -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x NCCL_DEBUG_FILE"
)
_REACH_UNDER = "is nccltune at the same path on every node, and does every node see the study?"


class ProgramProgress(Protocol):
    """Callbacks of a running verification of a program."""

    def warn(self, sentence: str) -> None:
        """Report a problem that does not stop the verification."""

    def starting(self, which: str, command: str) -> None:
        """Report the command of the next run. `which` is `without` or `with` (the plugin)."""

    def output(self, line: bytes) -> None:
        """Report a line that the program printed, including its line end."""

    def last_words(self, lines: Sequence[str]) -> None:
        """Report the last output lines of a run that failed."""


class ProgramProof(NamedTuple):
    """The comparison of the runs without and with the rules.

    `reach` states what to check if the plugin was not loaded. `unsaved` has the error if
    STUDY/deployed.json could not be written; else it is empty.
    """

    proof: StockProof
    reach: str
    unsaved: list[UnwritableError]


def verify_program(
    study: Study, program: Sequence[str], under: WithLauncher | None, progress: ProgramProgress
) -> ProgramProof:
    """Run `program` twice, under a launcher or directly, and compare NCCL's logs.

    Writes STUDY/deployed.json. Raises LaunchError if the program fails, and InputError if the study
    has no configuration or the program writes no NCCL log.
    """
    config = _config_of(study)
    settings = deployment(config)
    plain = _without_ours(os.environ, settings)
    for warning in conflicts(plain):
        progress.warn(warning)
    # Processes on other nodes cannot write to this machine's /tmp, so use the folder of the study.
    shared = str(study.path.absolute()) if under is not None else None
    with tempfile.TemporaryDirectory(prefix=".nccltune-verify-", dir=shared) as folder:
        before = _run(program, under, plain, Path(folder, "without"), progress)
        after = _run(program, under, plain | settings, Path(folder, "with"), progress)
    facts = before.logged.facts(before.seconds), after.logged.facts(after.seconds)
    hash_ = config_hash(config.read_bytes())
    points = points_of(
        before.logged,
        after.logged,
        [item.rule for item in read_rules(config).rules],
        (before.times, after.times),
    )
    elsewhere = dict.fromkeys([*before.elsewhere, *after.elsewhere])
    proof = StockProof(
        study=study.name,
        config_hash=hash_,
        program=list(program),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        before=facts[0],
        after=facts[1],
        points=points,
        problems=[*elsewhere, *problems_of(*facts, points, hash_)],
    )
    unsaved: list[UnwritableError] = []
    with saving(unsaved):
        study.write_json(study.path / names.DEPLOYED, proof)
    return ProgramProof(proof, _REACH if under is None else _REACH_UNDER, unsaved)


def _config_of(study: Study) -> Path:
    """Return the path of the study's configuration. Raises InputError if there is none."""
    if not study.config_path.is_file():
        raise InputError(
            "no such configuration",
            where=str(study.config_path),
            hint=f"make it: nccltune tune {study.path}",
        )
    return study.config_path


def _without_ours(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without our variables and our plugin; other plugins are kept."""
    plugin = Path(settings["NCCL_TUNER_PLUGIN"]).name
    plain = {name: value for name, value in environment.items() if name not in _OURS}
    if Path(plain.get("NCCL_TUNER_PLUGIN", "")).name == plugin:
        del plain["NCCL_TUNER_PLUGIN"]
    return plain


class _ProgramRun(NamedTuple):
    """One run of the program.

    `logged` is NCCL's log, `times` are the times that the program printed. `elsewhere` are
    sentences on processes that the launcher placed differently than requested.
    """

    logged: LoggedRun
    seconds: float
    times: Times
    elsewhere: list[str]


def _run(
    program: Sequence[str],
    under: WithLauncher | None,
    environment: Mapping[str, str],
    folder: Path,
    progress: ProgramProgress,
) -> _ProgramRun:
    """Run the program once with NCCL's log on. The name of `folder` is `without` or `with`."""
    folder.mkdir()
    variables = {
        **environment,
        **LOG_SETTINGS,
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
    }
    output = folder / "output.txt"
    started = time.monotonic()
    elsewhere: list[str] = []
    if under is None:
        _run_here(program, variables, output, progress)
    else:
        elsewhere = _run_under(program, under, variables, output, progress)
    seconds = time.monotonic() - started
    logged = LoggedRun(sorted(folder.glob("nccl.*.log")))
    if not logged.log.lines:
        hint = f"does it use NCCL? Then: {_REACH}"
        if under is not None:
            hint = f"does it use NCCL? Its first node writes the log to {folder.parent.parent}"
        raise InputError("left no log of NCCL's", where=program[0], hint=hint)
    return _ProgramRun(logged, seconds, _times(output), elsewhere)


def _run_here(
    program: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    progress: ProgramProgress,
) -> None:
    progress.starting(output.parent.name, " ".join(program))
    try:
        process = Child(list(program), env=environment, stdout=subprocess.PIPE)
    except OSError as error:
        raise InputError(
            f"cannot be started: {error.strerror}", where=program[0], hint="check the command"
        ) from error
    with process, output.open("wb") as kept:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                progress.output(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failed(f"the command {ending(process.returncode)}", output)


def _run_under(
    program: Sequence[str],
    under: WithLauncher,
    environment: Mapping[str, str],
    output: Path,
    progress: ProgramProgress,
) -> list[str]:
    rendered = program_with_launcher(program, under, environment)
    progress.starting(output.parent.name, rendered.command)
    follower = Follower(lambda line: progress.output(line.encode() + b"\n"))
    end = run(rendered.words, output, follower, environment)
    if end.signal is not None:
        raise KeyboardInterrupt(end.signal)
    if end.state is not RunState.DONE:
        progress.last_words(follower.last_words)
        raise _failed(end.why, output)
    return placement_differences(rendered.placement, follower)


def _failed(how: str, output: Path) -> Exception:
    which = output.parent.name
    return LaunchError(
        f"{how} {which} the plugin",
        hint="it has to work without nccltune first" if which == "without" else None,
    )


def _times(path: Path) -> Times:
    """Return the median out-of-place times in us from the nccl-tests tables in `path`.

    The result is empty if the output has no table.
    """
    found: dict[tuple[Collective, int], list[float]] = {}
    options = ReadOptions(study="verify", choice=DEFAULT, started_here=True)
    for reading in read_inputs([InputFile(path, path.name, False)], options):
        for batch in reading.batches():
            for sample in batch.samples:
                if not sample.in_place:
                    found.setdefault((sample.collective, sample.bytes), []).append(sample.time_us)
    return {key: median(times) for key, times in found.items()}
