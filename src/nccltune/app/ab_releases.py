# SPDX-License-Identifier: Apache-2.0
"""Compare two releases of NCCL: which is slower where, which choice changed, what keeps the old."""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.app.bench_launch import LaunchRequest
from nccltune.app.check_model import ModelChanges, model_changes
from nccltune.doctor.evidence.plugins import libraries_text, library_version
from nccltune.examples import recording
from nccltune.formats.tuner_config.csv_rules import mark, read_rules, rows_text, write_rules
from nccltune.measure.bench.conditions import CallKind
from nccltune.measure.experiments.ab.experiment import ProcessResult, TrialOutcome
from nccltune.measure.experiments.ab.facts import StartFacts
from nccltune.measure.experiments.ab.judge import (
    Calls,
    CollectiveGain,
    Effect,
    SizeGain,
    TrialVerdict,
    calls_of,
)
from nccltune.measure.experiments.ab.replay import ReplayRunner
from nccltune.measure.experiments.ab.runs import SIDES, SettingTrial, Side
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.model.choice import Choice
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError, LaunchError
from nccltune.model.nccl_releases import nccl_release
from nccltune.model.rule import Rule, RuleState
from nccltune.model.sample import Sample
from nccltune.model.scale import Scale
from nccltune.study.files import Study, locked, write_whole
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.settings import known_version, version_text
from nccltune.tune.basis import rests_on

STATIC = (
    "it is linked with NCCL statically, or opens an NCCL of its own: build nccl-tests without "
    "NCCL_STATIC; an mpirun of yours must pass LD_PRELOAD on (-x)"
)
_BY = "nccltune ab"


class RanChange(Calls, frozen=True, kw_only=True):
    """Neighbouring sizes whose default changed; gains of the second release (1.1 is 1.1 x).

    `before` and `after` have their channels if only these differ.
    """

    min_bytes: int
    max_bytes: int
    before: Choice
    after: Choice
    effect: Effect
    least: float
    most: float


class ReleaseVerdict(TrialVerdict, frozen=True, kw_only=True):
    """The content of `try.json` for two releases; `releases` are None where nothing names one.

    confirmed  whether log or program names the version of each library as loaded
    worst      the least gain that the 95 % intervals leave room for, of all sizes
    ran        where they ran another choice; empty also where the choices are unknown
    model      what NCCL's own model chooses otherwise; None if a version is unknown
    candidate  the study that has `rules`, the first release's faster choices, if there are any
    """

    releases: tuple[str | None, str | None]
    confirmed: bool
    worst: float | None = None
    ran: Sequence[RanChange] = ()
    known_ran: int = 0
    model: ModelChanges | None = None
    rules: Sequence[Rule] = ()
    candidate: str | None = None

    @property
    def holds(self) -> bool:
        """Return whether no size is slower beyond noise with the second release."""
        return self.decision in ("keep", "no help")


class _Call(NamedTuple):
    collective: Collective
    scale: Scale
    calls: CallKind
    bytes: int


def two_libraries(
    named: Sequence[str], request: LaunchRequest, *, preloaded: bool = False
) -> tuple[str, str]:
    """Return the paths of the two libraries, each named by its path or its release.

    Releases are searched for among those of a recording or on this machine; paths in pods are not
    checked. Raises InputError unless they are two that exist, differ and can be `preloaded`.
    """
    if len(named) != 2:
        raise InputError(f"is given {len(named)} times: two libraries are compared", where="‹nccl›")
    if request.replay is not None:
        replay = ReplayRunner(recording(request.replay), seed=0)
        before, after = map(replay.library, named)
    elif request.launcher == "kubernetes":
        before, after = named
    else:
        before, after = map(_library_here, named)
    if before == after or os.path.realpath(before) == os.path.realpath(after):
        raise InputError("both are the same library: nothing to compare", where="‹nccl›")
    for path in (before, after) if preloaded and request.replay is None else ():
        if {" ", ":"} & set(path):
            raise InputError(
                "LD_PRELOAD splits a path at a space and at `:`, so a program cannot load it",
                where=path,
                hint="name a link without them: ln -s PATH /tmp/libnccl.so.2",
            )
    return before, after


