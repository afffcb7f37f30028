# SPDX-License-Identifier: Apache-2.0
"""Words on what rules and other levers are worth to a job, for the page and the terminal."""

import msgspec

from nccltune.model.numbers import counted, share_text, size_form
from nccltune.model.scale import Scale
from nccltune.report.words import range_text, time_text
from nccltune.tune.result import JobWorth, LeverWorth, RuleWorth

_OF = {
    "step": "of a step",
    "recorded": "of the recorded time in NCCL",
    "estimated": "of this time in NCCL",
}

_SCALES = 3
"""Most scales in a line."""


class WorthLine(msgspec.Struct, frozen=True):
    """A statement; `lead` says its kind in a word, `command` is what to run to know."""

    lead: str
    words: str
    command: str | None = None
    is_warning: bool = False


def worth_lines(worth: JobWorth) -> list[WorthLine]:
    """Return the job, each rule in its terms, whether all rules pay, and other levers."""
    lines = [WorthLine("job", _job_words(worth))]
    rules = [item.rule for item in worth.rules if item.rule is not None]
    form = size_form(end for rule in rules for end in (rule.min_bytes, rule.max_bytes))
    for item in worth.rules:
        if item.rule is None:
            continue
        sizes = range_text(item.rule.min_bytes, item.rule.max_bytes, "-", form)
        name = f"{item.rule.collective.prose} {sizes} {item.rule.choice.label}"
        lead = "against" if item.advised_against else "worth"
        words = f"{name}: {_rule_words(item, worth)}"
        is_warning = item.calls > 0 and item.advised_against
        lines.append(WorthLine(lead if item.calls else "unused", words, is_warning=is_warning))
    if worth.rules:
        bad = worth.whole.advised_against
        lines.append(WorthLine("verdict", _verdict(worth.whole, worth), is_warning=bad))
    return lines + lever_lines(worth.levers)


def lever_lines(levers: list[LeverWorth]) -> list[WorthLine]:
    """Return what else would pay for the job, or what to measure to know."""
    lines = []
    for item in levers:
        worth = item.worth
        if worth is None:
            lead = "unknown" if item.measure else "no use"
            lines.append(WorthLine(lead, f"{item.name}: {item.why}", item.measure))
            continue
        lead = "little" if worth.advised_against else "worth"
        words = f"{time_text(worth.time_us)} {item.unit} are there; {_saved(worth, item)}"
        if worth.elsewhere and worth.calls:
            words += f"; its calls on {_scales(worth)} are not counted, nothing measured these"
        if not worth.calls:
            lead, words = "unused", "no call of the job is of what was measured"
        if worth.elsewhere and not worth.calls:
            words = f"the job's calls are on {_scales(worth)}, which was not measured"
        words = f"{item.name}: {words}; by its test: {item.why}"
        lines.append(WorthLine(lead, words, is_warning=lead == "little"))
    return lines


def _job_words(worth: JobWorth) -> str:
    parts = [f"{counted(worth.recorders, 'rank')} recorded"]
    if worth.basis == "step":
        parts.append(f"a step takes {time_text(worth.total_us)}")
    if worth.nccl_us is not None:
        parts.append(f"{time_text(worth.nccl_us)} {worth.unit} in NCCL, with waits")
    if worth.untimed:
        parts.append(f"{worth.untimed:,} of {counted(worth.calls, 'call')} without a time")
    if worth.untimed and worth.nccl_us is not None:
        parts[-1] += ", taken as the mean of the others of their size"
    elif worth.untimed and worth.estimated_us:
        parts[-1] += f": {time_text(worth.estimated_us)} {worth.unit} in NCCL, "
        parts[-1] += "recorded or " if worth.untimed < worth.calls else ""
        parts[-1] += "estimated from the measured times of the default"
    parts.append(f"{share_text(worth.covered_share)} of the job's bytes are of what was measured")
    if worth.covered_share and not worth.is_scale_known:
        parts.append("nodes not recorded, taken as those measured")
    if worth.unread:
        parts.append(
            f"not all was readable or recorded ({counted(worth.unread, 'remark')}: see nccltune "
            "workload show)"
        )
    return "; ".join(parts)


def _rule_words(item: RuleWorth, worth: JobWorth) -> str:
    if not item.calls and item.elsewhere and item.rule:
        own = Scale(item.rule.nodes or 0, item.rule.ranks or 0)
        return f"the rule is for {own}; the job's calls in this range are on {_scales(item)}"
    if not item.calls:
        return "no call of the job is in this range"
    kind = "recorded" if item.is_recorded else "estimated"
    parts = [kind, f"{share_text(item.bytes_share)} of the bytes"]
    if worth.basis == "step" and item.is_recorded:
        parts.insert(1, f"{share_text(item.time_us / worth.total_us)} of the step")
    here = f"{time_text(item.time_us)} {worth.unit} are there ({', '.join(parts)})"
    return f"{here}; {_saved(item, worth)}"


def _saved(item: RuleWorth, worth: JobWorth | LeverWorth) -> str:
    if item.saved_us is None or item.saved_low_us is None or item.saved_high_us is None:
        return "what it saves is unknown: its gain over the default was not measured"
    words = f"saves {_signed(item.saved_us)} in NCCL "
    words += f"({_signed(item.saved_low_us)} to {_signed(item.saved_high_us)})"
    if item.exposed_us is not None and item.exposed_us < item.saved_high_us:
        words += f", {time_text(item.exposed_us)} of these calls are not hidden by other kernels"
    if item.most_share is None:
        return words
    if not item.most_share:
        return f"{words}: nothing {_OF[worth.basis]}"
    return f"{words}: at most {share_text(item.most_share)} {_OF[worth.basis]}"


def _scales(item: RuleWorth) -> str:
    more = len(item.elsewhere) - _SCALES
    words = [str(scale) for scale in item.elsewhere[:_SCALES]]
    return " and on ".join([*words, *([f"{more} more scales"] if more > 0 else [])])


def _verdict(whole: RuleWorth, worth: JobWorth) -> str:
    if whole.elsewhere:
        where = f"it runs on {_scales(whole)}, which was not measured"
        return f"no advice for this job: {where}"
    if not whole.calls:
        words = "none of its recorded calls has the scale and size of a rule"
        return f"advised against for this job: {words}"
    if whole.advised_against:
        return f"advised against for this job: all rules together: {_saved(whole, worth)}"
    limit = (
        ""
        if worth.basis == "step"
        else "; it is a smaller share of a step, and steps were not recorded"
    )
    return f"all rules together: {_saved(whole, worth)}{limit}"


def _signed(time_us: float) -> str:
    return f"-{time_text(-time_us)}" if time_us < 0 else time_text(time_us)
