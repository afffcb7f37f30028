# SPDX-License-Identifier: Apache-2.0
"""The rules: each looks at a command as one launcher reads it."""

from collections.abc import Callable, Iterator

from nccltune.launch.lint.command import View
from nccltune.launch.lint.finding import Finding
from nccltune.launch.lint.rules import arguments, environment, options, placement, settings, sizes

Rule = Callable[[View], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    *options.RULES,
    *placement.RULES,
    *environment.RULES,
    *settings.RULES,
    *arguments.RULES,
    *sizes.RULES,
)
"""In the order of a command line: launcher, placement, environment, program."""
