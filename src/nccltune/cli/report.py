# SPDX-License-Identifier: Apache-2.0
"""`nccltune report`: what a person reads."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

import nccltune
from nccltune.cli.context import STUDY, open_sorted
from nccltune.cli.output import json_option, print_json, saving, stderr, stdout, styled, working

if TYPE_CHECKING:
    from nccltune.analyze.timings import Sorted
    from nccltune.formats.reading import ImportRecord
    from nccltune.model.study import Study
    from nccltune.report.data import Checks, Commands, Report
    from nccltune.tune.proof.result import Proof
    from nccltune.tune.result import TuneOptions, Tuning

EPILOG = """\b
Examples:
  nccltune report studies/h200x4 --open
  nccltune report studies/h200x4 --terminal | less -R
"""


@click.command(epilog=EPILOG)
@STUDY
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The page to write  [default: STUDY/report.html]",
)
@click.option("--terminal", is_flag=True, help="Print the report here and write no page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@json_option()
def command(
    study: Path, output: Path | None, terminal: bool, open_page: bool, as_json: bool
) -> None:
    """Write one HTML file with the verdict, the curves and the evidence for every rule.

    The file needs no network: mail it, print it, open it anywhere. The rules are those of
    STUDY/tuning.json while it is in step with the samples; else they are searched anew.
    """
    from nccltune.model.errors import InputError
    from nccltune.model.study import Study, write_whole

    if (terminal or as_json) and (output is not None or open_page):
        wrong = "--terminal" if terminal else "--json"
        raise InputError(f"{wrong} writes no page, so -o and --open do not go with it")
    if terminal and as_json:
        raise InputError("--terminal and --json are two forms of the same; take one")
    if as_json:
        print_json(build_report(study))
        return
    if terminal:
        from nccltune.cli.output import report_console
        from nccltune.report.terminal import render

        render(build_report(study), report_console())
        return
    path = output or Study(study).report_path
    report, page = _rendered(study)
    with saving(output) as saved:
        write_whole(path, page)
    out = stdout()
    out.print(report.verdict, markup=False)
    if not saved.done:
        return
    out.print(f"report     {path}", markup=False)
    if open_page and click.launch(path.resolve().as_uri()) != 0:
        stderr().print(f"no browser could be started; open {path} yourself", markup=False)
    elif not open_page and report.commands.deploy:
        stderr().print(f"next: {report.commands.deploy}", style="dim", markup=False, soft_wrap=True)


def write_report(study: Path, output: Path | None = None) -> "Report":
    """Write the page of a study, whole or not at all, to `output` or STUDY/report.html."""
    from nccltune.model.study import Study, write_whole

    report, page = _rendered(study)
    write_whole(output or Study(study).report_path, page)
    return report


def _rendered(study: Path) -> "tuple[Report, str]":
    """The report of a study, and its page."""
    from nccltune.report.html import render

    with working("writing the report"):
        report = build_report(study)
        return report, render(report)


def build_report(path: Path) -> "Report":
    """The report of the study at `path`."""
    from nccltune.analyze import analyze_sorted
    from nccltune.cli.expectation import expectations_of
    from nccltune.formats.reading import ImportRecord
    from nccltune.formats.suspect import suspect_sentences
    from nccltune.report.build import build
    from nccltune.tune.proof.run import read_proof

    opened, found = open_sorted(path)
    tuning, written = _tuning(opened, found)
    proof = read_proof(opened)
    if proof is not None and not _in_step(opened, proof):
        stderr().print(
            styled(
                ("warning:", "yellow"),
                " proof.json is of another configuration and not shown: "
                f"nccltune verify {shlex.quote(str(path))}",
            ),
            soft_wrap=True,
        )
        proof = None
    analysis = analyze_sorted(
        opened.platform(),
        found,
        suspect=suspect_sentences(opened),
        expected=expectations_of(opened, found),
        assumed_noise=tuning.options.assumed_noise,
    )
    return build(
        analysis,
        tuning,
        proof=proof,
        commands=commands(opened, found, tuning, written=written, proven=proof is not None),
        tool_version=nccltune.__version__,
        sources=[_source(record) for record in opened.imports(ImportRecord)],
        checks=_checks(opened),
    )


def _checks(study: "Study") -> "Checks | None":
    """What the doctor found: `auto` on the node that measured, or `doctor -o STUDY`."""
    from nccltune.doctor.result import Examination
    from nccltune.report.examination import checks_of

    path = study.doctor_path
    if not path.is_file():
        return None
    platform = study.platform()
    nodes = 1 if platform.emulated_nodes else platform.nodes or 1
    return checks_of(study.read_json(path, Examination), nodes)


def _in_step(study: "Study", proof: "Proof") -> bool:
    """Return whether the proof is of STUDY/tuner.conf with its present content."""
    from nccltune.formats.tuner_csv import config_hash

    path = study.config_path
    return path.is_file() and config_hash(path.read_bytes()) == proof.config_hash


def _tuning(study: "Study", found: "Sorted") -> "tuple[Tuning, bool]":
    """The study's tuning and whether STUDY/tuner.conf holds it; searched anew where `tune` has
    not run since the last samples came in."""
    from datetime import UTC, datetime

    from nccltune.tune.result import TuneOptions, Tuning
    from nccltune.tune.study import tune

    options = TuneOptions()
    if study.tuning_path.is_file():
        kept = study.read_json(study.tuning_path, Tuning)
        if kept.samples == found.samples:
            return kept, _written(study, kept)
        options = kept.options
        stderr().print(
            styled(
                ("warning:", "yellow"),
                " tuning.json is older than the samples; the rules shown here "
                f"are new, tuner.conf is not: nccltune tune {shlex.quote(str(study.path))}",
            ),
            soft_wrap=True,
        )
    created = datetime.now(UTC).date().isoformat()
    return tune(study.name, study.platform(), found, options, created=created), False


def _written(study: "Study", tuning: "Tuning") -> bool:
    """Whether STUDY/tuner.conf is the file that `tuning` was written as, not edited since."""
    from nccltune.formats.tuner_csv import config_hash

    path = study.config_path
    return path.is_file() and config_hash(path.read_bytes()) == tuning.config_hash


def commands(
    study: "Study", found: "Sorted", tuning: "Tuning", *, written: bool, proven: bool
) -> "Commands":
    """Return the commands that the report offers to copy.

    `written` says that tuner.conf is in step with `tuning`, `proven` that the study has a proof.
    """
    from nccltune.cli.reproduce import measure_again
    from nccltune.report.data import Commands
    from nccltune.tune.result import TuneOptions

    path = shlex.quote(str(study.path))
    options = _options(tuning.options, TuneOptions())
    search = " ".join(["nccltune tune", path, *options])
    deploy = f"nccltune env {path}" if written else f"{search} && nccltune env {path}"
    again = measure_again(study, found, options, proven=proven)
    return Commands(
        reproduce=again.command,
        reproduce_note=again.note,
        rebuild=f"{search} && nccltune report {path}",
        deploy=deploy if any(item.written for g in tuning.groups for item in g.rules) else None,
    )


def _options(options: "TuneOptions", usual: "TuneOptions") -> list[str]:
    """Return the options of `nccltune tune` that differ from its defaults."""
    found = []
    for name, option, share in (
        ("min_gain", "--min-gain", True),
        ("penalty", "--penalty", False),
        ("assumed_noise", "--assume-noise", True),
        ("channel_tolerance", "--channel-tolerance", True),
    ):
        value = getattr(options, name)
        if value != getattr(usual, name):
            found.append(f"{option} {100 * value:.6g}%" if share else f"{option} {value:.6g}")
    found += ["--weights", shlex.quote(options.weights)] if options.weights else []
    found += ["--channels", options.channels] if options.channels != usual.channels else []
    found += ["--include-unsure"] if options.include_unsure else []
    found += ["--extend"] if options.extend else []
    found += ["--any-scale"] if options.any_scale else []
    return found


def _source(record: "ImportRecord") -> str:
    """One file that was read, in a line."""
    from nccltune.report.words import counted

    parts = [f"{record.file}: {record.kind.value}", counted(record.samples, "sample")]
    if record.unreadable:
        parts.append(f"{counted(record.unreadable, 'line')} not readable")
    return ", ".join(parts)
