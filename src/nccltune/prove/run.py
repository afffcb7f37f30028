# SPDX-License-Identifier: Apache-2.0
"""Prove a study's configuration: measure in passes until every remaining rule holds.

Each pass measures the rules of the present `tuner.conf`. Then rules that do not hold are removed
from the file, or narrowed to the sizes where they hold. The next pass measures the sizes for which
the rules changed. Every result is written when it arrives: timings to samples.jsonl, points without
a valid timing to verify.jsonl, and the passes with their rules to proof.json.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import NamedTuple

from nccltune.analyze.timings import sort_samples
from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules
from nccltune.measure.adaptive.nccl_tables import ask_pipe_ops, refuse_unable
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.conversation import BenchPoint, Hello, PointKey
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.communicator import PlanRun, Watcher
from nccltune.measure.engine.point_record import PointRecord
from nccltune.measure.engine.replayed_bench import open_bench
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, StudyError
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.prove import edit
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import ROUNDS_OF_A_PASS, Proof, ProofPass, RemovedRule
from nccltune.prove.sizes import ProvenCalls, at_scale
from nccltune.study import names
from nccltune.study.files import Study, locked
from nccltune.tune.result import Tuning
from nccltune.workload.demand import demands
from nccltune.workload.table import Workload

_SEED = 1001
"""A different seed than that of a sweep. With the same seed, a replay would draw the same timings
from which the rules were made."""


class Hooks(NamedTuple):
    """Callbacks of a running proof.

    `start` receives the bench of each pass after its hello; it raises an error to refuse the bench.
    `watching` returns the watcher of one pass. `dropped` receives the rules that were removed after
    a pass.
    """

    start: Callable[[Bench], None]
    watching: Callable[[Hello], AbstractContextManager[Watcher[ProofPlan]]]
    dropped: Callable[[list[RemovedRule]], None]


class Verification:
    """One run of `verify`.

    `calls` are calls to measure besides plain ones and those of the sweep, and besides registered
    buffers if a rule is for them. `command` is the command that resumes the run. `budget_s` limits
    the time of measurement in seconds. With `job`, which was read from `workload`, only plain calls
    of its sizes are measured. With `anew`, neither the proof nor the timings of an earlier
    run are used. Without `anew`, raises StudyError if the proof of the earlier run is damaged.
    """

    def __init__(
        self,
        study: Study,
        launch: Launch,
        hooks: Hooks,
        *,
        command: str,
        budget_s: float | None = None,
        anew: bool = False,
        calls: CallKind = PLAIN,
        seed: int = _SEED,
        job: Workload | None = None,
        workload: tuple[str, ...] = (),
    ) -> None:
        self._job = job
        self._workload = workload
        self._study = study
        self._launch = launch._replace(config=study.config_path)
        self._hooks = hooks
        self._command = command
        self._budget_s = budget_s
        self._calls = calls
        self._seed = seed
        self._before = None if anew else read_proof(study)
        self._passes: list[ProofPass] = []
        self._dropped: list[RemovedRule] = []
        self._points = self._known = 0
        self._seconds = 0.0
        self._now: tuple[ProofPlan, Hello] | None = None

    @property
    def kept(self) -> int:
        """Return the number of points of this run that are in the study: measured now or before."""
        return self._points + self._known

    @property
    def proof(self) -> Proof | None:
        """Return the proof so far; None until the first bench has started.

        Raises StudyError if `tuning.json` cannot be read.
        """
        return None if self._now is None else self._proof("interrupted", *self._now)

    def run(self) -> Proof:
        """Measure until every remaining rule holds, or the budget is spent; return the proof.

        `proof.json` is written before and after each pass. At the end rules that hold are marked as
        proven in `tuner.conf`. Raises StudyError if another measurement holds the study's lock or a
        file of the study is damaged, UnwritableError if a file cannot be written, InputError if
        `tuner.conf` cannot be read, and the errors of `Bench`. After an error, all points measured
        before it are in the study. On KeyboardInterrupt, LaunchError or StudyError, `proof.json` is
        written if possible, and the exception is raised again.
        """
        with locked(self._study):
            try:
                proof = self._pass()
                while self._remove_bad():
                    proof = self._pass()
                proof = edit.mark_rules(self._study, proof)
                write_proof(self._study, proof)
                return proof
            except (KeyboardInterrupt, LaunchError, StudyError):
                # Writing may fail for the same reason, for example a full disk. Raise the first
                # error in that case.
                with contextlib.suppress(StudyError):
                    if (proof_so_far := self.proof) is not None:
                        write_proof(self._study, proof_so_far)
                raise

    def _pass(self) -> Proof:
        rules = rules_of(self._study)
        with contextlib.ExitStack() as stack:
            bench = stack.enter_context(open_bench(self._launch))
            hello = bench.hello
            self._hooks.start(bench)
            scale = Scale(hello.nodes, hello.ranks)
            record = PointRecord(self._study, hello, verifying=True)
            known = record.known()
            self._begin_pass(rules, known)
            plan = ProofPlan(
                rules,
                scale,
                measured(self._study, scale),
                self._passes[-1].first_round,
                calls_to_prove(bench, rules, scale, self._study, self._calls),
                wanted=None if self._job is None else demands(self._job, scale),
            )
            plan.carry(known, self._passes)
            self._now = plan, hello
            # After an interruption, the next run reads the first round of each pass from this file.
            write_proof(self._study, self._proof("interrupted", plan, hello))
            watcher = stack.enter_context(self._hooks.watching(hello))
            left = None if self._budget_s is None else max(0.0, self._budget_s - self._seconds)
            run = PlanRun(plan, bench, record, watcher, budget_s=left, seed=self._seed)
            before = self._points, self._known, self._seconds
            try:
                reason = run.run().reason
            finally:
                outcome = run.outcome_so_far
                self._points = before[0] + outcome.points
                self._known = before[1] + outcome.known
                self._seconds = before[2] + outcome.seconds
        proof = self._proof(reason, plan, hello)
        write_proof(self._study, proof)
        return proof

    def _begin_pass(self, rules: list[Rule], known: dict[PointKey, BenchPoint]) -> None:
        """Continue the pass of an earlier run that measured the same rules, or begin a new pass."""
        earlier = self._before.passes if self._before is not None else []
        number = next((n for n, item in enumerate(earlier) if item.rules == rules), None)
        if number is None:
            last = max((key.round for key in known), default=-1)
            first_round = (last // ROUNDS_OF_A_PASS + 1) * ROUNDS_OF_A_PASS
        else:
            first_round = earlier[number].first_round
            if not self._passes:
                self._passes = earlier[:number]
                self._dropped = earlier[number].dropped
        self._passes.append(ProofPass(first_round, rules, self._dropped))

    def _remove_bad(self) -> bool:
        """Remove or narrow the rules that do not hold. Return whether there were any."""
        assert self._now is not None
        plan, _ = self._now
        narrowed = [item.narrowed for item in self._dropped if item.narrowed is not None]
        bad = plan.bad(narrowed)
        if bad:
            config = self._study.config_path
            keep = None if self._dropped else edit.before_path(config)
            edit.remove_rules(config, bad, keep=keep)
            self._dropped = [*self._dropped, *bad]
            self._hooks.dropped(bad)
        return bool(bad)

    def _proof(self, reason: str, plan: ProofPlan, hello: Hello) -> Proof:
        groups = plan.groups()
        return Proof(
            study=self._study.name,
            config_hash=config_hash(self._study.config_path.read_bytes()),
            reason=reason,
            points=self._points,
            known=self._known,
            seconds=self._seconds,
            noise=max((group.noise for group in groups), default=0.0),
            replay=hello.replay,
            nccl_version=hello.nccl.version,
            command=self._command,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            rules=plan.verdicts(expected_gains(self._study)),
            dropped=self._dropped,
            groups=groups,
            passes=self._passes,
            workload=self._workload,
        )


def rules_of(study: Study) -> list[Rule]:
    """Return the rules of `tuner.conf`, in order.

    Raises InputError if the file cannot be read or is not a configuration.
    """
    return [item.rule for item in read_rules(study.config_path).rules]


def calls_to_prove(
    bench: Bench, rules: Sequence[Rule], scale: Scale, study: Study, asked: CallKind = PLAIN
) -> list[ProvenCalls]:
    """Return the calls to measure besides plain ones, with NCCL's pipe ops for them.

    Raises InputError if the bench cannot make the calls that the user `asked` for.
    """
    refuse_unable(bench.hello, asked)
    if not rules:
        return []
    can = bench.hello.can
    kinds = dict.fromkeys((asked, *measured_calls(study, scale)))
    if any(rule.registered and at_scale(rule, scale) for rule in rules):
        kinds[CallKind(registered=True)] = None
    found = []
    for kind in kinds:
        able = can.registered >= kind.registered and (can.group_calls or kind.group_calls == 1)
        if kind == PLAIN or not able:
            continue
        pipe_ops = ask_pipe_ops(bench, rules[0].collective, kind)
        if pipe_ops is not None:
            found.append(ProvenCalls(kind, pipe_ops))
        elif kind == asked:
            raise InputError(f"calls ({kind.title}) cannot be measured here")
    return found


def measured(study: Study, scale: Scale) -> dict[Collective, list[int]]:
    """Return the measured sizes (bytes, rising) at this scale, by collective.

    Collectives that NCCL does not ask a tuner plugin about are left out. Raises StudyError if
    `samples.jsonl` is damaged.

    >>> from nccltune.examples import example
    >>> study = Study.open(example("h200x4-as-4-nodes"))
    >>> measured(study, Scale(4, 4))[Collective.ALLREDUCE][0]
    1024
    """
    found: dict[Collective, set[int]] = {}
    if study.samples_path.is_file():
        for timings in sort_samples(study.samples()).timings:
            condition = timings.condition
            if condition.scale == scale and condition.collective.tuned:
                found.setdefault(condition.collective, set()).update(timings.sizes)
    return {collective: sorted(sizes) for collective, sizes in found.items()}


def measured_calls(study: Study, scale: Scale) -> list[CallKind]:
    """Return the kinds of calls in the samples of a sweep at this scale, plain calls excluded.

    Raises StudyError if `samples.jsonl` is damaged.
    """
    if not study.samples_path.is_file():
        return []
    conditions = (timings.condition for timings in sort_samples(study.samples()).timings)
    kinds = {
        CallKind(item.registered and not item.graph, item.group_calls)
        for item in conditions
        if item.scale == scale
    }
    return sorted(kinds - {PLAIN})


def expected_gains(study: Study) -> dict[Rule, float]:
    """Return the gain that the rule search predicted for each rule, from `tuning.json`.

    The result is empty if that file does not exist. Raises StudyError if the file is damaged.
    """
    if not study.tuning_path.is_file():
        return {}
    groups = study.read_json(study.tuning_path, Tuning).groups
    return {
        evidence.rule: evidence.gain
        for group in groups
        for evidence in group.rules
        if evidence.gain is not None
    }


def read_proof(study: Study) -> Proof | None:
    """Return the proof in `proof.json`; None if there is no such file.

    Raises StudyError if the file is damaged.
    """
    path = study.path / names.PROOF
    return study.read_json(path, Proof) if path.is_file() else None


def write_proof(study: Study, proof: Proof) -> None:
    """Write `proof.json`. Raises UnwritableError if the file cannot be written."""
    study.write_json(study.path / names.PROOF, proof)
