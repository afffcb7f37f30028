# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune demo`."""

from nccltune.app.demo import Demo
from nccltune.cli.measure_screen import VerifyScreen
from nccltune.cli.output import hanging, message_console, stdout, styled
from nccltune.cli.rule_screen import show_proof, show_rules, show_verdict
from nccltune.model.finding import FindingKind
from nccltune.model.scale import count


class DemoScreen(VerifyScreen):
    """Progress of a demo on stderr."""

    def doing(self, words: str) -> None:
        """Print the current step, so that the user always sees progress."""
        message_console().print(f"{words} ...", style="dim")


def show(demo: Demo) -> None:
    """Print the result of each step, the verdict, and the path of the report."""
    _show_steps(demo)
    _show_end(demo)


def _show_steps(demo: Demo) -> None:
    crossovers = [
        finding.collective.prose
        for finding in demo.analysis.findings
        if finding.kind is FindingKind.BAD_CROSSOVER and finding.collective is not None
    ]
    out = stdout()
    platform = demo.study.platform()
    hanging(out, "platform   ", 11, platform.title)
    words = (
        f"of {demo.recording}, {platform.recorded_at or 'undated'}: {demo.tuning.samples} recorded "
        "timings; no GPU needed, nothing is measured here"
    )
    hanging(out, "replay     ", 11, words)
    where = ", ".join(dict.fromkeys(crossovers)) or "none"
    hanging(out, "analysis   ", 11, f"{count(len(crossovers), 'bad crossover')}: {where}")
    show_rules(demo.tuning, out)
    words = (
        f"loaded as NCCL {demo.tuning.nccl_version} loads it: {demo.agreed} of {demo.asked} "
        "decisions follow the rules"
    )
    hanging(out, "plugin     ", 11, words)


def _show_end(demo: Demo) -> None:
    """Print the proof, the verdict, and the path of the report."""
    out = stdout()
    show_proof(demo.proof, out)
    show_verdict(demo.report, demo.study, out)
    out.print("measure    nccltune auto", end="")
    out.print(styled("        ", ("# your own machine: these rules are of the recording's", "dim")))
    out.print(f"took       {demo.seconds:.1f} s")
