# SPDX-License-Identifier: Apache-2.0
"""A made-up study with one of everything a report can show, as the results it is built from.

`python -m tests.unit.report.fixture` writes the snapshot of the terminal form anew.
"""

from typing import Any

from msgspec.structs import replace

from nccltune.analyze.findings import NOT_TUNING
from nccltune.analyze.result import (
    Analysis,
    Condition,
    ConditionAnalysis,
    Curve,
    CurvePoint,
    Noise,
    Saturation,
)
from nccltune.model.choice import Algorithm, Choice, Protocol, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding, FindingKind
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule, RuleState
from nccltune.model.scale import Scale
from nccltune.prove.result import Proof, ProofGroup, ProvenSize, RuleProof, RuleVerdict
from nccltune.report.build import build
from nccltune.report.data import Commands, Report
from nccltune.tune.result import Decision, LeftAlone, RuleEvidence, TunedGroup, TuneOptions, Tuning
from tests.unit.prove.proofs import empty_proof

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26]
SCALE = Scale(2, 16)
TIMES: dict[Collective, dict[str, list[float | None]]] = {
    Collective.ALLREDUCE: {
        "default": [40.0, 60.0, 210.0, 480.0, 3100.0],
        "ring/simple": [90.0, 95.0, 150.0, 420.0, 3000.0],
        "tree/ll": [25.0, 40.0, 300.0, None, None],
    },
    Collective.REDUCESCATTER: {
        "default": [30.0, 40.0, 100.0, 250.0, 1700.0],
        "ring/ll": [30.1, 40.2, 140.0, 900.0, 9000.0],
    },
}
"""Median time in us by collective, choice and size; None where it was not measured."""
PLATFORM = Platform(
    name="two-racks",
    gpu="NVIDIA H100",
    gpus=16,
    link="NVLink",
    network="IB",
    nodes=2,
    nccl_version="2.28.9",
    driver_version="580.159",
    settings={"NCCL_IB_HCA": "mlx5"},
    line_rate_gb_per_s=50.0,
    recorded_at="2026-11-21T10:00:00+00:00",
    notes=["8 rounds, all choices in random order within each"],
)
COMMANDS = Commands(
    reproduce="nccltune auto --output studies/two-racks-again",
    reproduce_note="The command that measured this study, with a new study to write.",
    rebuild="nccltune tune studies/two-racks && nccltune report studies/two-racks",
    deploy="nccltune env studies/two-racks",
)


def condition(collective: Collective) -> ConditionAnalysis:
    """The curves of one collective; every interval is 4 % wide."""
    curves = []
    for label, times in TIMES[collective].items():
        points = [
            CurvePoint(
                bytes=size,
                n=16 if label == "default" else 8,
                time_us=time,
                low_us=time * 0.98,
                high_us=time * 1.02,
                spread=0.01,
                busbw_gb_per_s=collective.busbw_gb_per_s(size, time, SCALE.ranks),
            )
            for size, time in zip(SIZES, times, strict=True)
            if time is not None
        ]
        curves.append(Curve(parse_choice(label), points))
    peak = curves[0].points[-1].busbw_gb_per_s
    return ConditionAnalysis(
        condition=Condition(collective, SCALE),
        curves=curves,
        noise=Noise("a/a series", 0.011, 0.03, len(SIZES)),
        saturation=Saturation(peak, SIZES[-1], SIZES[-2], SIZES[-1], True, peak / 50),
        samples=32 * len(SIZES),
        rounds=8,
        title=Condition(collective, SCALE).title,
    )


def findings() -> list[Finding]:
    """One of each that matters, in the order an analysis has them."""
    title, other = "all-reduce, 2 nodes, 16 ranks", "reduce-scatter, 2 nodes, 16 ranks"
    here = {"collective": Collective.ALLREDUCE, "scale": SCALE, "where": title}
    there = {"collective": Collective.REDUCESCATTER, "scale": SCALE, "where": other}
    return [
        Finding(
            kind=FindingKind.SUSPECT_RUN,
            sentence="run-3.txt: all 16 ranks are on one host, though 2 nodes are claimed",
        ),
        Finding(
            kind=FindingKind.BAD_CROSSOVER,
            sentence=f"{title}: from 1 KiB to 256 KiB the default is not the best: tree/ll is up "
            "to 1.60x faster",
            min_bytes=SIZES[0],
            max_bytes=SIZES[2],
            tuning=True,
            **here,  # type: ignore[arg-type]  # two keyword arguments of their own types
        ),
        Finding(
            kind=FindingKind.NOT_A_TUNING_PROBLEM,
            sentence=f"{other}: even the best choice dips between 256 KiB and 4 MiB. {NOT_TUNING}",
            min_bytes=SIZES[2],
            max_bytes=SIZES[3],
            tuning=False,
            **there,  # type: ignore[arg-type]  # as above
        ),
        Finding(
            kind=FindingKind.DIP,
            sentence=f"{title}: bus bandwidth falls from 2.3 GB/s to 2.1 GB/s",
            min_bytes=SIZES[2],
            max_bytes=SIZES[3],
            tuning=True,
            **here,  # type: ignore[arg-type]  # as above
        ),
    ]


def analysis() -> Analysis:
    conditions = [condition(Collective.REDUCESCATTER), condition(Collective.ALLREDUCE)]
    return Analysis(PLATFORM, conditions, findings(), sum(item.samples for item in conditions))


