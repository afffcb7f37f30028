# SPDX-License-Identifier: Apache-2.0
"""Put a command before every rule, for every launcher it may be for, and say what holds where."""

from collections.abc import Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.lint.command import Command, Prediction, Site, View
from nccltune.launch.lint.finding import Finding, Severity
from nccltune.launch.lint.mend import mended
from nccltune.launch.lint.options import OPENMPI_4, OPENMPI_5
from nccltune.launch.lint.placed import predict
from nccltune.launch.lint.read import read
from nccltune.launch.lint.rules import RULES
from nccltune.launch.lint.words import Line
from nccltune.launch.program import read_program

_ORDER = list(Severity)


class Held(NamedTuple):
    """A finding, and the launchers it holds for."""

    finding: Finding
    flavors: tuple[Flavor, ...]


class Verdict(NamedTuple):
    """What a command starts, by launcher, and what is wrong with it. `mended` is None where
    nothing can be mended by itself."""

    command: Command
    predictions: tuple[tuple[Prediction, tuple[Flavor, ...]], ...]
    findings: tuple[Held, ...]
    flavors: tuple[Flavor, ...]
    gpus: int | None
    mended: str | None

    @property
    def is_wrong(self) -> bool:
        """Whether there is more than notes."""
        return any(held.finding.severity is not Severity.NOTE for held in self.findings)


def check(line: Line, site: Site, wanted: Sequence[Flavor] = ()) -> Verdict:
    """The verdict on one command. Raises InputError where no launcher is in it."""
    commands = read(line, wanted)
    views = {flavor: _view(command, flavor, site) for flavor, command in commands.items()}
    found: dict[Finding, list[Flavor]] = {}
    said: dict[tuple[str, str], Finding] = {}
    for flavor, view in views.items():
        for rule in RULES:
            for finding in rule(view):
                same = said.setdefault((finding.id, finding.message), finding)
                flavors = found.setdefault(same, [])
                if flavor not in flavors:
                    flavors.append(flavor)
    held = [Held(finding, tuple(flavors)) for finding, flavors in found.items()]
    held.sort(key=lambda one: _ORDER.index(one.finding.severity))
    first, view = next(iter(views.items()))
    text = None
    bad = [one for one in held if one.finding.severity is not Severity.NOTE]
    if any(one.finding.edits for one in bad):
        text = _again(view.command, first, site)
    return Verdict(
        view.command,
        _predictions(views),
        tuple(held),
        tuple(views),
        view.program.gpus if view.program is not None else None,
        text,
    )


def _view(command: Command, flavor: Flavor, site: Site) -> View:
    program = read_program([word.text for word in command.program])
    gpus = program.gpus if program is not None else None
    return View(command, flavor, site, program, predict(command, flavor, site, gpus))


def _again(command: Command, flavor: Flavor, site: Site) -> str | None:
    """Mend, look again and mend what is left: one fault can hide another."""
    before = command.text
    for _ in range(4):
        view = _view(command, flavor, site)
        edits = [
            edit
            for rule in RULES
            for finding in rule(view)
            if finding.severity is not Severity.NOTE
            for edit in finding.edits
        ]
        if not edits:
            break
        changed = mended(command, edits)
        if changed.text == command.text:
            break
        words = (*changed.lead, changed.launcher)
        for option in changed.options:
            words += option.words
        command = read(Line((*words, *changed.end, *changed.program), changed.tail), (flavor,))[
            flavor
        ]
    text = command.text
    return text if text != before else None


def _predictions(
    views: dict[Flavor, View],
) -> tuple[tuple[Prediction, tuple[Flavor, ...]], ...]:
    grouped: dict[tuple[object, ...], tuple[Prediction, list[Flavor]]] = {}
    for flavor, view in views.items():
        one = view.prediction
        key = (one.placement, one.fails, one.unknown)
        grouped.setdefault(key, (one, []))[1].append(flavor)
    return tuple((one, tuple(flavors)) for one, flavors in grouped.values())


def names(flavors: Sequence[Flavor]) -> str:
    """`Open MPI 4.1 and 5.0`, `hydra`."""
    if OPENMPI_4 in flavors and OPENMPI_5 in flavors:
        rest = [flavor.words for flavor in flavors if flavor.launcher is not Launcher.OPENMPI]
        return ", ".join(["Open MPI 4.1 and 5.0", *rest])
    return ", ".join(flavor.words for flavor in flavors)
