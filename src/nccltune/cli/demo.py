# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo`: the whole story on a recording, without a GPU."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import json_option, print_json, stdout, styled

if TYPE_CHECKING:
    from nccltune.model.study import Study
    from nccltune.report.data import Report
    from nccltune.tune.result import Tuning

EPILOG = """\b
Examples:
  nccltune demo
  nccltune demo --recording h200x4-1-node -o studies/node
"""


@click.command(epilog=EPILOG)
@click.option("--recording", metavar="NAME", help="Which recording  [default: h200x4-as-4-nodes]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The study  [default: studies/NAME]"
)
@json_option()
def command(recording: str | None, output: Path | None, as_json: bool) -> None:
    """Analyse, tune, check and report a recording of 4 x H200.

    Real measurements, our own plugin loaded as NCCL would load it, and a report to open. The
    result is an ordinary study.
    """
    from nccltune.cli.report import write_report
    from nccltune.examples import DEMO, example
    from nccltune.tune.study import write

    name = recording or DEMO
    study = _copy(example(name), output or Path("studies") / name)
    tuning, crossovers = _tuned(study)
    tuning = write(study, tuning)
    agreed, asked = _decided_by_plugin(study, tuning)
    report = write_report(study.path)
    if as_json:
        print_json({"tuning": tuning, "plugin": {"asked": asked, "as_predicted": agreed}})
        return
    _show(study, tuning, report, crossovers, (agreed, asked))


def _copy(recording: Path, target: Path) -> "Study":
    """A copy of a recording at `target`. A study that stands there is not touched, unless it is
    such a copy to which nobody added anything."""
    from nccltune.examples import examples
    from nccltune.model.errors import InputError
    from nccltune.model.study import Study, write_whole

    if not (recording / "samples.jsonl").is_file():
        usable = [name for name, path in examples().items() if (path / "samples.jsonl").is_file()]
        raise InputError(
            f"the recording {recording.name!r} has no timings of choices to tune from",
            hint=f"recordings that have: {' '.join(usable)}",
        )
    study = Study.create(target)
    for name in ("platform.json", "samples.jsonl"):
        if (target / name).exists() and (target / name).read_bytes() != (
            recording / name
        ).read_bytes():
            raise InputError(
                f"holds another study ({name} is not the recording's)",
                where=str(target),
                hint="name another folder with -o",
            )
    for name in ("platform.json", "samples.jsonl"):
        write_whole(target / name, (recording / name).read_text(encoding="utf-8"))
    return study


def _tuned(study: "Study") -> "tuple[Tuning, list[str]]":
    """The rules of the recording, and the collective of each bad crossover that led to them."""
    from datetime import UTC, datetime

    from nccltune.analyze import analyze_sorted
    from nccltune.cli.context import open_sorted
    from nccltune.model.finding import FindingKind
    from nccltune.tune.result import TuneOptions
    from nccltune.tune.study import tune

    _, found = open_sorted(study.path)
    analysis = analyze_sorted(study.platform(), found)
    study.write_json(study.findings_path, analysis)
    created = datetime.now(UTC).date().isoformat()
    tuning = tune(study.name, study.platform(), found, TuneOptions(), created=created)
    crossovers = [
        finding.collective.prose
        for finding in analysis.findings
        if finding.kind is FindingKind.BAD_CROSSOVER and finding.collective is not None
    ]
    return tuning, crossovers


def _decided_by_plugin(study: "Study", tuning: "Tuning") -> tuple[int, int]:
    """At how many measured sizes the built plugin, loaded as NCCL loads it, decides what the rules
    say; and how many were asked."""
    from nccltune.tune.explain import check_decisions

    return check_decisions(study.config_path, tuning)


def _show(
    study: "Study",
    tuning: "Tuning",
    report: "Report",
    crossovers: list[str],
    plugin: tuple[int, int],
) -> None:
    from nccltune.cli.tune import left_alone_words
    from nccltune.model.scale import count
    from nccltune.report.terminal import size_table

    out = stdout()
    platform = study.platform()
    agreed, asked = plugin
    out.print(f"platform   {platform.title}")
    out.print(
        f"recording  {study.name}, {platform.recorded_at or 'undated'}: "
        f"{tuning.samples} timings; no GPU needed"
    )
    where = ", ".join(dict.fromkeys(crossovers)) or "none"
    out.print(f"analysis   {count(len(crossovers), 'bad crossover')}: {where}")
    out.print(f"tune       {count(len(tuning.rules), 'rule')}. {left_alone_words(tuning)}")
    out.print(
        f"plugin     loaded as NCCL {tuning.nccl_version} loads it: {agreed} of {asked} decisions "
        "as the rules say"
    )
    size_table(report, out)
    out.print(f"report     {study.report_path}", markup=False)
    out.print(f"deploy     nccltune env {shlex.quote(str(study.path))}", end="", markup=False)
    out.print(styled("        ", ("# two lines for a shell, nccl.conf or a job file", "dim")))
