# SPDX-License-Identifier: Apache-2.0
"""Prove rules by a user's program of nccl-tests: its rounds, and the plan that judges them.

A round is two starts of the program close together in time, one without and one with the plugin.
All timings of a start share an offset. So a start gives one value for each size, the mean over its
data types, operations, and in place and out of place. The rounds are judged by `ProofPlan`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.measure.bench.conditions import REPLAY_TOOL, TOOL, CallKind
from nccltune.measure.bench.conversation import BenchPoint, ExecutedChoice, PointKey
from nccltune.measure.engine.record import LineFile
from nccltune.model.choice import DEFAULT, TUNED_RUN, Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.model.scale import Scale
from nccltune.model.sizes import exact_bytes
from nccltune.prove.judge import MOST_ROUNDS, STEP
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import Proof, ProofGroup, RuleProof
from nccltune.prove.sizes import LEAST_BYTES, MOST_BYTES, ProvenCalls, applies, taken
from nccltune.study import names
from nccltune.study.files import Study

LOOKS = MOST_ROUNDS // STEP // 2
"""The confidence of a gain is raised for this many looks at the rounds (Bonferroni). Only one of
the two sides of an interval proves a gain, so half the number of looks is enough."""
_Calls = tuple[Collective, ProvenCalls]


class ProgramRound(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `verify-rounds.jsonl`: a round of which both starts ended well.

    program  the command, with the words that describe its launcher
    rules    the rules that were loaded
    seconds  duration of the two starts
    """

    schema_version: int = SCHEMA_VERSION
    round: int
    program: list[str]
    nodes: int
    ranks: int
    rules: list[Rule]
    seconds: float
    at: str

    @property
    def scale(self) -> Scale:
        """Return the scale of both starts."""
        return Scale(self.nodes, self.ranks)


class ProgramRounds:
    """The rounds of one program in a study. With `anew`, rounds of earlier runs are not used.

    Raises StudyError for a damaged line.
    """

    def __init__(self, study: Study, program: Sequence[str], *, anew: bool = False) -> None:
        self._rounds = LineFile(study, names.VERIFY_ROUNDS, ProgramRound)
        self._samples = LineFile(study, names.SAMPLES, Sample)
        self._study = study.name
        self.program = list(program)
        every = self._rounds.read()
        self._timings: dict[int, list[Sample]] = {}
        for sample in self._samples.stream():
            if _is_ours(sample):
                self._timings.setdefault(sample.round, []).append(sample)
        used = [item.round for item in every] + list(self._timings)
        self.next_round = max(used, default=-1) + 1
        self.known = [] if anew else [item for item in every if item.program == self.program]
        self.done: list[ProgramRound] = []

    def add_samples(self, samples: Iterable[Sample]) -> None:
        """Record the timings of a start of round `next_round`. Raises StudyError."""
        new = [
            msgspec.structs.replace(sample, study=self._study, round=self.next_round)
            for sample in samples
        ]
        self._samples.append(new)
        self._timings.setdefault(self.next_round, []).extend(new)

    def end(self, done: ProgramRound) -> None:
        """Record that both starts of round `next_round` ended well. Raises StudyError."""
        self._rounds.append([done])
        self.done.append(done)
        self.next_round += 1

    @property
    def rounds(self) -> list[ProgramRound]:
        """Return the rounds that can be judged together: those at the scale of the last one."""
        every = [*self.known, *self.done]
        return [item for item in every if item.scale == every[-1].scale]

    @property
    def points(self) -> tuple[int, int]:
        """Return the number of timings of this run, and of those used from earlier runs."""
        new = sum(len(self._timings.get(item.round, ())) for item in self.done)
        return new, sum(len(self._timings.get(item.round, ())) for item in self.rounds) - new

    def plan(
        self, rules: Sequence[Rule], measured: Mapping[Collective, Sequence[int]]
    ) -> ProofPlan:
        """Return the judge of `rules`, with all timings that were made with the same choice.

        `measured` maps collectives to the sizes of the study. At least one round must have ended.
        """
        rounds = self.rounds
        paired = [_paired(self._timings.get(item.round, ())) for item in rounds]
        sizes: dict[_Calls, list[int]] = {}
        for calls, size in sorted(paired[-1], key=lambda key: (key[0][0].value, key[0][1], key[1])):
            sizes.setdefault(calls, []).append(size)
        scale = rounds[-1].scale
        plan = ProofPlan(rules, scale, measured, 0, only=sizes)
        for proof in plan.proofs.values():
            strict = proof.strict
            proof.strict = strict._replace(rule=1 - (1 - strict.rule) / LOOKS)
        for number, (item, found) in enumerate(zip(rounds, paired, strict=True)):
            for ((collective, kind), size), pair in found.items():
                before = _choice(item.rules, scale, collective, size, kind)
                if before == _choice(rules, scale, collective, size, kind):
                    _feed(plan, collective, kind, size, number, pair)
        return plan


