# SPDX-License-Identifier: Apache-2.0
"""The commands of a text, as `lint` judges them."""

from nccltune.launch_lint.check import LaunchCheck, check_all
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_text
from nccltune.launch_lint.starts import starts
from nccltune.model.finding import Severity


def checked(text: str, site: LaunchContext | None = None) -> list[LaunchCheck]:
    return check_all(from_text(text, site or LaunchContext()))


def only(text: str, site: LaunchContext | None = None) -> LaunchCheck:
    (one,) = checked(text, site)
    return one


def said(one: LaunchCheck) -> str:
    return starts(one.predictions[0][0], one.gpus)


def ids(one: LaunchCheck) -> set[str]:
    return {held.finding.id for held in one.findings}


def bad(one: LaunchCheck) -> set[str]:
    return {h.finding.id for h in one.findings if h.finding.severity is not Severity.NOTE}


def processes(one: LaunchCheck) -> int | None:
    start = one.predictions[0][0]
    return start.placement.processes if start.placement else start.processes
