# SPDX-License-Identifier: Apache-2.0
"""Verify: prove a study's configuration against NCCL's default."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from nccltune.app.bench_launch import LaunchRequest, Site, keys_of, launch_of, nodes_given
from nccltune.app.job import launcher_flavor
from nccltune.app.measuring import STOPPED_BY, BenchProgress, platform_of_bench
from nccltune.app.study import config_of
from nccltune.app.workload import recorded
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
from nccltune.prove.sizes import job_sizes
from nccltune.study.files import Study
from nccltune.workload.demand import demands
from nccltune.workload.table import Workload


class VerifyProgress(BenchProgress[ProofPlan], Protocol):
    """Callbacks of a running verification."""

    def warn(self, sentence: str) -> None:
        """Report a problem that does not stop the verification."""

    def dropped(self, rules: list[RemovedRule]) -> None:
        """Report the rules that a pass removed, before the next pass begins."""


class VerifyPlan(NamedTuple):
    """The plan of a verification: the rules, and the sizes of each collective.

    They are those of the study, or with `is_of_job` those that a job sends.
    """

    rules: list[Rule]
    sizes: dict[Collective, list[int]]
    is_of_job: bool = False


class VerifyResult(NamedTuple):
    """The proof, None without a rule, and whether rules were removed or narrowed."""

    proof: Proof | None
    is_changed: bool


def plan_verify(
    study: Study, warn: Callable[[str], None], workload: tuple[str, ...] = ()
) -> VerifyPlan:
    """Return the plan of a verification; start and write nothing.

    `workload` are recordings of a job. `warn` receives a sentence if the configuration has lines
    that the plugin cannot read. Raises InputError if there is no configuration or a file cannot be
    read, and StudyError if the samples are damaged.
    """
    _has_rules(study, warn)
    sizes: dict[Collective, list[int]] = {}
    rules, job = rules_of(study), recorded(workload)
    for scale in {Scale(rule.nodes, rule.ranks) for rule in rules if rule.nodes and rule.ranks}:
        every = measured(study, scale)
        if job is not None:
            wanted = demands(job, scale)
            every = {
                collective: job_sizes(collective, scale, found, rules, wanted[collective])
                for collective, found in every.items()
                if collective in wanted
            }
        for collective, found in every.items():
            sizes[collective] = sorted({*sizes.get(collective, []), *found})
    return VerifyPlan(rules, sizes, is_of_job=job is not None)


def verify(
    study: Study,
    launch: Launch,
    progress: VerifyProgress,
    *,
    command: str,
    budget_s: float | None = None,
    anew: bool = False,
    calls: CallKind = PLAIN,
    workload: tuple[str, ...] = (),
    job: Workload | None = None,
) -> VerifyResult:
    """Measure the rules of STUDY/tuner.conf, removing those that do not hold, until all do.

    Rules that do not hold are removed from the file. `command` is stored as the command line that
    resumes the verification, and `budget_s` limits its time in seconds. With `anew`, results of
    earlier verifications are not used. `calls` are calls to measure besides plain ones, those of
    the sweep, and registered buffers if a rule is for them. `workload` are recordings of a job:
    then only plain calls of its sizes are measured. `job` is what they hold, if it was read before.
    Raises InputError if there is no
    configuration, StudyError if the study is of another platform or cannot be read or written, and
    what `Bench` raises. KeyboardInterrupt stops the verification and is raised again.
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
        study,
        launch,
        hooks,
        command=command,
        budget_s=budget_s,
        anew=anew,
        calls=calls,
        job=job or recorded(workload),
        workload=workload,
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

    Raises InputError if the recording that the study replays cannot be opened, and StudyError.
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
    """Return the launch of a request; what it omits is as the study was measured."""
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
