# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo`: the whole loop on a recording, without a GPU."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import hanging, json_option, print_json, stdout

if TYPE_CHECKING:
    from nccltune.model.errors import InputError
    from nccltune.model.study import Study
    from nccltune.report.data import Report
    from nccltune.tune.proof.result import Proof
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
def command(recording: str | None, output: Path | None, as_json: bool) -> int:
    """Analyse, tune, verify and report a recording of 4 x H200.

    Real measurements, our own plugin loaded as NCCL would load it, the rules verified in a replay
    of the recording, and a report to open. The result is an ordinary study. Takes a few seconds.
    """
    from nccltune.cli.bench_options import terminated_like_interrupted
    from nccltune.cli.report import write_report
    from nccltune.cli.verify import prove
    from nccltune.examples import DEMO, example
    from nccltune.measure.bench import Launch
    from nccltune.tune.study import write

    began = time.monotonic()
    name = recording or DEMO
    source = example(name)
    study = _copy(source, output or Path("studies") / name)
    tuning, crossovers = _tuned(study)
    tuning = write(study, tuning)
    agreed, asked = _decided_by_plugin(study, tuning)
    proof: Proof | None = None
    if tuning.rules:
        again = f"nccltune verify {shlex.quote(str(study.path))}"
        with terminated_like_interrupted():
            found = prove(study, Launch(replay=source), again, quiet=True)
        if isinstance(found, int):
            return found
        proof = found
    report = write_report(study.path)
    if as_json:
        plugin = {"asked": asked, "as_predicted": agreed}
        print_json({"tuning": tuning, "plugin": plugin, "proof": proof})
        return 0
    _show(study, name, tuning, crossovers, (agreed, asked))
    _show_end(study, report, proof, time.monotonic() - began)
    return 0


def _copy(recording: Path, target: Path) -> "Study":
    """Copy a recording to `target` and mark it as a replay.

    A study that is already at `target` is kept if it is such a copy, with what `verify` added.
    Raises InputError where it is another study, or the recording has no timings of choices.
    """
    import msgspec

    from nccltune.examples import examples
    from nccltune.model.errors import InputError
    from nccltune.model.study import Study, write_whole

    if not (recording / "samples.jsonl").is_file():
        usable = [name for name, path in examples().items() if (path / "samples.jsonl").is_file()]
        raise InputError(
            f"the recording {recording.name!r} has no timings of choices to tune from",
            hint=f"recordings that have: {' '.join(usable)}",
        )
    original = Study(recording)
    platform = original.platform()
    platform = msgspec.structs.replace(platform, replay=platform.replay or recording.name)
    study = Study.create(target)
    if study.platform_path.exists() and study.platform() not in (platform, original.platform()):
        raise _another_study(target, "platform.json")
    if not study.samples_path.exists():
        write_whole(study.samples_path, original.samples_path.read_text(encoding="utf-8"))
    elif not _is_copy(study, original):
        raise _another_study(target, "samples.jsonl")
    study.write_json(study.platform_path, platform)
    return study


def _is_copy(study: "Study", original: "Study") -> bool:
    """Whether `study` holds the samples of `original` and beyond them only those of `verify`."""
    with study.samples_path.open("rb") as ours, original.samples_path.open("rb") as theirs:
        if any(line != ours.readline() for line in theirs):
            return False
    known = sum(1 for _ in original.samples())
    return all(
        sample.source.verifies for number, sample in enumerate(study.samples()) if number >= known
    )


def _another_study(target: Path, name: str) -> "InputError":
    from nccltune.model.errors import InputError

    return InputError(
        f"holds another study ({name} is not the recording's)",
        where=str(target),
        hint="name another folder with -o",
    )


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
    recording: str,
    tuning: "Tuning",
    crossovers: list[str],
    plugin: tuple[int, int],
) -> None:
    from nccltune.cli.auto import rules_text, show_rules
    from nccltune.model.scale import count

    out = stdout()
    platform = study.platform()
    agreed, asked = plugin
    hanging(out, "platform   ", 11, platform.title)
    words = (
        f"of {recording}, {platform.recorded_at or 'undated'}: {tuning.samples} recorded timings; "
        "no GPU needed, nothing is measured here"
    )
    hanging(out, "replay     ", 11, words)
    where = ", ".join(dict.fromkeys(crossovers)) or "none"
    hanging(out, "analysis   ", 11, f"{count(len(crossovers), 'bad crossover')}: {where}")
    hanging(out, "tune       ", 11, rules_text(tuning))
    show_rules(tuning, out)
    words = (
        f"loaded as NCCL {tuning.nccl_version} loads it: {agreed} of {asked} decisions as the "
        "rules say"
    )
    hanging(out, "plugin     ", 11, words)


def _show_end(study: "Study", report: "Report", proof: "Proof | None", seconds: float) -> None:
    """Print the proof, the verdict and where everything is."""
    from nccltune.cli.auto import show_proof

    out = stdout()
    if proof is None:
        out.print("verify     no rules, so there is nothing to verify")
    else:
        show_proof(proof, out)
    out.print()
    hanging(out, "verdict    ", 11, report.verdict)
    out.print(f"report     {study.report_path}", markup=False, soft_wrap=True)
    path = shlex.quote(str(study.path))
    if report.commands.deploy:
        out.print(f"deploy     nccltune env {path}", markup=False, soft_wrap=True)
    out.print(f"took       {seconds:.1f} s")
