# SPDX-License-Identifier: Apache-2.0
"""Check: whether deployed rules still rest on this platform, and still are faster."""

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from nccltune.app.bench_launch import LaunchRequest, Site, launch_of, mpi_launch_of
from nccltune.app.check_model import ModelChanges, calls_of, model_changes
from nccltune.app.env import local_gpu
from nccltune.app.measuring import BenchProgress, platform_of_bench
from nccltune.app.predict import stated_version
from nccltune.app.status import NodeOutput, on_each_node
from nccltune.app.study import config_of, platform_with_hardware
from nccltune.app.verify import launch_as_measured
from nccltune.examples import recording
from nccltune.formats.importing.hardware import hardware_hash
from nccltune.formats.tuner_config.csv_rules import RuleFile, config_hash, read_rules, rows_text
from nccltune.formats.tuner_config.nccl_conf import conf_files, read_conf
from nccltune.measure.bench.identity import nccl_settings
from nccltune.measure.bench.process import Launch, driver_version, topology_hash, visible_gpus
from nccltune.measure.bench.with_launcher import WithLauncher
from nccltune.measure.engine.replayed_bench import open_bench
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale, count
from nccltune.prove import edit
from nccltune.prove.check_drops import keep_drops
from nccltune.prove.plan import ProofPlan
from nccltune.prove.result import RemovedRule
from nccltune.prove.run import calls_to_prove, measured
from nccltune.prove.spot import SpotCheck, SpotSite, spot_check, unmeasured
from nccltune.study.files import Study, locked
from nccltune.topology.files.load import read_file
from nccltune.topology.nccl_model.settings import version_text
from nccltune.tune.basis import FACTS, rests_on
from nccltune.tune.result import Tuning

FactVerdict = Literal["same", "differs", "unknown", "asked for"]
CONFIG_VARIABLES = ("NCCLTUNE_CONFIG", "NCCL_TUNER_CONFIG_FILE")
"""The variables that name the configuration of the plugin; the first that is set counts."""
_DATED = re.compile(r"\bon (\d{4}-\d\d-\d\d)\b")
_OF_MACHINE = [FACTS[key] for key in ("nccl", "driver", "gpu", "topology")]


class CheckRequest(NamedTuple):
    """What to check: with `budget_s` 0 only the file and the platform.

    `against` is the libnccl.so.2 of another release, or its version. `topology` is a file with the
    node's hardware as it is now; None asks nvidia-smi.
    """

    budget_s: float = 30.0
    max_age_days: int | None = None
    against: Path | None = None
    topology: Path | None = None
    apply: bool = False


class Fact(msgspec.Struct, frozen=True):
    """One fact that rules rest on, as it was and as it is now; None where it is not known."""

    name: str
    then: str | None
    now: str | None
    verdict: FactVerdict
    note: str = ""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check.

    holds    no fact differs, no rule is to be dropped or measured again, and something was
             confirmed: a rule, or where none is measured, a fact about the platform
    seconds  the limit of the spot check; 0 if nothing was measured
    kept_as  where the old file is, if rules were removed; `new_hash` is that of the new file
    """

    config: str
    config_hash: str
    at: str
    holds: bool
    nccl: str | None
    against: str | None
    replay: str | None
    seconds: float
    facts: list[Fact]
    rules: list[SpotCheck]
    model: ModelChanges | None = None
    kept_as: str | None = None
    new_hash: str | None = None
    unapplied: str | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the platform differs from the one that the rules rest on."""
        names = FACTS.values()
        return any(fact.verdict == "differs" and fact.name in names for fact in self.facts)


class CheckProgress(BenchProgress[ProofPlan], Protocol):
    """Callbacks of a running check."""

    def checked(self, rule: SpotCheck) -> None:
        """Report the verdict on a rule as soon as it is known."""


class Target(NamedTuple):
    """The file to check, and the study that it is of, if there is one beside it."""

    config: Path
    study: Study | None
    read: RuleFile

    @property
    def then(self) -> dict[str, str]:
        """Return the facts that the rules rest on: of the header, else of the study's platform."""
        known = rests_on(platform_with_hardware(self.study)) if self.study is not None else {}
        return known | {key: self.read.header[key] for key in FACTS if key in self.read.header}


