# SPDX-License-Identifier: Apache-2.0
"""The rules: each looks at a command as one launcher reads it."""

from collections.abc import Callable, Iterator

from nccltune.launch.lint.command import View
from nccltune.launch.lint.finding import Finding
from nccltune.launch.lint.rules import (
    arguments,
    environment,
    launchers,
    misplaced,
    options,
    placement,
    settings,
    sizes,
    slurm,
    torchrun,
    variables,
)

Rule = Callable[[View], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    *options.RULES,
    *launchers.RULES,
    *misplaced.RULES,
    *arguments.RULES,
    *torchrun.RULES,
    *slurm.RULES,
    *placement.RULES,
    *variables.RULES,
    *environment.RULES,
    *settings.RULES,
    *sizes.RULES,
)
"""What makes a command unreadable comes first: fixes are applied in this order."""
