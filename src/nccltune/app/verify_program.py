# SPDX-License-Identifier: Apache-2.0
"""Verify with a user's program: run it without and with the deployed rules, in rounds."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.env import PLUGIN, conflicts, deployment, record_deployment
from nccltune.app.measuring import STOPPED_BY
from nccltune.app.program_run import (
    REACH,
    REACH_UNDER,
    ProgramProgress,
    ProgramRun,
    ProgramStart,
    run_program,
)
from nccltune.app.study import config_of, saving
from nccltune.app.workload import sent_twice, timed_twice
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.measure.engine.record import timestamp
from nccltune.measure.engine.scheduler import Budget, ExperimentStatus, ProcessTimes
from nccltune.measure.experiments.ab.experiment import WITH, TrialExperiment, TrialScope
from nccltune.measure.experiments.ab.program import LIMIT_S, JobReader, ProgramRunner
from nccltune.measure.experiments.ab.runs import SettingTrial, TrialFiles
from nccltune.measure.experiments.ab.speed import Metric
from nccltune.model.errors import InputError, NccltuneError, UnwritableError
from nccltune.model.rule import Rule
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale, count
from nccltune.prove import edit
from nccltune.prove.job import LEAST_PAIRS, JobProof, confidence_of, job_proof, judge_pairs, looks
from nccltune.prove.judge import FIRST_LOOK, SECOND_LOOK, STEP
from nccltune.prove.plan import ProofPlan
from nccltune.prove.program import ProgramRound, ProgramRounds, joined, with_sizes_to_run
from nccltune.prove.result import Proof, RemovedRule
from nccltune.prove.run import expected_gains, measured, read_proof, rules_of, write_proof
from nccltune.prove.stock import StockProof, points_of, problems_of
from nccltune.study import names
from nccltune.study.files import Study, locked

_PATIENCE = 10
"""A start of a job that takes so many times as long as the first ones counts as hung."""
_OURS = (
    "NCCLTUNE_CONFIG",
    "NCCL_TUNER_CONFIG_FILE",
    "NCCLTUNE_CONFIG_HASH",
    "NCCLTUNE_STRICT",
    "NCCLTUNE_STALE",
)


class ProgramScope(NamedTuple):
    """How much to measure: at most `rounds` rounds in all runs with the same rules, in `budget_s`.

    At least one round is run. With `anew`, rounds of earlier runs are not used. `metric` reads how
    fast the program is, if it is a job.
    """

    rounds: int = SECOND_LOOK
    budget_s: float | None = None
    anew: bool = False
    metric: Metric | None = None


class ProgramProof(NamedTuple):
    """The result of running a program without and with the rules.

    deployed    whether the rules were followed, by NCCL's log
    proof       the gains; None if they were not measured, and then `unmeasured` is the reason
    is_changed  whether rules were removed or narrowed
    reach       what to check if the plugin was not loaded
    unsaved     the error if STUDY/deployed.json could not be written; else empty
    job         the proof of a program without a table, which is a job; else None
    """

    deployed: StockProof
    proof: Proof | None
    unmeasured: str | None
    is_changed: bool
    reach: str
    unsaved: list[UnwritableError]
    job: JobProof | None = None


def verify_program(
    study: Study,
    program: Sequence[str],
    under: WithLauncher | None,
    progress: ProgramProgress,
    scope: ProgramScope | None = None,
    *,
    command: str = "",
) -> ProgramProof:
    """Run `program` in rounds of two starts, without and with the rules, and judge the rules.

    The program runs under a launcher or directly. The first round decides by NCCL's logs whether
    the rules are in force. If they are not, one round is all. A program that prints no table of
    nccl-tests is a job: further rounds compare its speed, and write STUDY/job-proof.json. Timings
    are kept after each start, and rounds of earlier runs count. Writes
    STUDY/deployed.json, and from four rounds on STUDY/proof.json. Rules that hold are marked as
    proven in STUDY/tuner.conf, and those that do not hold are removed.

    `command` is stored as the command line that goes on. Raises LaunchError if the program fails,
    InputError if the study has no configuration, or the program writes no NCCL log or prints no
    value of the metric, and StudyError
    if another measurement holds the study. All timings so far are then in the study.
    """
    config = config_of(study)
    plain = _without_ours(os.environ, deployment(config))
    for warning in conflicts(plain):
        progress.warn(warning)
    with contextlib.ExitStack() as stack:
        if os.access(study.path, os.W_OK):
            stack.enter_context(locked(study))
        run = _ProgramVerification(
            study, program, under, progress, scope or ProgramScope(), command
        )
        return run.run(plain)


class _ProgramVerification:
    def __init__(
        self,
        study: Study,
        program: Sequence[str],
        under: WithLauncher | None,
        progress: ProgramProgress,
        scope: ProgramScope,
        command: str,
    ) -> None:
        self._study = study
        self._program = list(program)
        self._under = under
        self._progress = progress
        self._scope = scope
        self._command = command
        self._is_writable = os.access(study.path, os.W_OK)
        launcher = [] if under is None else [f"{under.nodes}x{under.gpus_per_node}", *under.hosts]
        self._rounds = ProgramRounds(study, [*launcher, *program], anew=scope.anew)
        self._times = ProcessTimes([item.seconds / 2 for item in self._rounds.known])
        rules = rules_of(study)
        self._total = sum(item.rules == rules for item in self._rounds.known)
        self._starts = 2
        self._problems: dict[str, None] = {}
        self._dropped: list[RemovedRule] = []
        before = read_proof(study)
        is_current = before is not None and before.config_hash == _hash_of(study)
        self._before = before if is_current else None
        self._unsaved: list[UnwritableError] = []
        self._recorded: dict[str, Path] = {}

    def run(self, plain: Mapping[str, str]) -> ProgramProof:
        try:
            while True:
                pair = self._round(plain)
                deployed = self._deployed(pair)
                unmeasured = self._unmeasured(pair, deployed)
                if unmeasured is not None:
                    return self._result(deployed, None, unmeasured)
                if self._is_job(pair):
                    return self._result(deployed, None, None, self._job(pair, plain))
                self._keep(pair)
                plan = self._judged()
                self._total = plan.rounds
                reason = self._end_of(plan)
                proof = self._proof(plan, pair, reason or "interrupted")
                if reason is not None:
                    break
                if self._is_judged() and (plan.rounds % STEP == 0 or self._dropped):
                    write_proof(self._study, proof)
        except (*STOPPED_BY, InputError):
            if self._rounds.done:
                self._progress.stopped(self._kept())
            raise
        if self._is_judged():
            proof = edit.mark_rules(self._study, proof)
            write_proof(self._study, proof)
        return self._result(deployed, proof, None)

    def _round(self, plain: Mapping[str, str]) -> "_Pair":
        sides = ["without", "with"]
        if self._count % 2:
            # A drift over the starts then cancels out.
            sides.reverse()
        # Processes on other nodes cannot write to this machine's /tmp, so use the folder of the
        # study.
        shared = str(self._study.path.absolute()) if self._under is not None else None
        environments = {"without": plain, "with": {**plain, **deployment(self._study.config_path)}}
        for which, environment in environments.items():
            environments[which] = {**environment, **self._recorder(plain, which)}
        rules, hash_ = rules_of(self._study), _hash_of(self._study)
        runs: dict[str, ProgramRun] = {}
        with tempfile.TemporaryDirectory(prefix=".nccltune-verify-", dir=shared) as folder:
            for which in sides:
                runs[which] = run_program(
                    self._program,
                    self._under,
                    environments[which],
                    Path(folder, which),
                    self._progress,
                    self._start(len(runs)),
                    self._keep_samples,
                    self._scope.metric,
                )
                self._times.add(runs[which].seconds)
        return _Pair(runs["without"], runs["with"], rules, hash_)

    def _recorder(self, plain: Mapping[str, str], which: str) -> Mapping[str, str]:
        """Return the settings that count what a start of the first round calls, if they can.

        The starts of a job that are timed have none, nor have programs of nccl-tests, whose first
        round is timed.
        """
        is_timed = any(Path(word).name.endswith("_perf") for word in self._program)
        if self._rounds.done or is_timed or not self._is_writable or plain.get(PLUGIN):
            return {}
        folder = self._study.path / names.CALLS / which
        try:
            settings = record_deployment(folder).settings
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        except (NccltuneError, OSError):
            return {}
        self._recorded[which] = folder
        return settings

    @property
    def _count(self) -> int:
        return len(self._rounds.known) + len(self._rounds.done)

    def _start(self, place: int) -> ProgramStart:
        before = 2 * len(self._rounds.done)
        to_come = 2 * max(1, self._scope.rounds - self._total)
        left_s = (to_come - place) * self._times.expected_s if self._times.is_known else None
        return ProgramStart(before + place + 1, before + to_come, left_s)

    def _keep_samples(self, samples: Sequence[Sample]) -> None:
        if self._is_writable and samples:
            self._rounds.add_samples(samples)

    def _deployed(self, pair: "_Pair") -> StockProof:
        before, after = pair.before, pair.after
        facts = before.logged.facts(before.seconds), after.logged.facts(after.seconds)
        points = points_of(before.logged, after.logged, pair.rules, (before.times, after.times))
        found = [*before.elsewhere, *after.elsewhere, *problems_of(*facts, points, pair.hash)]
        self._problems |= dict.fromkeys(found)
        deployed = StockProof(
            study=self._study.name,
            config_hash=pair.hash,
            program=self._program,
            at=timestamp(),
            before=facts[0],
            after=facts[1],
            points=points,
            problems=list(self._problems),
        )
        self._unsaved = []
        with saving(self._unsaved):
            self._study.write_json(self._study.path / names.DEPLOYED, deployed)
        return deployed

    def _unmeasured(self, pair: "_Pair", deployed: StockProof) -> str | None:
        """Return why the timings of a round prove no gain; None if they may."""
        if deployed.before.config_hashes or deployed.after.config_hashes != [pair.hash]:
            return "the two runs do not differ by these rules"
        if pair.before.elsewhere or pair.after.elsewhere:
            return "the processes were not placed as requested"
        if any(item.verdict == "not as the rule says" for item in deployed.points) and not (
            deployed.followed
        ):
            return "NCCL followed no rule"
        if not self._is_writable:
            return "the study cannot be written, so timings cannot be kept"
        if self._is_job(pair):
            if self._scope.rounds < LEAST_PAIRS:
                return f"a job needs at least {LEAST_PAIRS} rounds"
            return _inert(pair.after, deployed)
        scales = {_scale(pair.before), _scale(pair.after)}
        if len(scales) > 1 or None in scales:
            return "the two runs do not have one known number of nodes and ranks"
        if pair.after.logged.log.ranks == 1:
            return "it ran as one rank, which has no peer"
        return None

    def _is_job(self, pair: "_Pair") -> bool:
        """Return whether the program prints no table of nccl-tests, or a metric was named."""
        return self._scope.metric is not None or not (pair.before.samples and pair.after.samples)

    def _job(self, pair: "_Pair", plain: Mapping[str, str]) -> JobProof:
        """Run further rounds until the job is decided, or the rounds or the budget are spent.

        The first round is no part of them: NCCL logged every call in it.
        """
        metric = self._scope.metric
        trial = SettingTrial(
            settings={**deployment(self._study.config_path)},
            baseline={},
            what=[
                *self._rounds.program,
                f"content={pair.hash}",
                f"metric={metric and metric.name}",
            ],
        )
        longest = max(pair.before.seconds, pair.after.seconds)
        reader = JobReader(metric)
        runner = ProgramRunner(
            self._program,
            plain,
            trial.settings,
            with_launcher=self._under,
            limit_s=max(LIMIT_S, _PATIENCE * longest),
            job=reader,
        )
        left = self._scope.budget_s and max(0.0, self._scope.budget_s - self._times.spent_s)
        experiment = TrialExperiment(
            runner,
            TrialFiles(self._study),
            trial,
            TrialScope(0, left),
            anew=self._scope.anew,
            job=True,
        )
        known = len(experiment.speeds)
        reader.used = experiment.speeds[-1][0].metric if known else None
        ends = looks(self._scope.rounds)
        for end in [end for end in ends if end >= known] or ends[-1:]:
            try:
                outcome = experiment.run(lambda status: self._show(status, experiment), rounds=end)
            except STOPPED_BY:
                pairs = count(len(experiment.speeds), "pair")
                self._progress.stopped(f"the speeds of {pairs} of starts")
                raise
            confidence = confidence_of(len(experiment.speeds))
            found = judge_pairs(experiment.speeds, confidence, outcome.error)
            if outcome.reason != "done" or found.verdict != "not sure" or found.coarse:
                break
        recorded = self._recorded
        sent, differs = sent_twice(*recorded.values()) if len(recorded) == 2 else ("", False)
        proof = job_proof(
            found,
            experiment.speeds,
            JobProof(
                sent=sent,
                sent_differs=differs,
                in_nccl=timed_twice(*recorded.values()) if len(recorded) == 2 else "",
                study=self._study.name,
                config_hash=pair.hash,
                program=self._program,
                verdict=found.verdict,
                why=found.why,
                confidence=confidence,
                known=known,
                failed=len(experiment.failures),
                seconds=self._times.spent_s + outcome.seconds,
                reason=outcome.reason,
                nccl_version=pair.after.logged.log.version,
                command=self._command,
                at=timestamp(),
            ),
        )
        with saving(self._unsaved):
            self._study.write_json(self._study.path / names.JOB_PROOF, proof)
        return proof

    def _show(self, status: ExperimentStatus, experiment: TrialExperiment) -> None:
        """Report a start of the job."""
        left = max(0, 2 * looks(self._scope.rounds)[-1] - experiment.ended)
        most = self._starts + left
        self._starts += 1
        left_s = left * self._times.expected_s
        which = "with" if status.what == WITH else "without"
        start = ProgramStart(self._starts, most, left_s)
        self._progress.starting(which, " ".join(self._program), start)

    def _keep(self, pair: "_Pair") -> None:
        scale = _scale(pair.after)
        assert scale is not None
        self._rounds.end(
            ProgramRound(
                round=self._rounds.next_round,
                program=self._rounds.program,
                nodes=scale.nodes,
                ranks=scale.ranks,
                rules=pair.rules,
                seconds=pair.before.seconds + pair.after.seconds,
                at=timestamp(),
            )
        )

    def _judged(self) -> ProofPlan:
        while True:
            rules, scale = rules_of(self._study), self._rounds.rounds[-1].scale
            plan = self._rounds.plan(rules, measured(self._study, scale))
            narrowed = [item.narrowed for item in self._dropped if item.narrowed is not None]
            bad = plan.bad(narrowed)
            if not bad:
                return plan
            config = self._study.config_path
            keep = None if self._dropped else edit.before_path(config)
            edit.remove_rules(config, bad, keep=keep)
            self._dropped += bad
            self._progress.dropped(bad)

    def _end_of(self, plan: ProofPlan) -> str | None:
        # Look only after every few rounds: each look is a chance to be wrong.
        if plan.is_decided and (plan.rounds < FIRST_LOOK or plan.rounds % STEP == 0):
            return "done"
        if max(plan.rounds, len(self._rounds.done)) >= self._scope.rounds:
            return "done"
        budget = Budget(self._scope.budget_s, lambda: self._times.spent_s)
        return None if budget.affords(2 * self._times.expected_s) else "budget"

    def _proof(self, plan: ProofPlan, pair: "_Pair", reason: str) -> Proof:
        sizes = measured(self._study, plan.scale)
        verdicts = plan.verdicts(expected_gains(self._study))
        groups = [
            msgspec.structs.replace(group, sizes=[size for size in group.sizes if size.rounds])
            for group in plan.groups()
        ]
        points, known = self._rounds.points
        proof = Proof(
            study=self._study.name,
            config_hash=_hash_of(self._study),
            reason=reason,
            points=points,
            known=known,
            seconds=self._times.spent_s,
            noise=max((group.noise for group in groups), default=0.0),
            replay=None,
            nccl_version=pair.after.logged.log.version,
            command=self._command,
            at=timestamp(),
            rules=with_sizes_to_run(verdicts, plan, sizes),
            dropped=self._dropped,
            groups=[group for group in groups if group.sizes],
            passes=[],
        )
        return joined(proof, self._before)

    def _is_judged(self) -> bool:
        return self._total >= FIRST_LOOK or bool(self._dropped)

    def _kept(self) -> str:
        return f"the timings of {count(self._count, 'round')}"

    def _result(
        self,
        deployed: StockProof,
        proof: Proof | None,
        unmeasured: str | None,
        job: JobProof | None = None,
    ) -> ProgramProof:
        return ProgramProof(
            deployed,
            proof,
            unmeasured,
            is_changed=bool(self._dropped),
            reach=REACH if self._under is None else REACH_UNDER,
            unsaved=self._unsaved,
            job=job,
        )


class _Pair(NamedTuple):
    before: ProgramRun
    after: ProgramRun
    rules: list[Rule]
    hash: str


def _inert(run: ProgramRun, deployed: StockProof) -> str | None:
    """Return why the rules cannot change the speed of a job; None if they may."""
    log = run.logged.log
    if deployed.after.applying == 0:
        scale = _scale(run)
        return f"no rule applies at this scale{'' if scale is None else f' ({scale})'}"
    # The points of a log are looked up at one scale.
    one_scale = len({ranks for ranks, _ in log.own_ranks}) < 2
    if one_scale and deployed.points and not deployed.ruled:
        return "no rule applies to what the job calls"
    return None


def _scale(run: ProgramRun) -> Scale | None:
    nodes, ranks = run.logged.log.nodes, run.logged.log.ranks
    return Scale(nodes, ranks) if nodes and ranks else None


def _hash_of(study: Study) -> str:
    return config_hash(study.config_path.read_bytes())


def _without_ours(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without our variables and our plugin; other plugins are kept."""
    plugin = Path(settings["NCCL_TUNER_PLUGIN"]).name
    plain = {name: value for name, value in environment.items() if name not in _OURS}
    if Path(plain.get("NCCL_TUNER_PLUGIN", "")).name == plugin:
        del plain["NCCL_TUNER_PLUGIN"]
    return plain
