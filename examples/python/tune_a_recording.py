# SPDX-License-Identifier: Apache-2.0
"""Find and verify rules in a copy of a recorded study, and write its report. No GPU needed.

python tune_a_recording.py STUDY
"""

import sys
from pathlib import Path

from nccltune.app.analyze import analyze_study
from nccltune.app.demo import copy_recording
from nccltune.app.report import report_study, write_page
from nccltune.app.study import open_study
from nccltune.app.tune import save_tuning, tune_study
from nccltune.examples import example
from nccltune.tune.result import TuneOptions


def main(path: Path) -> None:
    """Print findings and rules; write tuner.conf and report.html into the study."""
    copy_recording(example("h200x4-as-4-nodes"), path)
    opened = open_study(path)
    for finding in analyze_study(opened).analysis.findings:
        print(finding.sentence)
    tuning = save_tuning(opened.study, tune_study(opened, TuneOptions(min_gain=0.05)))
    for rule in tuning.rules:
        print(rule.collective.value, rule.min_bytes, rule.max_bytes, rule.choice.label)
    report, warnings = report_study(path)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    write_page(report, opened.study.report_path)
    print(report.verdict)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
