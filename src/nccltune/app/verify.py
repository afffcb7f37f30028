# SPDX-License-Identifier: Apache-2.0
"""Verify: prove a study's configuration against NCCL's default."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from nccltune.app.bench_launch import (
    LaunchRequest,
    Site,
    hosts_of,
    is_per_node,
    launch_of,
    nodes_given,
)
from nccltune.app.job import launcher_flavor
from nccltune.app.sweep import platform_of_bench
from nccltune.examples import recording
from nccltune.formats.tuner_config.csv_rules import config_hash, read_rules
from nccltune.measure.bench.conversation import Hello
from nccltune.measure.bench.identity import check_same_platform
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.communicator import Watcher
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, StudyError
from nccltune.model.platform import Platform
from nccltune.model.rule import Rule
from nccltune.model.scale import Scale
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import Dropped, Proof
from nccltune.prove.run import Hooks, Verification, measured, rules_of
from nccltune.study.files import Study


class VerifyProgress(Protocol):
    """What a verification calls while it runs."""

    def warn(self, sentence: str) -> None:
        """Report what does not stop it."""

    def started(self, platform: Platform, hello: Hello) -> None:
        """Call once, before the first measurement."""

    def watching(self, hello: Hello) -> AbstractContextManager[Watcher[ProofPlan]]:
        """Return what shows the status; it is open while a pass measures."""

    def dropped(self, rules: list[Dropped]) -> None:
        """Call after a pass that removed rules, before the next one."""


class VerifyPlan(NamedTuple):
    """What a verification would measure: rules, and the measured sizes of each collective."""

    rules: list[Rule]
    sizes: dict[Collective, list[int]]


class VerifyRun:
    """One verification of STUDY/tuner.conf. `command` is the command line that resumes it."""

    def __init__(
        self,
        study: Study,
        launch: Launch,
        *,
        command: str,
        budget_s: float | None = None,
        anew: bool = False,
    ) -> None:
        self._study = study
        self._launch = launch
        self._command = command
        self._budget_s = budget_s
        self._anew = anew
        self._verification: Verification | None = None
        self._before = _config_hash(study)

    @property
    def kept(self) -> int:
        """Points of it that the study holds."""
        return self._verification.kept if self._verification else 0

    @property
    def is_changed(self) -> bool:
        """Whether the configuration is another than before the run."""
        return _config_hash(self._study) != self._before

    def plan(self, progress: VerifyProgress) -> VerifyPlan:
        """Return what a run would measure; start and write nothing."""
        _has_rules(self._study, progress.warn)
        sizes: dict[Collective, list[int]] = {}
        rules = rules_of(self._study)
        for scale in {Scale(rule.nodes, rule.ranks) for rule in rules if rule.nodes and rule.ranks}:
            for collective, found in measured(self._study, scale).items():
                sizes[collective] = sorted({*sizes.get(collective, []), *found})
        return VerifyPlan(rules, sizes)

    def run(self, progress: VerifyProgress) -> Proof | None:
        """Measure until every rule that is left holds, or the budget is spent.

        Return None where the configuration has no rule. Raises InputError where there is no
        configuration, LaunchError where the bench ends.
        """
        if not _has_rules(self._study, progress.warn):
            return None
        self._verification = Verification(
            self._study,
            self._launch,
            Hooks(self._starter(progress), progress.watching, progress.dropped),
            command=self._command,
            budget_s=self._budget_s,
            anew=self._anew,
        )
        return self._verification.run()

    def _starter(self, progress: VerifyProgress) -> Callable[[Bench], None]:
        """Return what checks the platform of the first bench."""
        checked = False

        def start(bench: Bench) -> None:
            nonlocal checked
            if checked:
                return
            checked = True
            platform = platform_of_bench(self._study.path, self._launch, bench.hello)
            check_same_platform(
                self._study,
                platform,
                hint="rules are proven where they were measured: give the options of its sweep, "
                "or sweep this platform: nccltune sweep -o STUDY; "
                f"see {self._study.platform_path}",
            )
            progress.started(platform, bench.hello)

        return start


def as_measured(study: Study, *, one_process: bool = False) -> Launch:
    """Return the launch that the study's platform was measured with, as far as it is known.

    Raises InputError where it replays a recording that cannot be found by its name.
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
    """Return the launch of a request; what it leaves open is as the study was measured.

    Raises as `launch_of` and `as_measured` do.
    """
    measured_with = as_measured(study, one_process=is_per_node(request))
    named = request._replace(settings=())
    says_what = any((named.emulate_nodes, named.gpus, named.nccl, named.replay))
    if not says_what and not any((named.launcher, named.nodes, hosts_of(request))):
        return measured_with
    if says_what or not request.is_launched:
        return launch_of(request, site)
    platform = study.platform()
    assert request.launcher is not None
    launcher = launcher_flavor(request.launcher).launcher
    nodes = request.nodes or len(hosts_of(request)) or nodes_given(launcher, site.note)
    if not nodes:
        # Nodes of a recording, and emulated ones, were never nodes of a launcher.
        nodes = 1 if platform.replay or platform.emulated_nodes else platform.nodes or 1
    gpus = platform.gpus // nodes if platform.gpus else None
    recorded = str(measured_with.replay) if measured_with.replay is not None else None
    return launch_of(request._replace(nodes=nodes, gpus=gpus or None, replay=recorded), site)


def _config_hash(study: Study) -> str | None:
    path = study.config_path
    return config_hash(path.read_bytes()) if path.is_file() else None


def _has_rules(study: Study, warn: Callable[[str], None]) -> bool:
    """Return whether there are rules to verify; warn about lines that the plugin will not read."""
    path = study.config_path
    if not path.is_file():
        raise InputError(
            "no such configuration", where=str(path), hint=f"make it: nccltune tune {study.path}"
        )
    read = read_rules(path)
    if read.problems:
        warn(f"{path}: lines that the plugin leaves out: nccltune lint {path}")
    return bool(read.rules)