class _Pair(NamedTuple):
    """The timings of one size in a round: without and with the plugin, under equal conditions."""

    default: list[Sample]
    tuned: list[Sample]


def _is_ours(sample: Sample) -> bool:
    source = sample.source
    is_bench = source.tool in (TOOL, REPLAY_TOOL)
    return source.purpose is Purpose.VERIFY and source.file_hash is None and not is_bench


def _paired(samples: Iterable[Sample]) -> dict[tuple[_Calls, int], _Pair]:
    """Return the timings of a round by calls and size, only those that both starts have."""
    cells: dict[tuple[object, ...], _Pair] = {}
    for sample in samples:
        calls = ProvenCalls(CallKind(sample.registered, sample.group_calls), sample.pipe_ops)
        condition = sample.dtype, sample.redop, sample.root, sample.in_place, sample.graph
        key = sample.collective, calls, sample.bytes, condition
        pair = cells.setdefault(key, _Pair([], []))
        (pair.default if sample.choice == DEFAULT else pair.tuned).append(sample)
    found: dict[tuple[_Calls, int], _Pair] = {}
    for pair in cells.values():
        if pair.default and pair.tuned:
            first = pair.default[0]
            kind = CallKind(first.registered, first.group_calls)
            key_of = first.collective, ProvenCalls(kind, first.pipe_ops)
            whole = found.setdefault((key_of, first.bytes), _Pair([], []))
            whole.default.extend(pair.default)
            whole.tuned.extend(pair.tuned)
    return found


def _choice(
    rules: Sequence[Rule], scale: Scale, collective: Collective, size: int, calls: ProvenCalls
) -> Choice | None:
    index = taken(rules, collective, size, scale, calls)
    return None if index is None else rules[index].choice


def _feed(
    plan: ProofPlan, collective: Collective, calls: ProvenCalls, size: int, number: int, pair: _Pair
) -> None:
    for choice, samples in ((DEFAULT, pair.default), (TUNED_RUN, pair.tuned)):
        ran = samples[0].ran
        wrong = sum(sample.wrong or 0 for sample in samples)
        logs = [math.log(sample.time_us) for sample in samples]
        point = BenchPoint(
            bytes=size,
            choice=choice,
            round=number,
            ran=msgspec.convert(ran, ExecutedChoice, from_attributes=True) if ran else None,
            time_us=math.exp(math.fsum(logs) / len(logs)),
            wrong=wrong,
        )
        plan.proofs[collective, calls.kind].feed(
            PointKey(collective, size, choice, number, 0, calls.kind), point
        )


def with_sizes_to_run(
    verdicts: Iterable[RuleProof], plan: ProofPlan, measured: Mapping[Collective, Sequence[int]]
) -> list[RuleProof]:
    """Return the verdicts; where the program ran no size of a rule, name the sizes to run."""
    return [
        msgspec.structs.replace(
            item, reason=_what_to_run(item.rule, measured.get(item.rule.collective, ()))
        )
        if item.verdict == "unverified"
        and applies(item.rule, plan.scale)
        and not _ran_a_size(plan, item.rule)
        else item
        for item in verdicts
    ]


def _ran_a_size(plan: ProofPlan, rule: Rule) -> bool:
    return any(
        rule.min_bytes <= size <= rule.max_bytes
        for proof in plan.proofs.values()
        if proof.collective is rule.collective
        for size in proof.sizes
    )


def _what_to_run(rule: Rule, measured: Sequence[int]) -> str:
    """Return which sizes the program must run: those of the study that are in the rule's range."""
    inside = [size for size in measured if rule.min_bytes <= size <= rule.max_bytes]
    low = inside[0] if inside else min(max(rule.min_bytes, LEAST_BYTES), rule.max_bytes)
    high = inside[-1] if inside else max(low, min(rule.max_bytes, MOST_BYTES))
    return (
        "the command runs no size in its range: run "
        f"{rule.collective.nccl_tests_name}_perf -b {exact_bytes(low)} -e {exact_bytes(high)} -f 2"
    )


def joined(proof: Proof, before: Proof | None) -> Proof:
    """Return the proof together with what an earlier proof of the same rules measured.

    An earlier proof may be of other collectives, of another scale, or of other calls.
    """
    if before is None:
        return proof
    earlier = {item.rule: item for item in before.rules}
    rules = [
        earlier.get(item.rule, item) if item.verdict == "unverified" else item
        for item in proof.rules
    ]
    here = {_group_key(group) for group in proof.groups}
    groups = [*proof.groups, *(group for group in before.groups if _group_key(group) not in here)]
    return msgspec.structs.replace(
        proof,
        rules=rules,
        groups=groups,
        noise=max((group.noise for group in groups), default=0.0),
        dropped=[*(item for item in before.dropped if item not in proof.dropped), *proof.dropped],
        passes=before.passes,
    )


def _group_key(group: ProofGroup) -> tuple[object, ...]:
    return group.collective, group.scale, group.registered, group.group_calls
