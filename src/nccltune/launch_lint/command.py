# SPDX-License-Identifier: Apache-2.0
"""A parsed launch command. Rules read it, and `fix.py` changes it."""

from collections.abc import Iterator
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.placement import Placement
from nccltune.launch.program import Program
from nccltune.launch_lint.misplaced import Misplaced
from nccltune.launch_lint.shell import ShellScope
from nccltune.launch_lint.words import Word

_ONE_GPU = (
    *(Launcher.TORCHRUN, Launcher.DEEPSPEED, Launcher.ACCELERATE),
    *(Launcher.VLLM, Launcher.SGLANG),
)
UNLISTED = "unlisted"
"""Meaning of a long option that no table has, but that a SPANK plugin may add to Slurm."""
UNKNOWN_OPTIONS = "unknown_options"
"""Meaning of a variable before the program whose options are not known."""


ELIDED = "elided"
"""Meaning of `...` between the options: some are left out in the text."""
OF_NODE = ("SLURM_NODEID", "SLURM_PROCID")
"""Variables that differ between the nodes of a job, and are 0 in the batch script."""


class Option(NamedTuple):
    """An option of the launcher. `meaning` is from the tables in `options.py`.

    `meaning` is None if the launcher does not know the option, and "" if no rule uses the option.
    It is `UNLISTED` for a long option of Slurm that no table has.
    """

    words: tuple[Word, ...]
    name: str
    values: tuple[str, ...]
    meaning: str | None

    @property
    def value(self) -> str:
        """Return the option's first value, or "" if it has none."""
        return self.values[0] if self.values else ""

    @property
    def text(self) -> str:
        """Return the option as it is written, with its values."""
        return " ".join(word.raw for word in self.words)


class LaunchCommand(NamedTuple):
    """A command with a launcher, in parts.

    - `lead`: the words before the launcher (`VAR=x`, `sudo`)
    - `end`: the word `--` between options and program, if the command has it
    - `tail`: a pipe or redirection at the end
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
        """Return the last option with this meaning, which overrides earlier ones, or None."""
        found = self.all(meaning)
        return found[-1] if found else None

    @property
    def hidden(self) -> str | None:
        """Return why some options of the launcher are not known: they are in `$OPTIONS`."""
        names = ", ".join(option.name for option in self.all(UNKNOWN_OPTIONS))
        return f"the options in {names} are not known here" if names else None

    @property
    def launchers(self) -> tuple[Word, ...]:
        """Return the launcher's word, or no word if the program is started without a launcher."""
        return (self.launcher,) if self.launcher.text else ()

    @property
    def words(self) -> tuple[Word, ...]:
        """Return all words of the command, in order."""
        options = (word for option in self.options for word in option.words)
        return (*self.lead, *self.launchers, *options, *self.end, *self.program)

    @property
    def text(self) -> str:
        """Return the command as a shell line."""
        line = " ".join(word.raw for word in self.words)
        return f"{line} {self.tail}" if self.tail else line


class CommandVariable(NamedTuple):
    """A variable that the command sets.

    `option` is the launcher's option that sets the variable for all processes. It is None if the
    variable is set before the launcher or by the script: then only the launcher gets the variable.
    `value` is None if the option passes on the value of the launcher's environment.
    """

    name: str
    value: str | None
    option: Option | None


class Host(NamedTuple):
    """A host and its slots. A name or number that the command does not give is None."""

    name: str | None
    slots: int | None


