# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify STUDY -- COMMAND`: a stock program, run without and with the deployed rules."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nccltune.cli.env import conflicts, deployment
from nccltune.cli.output import print_json, saving, stderr, stdout, styled

if TYPE_CHECKING:
    from rich.text import Text

    from nccltune.measure.under import Under
    from nccltune.model.study import Study
    from nccltune.tune.proof.stock import LoggedRun, StockPoint, StockProof, Times

_OURS = ("NCCLTUNE_CONFIG", "NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_STRICT", "NCCLTUNE_STALE")
_REACH = (
    "do the settings reach the ranks? Open MPI passes them on with -x NCCL_TUNER_PLUGIN "
    "-x NCCL_TUNER_CONFIG_FILE -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS -x NCCL_DEBUG_FILE"
)
_REACH_UNDER = "is nccltune at the same path on every node, and does every node see the study?"


def verify_program(
    study: "Study", program: Sequence[str], under: "Under | None", as_json: bool
) -> int:
    """Run `program` twice, `under` a launcher or as it is, and compare; the exit code: 1 if the
    deployed rules are not proven.

    Raises LaunchError where it fails, InputError where it leaves no NCCL log.
    """
    from datetime import UTC, datetime

    from nccltune.formats.tuner_csv import config_hash, read_rules
    from nccltune.model.errors import InputError
    from nccltune.tune.proof.stock import StockProof, points_of, problems_of

    config = study.config_path
    if not config.is_file():
        raise InputError(
            "no such configuration", where=str(config), hint=f"make it: nccltune tune {study.path}"
        )
    settings = deployment(config)
    plain = _without_ours(os.environ, settings)
    for warning in conflicts(plain):
        stderr().print(f"warning    {warning}", style="yellow", markup=False, soft_wrap=True)
    # Processes on other nodes write their logs where the study is, and not in this machine's /tmp.
    shared = str(study.path.absolute()) if under is not None else None
    with tempfile.TemporaryDirectory(prefix=".nccltune-verify-", dir=shared) as folder:
        before = _run(program, under, plain, Path(folder, "without"), "without")
        after = _run(program, under, plain | settings, Path(folder, "with"), "with")
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
    with saving():
        study.write_json(study.path / "deployed.json", proof)
    if as_json:
        print_json(proof)
    else:
        _show(proof, _REACH if under is None else _REACH_UNDER)
    return int(bool(proof.problems))


