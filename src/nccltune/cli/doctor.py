# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: what is wrong with a node or with many, how it shows, and what to do."""

from collections.abc import Sequence
from pathlib import Path

import click

from nccltune.cli.options import output_option
from nccltune.cli.output import hint, print_json, saving, stdout, write_exact
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune doctor
  nccltune doctor nccl.log job.sbatch topo.xml
  nccltune doctor --collect-script > collect.sh   # run it on every node, then:
  nccltune doctor collected/ --html checks.html
  nccltune doctor --fix-script > fix.sh
  nccltune doctor --rule gdr-read
"""


@verb(epilog=EPILOG, dry_run=True)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER|FILES...]")
@click.option("--all", "show_all", is_flag=True, help="Show every rule, not only the findings.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one HTML page, too."
)
@click.option("--fix-script", is_flag=True, help="Print what would be changed; change nothing.")
@click.option("--rule", metavar="ID", help="Explain one rule by its name or number.")
@output_option("study", "the study that keeps the result, and what the platform is.")
@click.option(
    "--collect",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Only write this node's files into FOLDER, to be read elsewhere.",
)
@click.option("--collect-script", is_flag=True, help="Print a shell script that collects so.")
def command(
    paths: tuple[Path, ...],
    show_all: bool,
    html: Path | None,
    fix_script: bool,
    rule: str | None,
    study: Path | None,
    collect: Path | None,
    collect_script: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Check this node, or collected files of many, against the rule base.

    Without arguments it looks at this node. FILES (an NCCL log, job files, a topology, test
    results) are looked at besides. A FOLDER holds what was collected, a folder a node. Nothing is
    changed. Exit code 1 for an error or a warning that was found; notes alone are no reason.
    """
    from nccltune.app import doctor

    _check(rule, fix_script, as_json, collect, collect_script, paths)
    if rule is not None:
        return _explain(rule, as_json)
    if collect_script:
        _print_script(as_json)
        return 0
    if collect is not None:
        _collect(collect, as_json, dry_run=dry_run)
        return 0
    with working("looking at the nodes"):
        checked = doctor.examine_paths(paths)
    examined = checked.examination
    if study is not None and not dry_run:
        with saving() as saved:
            doctor.keep(checked, study)
        if saved.done:
            hint(f"wrote {study / 'platform.json'} and doctor.json")
    if html is not None and not dry_run:
        doctor.write_page(examined, html)
    if fix_script:
        write_exact(doctor.fix_script(examined))
    elif as_json:
        print_json(examined)
    else:
        from nccltune.cli.doctor_screen import show

        show(stdout(), examined, everything=show_all)
        if html is not None:
            word = "Would write" if dry_run else "page      "
            stdout().print(f"{word} {html}")
    return int(examined.is_wrong)


def _print_script(as_json: bool) -> None:
    from nccltune.app.doctor import collect_script

    if as_json:
        print_json({"script": collect_script()})
    else:
        click.echo(collect_script(), nl=False)


def _collect(folder: Path, as_json: bool, *, dry_run: bool) -> None:
    from nccltune.app.doctor import collect_to

    path = folder if dry_run else collect_to(folder)
    if as_json:
        print_json({"collected": str(path)})
    elif dry_run:
        stdout().print(f"Would collect this node's files into {path}.")
    else:
        stdout().print(f"collected  {path}")


def _explain(name: str, as_json: bool) -> int:
    from nccltune.app.doctor import rule_called
    from nccltune.cli.doctor_screen import explain

    rule = rule_called(name)
    if as_json:
        print_json({"family": rule.family, "needs": sorted(rule.needs), "rule": rule.text})
    else:
        explain(stdout(), rule)
    return 0


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
        raise InputError(f"{given[0]} takes neither --fix-script nor files")
    if fix_script and as_json:
        raise InputError("--fix-script prints a script, and --json has its lines; take one")