class LaunchContext(NamedTuple):
    """Nodes and settings that are not part of the command itself.

    They come from options of nccltune, the script around the command, or the manifest.

    - `nodes`: number of nodes, None if unknown.
    - `gpus`: GPUs of a node, None if unknown: `gpus_per_node` then assumes 8.
    - `given_gpus`, `gpus_from`: `gpus` of the option --gpus; what else states `gpus`.
    - `slots`: slots of a node. None means one for each GPU.
    - `inherited`: options of the allocation (`#SBATCH`).
    - `exported`: variables that are set for the launcher.
    - `gpu_memory`: memory of one GPU in bytes, None if unknown.
    - `workers`: lines of the hostfile that the operator of an MPIJob writes.
    - `part`: which one it is of several programs, `2 of 3`, in `mpirun -n 1 a : -n 1 b : c`.
    - `ran`: whether the text shows results, so that the command did start.
    - `several`: whether the text speaks of several nodes.
    - `named_nodes`: the numbers of nodes that the text names.
    - `by_node`: settings of NCCL that the text gives its nodes with different values.
    - `boxed`: variables that `docker run` of the text gives a container, for `docker exec`.
    - `rank`: a launcher's variable that a script without one reads, so that it is started by one.
    - `around`, `outside`: the words before the shell that runs the command, such as `docker run`,
      and the variables that are set for them.
    - `service`: the service of a Compose file that starts the command, "" if none does.
    - `in_swarm`: whether `docker stack deploy` starts that service.
    - `folder`: the folder of the file with the command, "" if there is none.
    - `files`: texts of host files that the text around the command shows, by their names.
    - `on_first`: the scheduler whose batch script runs the line: on its first node only. "" else.
    - `not_passed`: variables of the script that ssh does not pass to the node of the line.
    - `modules`: the modules that the script loads.
    - `spreads`: the number of the script's lines that start anything on other nodes.
    - `on_each`: who runs the same line on each node: `SkyPilot runs`. "" if none does.
    - `is_begun`: whether the command is the value of a variable, behind which more may follow.
    - `unseen`: files that the script reads with `source` and that are not here.
    - `scope`, `assumed`: what the shell knows at the command, and what was assumed to expand it.
    """

    nodes: int | None = None
    hosts: tuple[str, ...] = ()
    gpus: int | None = None
    slots: int | None = None
    inherited: tuple[Option, ...] = ()
    exported: tuple[tuple[str, str], ...] = ()
    gpu_memory: int | None = None
    workers: int | None = None
    several: bool = False
    named_nodes: tuple[int, ...] = ()
    by_node: tuple[str, ...] = ()
    boxed: tuple[str, ...] = ()
    rank: str = ""
    scope: ShellScope | None = None
    assumed: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    outside: tuple[tuple[str, str], ...] = ()
    ran: bool = False
    part: str = ""
    service: str = ""
    in_swarm: bool = False
    folder: str = ""
    files: tuple[tuple[str, str], ...] = ()
    unseen: tuple[str, ...] = ()
    is_begun: bool = False
    on_first: str = ""
    on_each: str = ""
    not_passed: tuple[tuple[str, str], ...] = ()
    modules: tuple[str, ...] = ()
    spreads: int = 0
    given_gpus: int | None = None
    gpus_from: str = "the text"

    def asked(self, meaning: str) -> Option | None:
        """Return the last option of the allocation with this meaning, or None."""
        return next((o for o in reversed(self.inherited) if o.meaning == meaning), None)

    @property
    def in_job(self) -> bool:
        """Return whether the nodes may be those of a job, or results show that they sufficed."""
        return bool(self.inherited or self.on_first or self.slots or self.workers or self.ran)

    @property
    def gpus_per_node(self) -> int:
        """Return the number of GPUs of a node, assumed if it is unknown."""
        return 8 if self.gpus is None else self.gpus

    @property
    def gpus_source(self) -> str:
        """Return where the number of GPUs of a node is from, and the option if it is assumed."""
        if self.gpus is None:
            return "assumed: --gpus"
        return "--gpus" if self.gpus == self.given_gpus else self.gpus_from


class InnerLaunch(NamedTuple):
    """A launcher of PyTorch that another launcher starts: `srun torchrun ...`.

    - `nodes`, `each`: nodes that it expects and processes that it starts on one, None if unknown.
    - `why`: the reason why they are unknown.
    - `on_node`: whether a shell on the node expands its variables.
    """

    flavor: Flavor
    command: LaunchCommand
    nodes: int | None
    each: int | None
    why: str | None
    on_node: bool = False

    @property
    def name(self) -> str:
        """Return the name of the launcher."""
        return self.flavor.launcher.value


class Prediction(NamedTuple):
    """Prediction of what a launcher does with a command.

    One of three is set: `placement` (the processes that start), `fails` (why the launcher fails) or
    `unknown` (why there is no prediction). With `unknown`, `processes` is their number where only
    their nodes are unknown. `hosts` are all hosts that the launcher can use.
    `assumed` is a sentence that states an assumption about the hosts. `gpus` is the number of GPUs
    that the launcher gives to a process, None if it leaves that open. `inner` is the
    launcher that each process is. `is_inner` tells that it is the prediction for an mpirun that the
    command's only process is. `awaited` is the number of nodes that a launcher of PyTorch waits for
    on the only node of several that it is started on: 1 for a job of one node, 0 if it runs on all.
    """

    placement: Placement | None
    hosts: tuple[Host, ...]
    fails: str | None = None
    unknown: str | None = None
    assumed: str | None = None
    gpus: int | None = None
    inner: InnerLaunch | None = None
    processes: int | None = None
    is_inner: bool = False
    awaited: int = 0


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
        """Return the number of GPUs that a process uses, or None if unknown."""
        if self.flavor.launcher in _ONE_GPU:
            return 1
        if self.prediction.inner is not None:
            return self.prediction.inner.each
        return self.program.gpus if self.program is not None else self.prediction.gpus

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