def _library_here(named: str) -> str:
    path = Path(named)
    if path.is_file():
        return str(path.absolute())
    if known_version(named) is None:
        raise InputError("no such library", where=named, hint="name a libnccl.so.2 or a release")
    found = dict(_installed())
    if named not in found:
        known = ", ".join(f"{version} ({path})" for version, path in found.items()) or "none"
        raise InputError(
            f"NCCL {named} is not found", where="‹nccl›", hint=f"name its path; found: {known}"
        )
    return found[named]


def _installed() -> Iterator[tuple[str, str]]:
    for line in reversed(libraries_text(Path("/"), os.environ).decode().splitlines()):
        path, is_nccl, version = line.partition(":NCCL version ")
        if is_nccl:
            yield version, path


def check_loaded(
    trial: SettingTrial, probed: Mapping[Side, tuple[ProcessResult, list[Sample]]]
) -> None:
    """Raise LaunchError if a probe did not run the library of its side, by its version."""
    for side, (ran, samples) in probed.items():
        path = trial.of(side)[LIBRARY] or ""
        loaded, wanted = _loaded(ran.facts, samples), _stated(path)
        if ran.recorded_s is not None or ran.error is not None or wanted is None:
            continue
        if known_version(loaded) not in (None, wanted):
            raise LaunchError(
                f"with {path} it ran NCCL {loaded}, not {version_text(wanted)}", hint=STATIC
            )


def with_releases(
    study: Study,
    trial: SettingTrial,
    samples: Sequence[Sample],
    outcome: TrialOutcome,
    verdict: TrialVerdict,
) -> ReleaseVerdict:
    """Return the verdict with what two releases chose; write candidates to a study of their own."""
    own = {side: [s for s in samples if s.settings == trial.of(side)] for side in SIDES}
    facts: dict[Side, StartFacts | None]
    facts = {"default": outcome.default_facts, "set": outcome.set_facts}
    loaded = [_loaded(facts[side], own[side]) for side in SIDES]
    before, after = (
        _release(text, trial.of(side)[LIBRARY] or "")
        for text, side in zip(loaded, SIDES, strict=True)
    )
    ran = {side: _ran(own[side]) for side in SIDES}
    known = ran["default"].keys() & ran["set"].keys()
    changes = [one for item in verdict.collectives for one in _changes(item, ran)]
    calls = dict.fromkeys((item.collective, item.scale) for item in verdict.collectives)
    is_known = bool(calls) and before is not None and before != after
    sizes = [size for item in verdict.collectives for size in item.sizes]
    candidates = _candidates(changes, {item.calls for item in verdict.collectives}, after)
    found = ReleaseVerdict(
        **msgspec.structs.asdict(verdict),
        releases=(before, after),
        # Two builds of one release have the same version.
        confirmed=all(loaded) and before != after,
        worst=min((size.gain.low for size in sizes), default=None),
        ran=changes,
        known_ran=sum(
            _Call(item.collective, item.scale, item.calls, size.bytes) in known
            for item in verdict.collectives
            for size in item.sizes
        ),
        model=model_changes(study, calls, [], after) if is_known and after else None,
        rules=[rule for rule, _ in candidates],
    )
    if not found.rules:
        return found
    return msgspec.structs.replace(found, candidate=_write(study, found, candidates))


def _loaded(facts: StartFacts | None, samples: Iterable[Sample]) -> str | None:
    if facts is not None and facts.nccl_version is not None:
        return facts.nccl_version
    return next((s.source.nccl_version for s in samples if s.source.nccl_version), None)


def _release(loaded: str | None, path: str) -> str | None:
    version = known_version(loaded) or _stated(path)
    return None if version is None else version_text(version)


def _stated(path: str) -> Version | None:
    file = Path(path)
    return known_version(library_version(file, file.resolve())) if file.is_file() else None


def _ran(samples: Iterable[Sample]) -> dict[_Call, Choice]:
    counted: dict[_Call, Counter[Choice]] = defaultdict(Counter)
    for sample in samples:
        if sample.ran is not None and sample.nodes and sample.ranks:
            scale = Scale(sample.nodes, sample.ranks)
            call = _Call(sample.collective, scale, calls_of(sample), sample.bytes)
            counted[call][msgspec.structs.replace(sample.ran, chunk_bytes=None)] += 1
    return {call: choices.most_common(1)[0][0] for call, choices in counted.items()}


