# SPDX-License-Identifier: Apache-2.0
"""A parsed launcher command: the input of rules, and what `fix` rewrites."""

from collections.abc import Iterator
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import Placement
from nccltune.launch.program import Program
from nccltune.launch_lint.misplaced import Misplaced
from nccltune.launch_lint.words import Word


class Option(NamedTuple):
    """An option of the launcher; `meaning` is that of `options.py`, None where it is unknown."""

    words: tuple[Word, ...]
    name: str
    values: tuple[str, ...]
    meaning: str | None

    @property
    def value(self) -> str:
        """Return its first value; empty without one."""
        return self.values[0] if self.values else ""


class LaunchCommand(NamedTuple):
    """A command with a launcher, in parts.

    `lead` are the words before the launcher (`VAR=x`, `sudo`), `end` is the `--` between options
    and program if there is one, and `tail` a pipe or redirection at the end.
    """

    lead: tuple[Word, ...]
    launcher: Word
    options: tuple[Option, ...]
    program: tuple[Word, ...]
    tail: str = ""
    end: tuple[Word, ...] = ()

    def all(self, meaning: str) -> list[Option]:
        """Return the options with this meaning, in order."""
        return [option for option in self.options if option.meaning == meaning]

    def last(self, meaning: str) -> Option | None:
        """Return the last option with this meaning, which counts; None without one."""
        found = self.all(meaning)
        return found[-1] if found else None

    @property
    def launchers(self) -> tuple[Word, ...]:
        """Return the launcher's word; empty if the program is started without a launcher."""
        return (self.launcher,) if self.launcher.text else ()

    @property
    def text(self) -> str:
        """Return the command as a line of shell."""
        words = [*self.lead, *self.launchers]
        for option in self.options:
            words += option.words
        line = " ".join(word.raw for word in (*words, *self.end, *self.program))
        return f"{line} {self.tail}" if self.tail else line


class CommandVariable(NamedTuple):
    """A variable that the command sets.

    `option` sets it; None if it is set before the launcher, or by the script, and thus for the
    launcher only. `value` None passes the value of the launcher's environment.
    """

    name: str
    value: str | None
    option: Option | None


class Host(NamedTuple):
    """A host and its slots."""

    name: str | None
    slots: int | None


class LaunchContext(NamedTuple):
    """What the command does not specify: from options, the script around it, or the manifest.

    - `nodes`: None if unknown.
    - `slots`: processes that a node takes; None for its number of GPUs.
    - `inherited`: options of the allocation (`#SBATCH`).
    - `exported`: variables that are set for the launcher.
    - `gpu_memory`: bytes of one GPU.
    """

    nodes: int | None = None
    hosts: tuple[str, ...] = ()
    gpus_per_node: int = 8
    slots: int | None = None
    inherited: tuple[Option, ...] = ()
    exported: tuple[tuple[str, str], ...] = ()
    gpu_memory: int | None = None


class Prediction(NamedTuple):
    """What a launcher does with a command: it starts `placement`, or `fails`, or it is `unknown`.

    `fails` and `unknown` are reasons in words. `hosts` are all hosts that it can use. `assumed` is
    a sentence about what was assumed.
    """

    placement: Placement | None
    hosts: tuple[Host, ...]
    fails: str | None = None
    unknown: str | None = None
    assumed: str | None = None


class View(NamedTuple):
    """The input of a rule: the command as one launcher reads it."""

    command: LaunchCommand
    flavor: Flavor
    site: LaunchContext
    program: Program | None
    prediction: Prediction
    misplaced: tuple[Misplaced, ...] = ()

    @property
    def gpus_per_process(self) -> int | None:
        """Return the GPUs that a process uses; None if unknown."""
        if self.flavor.launcher is Launcher.TORCHRUN:
            return 1
        return self.program.gpus if self.program is not None else None

    @property
    def variables(self) -> Iterator[CommandVariable]:
        """Yield every variable that the command sets, in order."""
        for name, value in self.site.exported:
            yield CommandVariable(name, value, None)
        for word in self.command.lead:
            name, sign, value = word.text.partition("=")
            if sign and name.isidentifier():
                yield CommandVariable(name, value, None)
        for option in self.command.options:
            if option.meaning == "env":
                if len(option.values) == 2:
                    yield CommandVariable(option.values[0], option.values[1], option)
                elif option.values:
                    name, sign, value = option.value.partition("=")
                    yield CommandVariable(name, value if sign else None, option)
            elif option.meaning == "export":
                for part in option.value.split(","):
                    name, sign, value = part.partition("=")
                    if sign:
                        yield CommandVariable(name, value, option)
            elif option.meaning == "mca" and option.value == "mca_base_env_list":
                for part in option.values[-1].split(";"):
                    name, sign, value = part.partition("=")
                    yield CommandVariable(name, value if sign else None, option)