def target_of(path: Path) -> Target:
    """Return the configuration of a study, or a configuration file. Raises StudyError,
    InputError."""
    if path.is_dir():
        study = Study.open(path)
        return Target(config_of(study), study, read_rules(config_of(study)))
    beside = Study(path.parent)
    is_of_study = path == beside.config_path and beside.platform_path.is_file()
    return Target(path, beside if is_of_study else None, read_rules(path))


def launch_to_check(
    target: Target, request: LaunchRequest, asked: CheckRequest, site: Site
) -> Launch | None:
    """Return the launch of the spot check, as the study was measured unless options differ.

    None if nothing is to be measured. Raises InputError if `against` cannot be measured.
    """
    if asked.budget_s <= 0 or not target.read.rules:
        return None
    if asked.against is not None and request.nccl is not None:
        raise InputError("and ‹against› both name the library to measure", where="‹nccl›")
    if asked.against is not None and not asked.against.is_file():
        _version_text(asked.against)
    library = asked.against or request.nccl
    plain = request._replace(nccl=None)
    if target.study is not None:
        launch = launch_as_measured(target.study, plain, site)
    else:
        launch = launch_of(plain, site)
    if launch.replay is None:
        if library is not None and not library.is_file():
            raise InputError("no such library", where=str(library), hint="name a libnccl.so.2")
        return launch._replace(nccl=None if library is None else library.absolute())
    if asked.against is not None:
        recorded = Study.open(launch.replay).platform().nccl_version
        if _version_text(asked.against) != recorded:
            raise InputError(
                f"is NCCL {_version_text(asked.against)}, and the recording is of NCCL {recorded}",
                where=str(asked.against),
                hint="replay a recording of that release, or measure with ‹budget_s› 0 nothing",
            )
    elif library is not None:
        raise InputError("a replay takes NCCL from the recording", where="‹nccl›")
    return launch


def check(
    target: Target,
    launch: Launch | None,
    progress: CheckProgress,
    asked: CheckRequest,
    request: LaunchRequest,
) -> CheckResult:
    """Compare the file and the platform with what the rules rest on, and measure the rules.

    Timings are not added to the study, which may be of another platform. With `apply`, rules to be
    dropped are removed. Raises the errors of `Bench`, StudyError, UnwritableError.
    """
    study = target.study
    with contextlib.ExitStack() as stack:
        if study is not None and os.access(study.path, os.W_OK):
            stack.enter_context(locked(study))
        hash_ = config_hash(target.config.read_bytes())
        if launch is None:
            platform = _platform_unmeasured(request)
            rules = [unmeasured(item, "nothing was measured") for item in target.read.rules]
        else:
            platform, rules = _measure(target, launch, progress, asked.budget_s)
        version = None
        if asked.against is not None:
            is_run = launch is not None and launch.replay is None
            version = platform.nccl_version if is_run else _version_text(asked.against)
            platform = msgspec.structs.replace(platform, nccl_version=version)
        facts = _facts(target, platform, asked, hash_)
        rows = [item.rule for item in target.read.rules]
        result = CheckResult(
            config=str(target.config),
            config_hash=hash_,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            holds=_holds(facts, rules, is_measured=launch is not None),
            nccl=platform.nccl_version,
            against=version,
            replay=platform.replay if launch is not None and launch.replay else None,
            seconds=0.0 if launch is None else asked.budget_s,
            facts=facts,
            rules=rules,
            model=None if version is None else model_changes(study, calls_of(rows), rows, version),
        )
        return _applied(target, result) if asked.apply else result


def _holds(facts: Sequence[Fact], rules: Sequence[SpotCheck], *, is_measured: bool) -> bool:
    if any(fact.verdict == "differs" for fact in facts):
        return False
    verdicts = {item.verdict for item in rules}
    if is_measured:
        return "keep" in verdicts and not verdicts & {"drop", "measure again"}
    same = (fact.name for fact in facts if fact.verdict == "same")
    return not rules or any(name in _OF_MACHINE for name in same)


