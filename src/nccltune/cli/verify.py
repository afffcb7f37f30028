# SPDX-License-Identifier: Apache-2.0
"""`nccltune verify`: prove the rules, and take out what does not hold."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.bench_options import (
    check_pods,
    command_line,
    launch_from,
    launch_options,
    platform_of_bench,
    recording,
    show_start,
    terminated_like_interrupted,
    under_from,
)
from nccltune.cli.context import STUDY, budget_option
from nccltune.cli.output import json_option, next_step, print_json, stderr, stdout, styled

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nccltune.measure.bench import Bench, Launch
    from nccltune.measure.conversation import Hello
    from nccltune.measure.sweep import Watcher
    from nccltune.model.study import Study
    from nccltune.tune.proof.plan import ProofPlan
    from nccltune.tune.proof.result import Dropped, Proof

EPILOG = """\b
Examples:
  nccltune verify studies/h200x4
  nccltune verify studies/h200x4 --budget 60 --check
  nccltune verify studies/h200x4 -- mpirun -n 4 all_reduce_perf -b 1K -e 64M -f 2
  nccltune verify studies/two --launcher openmpi --hosts a,b --gpus 8 -- all_reduce_perf -e 64M -f 2
"""
_MEASURED = ("emulate_nodes", "gpus", "nccl", "replay")
_UNDER = ("launcher", "nodes", "hosts")
_PODS = ("launcher", "image", "settings")
"""Of the launch options: what is measured on, and who starts it where."""


@click.command(epilog=EPILOG)
@STUDY
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@launch_options
@budget_option()
@click.option("--anew", is_flag=True, help="Measure everything again, not only what is missing.")
@click.option("--check", is_flag=True, help="Exit with 1 unless every rule holds as it is.")
@json_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    study: Path,
    program: tuple[str, ...],
    budget: float | None,
    anew: bool,
    check: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure STUDY's rules against NCCL's default, interleaved in one run.

    At every size that was measured, between them, and on both sides of every edge of a rule. A rule
    that does not hold is taken out of tuner.conf (the old file stays beside) and what changed is
    measured again. Without launch options it runs as the study was measured.

    With a COMMAND, nothing of ours is measured: it is run twice as it is, without and with the
    plugin loaded as `nccltune env` says, and NCCL's own log tells whether the rules were followed.
    With --launcher it is a program that this launcher starts, as `nccltune launch` does.
    """
    from nccltune.model.study import Study

    opened = Study.open(study)
    check_pods(*(options[name] for name in _PODS))
    if program:
        return _verify_program(opened, program, options, as_json, bench=bool(budget or anew))
    launch = _launch(opened, options)
    before = _hash(opened)
    with terminated_like_interrupted():
        proof = prove(opened, launch, command_line(context), budget=budget, anew=anew)
    if isinstance(proof, int):
        return proof
    changed = before != proof.config_hash
    if as_json:
        print_json(proof)
    else:
        show(proof)
        if changed:
            _show_kept(opened)
        next_step("nccltune report", study)
    return int(check and (changed or proof.holding < len(proof.rules)))


def _verify_program(
    study: "Study", program: tuple[str, ...], options: dict[str, Any], as_json: bool, *, bench: bool
) -> int:
    """Run a COMMAND; `bench` says that there are options of our bench."""
    from nccltune.cli.verify_stock import verify_program
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import InputError

    launcher, nodes, hosts, gpus = (options[name] for name in (*_UNDER, "gpus"))
    theirs = () if launcher is None else ("gpus",)
    if bench or any(options[name] for name in _MEASURED if name not in theirs):
        raise InputError(
            "--budget, --anew and launch options are for measuring with our bench",
            hint="with a COMMAND, give it its own options behind it, or name a --launcher",
        )
    if launcher is None and (nodes or hosts):
        raise InputError("is for --launcher", where="--nodes" if nodes else "--hosts")
    under = None
    if launcher is not None:
        per_node = options["processes"] == "one"
        under = under_from(launcher, nodes, hosts, gpus, per_node=per_node)
    try:
        with terminated_like_interrupted():
            return verify_program(study, program, under, as_json)
    except KeyboardInterrupt as stop:
        stderr().print("stopped; nothing was changed", markup=False)
        return 128 + signal_of(stop)


def _launch(study: "Study", options: dict[str, Any]) -> "Launch":
    """What the options say; where they do not say what to measure on, as the study was measured."""
    measured = as_measured(study, one_process=options["processes"] == "one")
    if not any(options[name] for name in (*_MEASURED, *_UNDER)):
        return measured
    launcher = options["launcher"]
    if launcher in (None, "local") or any(options[name] for name in _MEASURED):
        return launch_from(options)
    platform = study.platform()
    hosts = [host for host in (options["hosts"] or "").split(",") if host]
    nodes = options["nodes"] or len(hosts) or _nodes_given(launcher)
    if not nodes:
        # Nodes of a recording, and emulated ones, were never nodes of a launcher.
        nodes = 1 if platform.replay or platform.emulated_nodes else platform.nodes or 1
    gpus = platform.gpus // nodes if platform.gpus else None
    recorded = str(measured.replay) if measured.replay is not None else None
    return launch_from(options | {"nodes": nodes, "gpus": gpus or None, "replay": recorded})


def _nodes_given(launcher: str) -> int | None:
    from nccltune.cli.launch_options import flavor_from, nodes_given

    return nodes_given(flavor_from(launcher).launcher)


