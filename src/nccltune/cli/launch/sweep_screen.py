# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune launch sweep`."""

from pathlib import Path

from nccltune.app.nccl_tests_sweep import NcclTestsPlan, NcclTestsSwept
from nccltune.cli.output import is_json, next_step, print_json, stdout, styled
from nccltune.model.choice import choice_label
from nccltune.model.scale import count


def show_plan(plan: NcclTestsPlan) -> None:
    """Print the plan of a sweep."""
    choices = {
        collective.value: [choice_label(choice) for choice in items]
        for collective, items in plan.choices.items()
    }
    if is_json():
        print_json(
            {
                "platform": plan.platform,
                "choices": choices,
                "processes": plan.processes,
                "total_seconds": plan.seconds,
            }
        )
        return
    out = stdout()
    out.print(f"platform   {plan.platform.title}")
    for name, labels in choices.items():
        out.print(f"{name:<14}{' '.join(labels)}")
    out.print(
        f"Would start {plan.processes} processes in {plan.rounds} rounds, some "
        f"{plan.seconds:.2g} s. Nothing was measured or written."
    )


def show_swept(swept: NcclTestsSwept, study: Path) -> None:
    """Print how much was measured, and the choices that were left out."""
    outcome = swept.outcome
    left_out = [
        {"collective": collective, "choice": choice_label(choice), "why": why}
        for collective, choice, why in outcome.left_out
    ]
    if is_json():
        print_json({"platform": swept.platform, "sweep": swept.summary, "left_out": left_out})
        return
    out = stdout()
    before = f" and {outcome.known} from before" if outcome.known else ""
    ended = " · the budget is spent: the same command goes on" if outcome.reason == "budget" else ""
    out.print(
        f"nccl-tests {count(outcome.points, 'point')}{before} in {outcome.seconds:.1f} "
        f"seconds{ended}"
    )
    for item in left_out:
        words = f"   {item['collective']} {item['choice']}: {item['why']}"
        out.print(styled(("left out", "yellow"), words))
    out.print(f"study      {study}")
    next_step("nccltune tune", study)