def _without_ours(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The environment as it would be without us; somebody else's plugin stays."""
    plugin = Path(settings["NCCL_TUNER_PLUGIN"]).name
    plain = {name: value for name, value in environment.items() if name not in _OURS}
    if Path(plain.get("NCCL_TUNER_PLUGIN", "")).name == plugin:
        del plain["NCCL_TUNER_PLUGIN"]
    return plain


class _Ran(NamedTuple):
    """One run: its log, how long it took, the times that it printed, and sentences for what the
    launcher started otherwise than it was told."""

    logged: "LoggedRun"
    seconds: float
    times: "Times"
    elsewhere: list[str]


def _run(
    program: Sequence[str],
    under: "Under | None",
    environment: Mapping[str, str],
    folder: Path,
    which: str,
) -> _Ran:
    """One run, with NCCL's log on."""
    from nccltune.model.errors import InputError
    from nccltune.tune.proof.stock import LOG_SETTINGS, LoggedRun

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
        _run_here(program, variables, output, which)
    else:
        elsewhere = _run_under(program, under, variables, output, which)
    seconds = time.monotonic() - started
    logged = LoggedRun(sorted(folder.glob("nccl.*.log")))
    if not logged.log.lines:
        hint = f"does it use NCCL? Then: {_REACH}"
        if under is not None:
            hint = f"does it use NCCL? Its first node writes the log to {folder.parent.parent}"
        raise InputError("left no log of NCCL's", where=program[0], hint=hint)
    return _Ran(logged, seconds, _times(output), elsewhere)


def _run_here(
    program: Sequence[str], environment: Mapping[str, str], output: Path, which: str
) -> None:
    from nccltune.child import Child
    from nccltune.model.errors import InputError
    from nccltune.native.line_process import ending

    _say_run(which, " ".join(program))
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
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise _failed(f"the command {ending(process.returncode)}", which)


def _run_under(
    program: Sequence[str],
    under: "Under",
    environment: Mapping[str, str],
    output: Path,
    which: str,
) -> list[str]:
    from nccltune.launch.follow import Follower, differences
    from nccltune.launch.run import run
    from nccltune.launch.state import State
    from nccltune.measure.under import program_under

    rendered = program_under(program, under, environment)
    _say_run(which, rendered.command)
    follower = Follower(lambda line: print(line, file=sys.stderr, flush=True))
    end = run(rendered.words, output, follower, environment)
    if end.signal is not None:
        raise KeyboardInterrupt(end.signal)
    if end.state is not State.DONE:
        for line in follower.last_words:
            stderr().print(f"  {line}", markup=False, soft_wrap=True)
        raise _failed(end.why, which)
    return differences(rendered.placement, follower)


def _say_run(which: str, command: str) -> None:
    stderr().print(f"run        {which} the plugin: {command}", markup=False, soft_wrap=True)


def _failed(how: str, which: str) -> Exception:
    from nccltune.model.errors import LaunchError

    return LaunchError(
        f"{how} {which} the plugin",
        hint="it has to work without nccltune first" if which == "without" else None,
    )


def _times(path: Path) -> "Times":
    """The times of nccl-tests' tables in `path`, out of place; none where it holds no table."""
    from nccltune.analyze.stats import median
    from nccltune.formats.context import ReadOptions
    from nccltune.formats.inputs import Found, read_inputs
    from nccltune.model.choice import DEFAULT
    from nccltune.model.collective import Collective

    found: dict[tuple[Collective, int], list[float]] = {}
    options = ReadOptions(study="verify", choice=DEFAULT, started_here=True)
    for reading in read_inputs([Found(path, path.name, False)], options):
        for batch in reading.batches():
            for sample in batch.samples:
                if not sample.in_place:
                    found.setdefault((sample.collective, sample.bytes), []).append(sample.time_us)
    return {key: median(times) for key, times in found.items()}


def _show(proof: "StockProof", reach: str) -> None:
    from rich.table import Table

    from nccltune.model.scale import count
    from nccltune.model.sizes import format_bytes

    out = stdout()
    after = proof.after
    loaded = "not loaded"
    if after.config_hashes:
        loaded = (
            f"loaded, content {after.config_hashes[0]}: {after.applying} of "
            f"{count(after.rules or 0, 'rule')} for {after.nodes} nodes, {after.ranks} ranks"
        )
    out.print(f"plugin     {loaded}", markup=False)
    for problem in proof.problems:
        out.print(f"finding    {problem}", style="red", markup=False)
    if not after.config_hashes:
        out.print(f"hint       {reach}", markup=False)
    if proof.points:
        alone = sum(point.verdict == "left alone" for point in proof.points)
        out.print(
            f"rules      followed at {proof.followed} of {count(proof.ruled, 'point')}; "
            f"left alone as before: {alone}",
            markup=False,
        )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("size", "without", "with"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("ran without", "ran with", ""):
        table.add_column(name, no_wrap=True)
    for point in proof.points:
        table.add_row(
            point.collective.value,
            format_bytes(point.bytes),
            _time(point.before_us),
            _time(point.after_us),
            point.before or "",
            point.after or "",
            _words(point),
        )
    if proof.points:
        out.print(table)
    if any(point.after_us is not None for point in proof.points):
        out.print(
            "Times are of one run each, not paired: nccltune verify without a COMMAND measures "
            "gains.",
            style="dim",
        )


def _time(time_us: float | None) -> str:
    from nccltune.report.words import time_text

    return "" if time_us is None else time_text(time_us)


def _words(point: "StockPoint") -> "Text":
    if point.verdict == "as the rule says":
        return styled(("as the rule says", "green"))
    if point.verdict == "not as the rule says":
        return styled((f"the rule says {point.rule}", "red"))
    return styled((point.verdict or "", "red" if point.verdict == "changed" else ""))
