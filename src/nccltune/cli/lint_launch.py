# SPDX-License-Identifier: Apache-2.0
"""`nccltune lint-launch`: what a launch command will really start, and what is wrong with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import hanging, json_option, print_json, stdout, styled

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.launch.flavor import Flavor
    from nccltune.launch.lint.check import Verdict
    from nccltune.launch.lint.command import Prediction, Site
    from nccltune.launch.lint.finding import Finding
    from nccltune.launch.lint.source import Found

EPILOG = """\b
Examples:
  nccltune lint-launch 'mpirun -N 8 -n 2 all_reduce_perf -b 1G -e 10G -f 2 -g 1'
  nccltune lint-launch --nodes 4 --gpus-per-node 4 -- srun -N 4 all_reduce_perf -g 4
  nccltune lint-launch job.sbatch
  nccltune lint-launch mpijob.yaml --json
"""
_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_INDENT = 9


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": False})
@click.argument("what", nargs=-1, required=True, metavar="'COMMAND LINE'|FILE|-- COMMAND...")
@click.option("--hosts", help="Hosts the job gets: a,b or a:8,b:8; where the command names none.")
@click.option("--nodes", type=click.IntRange(1, 1 << 16), help="How many nodes the job gets.")
@click.option(
    "--gpus-per-node", type=click.IntRange(1, 1 << 10), default=8, show_default=True,
    help="GPUs of a node; a script's or manifest's own number comes first.",
)  # fmt: skip
@click.option("--gpu-memory", metavar="SIZE", help="Memory of a GPU, such as 80G: checks -e.")
@click.option(
    "--launcher",
    metavar="openmpi|openmpi:5|hydra|slurm|torchrun",
    help="Whose mpirun it is; without it, each that the command may be for.",
)
@json_option()
def command(
    what: tuple[str, ...],
    hosts: str | None,
    nodes: int | None,
    gpus_per_node: int,
    gpu_memory: str | None,
    launcher: str | None,
    as_json: bool,
) -> int:
    """Say what a launch command will really start, and what is wrong with it.

    Takes a command line of mpirun, mpiexec, prterun, srun or torchrun, or of nccl-tests alone; a
    script with one (its #SBATCH lines count); a manifest of Kubernetes; or the output of
    nccl-tests. Nothing is started. Exit code 1 for an error or a warning, 0 for notes alone.
    """
    from nccltune.launch.lint.check import check
    from nccltune.launch.lint.command import Site
    from nccltune.model.sizes import parse_bytes

    site = Site(
        nodes=nodes,
        hosts=tuple(part for part in (hosts or "").split(",") if part),
        gpus_per_node=gpus_per_node,
        gpu_memory=parse_bytes(gpu_memory) if gpu_memory is not None else None,
    )
    found, findings = _found(what, site)
    verdicts = [check(one.line, one.site, _flavors(launcher)) for one in found]
    if as_json:
        print_json(
            {
                "commands": [_plain(verdict) for verdict in verdicts],
                "findings": [_finding(finding) for finding in findings],
            }
        )
    else:
        out = stdout()
        for number, verdict in enumerate(verdicts):
            if number:
                out.print()
            _show(out, verdict)
        for finding in findings:
            _show_finding(out, finding, "")
        if not verdicts and not findings:
            out.print("nothing wrong with how this was started")
    bad = any(finding.severity.value != "note" for finding in findings)
    return int(bad or any(verdict.is_wrong for verdict in verdicts))


def _found(what: tuple[str, ...], site: "Site") -> "tuple[list[Found], list[Finding]]":
    from nccltune.launch.lint import manifest, source
    from nccltune.model.errors import InputError

    if len(what) > 1:
        return source.from_words(list(what), site), []
    path = Path(what[0])
    try:
        is_file = path.is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        return source.from_text(what[0], site), []
    text = source.read_text(path)
    if manifest.is_manifest(text):
        documents = manifest.documents_of(text, str(path))
        findings = manifest.judge_manifests(documents)
        try:
            return manifest.from_manifests(documents, site, str(path)), findings
        except InputError:
            if not findings:
                raise
            return [], findings
    if source.is_output(text):
        return [], source.judge_output(text)
    return source.from_text(text, site), []


def _flavors(text: str | None) -> "tuple[Flavor, ...]":
    """Those that the linter knows of a launcher, `openmpi:5` of one version; none for all."""
    from nccltune.cli.launch_options import flavor_from
    from nccltune.launch.flavor import Launcher
    from nccltune.launch.lint.options import HYDRA, INTEL, OPENMPI_4, OPENMPI_5, SLURM, TORCHRUN
    from nccltune.model.errors import InputError

    if text is None:
        return ()
    wanted = flavor_from(text, known=[item.value for item in Launcher])
    hydra = INTEL if wanted.is_intel else HYDRA
    known = [
        flavor
        for flavor in (OPENMPI_4, OPENMPI_5, hydra, SLURM, TORCHRUN)
        if flavor.launcher is wanted.launcher
    ]
    if not known:
        raise InputError(
            f"{wanted.words} has no command line to check",
            where="--launcher",
            hint="openmpi, openmpi:4, openmpi:5, hydra, hydra:2021 (Intel MPI), slurm or torchrun",
        )
    # Of the others all versions are read alike.
    if wanted.launcher is not Launcher.OPENMPI or not wanted.version:
        return tuple(known)
    found = [item for item in known if item.version[:1] == wanted.version[:1]]
    if not found:
        raise InputError(
            f"{wanted.words} is not one that is known here",
            where="--launcher",
            hint="openmpi:4 or openmpi:5",
        )
    return tuple(found)


def _show(out: "Console", verdict: "Verdict") -> None:
    from nccltune.launch.lint.check import names
    from nccltune.launch.lint.starts import starts

    for prediction, flavors in verdict.predictions:
        words = starts(prediction, verdict.gpus)
        hanging(out, ("starts   ", "bold"), _INDENT, f"{words}  ({names(flavors)})")
    for held in verdict.findings:
        only = held.flavors != verdict.flavors
        _show_finding(out, held.finding, f"  ({names(held.flavors)})" if only else "")
    if not verdict.findings:
        hanging(out, ("ok       ", "green"), _INDENT, "nothing wrong")
    assumed = next((p.assumed for p, _ in verdict.predictions if p.assumed), None)
    if assumed is not None:
        hanging(out, ("note     ", "dim"), _INDENT, assumed)
    if verdict.fixed is not None:
        out.print(styled(("fixed", "bold"), f"    {verdict.fixed}"), soft_wrap=True)


def _show_finding(out: "Console", finding: "Finding", where: str) -> None:
    severity = finding.severity.value
    style = _STYLES[severity]
    fix = f". {finding.fix[:1].upper()}{finding.fix[1:]}" if finding.fix else ""
    words = finding.message + fix + where
    lead = (severity.ljust(_INDENT), style)
    hanging(out, lead, _INDENT, words)


def _finding(finding: "Finding") -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "id": finding.id,
        "message": finding.message,
        "fix": finding.fix or None,
    }


def _plain(verdict: "Verdict") -> dict[str, Any]:
    return {
        "command": verdict.command.text,
        "launchers": [flavor.words for flavor in verdict.flavors],
        "starts": [
            _start(prediction, verdict.gpus) | {"launchers": [flavor.words for flavor in flavors]}
            for prediction, flavors in verdict.predictions
        ],
        "findings": [
            _finding(held.finding) | {"launchers": [flavor.words for flavor in held.flavors]}
            for held in verdict.findings
        ],
        "fixed": verdict.fixed,
    }


def _start(prediction: "Prediction", gpus: int | None) -> dict[str, Any]:
    placement = prediction.placement
    return {
        "processes": placement.processes if placement is not None else None,
        "gpus_per_process": gpus,
        "ranks": placement.ranks if placement is not None and gpus is not None else None,
        "nodes": [
            {"host": node.host, "processes": node.processes}
            for node in (placement.nodes if placement is not None else ())
        ],
        "fails": prediction.fails,
        "unknown": prediction.unknown,
        "assumed": prediction.assumed,
    }
