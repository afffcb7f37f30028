# SPDX-License-Identifier: Apache-2.0
"""Verify: prove a study's configuration against NCCL's default."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.app.bench_launch import (
    LaunchRequest,
    Site,
    keys_of,
    launch_of,
    nodes_given,
)
from nccltune.app.job import launcher_flavor
from nccltune.app.measuring import STOPPED_BY, BenchProgress, platform_of_bench
from nccltune.app.study import config_of
from nccltune.examples import recording
from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.measure.bench.conditions import PLAIN, CallKind
from nccltune.measure.bench.process import Bench, Launch
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, StudyError
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import Proof, RemovedRule
from nccltune.prove.run import Hooks, Verification, measured, rules_of
from nccltune.study.files import Study


class VerifyProgress(BenchProgress[ProofPlan], Protocol):
    """Callbacks of a running verification."""

    def warn(self, sentence: str) -> None:
        """Report a problem that does not stop the verification."""

    def dropped(self, rules: list[RemovedRule]) -> None:
        """Report the rules that a pass removed, before the next pass begins."""


class VerifyPlan(NamedTuple):
    """The plan of a verification: the rules, and the sizes of the study for each collective."""

    rules: list[Rule]
    sizes: dict[Collective, list[int]]


class VerifyResult(NamedTuple):
    """The proof, None without a rule, and whether rules were removed or narrowed."""

    proof: Proof | None
    is_changed: bool


def plan_verify(study: Study, warn: Callable[[str], None]) -> VerifyPlan:
    """Return the plan of a verification. Raises InputError, StudyError.

    `warn` gets a sentence on lines that the plugin cannot read.
    """
    _has_rules(study, warn)
    sizes: dict[Collective, list[int]] = {}
    rules = rules_of(study)
    for scale in {Scale(rule.nodes, rule.ranks) for rule in rules if rule.nodes and rule.ranks}:
        for collective, found in measured(study, scale).items():
            sizes[collective] = sorted({*sizes.get(collective, []), *found})
    return VerifyPlan(rules, sizes)


def verify(
    study: Study,
    launch: Launch,
    progress: VerifyProgress,
    *,
    command: str,
    budget_s: float | None = None,
    anew: bool = False,
    calls: CallKind = PLAIN,
) -> VerifyResult:
    """Measure the rules of STUDY/tuner.conf, removing those that do not hold, until all do.

    `command` is stored as what resumes it. With `anew`, earlier results are not used. `calls` are
    measured besides plain ones. Raises InputError without a configuration, StudyError, and what
    `Bench` raises.
    """
    if not _has_rules(study, progress.warn):
        return VerifyResult(None, is_changed=False)
    before = rules_of(study)
    is_checked = False

    def start(bench: Bench) -> None:
        """Check and report the platform of the first bench. Later benches have the same launch."""
        nonlocal is_checked
        if is_checked:
            return
        is_checked = True
        hint = (
            "rules are proven where they were measured: give the options of its sweep, or sweep "
            f"this platform: nccltune sweep -o STUDY; see {study.platform_path}"
        )
        if launch.replay is not None and _is_recorded_by(study, launch.replay):
            platform = study.platform()
        else:
            platform = platform_of_bench(study.path, launch, bench.hello, hint)
        progress.started(platform, bench.hello)

    hooks = Hooks(start, progress.watching, progress.dropped)
    run = Verification(
        study, launch, hooks, command=command, budget_s=budget_s, anew=anew, calls=calls
    )
    try:
        proof = run.run()
    except STOPPED_BY:
        if run.kept:
            progress.stopped(f"all {run.kept} points so far")
        raise
    return VerifyResult(proof, rules_of(study) != before)


def _is_recorded_by(study: Study, replay: Path) -> bool:
    """Return whether the study has the samples of the recording, which an import keeps as one."""
    return study.platform_path.is_file() and study.platform() == Study.open(replay).platform()


def as_measured(study: Study, *, one_process: bool = False) -> Launch:
    """Return the launch with which the study was measured, as far as it is known.

    Raises InputError if its recording cannot be opened, and StudyError.
    """
    platform = study.platform()
    if platform.replay is not None:
        try:
            return Launch(replay=recording(platform.replay))
        except StudyError:
            raise InputError(
                f"replays the recording {platform.replay!r}, which is not installed",
                where=str(study.path),
                hint=f"pass its path: nccltune verify {study.path} --replay PATH",
            ) from None
    return Launch(
        gpus=platform.gpus if platform.gpus and platform.gpus > 1 else None,
        emulate_nodes=platform.nodes if platform.emulated_nodes else None,
        one_process=one_process,
    )


def launch_as_measured(study: Study, request: LaunchRequest, site: Site) -> Launch:
    """Return the launch that the request describes, for what it omits as the study was measured."""
    keys = keys_of(request)
    measured_with = as_measured(study, one_process=keys.per_node)
    named = request._replace(settings=())
    says_what = any(
        (named.emulate_nodes, named.ranks_per_gpu, named.gpus, named.nccl, named.replay)
    )
    platform = study.platform()
    if not says_what and platform.ranks_per_gpu > 1 and not request.is_launched:
        return launch_of(
            request._replace(
                gpus=platform.gpus,
                ranks_per_gpu=platform.ranks_per_gpu,
                emulate_nodes=platform.nodes,
                mps=platform.mps or request.mps,
            ),
            site,
        )
    if not says_what and not any((named.launcher, named.nodes, keys.hosts)):
        return measured_with
    if says_what or not request.is_launched:
        return launch_of(request, site)
    assert request.launcher is not None
    launcher = launcher_flavor(request.launcher).launcher
    nodes = request.nodes or len(keys.hosts) or nodes_given(launcher, site.note)
    if not nodes:
        # A launcher did not start emulated nodes: they are not the nodes to launch on.
        nodes = 1 if platform.emulated_nodes else platform.nodes or 1
    gpus = platform.gpus // nodes if platform.gpus else None
    recorded = str(measured_with.replay) if measured_with.replay is not None else None
    return launch_of(request._replace(nodes=nodes, gpus=gpus or None, replay=recorded), site)


def _has_rules(study: Study, warn: Callable[[str], None]) -> bool:
    """Return whether the configuration has rules; warn of lines that the plugin cannot read."""
    path = config_of(study)
    read = read_rules(path)
    if read.problems:
        warn(f"{path}: lines that the plugin leaves out: nccltune lint {path}")
    return bool(read.rules)
