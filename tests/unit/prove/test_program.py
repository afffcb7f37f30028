# SPDX-License-Identifier: Apache-2.0
"""The proof by a program or job: pairing, resumption, error rates on simulated runs."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from nccltune.measure.experiments.ab.speed import JobSpeed
from nccltune.model.choice import DEFAULT, TUNED_RUN, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.prove.job import confidence_of, judge_pairs, looks
from nccltune.prove.plan import ProofPlan
from nccltune.prove.program import ProgramRound, ProgramRounds, joined, with_sizes_to_run
from nccltune.prove.result import Proof, ProvenSize
from nccltune.prove.stock import LoggedRun, StockRun, points_of, problems_of
from nccltune.study.files import Study
from tests.unit.prove.proofs import K, empty_proof, rule

SIZES = [K << power for power in range(8)]
RULES = [rule(1 * K, 8 * K), rule(16 * K, 128 * K, "tree/simple")]
PROGRAM = ["all_reduce_perf"]
OFFSET, NOISE = 0.03, 0.05


def timing(size: int, choice: str, time_us: float, **more: object) -> Sample:
    source = Source(tool="nccl-tests", purpose=Purpose.VERIFY, process="p")
    settings = {
        "collective": Collective.ALLREDUCE,
        "nodes": 4,
        "ranks": 4,
        "source": source,
        **more,
    }
    return Sample(study="", bytes=size, choice=parse_choice(choice), time_us=time_us, **settings)  # type: ignore[arg-type]


class Cluster:
    """A machine whose starts differ by an offset, whose timings are noisy, and that may drift."""

    def __init__(self, study: Study, seed: int, *, drift: float = 0.0, **options: bool) -> None:
        self.rounds = ProgramRounds(study, PROGRAM, **options)
        self._random = random.Random(seed)
        self._drift = drift
        self._starts = 0

    def start(self, choice: str, gain: float) -> None:
        level = self._random.gauss(0, OFFSET) + self._drift * self._starts
        self._starts += 1
        tuned = math.log(gain) if choice == TUNED_RUN else 0.0
        self.rounds.add_samples(
            timing(
                size,
                choice,
                (20 + size / 1e4) * math.exp(level - tuned + self._random.gauss(0, NOISE)),
                in_place=in_place,
            )
            for size in SIZES
            for in_place in (False, True)
        )

    def round(self, gain: float, rules: Sequence[Rule] = RULES) -> None:
        order = [DEFAULT, TUNED_RUN]
        for choice in reversed(order) if self.rounds.next_round % 2 else order:
            self.start(choice, gain)
        self.rounds.end(
            ProgramRound(
                round=self.rounds.next_round,
                program=PROGRAM,
                nodes=4,
                ranks=4,
                rules=list(rules),
                seconds=2.0,
                at="2026-11-27T00:00:00+00:00",
            )
        )

    def verify(self, gain: float, most: int = 12, rules: Sequence[Rule] = RULES) -> ProofPlan:
        """Rounds as `verify` runs them: a look after every four, until all is decided."""
        for number in range(1, most + 1):
            self.round(gain, rules)
            if number % 4 == 0 and self.plan(rules).is_decided:
                break
        return self.plan(rules)

    def plan(self, rules: Sequence[Rule] = RULES) -> ProofPlan:
        return self.rounds.plan(rules, {Collective.ALLREDUCE: SIZES})


def proven(plan: ProofPlan) -> int:
    bad = {item.rule for item in plan.bad([])}
    return sum(item.verdict == "holds" and item.rule not in bad for item in plan.verdicts({}))


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no file: hundreds of simulated runs are judged."""
    monkeypatch.setattr(Study, "append_lines", lambda *_, **__: None)


def share_proven(
    path: Path,
    gain: float,
    runs: int,
    *,
    most: int = 12,
    drift: float = 0.0,
    rules: Sequence[Rule] = RULES,
) -> float:
    total = 0
    for seed in range(runs):
        total += proven(Cluster(Study(path), seed, drift=drift).verify(gain, most, rules))
    return total / (runs * len(rules))


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("rules", [RULES, [rule(K, K)]])
@pytest.mark.parametrize("most", [4, 8, 12])
def test_rules_without_a_gain_are_not_proven(
    tmp_path: Path, most: int, rules: Sequence[Rule]
) -> None:
    assert share_proven(tmp_path, 1.0, 200, most=most, rules=rules) <= 0.05


