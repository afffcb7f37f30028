# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: what is wrong with a node or with many, how it shows, and what to do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import (
    json_option,
    print_json,
    saving,
    stderr,
    stdout,
    working,
    write_exact,
)

if TYPE_CHECKING:
    from nccltune.doctor.facts import Facts
    from nccltune.doctor.result import Examination

EPILOG = """\b
Examples:
  nccltune doctor
  nccltune doctor nccl.log job.sbatch topo.xml
  nccltune doctor --collect-script > collect.sh   # run it on every node, then:
  nccltune doctor collected/ --html checks.html
  nccltune doctor --fix-script > fix.sh
  nccltune doctor --rule gdr-read
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER|FILES...]")
@click.option("--all", "show_all", is_flag=True, help="Show every rule, not only the findings.")
@click.option("--html", type=click.Path(path_type=Path), help="Write one HTML page, too.")
@click.option("--fix-script", is_flag=True, help="Print what would be changed; change nothing.")
@click.option("--rule", metavar="ID", help="Explain one rule by its name or number.")
@click.option("-o", "--output", "study", type=click.Path(path_type=Path),
              help="Keep the result in a study, and what the platform is.")  # fmt: skip
@click.option("--collect", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Only write this node's files into FOLDER, to be read elsewhere.")  # fmt: skip
@click.option("--collect-script", is_flag=True, help="Print a shell script that collects so.")
@json_option()
def command(
    paths: tuple[Path, ...],
    show_all: bool,
    html: Path | None,
    fix_script: bool,
    rule: str | None,
    study: Path | None,
    collect: Path | None,
    collect_script: bool,
    as_json: bool,
) -> int:
    """Check this node, or collected files of many, against the rule base.

    Without arguments it looks at this node. FILES (an NCCL log, job files, a topology, test
    results) are looked at besides. A FOLDER holds what was collected, a folder a node. Nothing is
    changed. Exit code 1 for an error or a warning that was found; notes alone are no reason.
    """
    _check(rule, fix_script, as_json, collect, collect_script, paths)
    if rule is not None:
        return _explain(rule, as_json)
    if collect_script:
        from nccltune.doctor.evidence.script import collect_script as script

        click.echo(script(), nl=False)
        return 0
    if collect is not None:
        from nccltune.doctor.evidence.write import collect_to

        stdout().print(f"collected  {collect_to(collect)}", markup=False)
        return 0
    with working("looking at the nodes"):
        nodes, source = _nodes(paths)
        examined = _examine(nodes, source)
    if study is not None:
        _keep(examined, nodes, study)
    if html is not None:
        _write_page(examined, html)
    if fix_script:
        from nccltune.doctor.script import fix_script as script_of

        write_exact(script_of(examined))
    elif as_json:
        print_json(examined)
    else:
        from nccltune.cli.doctor_screen import show

        show(stdout(), examined, everything=show_all)
        if html is not None:
            stdout().print(f"page       {html}", markup=False)
    return int(examined.is_wrong)


def _check(
    rule: str | None,
    fix_script: bool,
    as_json: bool,
    collect: Path | None,
    collect_script: bool,
    paths: Sequence[Path],
) -> None:
    from nccltune.model.errors import InputError

    alone = {
        "--rule": rule is not None,
        "--collect": collect is not None,
        "--collect-script": collect_script,
    }
    given = [name for name, is_given in alone.items() if is_given]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} are two different things; take one")
    if given and (fix_script or paths):
        raise InputError(f"{given[0]} goes with neither --fix-script nor files")
    if fix_script and as_json:
        raise InputError("--fix-script prints a script, and --json has its lines; take one")


def _nodes(paths: Sequence[Path]) -> "tuple[Mapping[str, Facts], str]":
    """The facts by node, and where they are from in words."""
    from nccltune.doctor.evidence.collect import collect
    from nccltune.doctor.many import read_nodes
    from nccltune.model.errors import InputError

    folders = [path for path in paths if path.is_dir()]
    if not folders:
        facts = collect(files=paths)
        return {facts.node: facts}, f"this node ({facts.node})"
    if len(paths) > 1:
        raise InputError(
            "one folder, or files to look at besides this node",
            where=str(folders[0]),
            hint="put what belongs to a node into its folder",
        )
    return read_nodes(folders[0]), str(folders[0])


def _examine(nodes: "Mapping[str, Facts]", source: str) -> "Examination":
    from nccltune.doctor.examine import examine
    from nccltune.doctor.rulebase import rule_base

    return examine(nodes, rule_base(), source)


def _explain(name: str, as_json: bool) -> int:
    from nccltune.cli.doctor_screen import explain
    from nccltune.doctor.rulebase import rule_base

    rule = rule_base().rule(name)
    if as_json:
        print_json({"family": rule.family, "needs": sorted(rule.needs), "rule": rule.text})
    else:
        explain(stdout(), rule)
    return 0


def _keep(examined: "Examination", nodes: "Mapping[str, Facts]", path: Path) -> None:
    """The examination in the study's doctor.json, and its platform.json filled."""
    from datetime import UTC, datetime

    from nccltune.doctor.platform import fill_platform
    from nccltune.model.study import Study

    study = Study.create(path)
    platform = fill_platform(
        study.platform(), nodes, datetime.now(UTC).isoformat(timespec="seconds")
    )
    with saving() as saved:
        study.write_json(study.platform_path, platform)
        study.write_json(study.doctor_path, examined)
    if saved.done:
        stderr().print(f"wrote {study.platform_path} and doctor.json", markup=False, style="dim")


def _write_page(examined: "Examination", path: Path) -> None:
    from nccltune.model.study import write_whole
    from nccltune.report.examination import render

    write_whole(path, render(examined))