def tuning() -> Tuning:
    """Two rules for all-reduce, none for reduce-scatter."""
    tree, ring = Choice(Algorithm.TREE, Protocol.LL), Choice(Algorithm.RING, Protocol.SIMPLE)
    measured = {"scale": SCALE, "registered": None, "rounds": 8}
    measured |= {"noise": 0.011, "noise_source": "a/a series"}
    reduced = TunedGroup(
        collective=Collective.ALLREDUCE,
        **measured,  # type: ignore[arg-type]
        rules=[
            RuleEvidence(
                rule=Rule(Collective.ALLREDUCE, 1 << 10, 60_000, tree, 2, 16),
                sizes=SIZES[:2],
                timings=48,
                state=RuleState.SURE,
                reason="faster than the default beyond noise (1.1 %) in 8 rounds",
                gain=1.55,
                gain_low=1.5,
                gain_high=1.6,
                least=1.5,
                most=1.6,
                channels=8,
                default_channels=24,
            ),
            RuleEvidence(
                rule=Rule(Collective.ALLREDUCE, 60_001, 1 << 20, ring, 2, 16),
                sizes=SIZES[2:3],
                timings=24,
                reason="faster than the default beyond an assumed noise of 5 %",
                gain=1.4,
                gain_low=1.3,
                gain_high=1.5,
                least=1.4,
                most=1.4,
            ),
        ],
        left_alone=[
            LeftAlone(SIZES[3], SIZES[4], 2, "the best choice gains less than 3 % (noise 1.1 %)")
        ],
        decisions=[
            _decision(SIZES[0], 40.0, tree, 25.0),
            _decision(SIZES[1], 60.0, tree, 40.0),
            _decision(SIZES[2], 210.0, ring, 150.0),
            _decision(SIZES[3], 480.0, None, 480.0),
            _decision(SIZES[4], 3100.0, None, 3100.0),
        ],
        expected_gain=1.497,
        recovered=0.96,
    )
    alone = TunedGroup(
        collective=Collective.REDUCESCATTER,
        **measured,  # type: ignore[arg-type]
        rules=[],
        left_alone=[LeftAlone(SIZES[0], SIZES[4], 5, "the default is the fastest measured")],
        decisions=[
            _decision(size, time or 0.0, None, time or 0.0)
            for size, time in zip(SIZES, TIMES[Collective.REDUCESCATTER]["default"], strict=True)
        ],
        expected_gain=None,
        recovered=None,
    )
    return Tuning(
        study="two-racks",
        created="2026-11-21",
        options=TuneOptions(),
        groups=[reduced, alone],
        samples=320,
        nccl_version="2.28.9",
    )


def proof(
    *,
    replay: str | None = None,
    first: RuleVerdict = "holds",
    second: RuleVerdict = "holds",
    slower: int = 0,
) -> Proof:
    """A proof of both rules of `tuning`: 1.5x over 5.8 octaves, 1.25x over 4.1. Its sizes are both
    sides of every edge; the first `slower` of them are slower."""
    rules = [evidence.rule for evidence in tuning().groups[0].rules]
    sizes = []
    for rule, gain in zip(rules, (1.5, 1.25), strict=True):
        sizes += [_proven(rule.min_bytes, rule, gain), _proven(rule.max_bytes, rule, gain)]
    sizes.append(_proven(1 << 22, None, 1.0))
    for place in range(slower):
        sizes[place] = replace(sizes[place], verdict="slower")
    return empty_proof(
        study="two-racks",
        points=100,
        seconds=1.0,
        noise=0.011,
        replay=replay,
        nccl_version="2.28.9",
        command="nccltune verify studies/two-racks",
        rules=[
            RuleProof(
                rule=rule,
                verdict=verdict,
                expected=1.5,
                gain=gain,
                gain_low=gain * 0.98,
                gain_high=gain * 1.02,
                least=gain * 0.9,
                most=gain * 1.1,
                rounds=4,
                sizes=2,
                between=1,
            )
            for rule, gain, verdict in zip(rules, (1.5, 1.25), (first, second), strict=True)
        ],
        groups=[
            ProofGroup(
                collective=Collective.ALLREDUCE,
                scale=SCALE,
                noise=0.011,
                floor=0.011,
                rounds=4,
                sizes=sizes,
            )
        ],
    )


def _proven(size: int, rule: Rule | None, gain: float) -> ProvenSize:
    return ProvenSize(
        bytes=size,
        choice=rule and rule.choice.label,
        between=size not in SIZES,
        verdict="left alone" if rule is None else "faster",
        rounds=4,
        default_us=100.0 * gain,
        tuned_us=100.0,
        gain=gain,
        gain_low=gain * 0.95,
        gain_high=gain * 1.05,
    )


def built(
    of: Analysis | None = None,
    tuned: Tuning | None = None,
    *,
    commands: Commands = COMMANDS,
    **more: Any,
) -> Report:
    """A report of these data, or of others in their place."""
    return build(
        of or analysis(), tuned or tuning(), commands=commands, tool_version="0.1.0", **more
    )


def report() -> Report:
    sources = ["run-1.txt: nccl-tests text, 160 samples", "run-3.txt: nccl-tests text, 160 samples"]
    return built(sources=sources)


def _decision(size: int, default: float, choice: Choice | None, tuned: float) -> Decision:
    gain = default / tuned if choice else None
    return Decision(
        bytes=size,
        choice=choice,
        default_us=default,
        tuned_us=tuned,
        best=choice,
        best_us=tuned,
        gain=gain,
        gain_low=gain and gain * 0.96,
        gain_high=gain and gain * 1.04,
    )