@pytest.mark.usefixtures("in_memory")
def test_rules_of_a_clear_gain_are_proven_with_the_default_rounds(tmp_path: Path) -> None:
    assert share_proven(tmp_path, 1.2, 60) >= 0.98


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("drift", [-0.05, 0.05])
def test_a_drift_over_the_starts_makes_no_gain(tmp_path: Path, drift: float) -> None:
    assert share_proven(tmp_path, 1.0, 60, drift=drift) <= 0.05
    gains = [
        math.log(item.gain)
        for seed in range(20)
        for item in Cluster(Study(tmp_path), seed, drift=drift).verify(1.0, 8).verdicts({})
        if item.gain is not None
    ]
    assert abs(math.fsum(gains) / len(gains)) < 0.02


def test_a_start_is_one_value_of_all_timings_that_both_starts_have(tmp_path: Path) -> None:
    cluster = Cluster(Study.create(tmp_path), 1)
    rounds = cluster.rounds
    rounds.add_samples(
        [
            timing(K, DEFAULT, 10.0),
            timing(K, DEFAULT, 40.0, in_place=True),
            timing(K, DEFAULT, 999.0, dtype="half"),
            timing(2 * K, DEFAULT, 10.0),
        ]
    )
    rounds.add_samples([timing(K, TUNED_RUN, 5.0), timing(K, TUNED_RUN, 20.0, in_place=True)])
    record = ProgramRound(
        round=0, program=PROGRAM, nodes=4, ranks=4, rules=RULES, seconds=1.0, at="x"
    )
    rounds.end(record)
    (group,) = cluster.plan().groups()
    assert [(item.bytes, item.default_us, item.tuned_us) for item in group.sizes] == [
        (K, pytest.approx(20.0), pytest.approx(10.0))
    ]


def test_rounds_of_earlier_runs_count_where_the_choice_is_the_same(tmp_path: Path) -> None:
    study = Study.create(tmp_path)
    for _ in range(2):
        cluster = Cluster(study, 1)
        for _ in range(2):
            cluster.round(1.2)
    again = Cluster(study, 2)
    assert [item.round for item in again.rounds.known] == [0, 1, 2, 3]
    changed = [RULES[0], rule(16 * K, 128 * K, "ring/ll")]
    again.round(1.2, changed)
    assert rounds_at(again.plan(changed)) == {K: 5, 16 * K: 1}
    assert rounds_at(again.plan(RULES)) == {K: 5, 16 * K: 4}
    anew = Cluster(study, 3, anew=True)
    anew.round(1.2)
    assert rounds_at(anew.plan()) == {K: 1, 16 * K: 1}
    assert anew.rounds.next_round == 6
    assert ProgramRounds(study, ["all_gather_perf"]).known == []


def rounds_at(plan: ProofPlan) -> dict[int, int]:
    (group,) = plan.groups()
    return {item.bytes: item.rounds for item in group.sizes if item.bytes in (K, 16 * K)}


def test_a_round_of_one_start_is_not_used(tmp_path: Path) -> None:
    study = Study.create(tmp_path)
    cluster = Cluster(study, 1)
    cluster.round(1.2)
    cluster.start(DEFAULT, 1.0)
    again = Cluster(study, 2)
    assert (len(again.rounds.known), again.rounds.next_round) == (1, 2)


@pytest.mark.parametrize(
    ("low", "high", "measured", "words"),
    [
        (1 << 20, 1 << 40, [], "all_gather_perf -b 1M -e 64M -f 2"),
        (1 << 20, 1 << 40, [K, 4 << 20, 16 << 20], "all_gather_perf -b 4M -e 16M -f 2"),
        (0, 100, [], "all_gather_perf -b 100 -e 100 -f 2"),
        (1 << 28, 1 << 30, [], "all_gather_perf -b 256M -e 256M -f 2"),
    ],
)
def test_a_rule_out_of_reach_names_sizes_in_its_range(
    tmp_path: Path, low: int, high: int, measured: list[int], words: str
) -> None:
    far = rule(low, high, "ring/ll", collective=Collective.ALLGATHER)
    cluster = Cluster(Study.create(tmp_path), 1)
    cluster.round(1.0, [far])
    plan = cluster.plan([far])
    (found,) = with_sizes_to_run(plan.verdicts({}), plan, {Collective.ALLGATHER: measured})
    assert found.verdict == "unverified"
    assert (found.reason or "").endswith(words)


