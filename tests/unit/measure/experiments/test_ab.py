# SPDX-License-Identifier: Apache-2.0
"""A/B tests of settings on a simulated machine: rounds, order, resumption, verdict."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from nccltune.analyze import sort_samples
from nccltune.measure.bench.conversation import SCHEMA_VERSION, BenchGpu, Hello, Nccl
from nccltune.measure.experiments.ab.experiment import ProcessResult, TrialExperiment, TrialScope
from nccltune.measure.experiments.ab.facts import StartFacts, differences, facts_of
from nccltune.measure.experiments.ab.judge import TrialVerdict, judge, never_read
from nccltune.measure.experiments.ab.replay import ReplayRunner
from nccltune.measure.experiments.ab.runs import SettingTrial, Side, TrialFiles
from nccltune.measure.experiments.ab.settings import (
    SettingChanges,
    applied,
    label,
    read_settings,
    split_words,
)
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, StudyError
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.study.files import Study
from tests.unit.formats.nccl_log.test_run import HEALTHY, TREE, log_of

SIZES = [1 << power for power in range(12, 25, 2)]
TRIED = {"NCCL_X": "1"}
Effect = Callable[[int], float]


class Machine:
    """Times that drift, differ from process to process, and change with the settings by
    `effect`."""

    def __init__(self, effect: Effect = lambda _: 1.0, *, noise: float = 0.01, seed: int = 1):
        self.effect = effect
        self.noise = noise
        self.random = random.Random(seed)
        self.ran: list[dict[str, str | None]] = []
        self.fail: Callable[[int, SettingChanges], str | None] = lambda _at, _settings: None
        self.stop_at: int | None = None
        self.collectives = (Collective.ALLREDUCE,)
        self.ranks = 4

    def run(
        self,
        settings: SettingChanges,
        number: int,  # noqa: ARG002
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,  # noqa: ARG002
    ) -> ProcessResult:
        if self.stop_at == len(self.ran):
            self.stop_at = None
            keep(self._samples(settings)[:3])
            raise KeyboardInterrupt
        self.ran.append(dict(settings))
        keep(self._samples(settings))
        return ProcessResult(
            Hello(
                schema_version=SCHEMA_VERSION,
                version="1",
                backend="simulated",
                nccl=Nccl(version="2.28.9"),
                nodes=1,
                ranks=4,
                gpus=[BenchGpu(rank, "NVIDIA H200") for rank in range(4)],
            ),
            StartFacts(read=[name for name in settings if name in TRIED], channels=24),
            self.fail(len(self.ran), settings),
            1.0,
        )

    def _samples(self, settings: SettingChanges) -> list[Sample]:
        # A process has noise that all its calls share, and a drift.
        shared = self.random.gauss(0, self.noise / 2) + 0.01 * len(self.ran)
        return [
            Sample(
                study="",
                collective=collective,
                bytes=size,
                nodes=1,
                ranks=self.ranks,
                in_place=in_place,
                choice=DEFAULT,
                time_us=(20 + size / 100e3)
                * (self.effect(size) if "NCCL_X" in settings else 1.0)
                * (1 + shared + self.random.gauss(0, self.noise)),
                source=Source(tool="nccl-tests"),
            )
            for collective in self.collectives
            for size in SIZES
            for in_place in (False, True)
        ]


def driver(
    path: Path, machine: Machine, *, rounds: int = 8, budget_s: float | None = None, **more: bool
) -> TrialExperiment:
    study = Study.create(path)
    trial = SettingTrial(settings=dict(TRIED), baseline={}, what=["simulated"])
    made = TrialExperiment(machine, TrialFiles(study), trial, TrialScope(rounds, budget_s), **more)
    if made.probe() is not None:
        made.keep_probe()
    return made


def verdict(path: Path, machine: Machine, *, rounds: int = 8) -> TrialVerdict:
    made = driver(path, machine, rounds=rounds)
    trial = SettingTrial(settings=dict(TRIED), baseline={}, what=["simulated"])
    outcome = made.run()
    return judge(trial, TrialFiles(Study(path)).samples(), outcome, min_gain=0.03)


def test_what_helps_everywhere_it_matters_is_kept(tmp_path: Path) -> None:
    found = verdict(tmp_path / "s", Machine(lambda size: 0.8 if size >= 1 << 20 else 1.0))
    assert found.decision == "keep"
    (collective,) = found.collectives
    assert [(part.from_bytes, part.effect) for part in collective.ranges] == [
        (1 << 12, "same"), (1 << 20, "faster"),
    ]  # fmt: skip
    fast = collective.sizes[-1]
    assert fast.gain.low < 1.25 < fast.gain.high
    assert fast.set_gb_per_s == pytest.approx(fast.default_gb_per_s * 1.25, rel=0.1)
    assert (fast.gain.rounds, fast.gain.known) == (8, True)
    assert "all-reduce is 1.2" in found.why
    assert found.read == ["NCCL_X"]


@pytest.mark.parametrize(
    ("effect", "decision"),
    [
        (lambda _: 1.0, "no help"),
        # Certainly faster, but by too little to keep the setting.
        (lambda _: 0.985, "no help"),
        (lambda _: 1.2, "harms"),
        (lambda size: 1.3 if size <= 1 << 14 else 0.7, "mixed"),
    ],
)
def test_what_does_not_help_is_not_kept(tmp_path: Path, effect: Effect, decision: str) -> None:
    assert verdict(tmp_path / "s", Machine(effect, noise=0.005)).decision == decision


def test_noise_is_not_taken_for_a_gain(tmp_path: Path) -> None:
    """Of many trials without an effect almost none may be kept, at any noise of the machine."""
    kept = sum(
        verdict(tmp_path / str(seed), Machine(noise=0.08, seed=seed)).decision == "keep"
        for seed in range(25)
    )
    assert kept <= 2


def test_every_collective_and_kind_of_calls_is_judged_by_itself(tmp_path: Path) -> None:
    """Calls outside of CUDA graphs are slower with the setting, those in one are not."""
    machine = Machine(lambda _: 1.3)
    machine.collectives = (Collective.ALLREDUCE, Collective.ALLGATHER)
    plain = machine._samples

    def both(settings: SettingChanges) -> list[Sample]:
        graph = [msgspec.structs.replace(one, graph=True) for one in plain({})]
        return [*graph, *plain(settings)]

    machine._samples = both  # type: ignore[method-assign]
    found = verdict(tmp_path / "s", machine)
    assert {item.prose: {size.effect for size in item.sizes} for item in found.collectives} == {
        "all-reduce": {"slower"},
        "all-reduce (CUDA graph)": {"same"},
        "all-gather": {"slower"},
        "all-gather (CUDA graph)": {"same"},
    }
    assert found.why.startswith("all-reduce is 1.3")
    assert "graph" not in found.why


def test_each_round_has_both_sides_and_neither_is_always_first(tmp_path: Path) -> None:
    machine = Machine()
    driver(tmp_path / "s", machine).run()
    probe, *rest = [tuple(item) for item in machine.ran]
    assert probe == ()
    pairs = [tuple(rest[at : at + 2]) for at in range(0, len(rest), 2)]
    assert {frozenset(pair) for pair in pairs} == {frozenset([(), ("NCCL_X",)])}
    first = [pair[0] for pair in pairs]
    assert first.count(()) == len(first) / 2


def test_the_probe_is_kept_and_not_compared(tmp_path: Path) -> None:
    made = driver(tmp_path / "s", Machine())
    outcome = made.run()
    runs = TrialFiles(Study(tmp_path / "s"))
    looks = [line for line in runs.lines.read() if line.probe]
    assert [line.round for line in looks] == [0]
    assert 0 not in outcome.rounds
    assert any(sample.round == 0 for sample in runs.samples())


def test_timings_of_a_trial_are_no_others(tmp_path: Path) -> None:
    driver(tmp_path / "s", Machine()).run()
    study = Study(tmp_path / "s")
    kept = list(study.samples())
    assert {sample.source.tool for sample in kept} == {"nccl-tests"}
    assert {sample.source.purpose for sample in kept} == {Purpose.AB}
    assert sum(sample.settings == TRIED for sample in kept) == 8 * 2 * len(SIZES)
    assert sort_samples(kept).timings == []


def test_trials_that_begin_before_another_ends_use_rounds_of_their_own(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s")
    trials = [
        SettingTrial(settings={name: "1"}, baseline={"NCCL_B": name}, what=[]) for name in "YZ"
    ]
    made = [TrialExperiment(Machine(), TrialFiles(study), of, TrialScope(4)) for of in trials]
    for one in made:
        one.probe()
    rounds = []
    for one in made:
        one.keep_probe()
        rounds.append(one.run().rounds)
    assert rounds == [[1, 2, 3, 4], [6, 7, 8, 9]]
    assert [line.round for line in TrialFiles(study).lines.read() if line.probe] == [0, 5]


def test_a_trial_counts_the_rounds_that_another_process_measured_meanwhile(tmp_path: Path) -> None:
    study, trial = Study.create(tmp_path / "s"), SettingTrial(settings=TRIED, baseline={}, what=[])
    first, second = (
        TrialExperiment(Machine(), TrialFiles(study), trial, TrialScope(rounds))
        for rounds in (4, 6)
    )
    second.probe()
    first.probe()
    first.keep_probe()
    first.run()
    second.keep_probe()
    outcome = second.run()
    assert (outcome.known, outcome.rounds) == (4, [1, 2, 3, 4, 6, 7])


def test_timings_of_other_settings_in_the_same_rounds_are_not_judged(tmp_path: Path) -> None:
    path = tmp_path / "s"
    outcome = driver(path, Machine()).run()
    trial = SettingTrial(settings=TRIED, baseline={}, what=["simulated"])
    samples = TrialFiles(Study(path)).samples()
    slow = [
        msgspec.structs.replace(one, settings={"NCCL_Y": "1"}, time_us=10 * one.time_us)
        for one in samples
    ]
    clean = judge(trial, samples, outcome, min_gain=0.03)
    assert judge(trial, [*slow, *samples], outcome, min_gain=0.03) == clean
    assert clean.decision == "no help"


def test_an_interrupted_trial_goes_on_with_whole_rounds(tmp_path: Path) -> None:
    machine = Machine()
    machine.stop_at = 6
    first = driver(tmp_path / "s", machine)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert len(first.outcome_so_far("interrupted").rounds) == 2
    outcome = driver(tmp_path / "s", machine).run()
    assert (len(outcome.rounds), outcome.known) == (8, 2)
    # The interrupted round does not count, but its timings are kept.
    lines = TrialFiles(Study(tmp_path / "s")).lines.read()
    lone = {line.round for line in lines if not line.probe} - set(outcome.rounds)
    assert len(lone) == 1
    before = len(machine.ran)
    again = driver(tmp_path / "s", machine).run()
    assert (again.known, again.processes, len(machine.ran)) == (8, 0, before)


def test_more_rounds_add_to_those_there_are_and_anew_leaves_them_out(tmp_path: Path) -> None:
    machine = Machine()
    driver(tmp_path / "s", machine, rounds=4).run()
    assert driver(tmp_path / "s", machine, rounds=6).run().known == 4
    fresh = driver(tmp_path / "s", machine, rounds=4, anew=True).run()
    assert (fresh.known, len(fresh.rounds), min(fresh.rounds) > 6) == (0, 4, True)


def test_the_budget_ends_it_between_rounds(tmp_path: Path) -> None:
    outcome = driver(tmp_path / "s", Machine(), budget_s=5.5).run()
    assert (outcome.reason, len(outcome.rounds)) == ("budget", 2)


def test_too_few_rounds_decide_nothing(tmp_path: Path) -> None:
    found = verdict(tmp_path / "s", Machine(lambda _: 0.5), rounds=3)
    assert (found.decision, found.rounds) == ("open", 3)


def test_settings_that_do_not_run_are_reported_and_not_tried_again(tmp_path: Path) -> None:
    machine = Machine()
    machine.fail = lambda _at, settings: "ended with status 1" if settings else None
    found = verdict(tmp_path / "s", machine)
    assert found.decision == "failed"
    assert "ended with status 1" in found.why
    before = len(machine.ran)
    assert verdict(tmp_path / "s", machine).decision == "failed"
    assert len(machine.ran) == before


def test_a_default_that_does_not_run_ends_it(tmp_path: Path) -> None:
    machine = Machine()
    machine.fail = lambda at, settings: None if settings or at == 1 else "ended with status 1"
    with pytest.raises(LaunchError, match="without the settings it ended with status 1"):
        driver(tmp_path / "s", machine).run()


def test_one_rank_is_no_trial(tmp_path: Path) -> None:
    machine = Machine()
    machine.ranks = 1
    with pytest.raises(InputError, match="no peer to communicate with"):
        driver(tmp_path / "s", machine)
    assert list((tmp_path / "s").iterdir()) == []


def test_a_recorded_trial_is_drawn_from(tmp_path: Path) -> None:
    verdict(tmp_path / "rec", Machine(lambda _: 0.8))
    runner = ReplayRunner(tmp_path / "rec", 1)
    runner.choose({}, TRIED)
    trial = SettingTrial(settings=dict(TRIED), baseline={}, what=[])
    study = Study.create(tmp_path / "s")
    made = TrialExperiment(runner, TrialFiles(study), trial, TrialScope(5))
    assert made.probe() is not None
    made.keep_probe()
    outcome = made.run()
    found = judge(trial, TrialFiles(study).samples(), outcome, min_gain=0.03)
    assert (found.decision, found.rounds, found.read) == ("keep", 5, ["NCCL_X"])
    assert {item.source.tool for item in study.samples()} == {"nccl-tests replay"}
    assert {item.source.purpose for item in study.samples()} == {Purpose.AB}
    with pytest.raises(InputError, match="has no trial of NCCL_X=2 against default"):
        ReplayRunner(tmp_path / "rec", 1).choose({}, {"NCCL_X": "2"})
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "samples.jsonl").touch()
    with pytest.raises(StudyError, match="no recorded trial of settings or libraries") as raised:
        ReplayRunner(tmp_path / "none", 1)
    assert "nccltune ab --nccl A --nccl B -o STUDY" in (raised.value.hint or "")


def test_sides_differ_by_the_settings_alone() -> None:
    trial = SettingTrial(settings={"A": "1", "B": None}, baseline={"C": "2"}, what=[])
    sides: dict[Side, dict[str, str | None]] = {
        "default": {"C": "2"},
        "set": {"C": "2", "A": "1", "B": None},
    }
    assert {side: trial.of(side) for side in sides} == sides
    other = SettingTrial(settings={"A": "1"}, baseline={"C": "2"}, what=[])
    assert trial.key != other.key


@pytest.mark.parametrize(
    ("words", "unset", "message"),
    [
        (["NCCL_X=1", "NCCL_X=2"], [], "is given twice"),
        (["nccl_x=1"], [], "upper case"),
        (["NCCL_DEBUG=INFO"], [], "cannot be tested"),
        (["NCCL_HOSTID=a"], [], "a separate platform"),
        ([], ["NCCL_GONE"], "not set here"),
        ([], ["a b"], "no name of a setting"),
        ([], [], "no setting to test"),
        (["NCCL_HERE=1"], [], "already in effect"),
        (["NCCL_X=a\nb"], [], "characters"),
        (["what"], [], "is no NAME=VALUE"),
    ],
)
def test_what_is_no_proposal(words: list[str], unset: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_settings(words, unset, {"NCCL_HERE": "1"})


def test_words_are_settings_until_the_program() -> None:
    words = ["NCCL_A=1", "FI_B=", "./bin/x=y", "-b", "C=3"]
    assert split_words(words) == (["NCCL_A=1", "FI_B="], ["./bin/x=y", "-b", "C=3"])
    found = read_settings(["NCCL_A=1", "FI_B="], ["NCCL_C"], {"NCCL_C": "2"})
    assert label(found) == "NCCL_A=1 FI_B= without NCCL_C"
    assert applied({"NCCL_C": "2", "D": "4"}, found) == {"D": "4", "NCCL_A": "1", "FI_B": ""}


def test_what_settings_changed_is_read_from_the_logs() -> None:
    none = HEALTHY.replace("24 coll", "2 coll") + " channels per peer"
    shm = "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
    p2p = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    before = facts_of(log_of(TREE, p2p, f"{HEALTHY} channels per peer"), TRIED)
    after = facts_of(log_of("NCCL_X set by environment to 1.", TREE, shm, none), TRIED)
    assert (before.read, after.read) == ([], ["NCCL_X"])
    first, second, third = differences(before, after)
    assert (first, second) == ("channels 24 -> 2", "P2P/CUMEM -> SHM/direct/direct")
    assert third.startswith("a communicator within one node has 2 coll channels")


def test_a_setting_that_nccl_did_not_read_is_named(tmp_path: Path) -> None:
    machine = Machine()
    found = verdict(tmp_path / "s", machine)
    assert never_read(found) == []
    assert never_read(TrialVerdict(**{**_fields(found), "read": []})) == ["NCCL_X"]
    assert never_read(TrialVerdict(**{**_fields(found), "read": None})) == []


def _fields(found: TrialVerdict) -> dict[str, object]:
    return {name: getattr(found, name) for name in found.__struct_fields__}
