# SPDX-License-Identifier: Apache-2.0
"""Remove or narrow rules of a configuration file, or state that they are proven.

Other rows and comments do not change. The row of a removed rule becomes a comment with the reason.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from nccltune.formats.tuner_config.csv_rules import (
    MAX_LINE,
    config_hash,
    mark,
    parse_rules,
    with_rows,
    write_rules,
)
from nccltune.model.rule import Rule, RuleState
from nccltune.prove.result import Proof, RemovedRule
from nccltune.study.files import Study, write_whole
from nccltune.tune.result import Decision, LeftAlone, RuleEvidence, TunedGroup, Tuning, gain_of

BEFORE_SUFFIX = ".before-verify"


def before_path(config: Path) -> Path:
    """Return the path of the copy that `verify` makes of a configuration before the first
    change."""
    return config.with_name(config.name + BEFORE_SUFFIX)


def without(text: str, dropped: Sequence[RemovedRule]) -> str:
    """Return the text of a configuration without the rules in `dropped`.

    A rule that has a narrower replacement is replaced by it. Raises InputError if `text` is not a
    configuration.
    """
    lines: list[str | None] = list(text.split("\n"))
    for item in parse_rules(text).rules:
        number = item.line
        found = next((one for one in dropped if one.rule == item.rule), None)
        if found is None:
            continue
        row = (lines[number - 1] or "").removesuffix("\r").strip()
        what = "narrowed" if found.narrowed else "removed"
        note = f"# {what} by nccltune {found.by} ({_plain(found.reason)}): {row}"
        new = [
            note if len(note.encode()) <= MAX_LINE else f"# {what} by nccltune {found.by}: {row}"
        ]
        if found.narrowed is not None:
            new.append(write_rules([found.narrowed], {}).strip().rpartition("\n")[2])
            if item.state is not None:
                new.insert(1, mark(RuleState.CANDIDATE, f"narrowed by nccltune {found.by}"))
        lines[number - 1] = "\n".join(new)
        if item.state is not None:
            lines[number - 2] = None
    return with_rows("\n".join(line for line in lines if line is not None))


def mark_rules(study: Study, proof: Proof) -> Proof:
    """Write the states that a proof found into `tuner.conf`; return the proof with its new hash.

    Rules that hold are proven. A rule that the proof has not decided is no longer proven; a rule
    that it did not measure keeps its state. `tuning.json` gets the same states if it describes
    `tuner.conf`. Raises what `remove_rules` raises.
    """
    text = study.config_path.read_text(encoding="utf-8")
    new = _marked(text, proof)
    if proof.rules and proof.holding == len(proof.rules):
        # Rows that somebody changed are now proven, too.
        new = with_rows(new)
    if new == text:
        return proof
    _write_both(
        study,
        text,
        new,
        lambda tuning: with_proof(tuning, proof),
    )
    return msgspec.structs.replace(proof, config_hash=config_hash(new.encode()))


def with_proof(tuning: Tuning, proof: Proof) -> Tuning:
    """Return a tuning in which the rules that hold in `proof` are proven.

    A rule that did not hold is not offered again: its sizes are left alone, with what was found.
    """
    tuning = without_failed(tuning, proof.dropped)
    holding = _holding(proof)
    gains = {item.rule: item.gain for item in proof.rules}
    groups = [
        msgspec.structs.replace(
            group,
            rules=[
                msgspec.structs.replace(
                    item,
                    state=RuleState.PROVEN,
                    reason=holding[item.rule],
                    decided_by=None,
                    proven_gain=gains[item.rule],
                )
                if item.rule in holding
                else item
                for item in group.rules
            ],
        )
        for group in tuning.groups
    ]
    return msgspec.structs.replace(tuning, groups=groups)


def _within(evidence: RuleEvidence, item: RemovedRule) -> RemovedRule | None:
    """Return what becomes of a rule that is a removed one, or part of it beyond what replaced it.

    Return None for another rule.
    """
    rule, failed, kept = evidence.rule, item.rule, item.narrowed
    same = msgspec.structs.replace(failed, min_bytes=rule.min_bytes, max_bytes=rule.max_bytes)
    inside = failed.min_bytes <= rule.min_bytes and rule.max_bytes <= failed.max_bytes
    held = kept is not None and (
        kept.min_bytes <= rule.min_bytes and rule.max_bytes <= kept.max_bytes
    )
    if rule != same or not inside or held:
        return None
    return item if rule == failed else msgspec.structs.replace(item, narrowed=None)


def without_failed(
    tuning: Tuning,
    dropped: Sequence[RemovedRule],
    failed_part: Callable[[RuleEvidence, RemovedRule], RemovedRule | None] = _within,
) -> Tuning:
    """Return a tuning without rules that were removed, or with what narrows them.

    `failed_part` returns what becomes of a rule because of a removed one; by default this concerns
    rules that lie within it. The sizes of these rules are listed under `left_alone`, with the
    reason. What the rules were worth to a job is then unknown.
    """
    for _ in dropped:
        failed = {
            evidence.rule: found
            for group in tuning.groups
            for evidence in group.rules
            for found in [next(filter(None, (failed_part(evidence, one) for one in dropped)), None)]
            if found is not None
        }
        if not failed:
            break
        groups = [
            _reduced(group, failed) if any(item.rule in failed for item in group.rules) else group
            for group in tuning.groups
        ]
        tuning = msgspec.structs.replace(tuning, groups=groups, worth=None)
    return tuning


def proof_marks(proof: Proof) -> dict[Rule, str]:
    """Return the comment above each rule that holds."""
    return {rule: mark(RuleState.PROVEN, words) for rule, words in _holding(proof).items()}


def _holding(proof: Proof) -> dict[Rule, str]:
    """Return the rules that hold, with their gain in words."""
    how = "in a replay" if proof.replay else "by verify"
    how += " at the sizes of a job" if proof.workload else ""
    return {
        item.rule: f"{item.gain:.2f}x faster than the default (95 % CI {item.gain_low:.2f}-"
        f"{item.gain_high:.2f}), measured {how} on {proof.at[:10]}"
        for item in proof.rules
        if item.verdict == "holds"
    }


def _marked(text: str, proof: Proof) -> str:
    lines = text.split("\n")
    holding = proof_marks(proof)
    undecided = {item.rule for item in proof.rules if item.verdict == "open"}
    for item in reversed(parse_rules(text).rules):
        words = holding.get(item.rule)
        if item.rule in undecided and item.state is RuleState.PROVEN:
            words = mark(RuleState.CANDIDATE, "nccltune verify has not decided")
        if words is None:
            continue
        place = item.line - 1
        lines[place - (item.state is not None) : place] = [words]
    return "\n".join(lines)


def remove_rules(config: Path, dropped: Sequence[RemovedRule], *, keep: Path | None) -> None:
    """Remove rules from a configuration, and from the `tuning.json` that describes it.

    First copy the configuration to `keep`. Raises InputError or StudyError where a file cannot be
    read, and UnwritableError where a file cannot be written.
    """
    text = config.read_text(encoding="utf-8")
    if keep is not None:
        write_whole(keep, text)
    new = without(text, dropped)
    study = Study(config.parent)
    if config != study.config_path:
        write_whole(config, new)
        return
    _write_both(study, text, new, lambda tuning: without_failed(tuning, dropped))


def _write_both(study: Study, text: str, new: str, change: Callable[[Tuning], Tuning]) -> None:
    """Replace `tuner.conf`, which has `text`, and change `tuning.json` if it describes `text`.

    `change` receives the tuning, which then gets the hash of the new configuration.
    """
    tuning = None
    if study.tuning_path.is_file():
        tuning = study.read_json(study.tuning_path, Tuning)
    write_whole(study.config_path, new)
    if tuning is not None and tuning.config_hash == config_hash(text.encode()):
        changed = msgspec.structs.replace(change(tuning), config_hash=config_hash(new.encode()))
        study.write_json(study.tuning_path, changed)


def _reduced(group: TunedGroup, dropped: dict[Rule, RemovedRule]) -> TunedGroup:
    rules: list[RuleEvidence] = []
    left = list(group.left_alone)
    gone: set[int] = set()
    for evidence in group.rules:
        found = dropped.get(evidence.rule)
        if found is None:
            rules.append(evidence)
            continue
        narrow = found.narrowed
        kept = [
            size
            for size in evidence.sizes
            if narrow is not None and narrow.min_bytes <= size <= narrow.max_bytes
        ]
        if narrow is not None:
            rules.append(
                _narrowed(evidence, narrow, [row for row in group.decisions if row.bytes in kept])
            )
        out = [size for size in evidence.sizes if size not in kept]
        gone |= set(out)
        for part in _runs(out, [row.bytes for row in group.decisions]):
            reason = f"{evidence.rule.choice.label} did not hold in {found.by}: {found.reason}"
            left.append(LeftAlone(part[0], part[-1], len(part), reason))
    decisions = [
        msgspec.structs.replace(
            row,
            choice=None,
            tuned_us=row.default_us or row.tuned_us,
            gain=None,
            gain_low=None,
            gain_high=None,
        )
        if row.bytes in gone
        else row
        for row in group.decisions
    ]
    expected_gain, recovered = gain_of(decisions, rules)
    return msgspec.structs.replace(
        group,
        rules=rules,
        left_alone=sorted(left, key=lambda item: item.min_bytes),
        decisions=decisions,
        expected_gain=expected_gain,
        recovered=recovered,
    )


def _narrowed(evidence: RuleEvidence, rule: Rule, kept: Sequence[Decision]) -> RuleEvidence:
    """Return the evidence for the narrower `rule`, from the decisions at the sizes that it keeps.

    The interval of the gain is None, because it was computed for all sizes of the old rule.
    """
    gains = [row.gain for row in kept if row.gain is not None]
    mean = math.fsum(map(math.log, gains)) / len(gains) if gains else None
    return msgspec.structs.replace(
        evidence,
        rule=rule,
        sizes=[row.bytes for row in kept],
        gain=None if mean is None else math.exp(mean),
        gain_low=None,
        gain_high=None,
        least=min(gains, default=None),
        most=max(gains, default=None),
    )


def _runs(sizes: Sequence[int], every: Sequence[int]) -> list[list[int]]:
    """Return `sizes` in groups. The sizes of a group are neighbours in `every`, which is sorted."""
    runs: list[list[int]] = []
    for place, size in enumerate(every):
        if size not in sizes:
            continue
        if runs and place and runs[-1][-1] == every[place - 1]:
            runs[-1].append(size)
        else:
            runs.append([size])
    return runs


def _plain(text: str) -> str:
    return text.encode("ascii", "replace").decode()