def test_a_proof_keeps_what_an_earlier_one_found_of_other_collectives(tmp_path: Path) -> None:
    cluster = Cluster(Study.create(tmp_path), 1)
    for _ in range(8):
        cluster.round(1.3)
    other = replace(RULES[0], collective=Collective.ALLGATHER)
    rules = [*RULES, other]
    plan = cluster.plan(rules)
    first = proof_of(plan)
    assert [item.verdict for item in first.rules] == ["holds", "holds", "unverified"]
    held = replace(first.rules[0], rule=other)
    group = replace(first.groups[0], collective=Collective.ALLGATHER, noise=0.5)
    earlier = replace(first, rules=[*first.rules[:2], held], groups=[group])
    found = joined(first, earlier)
    assert [item.verdict for item in found.rules] == ["holds", "holds", "holds"]
    assert [item.collective for item in found.groups] == [
        Collective.ALLREDUCE,
        Collective.ALLGATHER,
    ]
    assert found.noise == 0.5
    assert joined(first, None) == first


def proof_of(plan: ProofPlan) -> Proof:
    return empty_proof(rules=plan.verdicts({}), groups=plan.groups())


def test_sizes_out_of_all_rules_are_named_left_alone(tmp_path: Path) -> None:
    cluster = Cluster(Study.create(tmp_path), 1)
    for _ in range(4):
        cluster.round(1.3, RULES[:1])
    (group,) = cluster.plan(RULES[:1]).groups()
    by_size: dict[int, ProvenSize] = {item.bytes: item for item in group.sizes}
    assert by_size[16 * K].verdict == "left alone"
    assert cluster.plan(RULES[:1]).is_decided


def _pairs(
    n: int, gain: float, noise: float, seed: int, rounding: float = 0.0
) -> list[tuple[JobSpeed, JobSpeed]]:
    random_ = random.Random(seed)
    return [
        (
            JobSpeed("steps/s", random_.gauss(1, noise), rounding=rounding),
            JobSpeed("steps/s", gain * random_.gauss(1, noise), rounding=rounding),
        )
        for _ in range(n)
    ]


def _verdict(gain: float, noise: float, seed: int) -> str:
    """Return what is decided at the first look that decides."""
    ends = looks(12)
    pairs = _pairs(ends[-1], gain, noise, seed)
    found = [judge_pairs(pairs[:end], confidence_of(end)).verdict for end in ends]
    return next((verdict for verdict in found if verdict != "not sure"), "not sure")


def test_looks_of_later_runs_count() -> None:
    """The chances of all looks of runs with ever more rounds stay under 5 %."""
    ends = {end for rounds in range(3, 400) for end in looks(rounds)}
    assert sum(1 - confidence_of(end) for end in ends) < 0.05


def test_a_job_without_a_gain_is_seldom_proven() -> None:
    found = [_verdict(1.0, 0.01, seed) for seed in range(400)]
    assert found.count("proven") <= 0.025 * 400 + 8


def test_a_job_with_a_gain_is_proven() -> None:
    assert [_verdict(1.03, 0.005, seed) for seed in range(60)].count("proven") >= 57
    assert [_verdict(0.97, 0.005, seed) for seed in range(60)].count("no") >= 57
    assert [_verdict(1.0, 0.001, seed) for seed in range(60)].count("proven") <= 5


