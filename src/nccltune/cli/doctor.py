# SPDX-License-Identifier: Apache-2.0
"""`nccltune doctor`: find problems of one or many nodes, with evidence and remedies."""

from pathlib import Path

import click

from nccltune.cli.options import FILE, PATH, output_option
from nccltune.cli.output import (
    hint,
    is_json,
    print_json,
    print_result,
    stdout,
    warn_unsaved,
    write_exact,
)
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
@click.argument("paths", nargs=-1, type=PATH, metavar="[FOLDER|FILES...]")
@click.option("--all", "show_all", is_flag=True, help="Show every rule, not only the findings.")
@click.option("--html", help="Write one HTML page, too.", **FILE)
@click.option("--fix-script", is_flag=True, help="Print what would be changed; change nothing.")
@click.option("--rule", metavar="ID", help="Explain one rule by its name or number.")
@output_option("study", "the study that keeps the result, and what the platform is.")
@click.option(
    "--collect",
    type=PATH,
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
) -> int:
    """Check this node, or collected files of many, against the rule base.

    Without arguments it looks at this node. FILES (an NCCL log, job files, a topology, test
    results) are looked at besides, and those of another host alone. A FOLDER holds what was
    collected, a folder a node. Nothing is changed. Exit code 1 for an error or a warning that was
    found; notes alone are no reason.
    """
    from nccltune.app import doctor
    from nccltune.cli.doctor_screen import explain, show

    alone = {"--rule": rule, "--collect": collect, "--collect-script": collect_script or None}
    _check([name for name, value in alone.items() if value is not None], fix_script, paths)
    if rule is not None:
        found = doctor.rule_called(rule)
        document = {"family": found.family, "needs": sorted(found.needs), "rule": found.text}
        print_result(document, explain, stdout(), found)
        return 0
    if collect_script:
        script = doctor.collect_script()
        print_result({"script": script}, click.echo, script, nl=False)
        return 0
    if collect is not None:
        path = collect if dry_run else doctor.collect_to(collect)
        words = f"Would collect this node's files into {path}." if dry_run else f"collected  {path}"
        print_result({"collected": str(path)}, stdout().print, words)
        return 0
    with working("looking at the nodes"):
        checked = doctor.examine_paths(paths)
    examined = checked.examination
    if checked.files_alone:
        hint("looked at the files alone: they are not of this node")
    if study is not None and not dry_run:
        unsaved = doctor.keep(checked, study)
        warn_unsaved(unsaved)
        if not unsaved:
            hint(f"wrote {study / 'platform.json'} and doctor.json")
    if html is not None and not dry_run:
        doctor.write_page(examined, html)
    if fix_script:
        write_exact(doctor.fix_script(examined))
    elif is_json():
        print_json(examined)
    else:
        show(stdout(), examined, everything=show_all)
        if html is not None:
            stdout().print(f"{'Would write' if dry_run else 'page      '} {html}")
    return int(examined.is_wrong)


def _check(alone: list[str], fix_script: bool, paths: tuple[Path, ...]) -> None:
    """Raise InputError for options that contradict each other.

    `alone` has those of --rule, --collect and --collect-script that were given. Each of them
    excludes the others, --fix-script and paths.
    """
    from nccltune.model.errors import InputError

    if len(alone) > 1:
        raise InputError(f"{alone[0]} and {alone[1]} are two different things; take one")
    if alone and (fix_script or paths):
        raise InputError(f"{alone[0]} takes neither --fix-script nor files")
    if fix_script and is_json():
        raise InputError("--fix-script prints a script, and --json has its lines; take one")
