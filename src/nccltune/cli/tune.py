# SPDX-License-Identifier: Apache-2.0
"""`nccltune tune`: find the rules of a study."""

from pathlib import Path
from typing import Any

from nccltune.cli.options import STUDY, output_option, tune_options
from nccltune.cli.output import print_result, warn_unsaved
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

EPILOG = """\b
Examples:
  nccltune tune studies/h200x4
  nccltune tune studies/h200x4 -o /etc/nccl-tuner.conf --min-gain 5%
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@output_option("output", "the configuration  [default: STUDY/tuner.conf]", metavar="FILE")
@tune_options()
def command(study: Path, output: Path | None, dry_run: bool, **options: Any) -> None:
    """Find the few size ranges in which a choice beats NCCL's default beyond noise.

    Writes a tuner configuration (NVIDIA's CSV, read by our plugin and by NVIDIA's example) and
    the evidence for each rule to STUDY/tuning.json. A rule is judged over its whole range of sizes.
    All other sizes keep NCCL's default.
    """
    from msgspec import to_builtins

    from nccltune.app.tune import tune_path
    from nccltune.cli.requests import struct_from
    from nccltune.cli.tune_screen import show_result
    from nccltune.tune.result import TuneOptions

    with working("searching rules"):
        found = tune_path(study, struct_from(TuneOptions, options), output, save=not dry_run)
    warn_unsaved(found.unsaved)
    # An error in writing a file that the user named is raised. So with `output`, `unsaved` can only
    # have an error about STUDY/tuning.json.
    is_saved = not dry_run and (output is not None or not found.unsaved)
    wrote = f"Wrote {found.config}" if is_saved else "Not saved"
    wrote = f"Would write {found.config}" if dry_run else wrote
    document = {**to_builtins(found.tuning), "left_out": [*found.left_out]}
    print_result(document, show_result, found, study, wrote)
