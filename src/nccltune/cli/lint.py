# SPDX-License-Identifier: Apache-2.0
"""`nccltune lint`: check a configuration, topology, manifest, script or launch command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import binds, option
from nccltune.cli.output import hanging, next_step, print_result, stdout, styled
from nccltune.cli.verb import split_at_dashes, verb
from nccltune.model.scale import count

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.app.lint import LintedConfiguration, LintedLaunch, LintRequest, LintResult
    from nccltune.launch_lint.check import LaunchCheck
    from nccltune.launch_lint.command import Prediction
    from nccltune.launch_lint.finding import LaunchFinding
    from nccltune.topology.lint.check import LintResult as TopologyLintResult
    from nccltune.topology.lint.issue import Issue
    from nccltune.tune.lint import LintIssue

EPILOG = """\b
Examples:
  nccltune lint studies/h200x4
  nccltune lint nodes/*.xml --json              are all nodes alike?
  nccltune lint topo.xml graph.xml              is the graph for this machine?
  nccltune lint 'mpirun -N 8 -n 2 all_reduce_perf -b 1G -e 10G -f 2 -g 1'
  nccltune lint job.sbatch mpijob.yaml
  nccltune lint --nodes 4 --gpus 4 -- srun -N 4 all_reduce_perf -g 4
"""


@verb(epilog=EPILOG)
@click.argument(
    "things",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="FILE|FOLDER|STUDY|'COMMAND'...|-- COMMAND...",
)
@click.option(
    "--kind",
    type=click.Choice(["configuration", "topology", "launch"]),
    help="What the files are  [default: by their content]",
)
@option("--nodes", more=" that a launched job gets.")
@option("--gpus", more="; a script's or manifest's own number comes first.  [default: 8]")
@option("--set", more=": hosts=a:8,b:8 are the hosts of a job whose command names none.")
@option(
    "--launcher",
    more=" that a command is for: openmpi, openmpi:5, hydra, slurm or torchrun  [default: each "
    "that it may be for]",
)
@click.option("--gpu-memory", metavar="SIZE", help="Memory of a GPU, such as 80G: checks -e.")
@click.option(
    "--here",
    is_flag=True,
    help="Also check that this machine has the GPUs and NICs that topology files name.",
)
@binds(request="nccltune.app.lint:LintRequest")
def command(request: LintRequest, kind: str | None) -> int:
    """Check files and commands, each by what its content shows it to be.

    A tuner configuration or a study: lines that cannot be read, gaps, overlaps, rules that never
    apply. Topology and graph files: links that NCCL does not know, NVLinks that lead nowhere, NICs
    out of reach, nodes that differ. A launch command, a script, a Kubernetes manifest or the output
    of nccl-tests: what is really started, and what is wrong with it. Nothing is started. Exit code
    1 for an error or a warning; notes alone are no reason.
    """
    from nccltune.app.lint import LintKind, lint

    named, words = split_at_dashes(tuple(request.things))
    of_kind = None if kind is None else LintKind(kind)
    linted = lint(request._replace(things=named, command=words, kind=of_kind))
    print_result(as_data(linted), show, stdout(), linted)
    return int(linted.is_bad)


_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_INDENT = 9


def show(out: Console, linted: LintResult) -> None:
    """Print the results for each file and command."""
    for configuration in linted.configurations:
        _show_configuration(out, configuration)
    if linted.topologies is not None:
        _show_topologies(out, linted.topologies)
    for number, launch in enumerate(linted.launches):
        if number or linted.configurations or linted.topologies is not None:
            out.print()
        _show_launch(out, launch, named=len(linted.launches) > 1)
    alone = linted.topologies is None and not linted.launches
    if alone and len(linted.configurations) == 1 and not linted.is_bad:
        next_step("nccltune explain", linted.configurations[0].source)


def as_data(linted: LintResult) -> dict[str, Any]:
    """Return all results in the form that `--json` prints."""
    checked = linted.topologies
    topologies = None
    if checked is not None:
        files = [one.source for one in checked.topologies]
        files += [one.source for one in checked.graphs]
        topologies = {"files": files, "issues": checked.issues}
    return {
        "configurations": [
            {"config": str(item.path), "rules": item.rules, "issues": item.issues}
            for item in linted.configurations
        ],
        "topologies": topologies,
        "launches": [
            {
                "source": launch.source,
                "commands": [_plain(check) for check in launch.commands],
                "findings": [_finding(finding) for finding in launch.findings],
            }
            for launch in linted.launches
        ],
    }


def _show_configuration(out: Console, item: LintedConfiguration) -> None:
    for issue in item.issues:
        where = f"{item.path}:{issue.line}" if issue.line else str(item.path)
        _show_issue(out, where, issue)
    counts = _counts(item.issues) if item.is_bad else ["nothing wrong"]
    out.print(", ".join([count(item.rules, "rule"), *counts[:2]]))


def _show_topologies(out: Console, checked: TopologyLintResult) -> None:
    for issue in checked.issues:
        where = f"{issue.source}:{issue.line}" if issue.line else issue.source
        _show_issue(out, where, issue)
    counts = _counts(checked.issues)
    if not checked.is_bad:
        counts = [f"nothing wrong ({counts[2]})" if checked.issues else "nothing wrong"]
    out.print(", ".join([count(checked.files, "file"), *counts]))


def _counts(issues: Sequence[LintIssue | Issue]) -> list[str]:
    kinds = [issue.severity.value for issue in issues]
    return [count(kinds.count(kind), kind) for kind in ("error", "warning", "note")]


def _show_issue(out: Console, where: str, issue: LintIssue | Issue) -> None:
    severity = issue.severity.value
    words = styled(f"{where}: ", (severity, _STYLES[severity]), f": {issue.message}")
    out.print(words, soft_wrap=not out.is_terminal)
    if issue.hint:
        hanging(out, ("  hint: ", "cyan"), 8, issue.hint)


def _show_launch(out: Console, launch: LintedLaunch, *, named: bool) -> None:
    if named and launch.source is not None:
        out.print(styled((launch.source, "bold")), soft_wrap=True)
    is_ok = not launch.is_bad and all(one.id != "faults-in-text" for one in launch.findings)
    alike: dict[str, list[LaunchCheck]] = {}
    for verdict in launch.commands:
        of_file = verdict.command.text.endswith(" SCRIPT") or verdict.service
        shown = [verdict.predictions, verdict.findings, verdict.gpus, verdict.fixed]
        alike.setdefault(repr((*shown, verdict.command if of_file else "")), []).append(verdict)
    for number, (verdict, *same) in enumerate(alike.values()):
        if number:
            out.print()
        file = verdict.command.last("configuration")
        if len(launch.commands) > 1 and file and verdict.command.text.endswith(" SCRIPT"):
            hanging(out, ("config   ", "bold"), _INDENT, file.value)
        more = f", the same for {len(same) + 1} commands" if same else ""
        _show_command(out, verdict, more, is_ok=is_ok)
    for finding in launch.findings:
        _show_finding(out, finding, "")
    if not launch.commands and not launch.findings:
        out.print("nothing wrong in this output, which shows no command to check")


def _show_command(out: Console, verdict: LaunchCheck, more: str, *, is_ok: bool) -> None:
    from nccltune.launch_lint.check import names
    from nccltune.launch_lint.starts import starts

    if verdict.service:
        hanging(out, ("service  ", "bold"), _INDENT, verdict.service)
    for prediction, flavors in verdict.predictions:
        words = starts(prediction, verdict.gpus)
        hanging(out, ("starts   ", "bold"), _INDENT, f"{words}  ({names(flavors)}{more})")
    for held in verdict.findings:
        only = held.flavors != verdict.flavors
        _show_finding(out, held.finding, f"  ({names(held.flavors)})" if only else "")
    if not verdict.findings and is_ok:
        unknown = any(
            one.unknown or (one.inner is not None and one.inner.why)
            for one, _ in verdict.predictions
        )
        lead = ("note     ", "dim") if unknown else ("ok       ", "green")
        of = " in the words; where processes run was not checked" if unknown else ""
        hanging(out, lead, _INDENT, f"nothing wrong{of}")
    assumed = next((p.assumed for p, _ in verdict.predictions if p.assumed), None)
    if assumed is not None:
        hanging(out, ("note     ", "dim"), _INDENT, assumed)
    if verdict.fixed is not None:
        out.print(styled(("fixed", "bold"), f"    {verdict.fixed}"), soft_wrap=True)


def _show_finding(out: Console, finding: LaunchFinding, where: str) -> None:
    severity = finding.severity.value
    style = _STYLES[severity]
    fix = f". {finding.fix[:1].upper()}{finding.fix[1:]}" if finding.fix else ""
    words = finding.message + fix + where
    lead = (severity.ljust(_INDENT), style)
    hanging(out, lead, _INDENT, words)


def _finding(finding: LaunchFinding) -> dict[str, Any]:
    return {
        "severity": finding.severity.value,
        "id": finding.id,
        "message": finding.message,
        "fix": finding.fix or None,
    }


def _plain(verdict: LaunchCheck) -> dict[str, Any]:
    return {
        "command": verdict.written or verdict.command.text,
        "service": verdict.service or None,
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


def _start(prediction: Prediction, gpus: int | None) -> dict[str, Any]:
    placement, inner = prediction.placement, prediction.inner
    processes = placement.processes if placement is not None else prediction.processes
    is_known = gpus is not None and (placement is None or gpus == placement.gpus_per_process)
    return {
        "processes": processes,
        "gpus_per_process": gpus,
        "ranks": processes * gpus if processes is not None and gpus and is_known else None,
        "inner": inner.name if inner is not None else None,
        "nodes": [
            {"host": node.host, "processes": node.processes}
            for node in (placement.nodes if placement is not None else ())
        ],
        "fails": prediction.fails,
        "unknown": prediction.unknown,
        "assumed": prediction.assumed,
    }