def _changes(item: CollectiveGain, ran: dict[Side, dict[_Call, Choice]]) -> Iterator[RanChange]:
    def choices(size: SizeGain) -> tuple[Choice | None, Choice | None, Effect]:
        call = _Call(item.collective, item.scale, item.calls, size.bytes)
        before, after = ran["default"].get(call), ran["set"].get(call)
        if before is not None and after is not None:
            bare = before.without_channels(), after.without_channels()
            if bare[0] != bare[1] or None in (before.channels, after.channels):
                before, after = bare
        return before, after, size.effect

    for (before, after, effect), group in groupby(item.sizes, key=choices):
        if before is None or after is None or before == after:
            continue
        sizes = list(group)
        yield RanChange(
            collective=item.collective,
            scale=item.scale,
            registered=item.registered,
            graph=item.graph,
            min_bytes=sizes[0].bytes,
            max_bytes=sizes[-1].bytes,
            before=before,
            after=after,
            effect=effect,
            least=min(size.gain.gain for size in sizes),
            most=max(size.gain.gain for size in sizes),
        )


def _candidates(
    changes: Iterable[RanChange], kinds: Collection[CallKind], release: str | None
) -> list[tuple[Rule, RanChange]]:
    """Return the first release's choices as rules where the second one, `release`, is slower.

    To NCCL's tuner a call in a graph is a registered one, so of two kinds that differ in the graph
    alone the first one decides, and the other at the sizes that are left.
    """
    both = len({kind.registered or kind.graph for kind in kinds}) > 1
    known = nccl_release(release or "")
    found: list[tuple[Rule, RanChange]] = []
    for one in changes:
        if one.effect != "slower" or one.collective not in TUNED:
            continue
        if known and known.only_lowers and (one.before.channels or 0) > (one.after.channels or 0):
            # A rule cannot raise the channels of this release.
            continue
        rule = Rule(
            collective=one.collective,
            min_bytes=one.min_bytes,
            max_bytes=one.max_bytes,
            choice=one.before,
            nodes=one.scale.nodes,
            ranks=one.scale.ranks,
            registered=True if one.registered or one.graph else False if both else None,
        )
        found += [(part, one) for part in _undecided(rule, [other for other, _ in found])]
    return found


def _undecided(rule: Rule, earlier: Iterable[Rule]) -> list[Rule]:
    """Return the parts of a rule at whose sizes no earlier one decides the same calls."""
    parts = [(rule.min_bytes, rule.max_bytes)]
    same = msgspec.structs.replace
    for other in earlier:
        mine = same(other, choice=rule.choice, min_bytes=rule.min_bytes, max_bytes=rule.max_bytes)
        if mine == rule:
            beside = [(0, other.min_bytes - 1), (other.max_bytes + 1, rule.max_bytes)]
            parts = [
                (max(low, start), min(high, end)) for low, high in parts for start, end in beside
            ]
    return [same(rule, min_bytes=low, max_bytes=high) for low, high in parts if low <= high]


def _write(
    study: Study, found: ReleaseVerdict, candidates: Iterable[tuple[Rule, RanChange]]
) -> str | None:
    """Write the candidates as a study beside `study`; None if that has others or proven ones."""
    before, after = found.releases
    other = Study.create(candidate_path(study.path, after))
    platform = msgspec.structs.replace(study.platform(), name=other.path.name, nccl_version=after)
    marks = {
        rule: mark(
            RuleState.CANDIDATE,
            f"NCCL {before} ran it and NCCL {after} runs {one.after.label}, "
            f"{_times(one)} slower in {_BY}; not yet measured with NCCL {after}",
        )
        for rule, one in candidates
    }
    header = {"schema": "1", **rests_on(platform), "study": other.path.name}
    header |= {"created": datetime.now(UTC).date().isoformat(), "rows": rows_text(found.rules)}
    with locked(other):
        if not other.platform_path.exists():
            other.write_json(other.platform_path, platform)
        if other.config_path.exists():
            known = read_rules(other.config_path).rules
            if not known or not all(
                item.state is RuleState.CANDIDATE and _BY in item.words for item in known
            ):
                return None
        write_whole(other.config_path, write_rules(found.rules, header, marks))
    return str(other.path)


def candidate_path(path: Path, version: str | None) -> Path:
    """Return the path of the study beside the one at `path` that gets candidates for a version."""
    real = path.resolve()
    path = path if path.name == real.name else real
    return path.with_name(f"{real.name}-nccl-{version or 'candidate'}")


def _times(one: RanChange) -> str:
    return f"{math.exp(-(math.log(one.least) + math.log(one.most)) / 2):.2f}x"
