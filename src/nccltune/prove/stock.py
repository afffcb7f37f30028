# SPDX-License-Identifier: Apache-2.0
"""Compare two runs of an unchanged program, without and with our plugin, by NCCL's own log."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from nccltune.formats.nccl_log.lines import find_log_line
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.model.choice import Choice
from nccltune.model.collective import Collective
from nccltune.model.rule import Rule
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale, count
from nccltune.prove.sizes import taken

LOG_SETTINGS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING"}
"""With these settings NCCL logs the tuner plugin that it loads. NCCL 2.20 and later also log the
choice of every call."""
PASSED = ("NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", *LOG_SETTINGS, "NCCL_DEBUG_FILE")
"""The settings that must reach every rank."""
# Matches the line that our plugin logs when a rank creates a communicator
# (docs/reference/tuner-plugin.md).
_LOADED = re.compile(
    r"TUNER/nccltune: .* \(content (?P<hash>[0-9a-f]{16})\): (?P<apply>\d+) of (?P<rules>\d+) rule"
)
PointVerdict = Literal["as the rule says", "not as the rule says", "left alone", "changed"]
Times = Mapping[tuple[Collective, int], float]
"""The time of a call in us, by collective and size in bytes."""


class StockRun(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one run of the program, from NCCL's log.

    seconds        duration of the run
    logs           number of log files
    tuner          name of the tuner plugin that NCCL loaded; None if the log names none
    config_hashes  hashes of the configurations that our plugin loaded
    rules          number of rules in the configuration
    applying       number of these rules that apply at the scale of the run (nodes and ranks); of
                   several communicators, the largest
    """

    seconds: float
    logs: int
    nccl_version: str | None
    nodes: int | None
    ranks: int | None
    tuner: str | None
    config_hashes: list[str] = []
    applying: int | None = None
    rules: int | None = None


class StockPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One collective and size that the program called in the run with the plugin.

    `rule` is the choice of the configuration; None if no rule applies. `before` and `after` are the
    choices that NCCL executed without and with the plugin; None if the log does not show them. The
    times are those that the program printed in the last round; two such times are not a measured
    gain.
    """

    collective: Collective
    bytes: int
    rule: str | None
    before: str | None
    after: str | None
    verdict: PointVerdict | None
    before_us: float | None = None
    after_us: float | None = None


class StockProof(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `deployed.json`: whether the deployed configuration works.

    `before` is the run without the plugin, `after` the run with the plugin. `problems` is empty if
    the configuration works.
    """

    schema_version: int = SCHEMA_VERSION
    study: str
    config_hash: str
    program: list[str]
    at: str
    before: StockRun
    after: StockRun
    points: list[StockPoint]
    problems: list[str]

    @property
    def followed(self) -> int:
        """Return the number of points at which NCCL ran the choice of the rule."""
        return sum(point.verdict == "as the rule says" for point in self.points)

    @property
    def ruled(self) -> int:
        """Return the number of points to which a rule applies."""
        return _ruled(self.points)


class LoggedRun:
    """The log files of one run, already read. Raises OSError if one of `files` cannot be read."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.log = NcclLog()
        self.files = 0
        self.hashes: dict[str, None] = {}
        self.applying: int | None = None
        self.rules: int | None = None
        for path in files:
            self.files += 1
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    self._observe(line)

    def _observe(self, line: str) -> None:
        match = find_log_line(line)
        if match is None:
            return
        message = line[match.end() :].rstrip("\n")
        self.log.observe(message)
        loaded = _LOADED.search(message)
        if loaded is not None:
            self.hashes[loaded["hash"]] = None
            self.applying = max(self.applying or 0, int(loaded["apply"]))
            self.rules = int(loaded["rules"])

    def facts(self, seconds: float) -> StockRun:
        """Return the facts about the run. `seconds` is the duration of the run."""
        return StockRun(
            seconds=seconds,
            logs=self.files,
            nccl_version=self.log.version,
            nodes=self.log.nodes,
            ranks=self.log.ranks,
            tuner=self.log.tuner,
            config_hashes=list(self.hashes),
            applying=self.applying,
            rules=self.rules,
        )


def points_of(
    before: LoggedRun, after: LoggedRun, rules: Sequence[Rule], times: tuple[Times, Times]
) -> list[StockPoint]:
    """Return a point for each collective and size that the program called with the plugin.

    Collectives that NCCL does not ask a tuner plugin about are left out. `times` are the times that
    the program printed, without and with the plugin.
    """
    nodes, ranks = after.log.nodes, after.log.ranks
    scale = Scale(nodes, ranks) if nodes and ranks else None
    first, second = before.log.points(ranks), after.log.points(ranks)
    found = []
    for key in sorted(second, key=lambda key: (-key[0].nccl_id if key[0].tuned else 1, key[1])):
        collective, size = key
        if not collective.tuned:
            continue
        index = taken(rules, collective, size, scale) if scale else None
        rule = None if index is None else rules[index].choice
        ran, then = second[key], first.get(key)
        found.append(
            StockPoint(
                collective=collective,
                bytes=size,
                rule=None if rule is None else rule.label,
                before=_label(then),
                after=_label(ran),
                verdict=_verdict(rule, then, ran),
                before_us=times[0].get(key),
                after_us=times[1].get(key),
            )
        )
    return found


def problems_of(
    before: StockRun, after: StockRun, points: Sequence[StockPoint], config_hash: str
) -> list[str]:
    """Return the reasons why the deployed configuration does not work, one sentence each.

    The list is empty if the configuration works. `config_hash` is the hash of the deployed
    configuration.
    """
    found = []
    if not after.config_hashes:
        found.append("NCCL did not load our plugin with this configuration")
    elif after.config_hashes != [config_hash]:
        others = " and ".join(after.config_hashes)
        found.append(f"another configuration was loaded (content {others}, not {config_hash})")
    if before.config_hashes:
        found.append("the run without the plugin loaded it, too: nccl.conf may name it already")
    if after.config_hashes and not points:
        found.append("NCCL's log names no choice, so what ran is not known")
    other = [point for point in points if point.verdict == "not as the rule says"]
    if other:
        where = f"{len(other)} of {count(_ruled(points), 'point')}"
        found.append(f"at {where} NCCL did not run the choice of the rule")
    changed = sum(point.verdict == "changed" for point in points)
    if changed:
        found.append(f"at {count(changed, 'point')} without a rule something else ran than before")
    return found


def _ruled(points: Sequence[StockPoint]) -> int:
    return sum(point.rule is not None for point in points)


def _label(ran: object) -> str | None:
    return ran.label if isinstance(ran, Choice) else None if ran is None else str(ran)


def _verdict(rule: Choice | None, before: object, after: object) -> PointVerdict | None:
    """Return the verdict on one point; None if the logs do not show what NCCL executed.

    Channels are not compared, because NCCL uses fewer channels for small messages.
    """
    if after is None:
        return None
    ran = after.without_channels() if isinstance(after, Choice) else after
    if rule is not None:
        return "as the rule says" if ran == rule.without_channels() else "not as the rule says"
    if before is None:
        return None
    then = before.without_channels() if isinstance(before, Choice) else before
    return "left alone" if ran == then else "changed"
