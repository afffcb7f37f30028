# SPDX-License-Identifier: Apache-2.0
"""`nccltune tune`: find the rules of a study."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import STUDY, binds, option, output_option, stated_options, tune_options
from nccltune.cli.output import (
    hanging,
    hint,
    next_step,
    print_result,
    show_worth,
    stdout,
    warn_unsaved,
)
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.model.rule import RuleState

if TYPE_CHECKING:
    from nccltune.app.importing import StatedFacts
    from nccltune.app.tune import SavedTuning
    from nccltune.tune.result import TuneOptions

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
  nccltune tune studies/h200x4 --workload traces/
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@output_option("output", "the configuration  [default: STUDY/tuner.conf]", metavar="FILE")
@option("--workload")
@stated_options()
@tune_options()
@binds(options="nccltune.tune.result:TuneOptions")
def command(
    study: Path,
    options: TuneOptions,
    output: Path | None,
    collective: str | None,
    nodes: int | None,
    ranks: int | None,
    dry_run: bool,
) -> None:
    """Find the few size ranges in which a choice beats NCCL's default beyond noise.

    Writes a tuner configuration (NVIDIA's CSV, read by our plugin and by NVIDIA's example) and
    the evidence for each rule to STUDY/tuning.json. A rule is judged over its whole range of sizes.
    All other sizes keep NCCL's default.
    """
    from msgspec import to_builtins

    from nccltune.app.importing import StatedFacts
    from nccltune.app.tune import tune_path

    stated = StatedFacts(collective, nodes, ranks)
    with working("searching rules"):
        found = tune_path(study, options, output, save=not dry_run, stated=stated)
    warn_unsaved(found.unsaved)
    # An error in writing a file that the user named is raised. So with `output`, `unsaved` can only
    # have an error about STUDY/tuning.json.
    is_saved = not dry_run and (output is not None or not found.unsaved)
    wrote = f"Wrote {found.config}" if is_saved else "Not saved"
    wrote = f"Would write {found.config}" if dry_run else wrote
    wrote = wrote if found.config is not None else "Not written (-o FILE does)"
    document = {**to_builtins(found.tuning), "left_out": [*found.left_out]}
    print_result(document, show_result, found, study, wrote, stated)


def show_result(
    found: SavedTuning, study: Path, wrote: str, stated: StatedFacts | None = None
) -> None:
    """Print the tuning, the text `wrote` about the written file, and the next step."""
    from nccltune.cli.import_screen import show_read
    from nccltune.cli.rule_screen import counted_rules, left_alone_words, show_tuning
    from nccltune.report.worth import worth_lines

    tuning = found.tuning
    if found.imported is not None:
        show_read(found.imported)
    show_tuning(tuning)
    if tuning.worth is not None:
        show_worth(worth_lines(tuning.worth), stdout())
    for words in found.models:
        hanging(stdout(), "model      ", 11, words, "dim")
    for words in found.left_out:
        hanging(stdout(), "left out   ", 11, words, "dim")
    stdout().print(f"{wrote} ({counted_rules(tuning)}). {left_alone_words(tuning)}".rstrip())
    next_after_tune(found, study, stated)


def next_after_tune(found: SavedTuning, study: Path, stated: StatedFacts | None = None) -> None:
    """Print the next step: prove the rules, find a cause, measure choices, or read the report."""
    from nccltune.analyze.default_runs import is_before
    from nccltune.app.tune import too_old, verify_command
    from nccltune.cli.import_screen import UPDATE_FIRST, next_of_cause
    from nccltune.study.files import Study

    tuning, is_study = found.tuning, found.imported is None
    ruled = [group for group in tuning.groups if group.rules]
    left = [item for group in tuning.groups for item in group.left_alone]
    states = {item.state for group in ruled for item in group.rules}
    if tuning.worth is not None and (elsewhere := tuning.worth.whole.elsewhere):
        nodes, ranks = elsewhere[0].nodes, elsewhere[0].ranks
        jobs = shlex.join(x for path in tuning.options.workload for x in ("--workload", path))
        hosts = "" if nodes == 1 else f" --launcher NAME --nodes {nodes or 'N'}"
        gpus = ranks // nodes if nodes else 0
        hint(f"next: nccltune auto {jobs}{hosts} --gpus {gpus or 'M'} -o NEW")
        return
    if ruled and (update := too_old(tuning.nccl_version)):
        hint(f"next: {update}")
        return
    is_unwanted = tuning.worth is not None and tuning.worth.whole.advised_against
    if not is_unwanted and states - {RuleState.PROVEN}:
        prove = "prove them: " if RuleState.CANDIDATE in states else ""
        proof = verify_command(Study(study if is_study else Path("STUDY")), tuning)
        given = stated._asdict() if stated is not None else {}
        words = [str(study), *(f"--{name}={x}" for name, x in given.items() if x is not None)]
        first = "" if is_study else f"nccltune import {shlex.join(words)} -o STUDY && "
        hint(f"next: {prove}{first}{proof}")
    elif not ruled and (cause := next_of_cause(bool(tuning.wrong), found.doubts, study, is_study)):
        hint(cause)
    elif not ruled and not any(item.compared for item in left):
        measure = (
            "next: measure other choices beside the default: nccltune sweep -o STUDY, or import "
            "runs with NCCL_ALGO and NCCL_PROTO set"
        )
        hint(UPDATE_FIRST if is_before(tuning.nccl_version) else measure)
    elif is_study or ruled:
        next_step("nccltune report" if is_study else "nccltune analyze", study)
    else:
        hint("next: measure more rounds: nccltune sweep -o STUDY, or add files of further runs")
