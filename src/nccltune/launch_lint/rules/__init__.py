# SPDX-License-Identifier: Apache-2.0
"""Rules for launch commands. Each rule checks a command as one launcher reads the command.

options.py      options that the launcher does not know, or that have no effect on NCCL
launchers.py    values of options; launchers inside launchers
containers.py   containers and sudo: GPUs, shared memory, variables that do not reach the program
misplaced.py    options on the wrong side of the program
arguments.py    arguments of nccl-tests that it refuses, ignores or misreads
torchrun.py     torchrun: processes, GPUs, rendezvous
serving.py      vLLM and SGLang: GPUs, and how nodes find each other
training.py     deepspeed, accelerate, and launchers of PyTorch below another launcher
slurm.py        Slurm: unused GPUs, environment that is not exported
placement.py    too few or too many processes, wrong nodes, missing GPUs or cores
variables.py    variables and values that NCCL does not know
nics.py         interfaces, NICs, GIDs and networks in the values of variables
environment.py  variables that only one node sees, or that have two values
settings.py     NCCL settings that contradict each other
network.py      settings of libfabric and of its plugin, which NCCL does not read itself
sizes.py        sizes that will not be measured
shape.py        the type of a rule
"""

from nccltune.launch_lint.rules import (
    arguments,
    containers,
    environment,
    launchers,
    misplaced,
    network,
    nics,
    options,
    placement,
    serving,
    settings,
    sizes,
    slurm,
    torchrun,
    training,
    variables,
)
from nccltune.launch_lint.rules.shape import rules_of

_MODULES = (
    *(options, launchers, containers, misplaced, arguments, torchrun, training, serving),
    *(slurm, placement, variables, nics, environment, settings, network, sizes),
)
RULES = tuple(rule for module in _MODULES for rule in rules_of(module))
"""All rules. Fixes are applied in this order: faults that make a command unreadable come first."""
