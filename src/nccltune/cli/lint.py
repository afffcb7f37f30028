# SPDX-License-Identifier: Apache-2.0
"""`nccltune lint`: check a configuration, topology, manifest, script or launch command."""

from typing import Any

import click

from nccltune.cli.options import option
from nccltune.cli.output import print_result, stdout
from nccltune.cli.verb import split_at_dashes, verb

EPILOG = """\b
Examples:
  nccltune lint studies/h200x4
  nccltune lint nodes/*.xml --json                 are all nodes alike?
  nccltune lint topo.xml graph.xml                 is the graph for this machine?
  nccltune lint 'mpirun -N 8 -n 2 all_reduce_perf -b 1G -e 10G -f 2 -g 1'
  nccltune lint job.sbatch mpijob.yaml
  nccltune lint --nodes 4 --gpus 4 -- srun -N 4 all_reduce_perf -g 4
"""


@verb(epilog=EPILOG)
@click.argument(
    "things",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    metavar="FILE|FOLDER|STUDY|'COMMAND'...|-- COMMAND...",
)
@click.option(
    "--kind",
    type=click.Choice(["configuration", "topology", "launch"]),
    help="What the files are  [default: by their content]",
)
@option("--nodes", more=" that a launched job gets.")
@option("--gpus", more="; a script's or manifest's own number comes first.  [default: 8]")
@option("--set", more=": hosts=a:8,b:8 are the hosts of a job whose command names none.")
@option(
    "--launcher",
    more=" that a command is for: openmpi, openmpi:5, hydra, slurm or torchrun  [default: each "
    "that it may be for]",
)
@click.option("--gpu-memory", metavar="SIZE", help="Memory of a GPU, such as 80G: checks -e.")
@click.option(
    "--here",
    is_flag=True,
    help="Also check that this machine has the GPUs and NICs that topology files name.",
)
def command(things: tuple[str, ...], kind: str | None, **options: Any) -> int:
    """Check files and commands, each by what its content shows it to be.

    A tuner configuration or a study: lines that cannot be read, gaps, overlaps, rules that never
    apply. Topology and graph files: links that NCCL does not know, NVLinks that lead nowhere, NICs
    out of reach, nodes that differ. A launch command, a script, a Kubernetes manifest or the output
    of nccl-tests: what is really started, and what is wrong with it. Nothing is started. Exit code
    1 for an error or a warning; notes alone are no reason.
    """
    from nccltune.app.lint import LintKind, LintRequest, lint
    from nccltune.cli.lint_screen import as_data, show

    named, words = split_at_dashes(things)
    of_kind = None if kind is None else LintKind(kind)
    linted = lint(LintRequest(named, command=words, kind=of_kind, **options))
    print_result(as_data(linted), show, stdout(), linted)
    return int(linted.is_bad)
