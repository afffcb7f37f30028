# SPDX-License-Identifier: Apache-2.0
"""`nccltune analyze`: curves and findings of a study, or of a log as it was pasted."""

from pathlib import Path

import click

from nccltune.cli.options import PATH, option, options, stated_options
from nccltune.cli.output import print_result, warn, warn_unsaved
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.model.errors import InputError

EPILOG = """\b
Examples:
  nccltune analyze studies/h200x4
  nccltune analyze all_reduce.log
  nccltune analyze studies/h200x4 --json | jq '.findings[].sentence'
"""


def _one(_: click.Context, __: click.Parameter, paths: tuple[Path, ...]) -> Path | None:
    if len(paths) > 1:
        way = "of several files give the folder, or compare two: nccltune compare A B"
        raise InputError("analyze takes one STUDY", where=str(paths[1]), hint=way)
    return paths[0] if paths else None


@verb(epilog=EPILOG, dry_run=True)
@click.argument("study", type=PATH, nargs=-1, required=True, metavar="STUDY", callback=_one)
@stated_options()
@options("--assume-noise")
@option("--check", more=" if there is a bad crossover or a worse finding.")
def command(
    study: Path,
    nodes: int | None,
    ranks: int | None,
    collective: str | None,
    assumed_noise: float,
    check: bool,
    dry_run: bool,
) -> int:
    """Show S-curves in numbers and what is wrong with them.

    Dips, plateaus and bad crossovers (where another choice beats NCCL's default beyond noise),
    what is not a tuning problem, and how noisy the measurements are. With a topology in the study
    (nccltune import TOPO.xml) also what the links allow, and which one sets the limit. Written to
    STUDY/findings.json, too. STUDY may also be a file, a folder of files, or - for standard input,
    of any form that `nccltune import` reads: then nothing is written, and the exit code is 1 where
    that of `nccltune compare FOLDER` is, for a fleet with a slow node.
    """
    from nccltune.app.analyze import analyze_path, is_serious
    from nccltune.app.compare import FleetCompared
    from nccltune.app.importing import StatedFacts
    from nccltune.cli.analyze_screen import show

    with working("analyzing"):
        stated = StatedFacts(collective, nodes, ranks)
        found = analyze_path(study, assumed_noise=assumed_noise, save=not dry_run, stated=stated)
    for part in found.parts:
        warn(part.warnings)
        warn_unsaved(part.unsaved)
    analyses = [part.analysis for part in found.parts]
    whole = {"analyses": analyses, "compared": found.compared}
    again = "".join(f" --{name} {value}" for name, value in stated._asdict().items() if value)
    print_result(analyses[0] if len(analyses) == 1 else whole, show, found, study, again)
    fleet = isinstance(found.compared, FleetCompared) and found.compared.has_finding
    return int(fleet or (check and any(map(is_serious, analyses))))