def as_measured(study: "Study", *, one_process: bool = False) -> "Launch":
    """The launch that the study's platform was measured with, as far as it says so.

    Raises InputError where it replays a recording that cannot be found by its name.
    """
    from nccltune.measure.bench import Launch
    from nccltune.model.errors import InputError, StudyError

    platform = study.platform()
    if platform.replay is not None:
        try:
            return Launch(replay=recording(platform.replay))
        except StudyError:
            raise InputError(
                f"replays the recording {platform.replay!r}, which is not installed",
                where=str(study.path),
                hint=f"say where it is: nccltune verify {study.path} --replay PATH",
            ) from None
    return Launch(
        gpus=platform.gpus if platform.gpus and platform.gpus > 1 else None,
        emulate_nodes=platform.nodes if platform.emulated_nodes else None,
        one_process=one_process,
    )


def prove(
    study: "Study",
    launch: "Launch",
    again: str,
    *,
    budget: float | None = None,
    anew: bool = False,
    quiet: bool = False,
) -> "Proof | int":
    """Run the proof and talk about it; what was found, or the exit code of an interruption.

    `again` is the command that resumes; `quiet` leaves out what the platform is.
    """
    from nccltune.launch.process import signal_of
    from nccltune.model.errors import LaunchError, StudyError
    from nccltune.tune.proof.run import Hooks, Verification

    if not _check_config(study):
        stderr().print("nothing to verify: tuner.conf holds no rule", markup=False)
        return 0
    first = True

    def start(bench: "Bench") -> None:
        nonlocal first
        if first:
            first = False
            _start(study, launch, bench, quiet=quiet)

    run = Verification(
        study,
        launch,
        Hooks(start, _watching, _say_dropped),
        command=again,
        budget_s=budget,
        anew=anew,
    )
    try:
        return run.run()
    except (KeyboardInterrupt, LaunchError, StudyError) as stop:
        kept = run.kept
        note = stderr()
        if kept:
            note.print(f"stopped; all {kept} points so far are kept in {study.path}", markup=False)
            note.print(f"resume:  {again}", markup=False, soft_wrap=True)
        if not isinstance(stop, KeyboardInterrupt):
            raise
        return 128 + signal_of(stop)


def _hash(study: "Study") -> str | None:
    from nccltune.formats.tuner_csv import config_hash

    path = study.config_path
    return config_hash(path.read_bytes()) if path.is_file() else None


def _check_config(study: "Study") -> bool:
    """Whether there are rules to verify; says what the plugin will not read."""
    from nccltune.formats.tuner_csv import read_rules
    from nccltune.model.errors import InputError

    path = study.config_path
    if not path.is_file():
        raise InputError(
            "no such configuration", where=str(path), hint=f"make it: nccltune tune {study.path}"
        )
    read = read_rules(path)
    if read.problems:
        stderr().print(
            f"warning    {path}: lines that the plugin leaves out: nccltune lint {path}",
            markup=False,
            style="yellow",
            soft_wrap=True,
        )
    return bool(read.rules)


def _start(study: "Study", launch: "Launch", bench: "Bench", *, quiet: bool) -> None:
    from nccltune.measure.identity import check_same

    platform = platform_of_bench(study.path, launch, bench)
    check_same(
        study,
        platform,
        hint="rules are proven where they were measured: give the options of its sweep, or sweep "
        f"this platform: nccltune sweep -o STUDY; see {study.platform_path}",
    )
    if not quiet:
        show_start(platform, bench.hello.nccl.came_from)


@contextlib.contextmanager
def _watching(hello: "Hello") -> "Iterator[Watcher[ProofPlan]]":
    from nccltune.cli.progress import watching_any

    with watching_any(stderr(), "verify", hello.replay, _so_far) as watcher:
        yield watcher


def _so_far(plan: "ProofPlan") -> "RenderableType":
    """Every rule and what is known of it."""
    from rich.table import Table

    from nccltune.report.words import range_text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("rule", "", "", "sizes", "rounds", "gain so far (95 % CI)"):
        table.add_column(name, justify="right" if name in ("sizes", "rounds") else "left")
    for item in plan.verdicts({}):
        gain = ""
        if item.gain is not None:
            gain = f"{item.gain:.2f}x ({item.gain_low:.2f}-{item.gain_high:.2f})"
        rule = item.rule
        table.add_row(
            rule.collective.value,
            range_text(rule.min_bytes, rule.max_bytes, "-"),
            rule.choice.label,
            str(item.sizes),
            str(item.rounds),
            styled(f"{gain} ", ("holds" if item.verdict == "holds" else "", "green")),
        )
    return table


def _say_dropped(bad: "list[Dropped]") -> None:
    from nccltune.model.scale import count

    stderr().print(
        f"again      {count(len(bad), 'rule')} did not hold as measured; measuring what changes",
        markup=False,
        soft_wrap=True,
    )


def show(proof: "Proof") -> None:
    """The outcome, the sizes that tell most, and every rule."""
    from nccltune.report.proof import build_proof
    from nccltune.report.terminal import proof_tables

    out = stdout()
    told = build_proof(proof)
    out.print(f"{'verify':<11}{told.sentence}", markup=False)
    out.print(f"{'measured':<11}{told.how}", markup=False, style="dim")
    proof_tables(told, out)


def _show_kept(study: "Study") -> None:
    from nccltune.tune.proof.edit import before_path

    stdout().print(
        f"Changed {study.config_path}; as it was: {before_path(study.config_path)}",
        markup=False,
        soft_wrap=True,
    )
