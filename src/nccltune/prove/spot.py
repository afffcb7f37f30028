# SPDX-License-Identifier: Apache-2.0
"""Spot check: decide in seconds whether deployed rules still hold.

A proof begins with doubt: a rule stays only if it is shown to be faster. A spot check begins with a
rule that was measured: it is dropped only if it is shown that its gain is gone. What was not shown
either way is reported as such. The rules that carry most are measured first, one after the other,
each at a few sizes in its range: default and tuned in alternating order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from nccltune.analyze.stats import Interval
from nccltune.formats.tuner_config.csv_rules import FileRule
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.communicator import PlanRun, Watcher
from nccltune.measure.engine.point_record import PointRecord
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import format_bytes
from nccltune.prove.collective_proof import CollectiveProof
from nccltune.prove.judge import LEAST_FLOOR, interval, strictness
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import ProvenSize
from nccltune.prove.sizes import (
    LEAST_BYTES,
    MOST_BYTES,
    PLAIN_CALLS,
    ProvenCalls,
    applies,
    at_scale,
    sizes_to_prove,
    taken,
)
from nccltune.study.files import Study

SpotVerdict = Literal["keep", "drop", "measure again", "not decided", "not checked"]
"""The verdict on one rule.

- `keep`: faster than the default beyond noise
- `drop`: not faster, and its gain is gone; or it fails, is slower or changes nothing
- `measure again`: faster, but by less than half of the gain that was recorded
- `not decided`: neither its gain nor the loss of its gain is beyond noise
- `not checked`: it was not measured
"""
CHANCE = 0.001
"""The chance that any rule of a check is called wrong by mistake, less than in a proof: checks are
repeated for months."""
SIZES_OF_A_RULE = 3
MOST_RULES = 64
"""The most rules that a check measures: those that carry most."""
_OTHER_CALLS = "for calls that cannot be measured here (registered buffers, groups)"
_ASSUMED_GAIN = 1.05
"""The gain by which a rule is ranked that has none recorded."""
_SEED = 2003
"""A seed of its own. With that of a sweep or a proof, a replay would draw their timings again."""


class Gain(msgspec.Struct, frozen=True):
    """Default time over tuned time, with its 95 % interval."""

    value: float
    low: float
    high: float


class SpotCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One rule with its verdict.

    recorded  the gain in the configuration; None if it has none, or only that of a candidate
    gain      the gain in this check, from `rounds` rounds
    sizes     what was measured, by size
    changed   what NCCL's default ran when the rule was made and what it runs now, where it differs
    """

    rule: Rule
    line: int
    state: RuleState | None
    verdict: SpotVerdict = "not checked"
    reason: str
    recorded: Gain | None = None
    gain: Gain | None = None
    rounds: int = 0
    sizes: list[ProvenSize] = []
    changed: list[str] = []


class SpotSite(NamedTuple):
    """Where and how long rules are measured.

    `scratch` is a study for the timings. `measured` are sizes of the sweep by collective, `others`
    the calls besides plain ones, and `ran` what the default ran by collective and size.
    """

    bench: Bench
    scratch: Study
    budget_s: float
    measured: Mapping[Collective, Sequence[int]]
    others: Sequence[ProvenCalls]
    ran: Mapping[tuple[Collective, int], str]


def by_weight(rules: Sequence[FileRule]) -> list[int]:
    """Return the indices of rules by what these carry: the log of the gain times octaves."""

    def weight(index: int) -> float:
        item = rules[index]
        gain = (item.gain or (_ASSUMED_GAIN,))[0]
        low, high = max(item.rule.min_bytes, LEAST_BYTES), min(item.rule.max_bytes, MOST_BYTES)
        return math.log(max(gain, 1.0)) * math.log2(2 * max(high / low, 1.0))

    return sorted(range(len(rules)), key=weight, reverse=True)


def judge(
    gains: Sequence[float], recorded_low: float | None, confidence: float
) -> tuple[SpotVerdict, str]:
    """Return the verdict on a rule and the reason.

    `gains` are logs of default over tuned time, one a round. `recorded_low` is the lower end of the
    recorded gain, as a ratio. A rule is called wrong with `confidence`, and confirmed with 95 %, by
    the interval that is printed.

    >>> judge([0.30, 0.31, 0.29, 0.30, 0.30, 0.31], 1.3, 0.999)[0]
    'keep'
    >>> judge([0.00, 0.01, -0.01, 0.00, 0.01, 0.00], 1.3, 0.999)[0]
    'drop'
    """
    plain, found = interval(gains), interval(gains, confidence)
    if plain is None or found is None:
        return "not checked", f"{count(len(gains), 'round')} in the time given: too few to judge"
    half = math.log(recorded_low) / 2 if recorded_low is not None and recorded_low > 1 else None
    is_lost = half is not None and found.high < half
    is_tiny = found.high < math.log1p(LEAST_FLOOR)
    if plain.low > 0 and not is_tiny:
        if is_lost:
            return "measure again", "faster than the default, but by less than half of its gain"
        return "keep", "faster than the default beyond noise"
    if is_lost or is_tiny:
        faster = f"faster by less than {100 * LEAST_FLOOR:.0f} %" if plain.low > 0 else "not faster"
        return "drop", f"{faster}: its gain is gone beyond noise"
    return "not decided", "neither a gain nor the loss of it is beyond noise"