def _measure(
    target: Target, launch: Launch, progress: CheckProgress, budget_s: float
) -> tuple[Platform, list[SpotCheck]]:
    with contextlib.ExitStack() as stack:
        scratch = Study(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        bench = stack.enter_context(open_bench(launch._replace(config=target.config)))
        hello = bench.hello
        # The scratch study is of no platform, so that any is right.
        platform = platform_of_bench(scratch.path, launch, hello)
        progress.started(platform, hello)
        scale = Scale(hello.nodes, hello.ranks)
        study = target.study or scratch
        rules = [item.rule for item in target.read.rules]
        site = SpotSite(
            bench=bench,
            scratch=scratch,
            budget_s=budget_s,
            measured=measured(study, scale),
            others=calls_to_prove(bench, rules, scale, study),
            ran=_default_ran(study, scale),
        )
        watcher = stack.enter_context(progress.watching(hello))
        return platform, spot_check(target.read.rules, site, watcher, progress.checked)


def _default_ran(study: Study, scale: Scale) -> dict[tuple[Collective, int], str]:
    if not study.tuning_path.is_file():
        return {}
    return {
        (group.collective, row.bytes): row.default_ran.label
        for group in study.read_json(study.tuning_path, Tuning).groups
        if group.scale == scale and not group.registered and (group.pipe_ops or 1) == 1
        for row in group.decisions
        if row.default_ran is not None
    }


def _platform_unmeasured(request: LaunchRequest) -> Platform:
    if request.replay is not None:
        return platform_with_hardware(Study.open(recording(request.replay)))
    gpus = None
    with contextlib.suppress(PlatformError):
        gpus = visible_gpus("")
    return Platform(
        name="here",
        gpu=local_gpu(),
        gpus=gpus,
        nccl_version=None if request.nccl is None else _version_text(request.nccl),
        driver_version=driver_version(),
        topology_hash=topology_hash(),
        settings=nccl_settings(os.environ),
        recorded_at=date.today().isoformat(),
    )


def _facts(target: Target, platform: Platform, asked: CheckRequest, hash_: str) -> list[Fact]:
    then, now = target.then, rests_on(platform)
    if asked.topology is not None:
        now["topology"] = hardware_hash(read_file(asked.topology))
    found = [*_file_facts(target, hash_), *_deployed_facts(hash_, os.environ)]
    for key, name in FACTS.items():
        fact = _fact(name, then.get(key), now.get(key))
        if key == "nccl" and asked.against is not None and fact.verdict == "differs":
            fact = msgspec.structs.replace(fact, verdict="asked for")
        if key == "topology" and fact.verdict == "differs" and _kind(fact.then) != _kind(fact.now):
            note = "of two kinds of files, which cannot be compared"
            fact = msgspec.structs.replace(fact, verdict="unknown", note=note)
        found.append(fact)
    return [*found, *_age(target, asked.max_age_days)]


def _fact(name: str, then: str | None, now: str | None, note: str = "") -> Fact:
    if then is None or now is None:
        return Fact(name, then, now, "unknown", note)
    return Fact(name, then, now, "same" if then == now else "differs", note)


def _kind(text: str | None) -> str:
    return (text or "").partition(" ")[0]


def _file_facts(target: Target, hash_: str) -> list[Fact]:
    read, study = target.read, target.study
    rows = read.header.get("rows")
    facts = [_fact("rows", rows, rows_text([item.rule for item in read.rules]))]
    if rows is None and study is not None and study.tuning_path.is_file():
        written = study.read_json(study.tuning_path, Tuning).config_hash
        facts = [_fact("content", written, hash_)]
    if read.problems:
        bad = count(len(read.problems), "line")
        facts.append(Fact("lines", "all are read", f"{bad} cannot be read", "differs"))
    return facts


def _deployed_facts(hash_: str, environment: Mapping[str, str]) -> list[Fact]:
    settings = dict(environment)
    for name in conf_files(environment.get("NCCL_CONF_FILE"), environment.get("HOME")):
        with contextlib.suppress(InputError):
            settings = {**read_conf(Path(name)), **settings}
    facts = []
    named = next((settings[name] for name in CONFIG_VARIABLES if settings.get(name)), None)
    if named is not None:
        now = "cannot be read"
        with contextlib.suppress(OSError):
            now = config_hash(Path(named).read_bytes())
        facts.append(_fact("deployed file", hash_, now, named))
    expected = settings.get("NCCLTUNE_CONFIG_HASH")
    if expected:
        facts.append(_fact("NCCLTUNE_CONFIG_HASH", expected.lower(), hash_))
    return facts


def _age(target: Target, most_days: int | None) -> list[Fact]:
    words = [item.words for item in target.read.rules]
    dates = [found for text in words for found in _DATED.findall(text)]
    dates += [target.read.header["created"]] if "created" in target.read.header else []
    known = []
    for text in dates:
        with contextlib.suppress(ValueError):
            known.append(date.fromisoformat(text))
    limit = "" if most_days is None else f"at most {most_days} days"
    if not known:
        return [Fact("age", limit, "no date is known", "differs")] if limit else []
    days = (datetime.now(UTC).date() - max(known)).days
    verdict: FactVerdict = "differs" if most_days is not None and days > most_days else "same"
    return [Fact("age", limit or str(max(known)), f"{days} days", verdict)]


def _applied(target: Target, result: CheckResult) -> CheckResult:
    """Remove the rules that no longer hold, unless another GPU was measured; keep the old file."""
    gone = [
        RemovedRule(item.rule, item.reason, by="check")
        for item in result.rules
        if item.verdict == "drop"
    ]
    if not gone:
        return result
    elsewhere = (FACTS["gpu"], FACTS["gpus"])
    if any(fact.name in elsewhere and fact.verdict == "differs" for fact in result.facts):
        words = "nothing was removed: this machine has other GPUs than the rules were measured on"
        return msgspec.structs.replace(result, unapplied=words)
    config = target.config.resolve()
    keep = config.with_name(f"{config.name}.before-check-{result.config_hash[:8]}")
    if target.study is not None:
        # First, so that `tune` never brings back what could not be recorded.
        keep_drops(target.study, gone, result.nccl, result.at)
    edit.remove_rules(config, gone, keep=keep)
    new = config_hash(config.read_bytes())
    return msgspec.structs.replace(result, kept_as=str(keep), new_hash=new)


def _version_text(path: Path) -> str:
    version = stated_version(path, "‹against›")
    assert version is not None
    return version_text(version)


class NodeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of one node: its file (None if it could not be checked), and what differs."""

    host: str
    config_hash: str | None = None
    differs: list[Fact] = []
    problem: str | None = None


class NodesResult(CheckResult, frozen=True, kw_only=True):
    """A check with that of every node. `missing` is the number of nodes that did not answer."""

    nodes: list[NodeCheck]
    missing: int


def nodes_to_check(
    launch: Launch | None, request: LaunchRequest, site: Site
) -> WithLauncher | None:
    """Return the launcher whose nodes are checked; None without one, and for pods."""
    if not request.is_launched or request.launcher == "kubernetes":
        return None
    if launch is not None:
        return launch.with_launcher
    return mpi_launch_of(request, site)


def with_nodes(
    result: CheckResult, path: Path, asked: CheckRequest, under: WithLauncher
) -> NodesResult:
    """Return a check with that of every node; it holds if all hold, and have the same file."""
    words = ["check", str(path.absolute()), "--budget", "0"]
    if asked.max_age_days is not None:
        words += ["--max-age", str(asked.max_age_days)]
    return joined(result, on_each_node(words, under), under.nodes)


def joined(result: CheckResult, outputs: Sequence[NodeOutput], expected: int) -> NodesResult:
    """Return a check with the outputs of `expected` nodes."""
    nodes = [_node(one) for one in outputs]
    missing = max(0, expected - len(nodes))
    # The rows that --apply left are the file of all nodes only where they share it.
    content = {result.config_hash, result.new_hash}
    alike = all(
        one.problem is None and one.config_hash in content and not one.differs for one in nodes
    )
    return NodesResult(
        **{**msgspec.structs.asdict(result), "holds": result.holds and alike and not missing},
        nodes=nodes,
        missing=missing,
    )


def _node(output: NodeOutput) -> NodeCheck:
    try:
        found = msgspec.json.decode(output.document, type=CheckResult)
    except msgspec.DecodeError:
        return NodeCheck(host=output.host, problem=output.error or "printed no result")
    differs = [fact for fact in found.facts if fact.verdict == "differs"]
    return NodeCheck(host=output.host, config_hash=found.config_hash, differs=differs)