@pytest.mark.parametrize(
    ("pairs", "verdict", "why"),
    [
        (_pairs(2, 2.0, 0.0, 1), "not sure", "needs at least 3 pairs of starts, has 2"),
        (_pairs(3, 1.02, 0.0, 1), "proven", "faster"),
        (_pairs(3, 0.98, 0.0, 1), "no", "slower"),
        (_pairs(3, 1.002, 0.0, 1), "no", "gain less than 0.5 %"),
        (_pairs(3, 1.0, 0.0, 1), "no", "less than 0.5 %"),
        # Equal numbers that the program rounds to 1 % show no gain of less than that.
        (_pairs(3, 1.0, 0.0, 1, rounding=0.01), "not sure", "too few digits (rounded to 1 %)"),
        (_pairs(3, 1.015, 0.0, 1, rounding=0.01), "not sure", "too few digits"),
        # The noise is more than what is rounded, so more pairs may decide.
        (_pairs(3, 1.0, 0.05, 1, rounding=0.01), "not sure", "noise"),
    ],
)
def test_verdicts(pairs: list[tuple[JobSpeed, JobSpeed]], verdict: str, why: str) -> None:
    found = judge_pairs(pairs, 0.95)
    assert found.verdict == verdict
    assert why in found.why
    assert found.coarse is ("digits" in why)


def test_a_job_that_fails_with_the_rules_is_no() -> None:
    found = judge_pairs([], 0.95, "ended with status 1")
    assert (found.verdict, found.gain) == ("no", None)
    assert found.why == "the job failed twice with the rules: ended with status 1"


SMALL, LARGE = 4 * K, 1024 * K


def logged(folder: Path, name: str, ran: dict[int, tuple[str, str, int]]) -> LoggedRun:
    """A run of 4 nodes whose log has these choices, with their number of channels."""
    prefix = "alpha:7:8 [0] NCCL INFO "
    lines = ["ncclCommInitRankConfig comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0"]
    lines += [
        f"AllReduce: {size} Bytes -> Algo {algorithm} proto {protocol} "
        f"channel{{Lo..Hi}}={{0..{channels - 1}}}"
        for size, (algorithm, protocol, channels) in ran.items()
    ]
    path = folder / name
    path.write_text("".join(f"{prefix}{line}\n" for line in lines))
    return LoggedRun([path])


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (("TREE", "LL", 16), "as the rule says"),
        # NCCL takes fewer channels for small messages than a rule allows.
        (("TREE", "LL", 2), "as the rule says"),
        (("TREE", "SIMPLE", 16), "not as the rule says"),
    ],
)
def test_a_rule_is_followed_if_its_algorithm_and_protocol_ran(
    tmp_path: Path, ran: tuple[str, str, int], verdict: str
) -> None:
    before = logged(tmp_path, "before", {SMALL: ("RING", "SIMPLE", 4)})
    after = logged(tmp_path, "after", {SMALL: ran})
    (point,) = points_of(before, after, [rule(0, 64 * K, "tree/ll/16")], ({}, {}))
    assert point.verdict == verdict
    assert point.before == "ring/simple/4"


def test_calls_without_a_rule_run_as_before(tmp_path: Path) -> None:
    before = logged(
        tmp_path, "before", {LARGE: ("RING", "SIMPLE", 4), 2 * LARGE: ("RING", "SIMPLE", 4)}
    )
    after = logged(tmp_path, "after", {LARGE: ("RING", "SIMPLE", 8), 2 * LARGE: ("RING", "LL", 4)})
    points = points_of(before, after, [rule(0, 64 * K, "tree/ll")], ({}, {}))
    assert [(point.rule, point.verdict) for point in points] == [
        (None, "left alone"),
        (None, "changed"),
    ]


def run(*hashes: str) -> StockRun:
    return StockRun(
        seconds=1.0,
        logs=1,
        nccl_version=None,
        nodes=4,
        ranks=4,
        tuner=None,
        config_hashes=list(hashes),
    )


def test_another_configuration_is_a_problem(tmp_path: Path) -> None:
    before = logged(tmp_path, "before", {SMALL: ("RING", "SIMPLE", 4)})
    after = logged(tmp_path, "after", {SMALL: ("TREE", "LL", 4)})
    points = points_of(before, after, [rule(0, 64 * K, "tree/ll")], ({}, {}))
    assert problems_of(run(), run("a" * 16), points, "a" * 16) == []
    (problem,) = problems_of(run(), run("b" * 16), points, "a" * 16)
    assert "another configuration" in problem
    (problem,) = problems_of(run("a" * 16), run("a" * 16), points, "a" * 16)
    assert "without the plugin" in problem