def judge_proof(
    proof: CollectiveProof, index: int, recorded_low: float | None, confidence: float
) -> tuple[SpotVerdict, str]:
    """Return the verdict on rule `index` from its timings, and the reason."""
    sizes = proof.of_rule(index)
    fault = proof.fault(index)
    if fault is not None:
        return "drop", fault
    if not sizes:
        return "not checked", f"could not be measured: {next(iter(proof.lost.values()))}"
    verdict, reason = judge(proof.pooled(sizes), recorded_low, confidence)
    if verdict == "not checked":
        return verdict, reason
    slower = [size for size in sizes if _is_slower(interval(proof.gains(size), confidence), proof)]
    if slower:
        return "drop", f"slower: {proof.gain_words(slower[0])}"
    same = proof.equal_to_default(index, sizes)
    if same is not None and verdict != "keep":
        return "drop", f"equal to the default: NCCL runs {same} without the rule, too"
    return verdict, reason


def _is_slower(found: Interval | None, proof: CollectiveProof) -> bool:
    return found is not None and found.high < 0 and found.value < -proof.floor


def spot_sizes(
    rules: Sequence[Rule], index: int, scale: Scale, measured: Sequence[int], calls: ProvenCalls
) -> list[int]:
    """Return the sizes at which rule `index` is measured: a few, spread over its range.

    Sizes of the sweep are taken where it has enough of them.
    """
    rule = rules[index]
    collective = rule.collective

    def own(sizes: Sequence[int]) -> list[int]:
        return [size for size in sizes if taken(rules, collective, size, scale, calls) == index]

    known = own(measured) if calls == PLAIN_CALLS else []
    if len(known) < SIZES_OF_A_RULE:
        known = own(sizes_to_prove(collective, scale, known, [rule], calls)) or known
    if len(known) < SIZES_OF_A_RULE:
        known = sorted({*known, *own(sizes_to_prove(collective, scale, (), [rule], calls))})
    places = (round((2 * n + 1) / 6 * (len(known) - 1)) for n in range(SIZES_OF_A_RULE))
    return [known[place] for place in dict.fromkeys(places)] if known else []


def spot_check(
    items: Sequence[FileRule],
    site: SpotSite,
    watcher: Watcher[ProofPlan],
    done: Callable[[SpotCheck], None],
) -> list[SpotCheck]:
    """Measure rules in turn until the budget is spent; return all in the order of `items`.

    Raises the errors of `Bench`, and StudyError if the scratch study cannot be written.
    """
    hello = site.bench.hello
    scale = Scale(hello.nodes, hello.ranks)
    rules = [item.rule for item in items]
    found = {n: unmeasured(item, _why_not(item.rule, scale)) for n, item in enumerate(items)}
    here = [index for index in by_weight(items) if at_scale(rules[index], scale)]
    most = min(len(here), MOST_RULES)
    strict = strictness(SIZES_OF_A_RULE * most, most, CHANCE)
    left = site.budget_s
    for number, index in enumerate(here[:most]):
        rule = rules[index]
        calls = next((c for c in (PLAIN_CALLS, *site.others) if applies(rule, scale, c)), None)
        known = site.measured.get(rule.collective, ())
        sizes = [] if calls is None else spot_sizes(rules, index, scale, known, calls)
        if calls is None or not sizes:
            why = "other rules take all of its range first" if calls else _OTHER_CALLS
            found[index] = unmeasured(items[index], why)
            continue
        if left <= 0:
            continue
        plan = ProofPlan(rules, scale, site.measured, 0, only={(rule.collective, calls): sizes})
        (proof,) = plan.proofs.values()
        proof.strict = strict
        record = PointRecord(site.scratch, hello, verifying=True)
        # One rule of large messages must not take all the time.
        share = max(left / (most - number), site.budget_s / 6)
        run = PlanRun(plan, site.bench, record, watcher, budget_s=min(left, share), seed=_SEED)
        left -= run.run().seconds
        found[index] = _checked(items[index], proof, index, strict.rule, site.ran)
        done(found[index])
    return [found[index] for index in range(len(items))]


def _checked(
    item: FileRule,
    proof: CollectiveProof,
    index: int,
    confidence: float,
    ran: Mapping[tuple[Collective, int], str],
) -> SpotCheck:
    found = unmeasured(item, "")
    low = None if found.recorded is None else found.recorded.low
    verdict, reason = judge_proof(proof, index, low, confidence)
    sizes = proof.of_rule(index)
    gains = proof.pooled(sizes)
    now = interval(gains)
    changed = []
    for size in sizes:
        before, after = ran.get((item.rule.collective, size)), proof.ran_choice(size, DEFAULT)
        if before is not None and after is not None and before != after.label:
            changed.append(f"{before} then, {after.label} now at {format_bytes(size)}")
    return msgspec.structs.replace(
        found,
        verdict=verdict,
        reason=reason,
        gain=None if now is None else Gain(*now.ratio[:3]),
        rounds=len(gains),
        sizes=proof.group().sizes,
        changed=changed,
    )


def unmeasured(item: FileRule, reason: str) -> SpotCheck:
    """Return a rule that was not measured, with the reason."""
    gain = None if item.state is RuleState.CANDIDATE else item.gain
    return SpotCheck(
        rule=item.rule,
        line=item.line,
        state=item.state,
        reason=reason,
        recorded=None if gain is None else Gain(*gain),
    )


def _why_not(rule: Rule, scale: Scale) -> str:
    if not at_scale(rule, scale):
        return f"for another scale; this run has {scale}"
    return "the time given was over; rules that carry more were measured"
